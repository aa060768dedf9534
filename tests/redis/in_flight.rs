//! Permits on Redis: counted by the server's clock over all processes, renewed while they are held, and
//! free again after the process that held them.

use std::{
    collections::{HashMap, HashSet},
    io::{BufRead, BufReader, Write},
    net::TcpStream,
    process::{Child, Command},
    sync::mpsc::{self, Receiver},
    thread,
    time::{Duration, Instant},
};

use harness::{Cluster, RedisServer, until, wait_for};
use ratelimit_runtime::{Decision, Limiter, OnStoreError, Policy, RateLimitError};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const UPLOAD: Policy = Policy::concurrency_limit("upload", 2);
/// Renewed each 200 ms.
const BRIEF: Policy = UPLOAD.named("brief").concurrency_timeout(Duration::from_millis(600));

fn permits(policy: &Policy, caller: &str) -> String {
    let start = "ratelimit:sliding_window:";
    format!("{start}{{{start}{}/{caller}}}:c", policy.name())
}

fn is_busy(answer: &Result<Decision, RateLimitError>) -> bool {
    matches!(answer, Err(RateLimitError::Busy(_)))
}

async fn patient(server: &RedisServer) -> Limiter {
    let builder = Limiter::builder().deadline(10 * SECOND).on_store_error(OnStoreError::Deny);
    builder.connect(&server.url()).await.unwrap()
}

async fn until_held(server: &RedisServer, policy: &Policy, held: u32) {
    let key = permits(policy, "alice");
    until("the permits", async || {
        (server.command::<u32>(&format!("ZCARD {key}")) == held).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_call_is_two_commands_and_a_call_without_concurrency_one() {
    let server = RedisServer::start();
    let limiter = patient(&server).await;
    let both = Policy::fixed_window("both", MINUTE, 1_000).concurrency(2);
    for policy in [&UPLOAD, &both] {
        drop(limiter.check(policy, "alice").await.unwrap());
    }
    limiter.flush().await.unwrap();
    let before = server.calls();
    for _ in 0..20 {
        drop(limiter.check(&UPLOAD, "alice").await.unwrap());
        drop(limiter.check(&both, "alice").await.unwrap());
    }
    limiter.flush().await.unwrap();
    let after = server.calls();
    let calls = |name| after[name] - before[name];
    // What a script calls is counted as well: it releases nothing.
    assert_eq!((calls("evalsha"), calls("zrem")), (40, 40));
    assert!(!after.contains_key("zremrangebyscore"), "swept although never full");
    let plain = Policy::fixed_window("plain", MINUTE, 10);
    limiter.check(&plain, "alice").await.unwrap();
    limiter.flush().await.unwrap();
    assert_eq!(server.calls()["zrem"], after["zrem"]);
}

#[tokio::test]
async fn the_permits_are_one_sorted_set_with_a_ttl_and_gone_with_the_last_call() {
    let server = RedisServer::start();
    let limiter = patient(&server).await;
    let key = permits(&UPLOAD, "alice");
    let call = limiter.check(&UPLOAD, "alice").await.unwrap();
    assert_eq!(server.keys(), [&*key]);
    let (now, _): (u64, u64) = server.command("TIME");
    let (_, deadline): (String, u64) = server.command(&format!("ZRANGE {key} 0 0 WITHSCORES"));
    assert!((29..=31).contains(&(deadline / 1_000_000 - now)), "{deadline}");
    let ttl: i64 = server.command(&format!("PTTL {key}"));
    assert!((29_000..=31_000).contains(&ttl), "{ttl}");
    drop(call);
    limiter.flush().await.unwrap();
    assert!(server.keys().is_empty());
}

#[tokio::test]
async fn a_body_longer_than_the_timeout_keeps_its_permit_by_few_renewals() {
    let server = RedisServer::start();
    let limiter = patient(&server).await;
    let calls = [
        limiter.check(&BRIEF, "alice").await.unwrap(),
        limiter.check(&BRIEF, "alice").await.unwrap(),
    ];
    let before = server.calls().get("evalsha").copied().unwrap_or_default();
    let start = Instant::now();
    while start.elapsed() < 3 * SECOND {
        assert!(calls.iter().all(Decision::is_held));
        let held: u32 = server.command(&format!("ZCARD {}", permits(&BRIEF, "alice")));
        assert_eq!(held, 2);
        tokio::time::sleep(SECOND / 20).await;
    }
    // Both permits by one command, each 200 ms at the most.
    let renewals = server.calls()["evalsha"] - before;
    assert!((4..=16).contains(&renewals), "{renewals}");
    drop(calls);
    until_held(&server, &BRIEF, 0).await;
    // The task has ended.
    let after = server.calls()["evalsha"];
    tokio::time::sleep(SECOND).await;
    assert_eq!(server.calls()["evalsha"], after);
}

#[tokio::test]
async fn after_a_loss_of_all_state_holders_take_their_places_again_as_far_as_there_are_any() {
    let server = RedisServer::start();
    let limiter = patient(&server).await;
    let calls = [
        limiter.check(&BRIEF, "alice").await.unwrap(),
        limiter.check(&BRIEF, "alice").await.unwrap(),
    ];
    // All is lost, and another call takes a place before the next renewal.
    let (deadline, _): (u64, u64) = server.command("TIME");
    let key = permits(&BRIEF, "alice");
    let taken = (deadline + 600) * 1_000_000;
    let mut lost = redis::pipe();
    lost.atomic().cmd("FLUSHALL").cmd("ZADD").arg(&key).arg(taken).arg("other");
    lost.exec(&mut server.connection()).unwrap();
    until("a lost permit", async || {
        (calls.iter().filter(|call| call.is_held()).count() == 1).then_some(())
    })
    .await;
    until_held(&server, &BRIEF, 2).await;
    assert!(is_busy(&limiter.check(&BRIEF, "alice").await));
    drop(calls);
    until_held(&server, &BRIEF, 1).await;
}

#[tokio::test]
async fn after_a_restart_the_calls_in_flight_are_counted_again() {
    let mut server = RedisServer::start();
    let limiter = patient(&server).await;
    let calls = [
        limiter.check(&BRIEF, "alice").await.unwrap(),
        limiter.check(&BRIEF, "alice").await.unwrap(),
    ];
    server.restart();
    until_held(&server, &BRIEF, 2).await;
    until("the permits", async || calls.iter().all(Decision::is_held).then_some(())).await;
    assert!(is_busy(&limiter.check(&BRIEF, "alice").await));
    drop(calls);
    until_held(&server, &BRIEF, 0).await;
}

#[tokio::test]
async fn a_permit_that_expired_is_free_and_its_holder_is_told() {
    let server = RedisServer::start();
    let (limiter, other) = (patient(&server).await, patient(&server).await);
    let calls = [
        limiter.check(&BRIEF, "alice").await.unwrap(),
        limiter.check(&BRIEF, "alice").await.unwrap(),
    ];
    let key = permits(&BRIEF, "alice");
    // As if no renewal had come for a long time.
    let ids: Vec<String> = server.command(&format!("ZRANGE {key} 0 -1"));
    for id in ids {
        let () = server.command(&format!("ZADD {key} 1 {id}"));
    }
    let taken = [
        until("a permit", async || other.check(&BRIEF, "alice").await.ok()).await,
        until("a permit", async || other.check(&BRIEF, "alice").await.ok()).await,
    ];
    until("the loss", async || (!calls.iter().any(Decision::is_held)).then_some(())).await;
    assert!(taken.iter().all(Decision::is_held));
    // A holder without a place takes one as soon as it is free.
    drop(taken);
    until("places again", async || calls.iter().all(Decision::is_held).then_some(())).await;
}

#[tokio::test]
async fn without_redis_the_bound_is_that_of_the_process_and_starts_from_its_permits() {
    let mut server = RedisServer::start();
    let limiter = harness::limiter_on(&server.url(), OnStoreError::Local).await;
    let held = limiter.check(&UPLOAD, "alice").await.unwrap();
    server.kill();
    let second = limiter.check(&UPLOAD, "alice").await.unwrap();
    assert!(second.is_held());
    assert!(is_busy(&limiter.check(&UPLOAD, "alice").await));
    drop(held);
    let third = limiter.check(&UPLOAD, "alice").await.unwrap();
    assert!(is_busy(&limiter.check(&UPLOAD, "alice").await));
    drop((second, third));
    assert!(limiter.check(&UPLOAD, "alice").await.is_ok());
}

#[tokio::test]
async fn a_lost_reply_costs_no_permit() {
    let server = RedisServer::start();
    let limiter = harness::limiter_on(&server.url(), OnStoreError::Deny).await;
    limiter.check(&UPLOAD, "warm").await.map(drop).unwrap();
    let () = server.command("CLIENT PAUSE 300 ALL");
    assert!(limiter.check(&UPLOAD, "alice").await.is_err());
    let mut check = std::pin::pin!(limiter.check(&UPLOAD, "alice").into_future());
    let cancelled = tokio::time::timeout(SECOND / 50, &mut check).await;
    assert!(cancelled.is_err() || cancelled.is_ok_and(|it| it.is_err()));
    until("the server", async || {
        let call = limiter.check(&UPLOAD, "probe").await;
        call.ok().map(drop)
    })
    .await;
    until_held(&server, &UPLOAD, 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_a_cluster_both_keys_have_one_slot() {
    let cluster = Cluster::without_replicas();
    let limiter = Limiter::builder()
        .deadline(10 * SECOND)
        .on_store_error(OnStoreError::Deny)
        .connect(&cluster.url())
        .await
        .unwrap();
    let both = Policy::sliding_window("both", MINUTE, 100).concurrency(2);
    let mut nodes = HashSet::new();
    for caller in 0..24 {
        let caller = caller.to_string();
        let key = format!("ratelimit:sliding_window:both/{caller}");
        nodes.insert(cluster.home(&key));
        let calls = [
            limiter.check(&both, &*caller).await.unwrap(),
            limiter.check(&both, &*caller).await.unwrap(),
        ];
        assert!(is_busy(&limiter.check(&both, &*caller).await));
        drop(calls);
        until("a free permit", async || limiter.check(&both, &*caller).await.ok()).await;
    }
    assert_eq!(nodes.len(), 3);
}

/// The commands on the permits of a server, each with the microsecond of the server's clock.
struct Monitor(Receiver<String>);

impl Monitor {
    fn start(server: &RedisServer) -> Self {
        let mut stream = TcpStream::connect(("127.0.0.1", server.port())).unwrap();
        stream.write_all(b"MONITOR\r\n").unwrap();
        let mut lines = BufReader::new(stream).lines();
        assert_eq!(lines.next().unwrap().unwrap(), "+OK");
        let (sender, receiver) = mpsc::channel();
        thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Self(receiver)
    }

    /// Replays the commands that have arrived. Asserts that never more permits than `most` were unexpired. Returns how many were taken, and the
    /// most at one time.
    fn replay(&self, key: &str, most: usize) -> (usize, usize) {
        let (mut held, mut taken, mut peak) = (HashMap::<String, u64>::new(), 0, 0);
        for line in self.0.try_iter() {
            let Some((before, command)) = line.split_once("] ") else { continue };
            let words: Vec<_> = command.split('"').filter(|word| *word != " ").collect();
            let words: Vec<_> = words.into_iter().filter(|word| !word.is_empty()).collect();
            if words.get(1) != Some(&key) {
                continue;
            }
            let time = before.split(' ').next().unwrap().trim_start_matches('+');
            let now: u64 = time.replace('.', "").parse().unwrap();
            match &words[..] {
                ["ZADD", _, "XX", "CH", renewed @ ..] => {
                    for pair in renewed.chunks(2) {
                        if let Some(deadline) = held.get_mut(pair[1]) {
                            *deadline = pair[0].parse().unwrap();
                        }
                    }
                }
                ["ZADD", _, "XX", deadline, id] => {
                    if let Some(it) = held.get_mut(*id) {
                        *it = deadline.parse().unwrap();
                    }
                }
                ["ZADD", _, deadline, id] => {
                    taken += 1;
                    held.insert((*id).to_owned(), deadline.parse().unwrap());
                }
                ["ZREM", _, id] => drop(held.remove(*id)),
                ["ZREMRANGEBYSCORE", _, _, until] => {
                    let until: u64 = until.parse().unwrap();
                    held.retain(|_, deadline| *deadline > until);
                }
                _ => continue,
            }
            let unexpired = held.values().filter(|deadline| **deadline > now).count();
            assert!(unexpired <= most, "{unexpired} at {now}: {line}");
            peak = peak.max(unexpired);
        }
        (taken, peak)
    }
}

struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn process(server: &RedisServer) -> Killed {
    let arguments = [&server.url(), "8", "5", "600"];
    let process = Command::new(env!("CARGO_BIN_EXE_in_flight")).args(arguments).spawn();
    Killed(process.expect("the process starts"))
}

#[test]
fn four_processes_never_hold_more_and_a_killed_ones_permits_are_free_after_the_timeout() {
    let server = RedisServer::start();
    let monitor = Monitor::start(&server);
    let key = permits(&Policy::concurrency_limit("load", 5), "one");
    let mut processes: Vec<_> = (0..4).map(|_| process(&server)).collect();
    let held = || server.command::<Vec<String>>(&format!("ZRANGE {key} 0 -1"));
    for _ in 0..3 {
        thread::sleep(SECOND);
        drop(processes.remove(0));
        processes.push(process(&server));
    }
    thread::sleep(SECOND);
    let before: HashSet<String> = held().into_iter().collect();
    processes.clear();
    let killed = Instant::now();
    // Nobody sweeps: what is left expires.
    let (left, _): (u64, u64) = server.command("TIME");
    wait_for("the permits of the dead", || {
        let alive: u32 = server.command(&format!("ZCOUNT {key} {} +inf", (left + 1) * 1_000_000));
        (alive == 0 || killed.elapsed() > SECOND).then_some(())
    });
    thread::sleep(Duration::from_millis(700).saturating_sub(killed.elapsed()));
    let mut last = process(&server);
    wait_for("permits of another process", || {
        let now: HashSet<String> = held().into_iter().collect();
        (!now.is_empty() && now.is_disjoint(&before)).then_some(())
    });
    let _ = last.0.kill();
    drop(last);
    thread::sleep(SECOND / 10);
    let (taken, peak) = monitor.replay(&key, 5);
    assert!(taken > 100 && peak == 5, "{taken} taken, {peak} at one time");
    println!(
        "in flight: {taken} permits taken by five processes, four of which were killed; at most {peak} of 5 unexpired at one time"
    );
}
