//! Settles that are not awaited reach Redis once, whatever happens on the way.

use std::{
    io::{BufRead, BufReader},
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use harness::{Cluster, Lines, Network, Proxy, RedisServer, listen, until, until_decided};
use ratelimit_runtime::{Decision, Limiter, OnStoreError, Policy};
use tokio::runtime::Builder;

const HOUR: Duration = Duration::from_secs(3_600);
const MONTH: Duration = Duration::from_secs(30 * 86_400);
const COUNTER: Policy = Policy::sliding_counter("counter", MONTH, 100);
const WINDOW: Policy = Policy::fixed_window("window", HOUR, 100);
const BUCKET: Policy = Policy::token_bucket("bucket", HOUR, 100);
const LOG: Policy = Policy::sliding_window("log", HOUR, 100);
const ALL: [Policy; 4] = [COUNTER, WINDOW, BUCKET, LOG];

async fn limiter(url: &str) -> Limiter {
    harness::limiter_on(url, OnStoreError::Deny).await
}

async fn take(limiter: &Limiter, policy: &Policy, cost: u32) -> Decision {
    limiter.check(policy, "alice").cost(cost).await.unwrap()
}

async fn left(limiter: &Limiter, policy: &Policy) -> u32 {
    limiter.peek(policy, "alice").cost(0).await.unwrap().remaining()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn settles_are_one_command_each_and_need_no_flush() {
    let server = RedisServer::start();
    let limiter = harness::patient(&server.url()).await;
    for policy in &ALL {
        let mut decisions = Vec::new();
        for _ in 0..50 {
            decisions.push(take(&limiter, policy, 2).await);
        }
        let scripts = || ["eval", "evalsha"].map(|it| server.calls().remove(it).unwrap_or(0));
        let commands = || scripts().iter().sum::<u64>();
        let before = commands();
        for (index, decision) in decisions.iter().enumerate() {
            decision.settle(if index % 2 == 0 { 1 } else { 2 });
        }
        // Half of them change nothing, and are not sent.
        until("the settles", async || (commands() >= before + 25).then_some(())).await;
        limiter.flush().await.unwrap();
        assert_eq!(commands() - before, 25, "{policy:?}");
        assert_eq!(left(&limiter, policy).await, 25, "{policy:?}");
    }
}

/// The keys of a settle have one slot, also under a prefix with a slot of its own.
#[tokio::test]
async fn settles_find_their_shard_of_a_cluster() {
    let cluster = Cluster::without_replicas();
    for prefix in ["shop:", "{shop}:"] {
        let builder = Limiter::builder().prefix(prefix).deadline(Duration::from_secs(10));
        let builder = builder.on_store_error(OnStoreError::Deny);
        let limiter = builder.connect(&cluster.url()).await.unwrap();
        for policy in &ALL {
            for caller in 0..12 {
                let decision = limiter.check(policy, caller).cost(5).await.unwrap();
                if caller % 2 == 0 {
                    limiter.settle(&decision, 2).await.unwrap();
                } else {
                    decision.settle(2);
                }
            }
            limiter.flush().await.unwrap();
            for caller in 0..12 {
                let peeked = limiter.peek(policy, caller).cost(0).await.unwrap();
                assert_eq!(peeked.remaining(), 98, "{prefix} {caller} {policy:?}");
            }
        }
    }
}

/// A settle is applied although its reply is lost, and the repetition changes nothing more.
#[tokio::test]
async fn a_settle_whose_reply_is_lost_changes_the_count_once() {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.port());
    let limiter = limiter(&proxy.url()).await;
    let seed = fastrand::u64(..);
    let mut random = fastrand::Rng::with_seed(seed);
    for policy in &ALL {
        let mut expected = 100;
        for round in 0..20 {
            let decision = take(&limiter, policy, 3).await;
            let actual = if *policy == LOG { 1 } else { random.u32(1..6) };
            expected -= actual;
            proxy.set(Network::ResetsAfter(random.usize(..12)));
            decision.settle(actual);
            until("the settle", async || limiter.flush().await.ok()).await;
            proxy.heal();
            until_decided(&limiter).await;
            assert_eq!(left(&limiter, policy).await, expected, "{seed} {round} {policy:?}");
        }
    }
}

/// Redis is away when the calls end, and has kept its state.
#[tokio::test]
async fn settles_wait_for_redis() {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.port());
    let limiter = limiter(&proxy.url()).await;
    let mut decisions = Vec::new();
    for policy in &ALL {
        for _ in 0..5 {
            decisions.push(take(&limiter, policy, 3).await);
        }
    }
    proxy.set(Network::Swallows);
    for decision in &decisions {
        decision.settle(1);
    }
    let unsent = limiter.flush().await.unwrap_err();
    assert_eq!(unsent.unsent(), decisions.len(), "{unsent}");
    proxy.heal();
    until("the settles", async || limiter.flush().await.ok()).await;
    until_decided(&limiter).await;
    for policy in &ALL {
        assert_eq!(left(&limiter, policy).await, 95, "{policy:?}");
    }
}

/// Redis comes back without its state: nothing is given back to calls of another life.
#[tokio::test]
async fn a_settle_of_a_lost_charge_changes_nothing() {
    let mut server = RedisServer::start();
    let limiter = limiter(&server.url()).await;
    let mut decisions = Vec::new();
    for policy in &ALL {
        decisions.push(take(&limiter, policy, 3).await);
    }
    server.kill();
    for decision in &decisions {
        decision.settle(0);
    }
    server.restart();
    until_decided(&limiter).await;
    for policy in &ALL {
        take(&limiter, policy, 5).await;
    }
    until("the settles", async || limiter.flush().await.ok()).await;
    for policy in &ALL {
        assert_eq!(left(&limiter, policy).await, 95, "{policy:?}");
    }
}

/// Without Redis the embedded store decides, and settles its own calls at once.
#[tokio::test]
async fn local_decisions_are_settled_locally() {
    let mut server = RedisServer::start();
    let limiter = harness::limiter_on(&server.url(), OnStoreError::Local).await;
    server.kill();
    for policy in &[COUNTER, WINDOW, BUCKET] {
        let (less, more) = (take(&limiter, policy, 3).await, take(&limiter, policy, 3).await);
        less.settle(1);
        more.settle(10);
        assert_eq!(left(&limiter, policy).await, 89, "{policy:?}");
    }
    limiter.flush().await.unwrap();
}

#[test]
fn a_settle_of_an_ended_runtime_is_sent_from_another() {
    let server = RedisServer::start();
    let (main, other) = (runtime(), runtime());
    let limiter = main.block_on(limiter(&server.url()));
    // On a runtime that ends before the command is sent.
    let decision = main.block_on(take(&limiter, &WINDOW, 3));
    other.block_on(async { decision.settle(1) });
    drop(other);
    // On no runtime at all.
    let decision = main.block_on(take(&limiter, &BUCKET, 3));
    thread::scope(|threads| threads.spawn(|| drop(decision.meter())).join().unwrap());
    main.block_on(limiter.flush()).unwrap();
    assert_eq!(main.block_on(left(&limiter, &WINDOW)), 99);
    assert_eq!(main.block_on(left(&limiter, &BUCKET)), 100);
}

/// A value of another type loses the settles of its key, and no others.
#[test]
fn settles_behind_those_of_a_value_of_another_type_are_sent() {
    let server = RedisServer::start();
    let main = runtime();
    let limiter = main.block_on(harness::patient(&server.url()));
    let (decisions, last) = main.block_on(async {
        let mut decisions = Vec::new();
        for _ in 0..70 {
            decisions.push(take(&limiter, &WINDOW, 1).await);
        }
        (decisions, take(&limiter, &BUCKET, 3).await)
    });
    let key = server.keys().into_iter().find(|key| key.contains("window")).unwrap();
    let () = server.command(&format!("SET {key} text"));
    // On no runtime, so that one flush finds all of them, in batches.
    for decision in &decisions {
        decision.settle(0);
    }
    last.settle(1);
    assert_eq!(main.block_on(limiter.flush()).unwrap_err().unsent(), 70);
    assert_eq!(main.block_on(left(&limiter, &BUCKET)), 99);
}

/// A node that is dead holds up what is for another one.
#[tokio::test]
async fn settles_behind_those_of_a_dead_node_are_sent() {
    let mut cluster = Cluster::without_replicas();
    let limiter = limiter(&cluster.url()).await;
    let home = |caller: &u32| cluster.home(&format!("ratelimit:sliding_window:log/{caller}"));
    let of_node =
        |node| (0..99).find(|caller| home(caller) == node).expect("each node has callers");
    let (dead, healthy) = (of_node(1), of_node(0));
    let mut decisions = Vec::new();
    for _ in 0..100 {
        decisions.push(limiter.check(&LOG, dead).await.unwrap());
    }
    let last = limiter.check(&LOG, healthy).await.unwrap();
    cluster.nodes[1].kill();
    // From the first one that waits on, all others wait behind it.
    decisions[0].settle(0);
    assert_eq!(limiter.flush().await.unwrap_err().unsent(), 1);
    decisions[1..].iter().for_each(|decision| decision.settle(0));
    last.settle(0);
    assert_eq!(limiter.flush().await.unwrap_err().unsent(), 100);
    assert_eq!(limiter.peek(&LOG, healthy).cost(0).await.unwrap().remaining(), 100);
}

#[test]
fn a_flush_tells_what_an_ended_connection_cannot_send() {
    let mut server = RedisServer::start();
    let main = runtime();
    let limiter = main.block_on(limiter(&server.url()));
    let decision = main.block_on(take(&limiter, &WINDOW, 3));
    server.kill();
    decision.settle(1);
    let unsent = main.block_on(limiter.flush()).unwrap_err();
    assert_eq!(unsent.unsent(), 1);
    assert_eq!(
        unsent.to_string(),
        "rate limit store: 1 settles, releases or leases could not be sent, 0 refused calls may be counted"
    );
}

/// No call follows that would send it.
#[tokio::test]
async fn what_a_flush_leaves_unsent_is_sent_when_redis_is_back() {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.port());
    let (settling, reading) = (limiter(&proxy.url()).await, limiter(&server.url()).await);
    // The flush is dropped, or fails.
    for patience in [Duration::from_millis(20), HOUR] {
        let decision = take(&settling, &WINDOW, 3).await;
        proxy.set(Network::Swallows);
        decision.settle(0);
        // It takes the settle before the task does, which then has nothing to send and ends.
        let flushed = tokio::time::timeout(patience, settling.flush()).await;
        assert!(!matches!(flushed, Ok(Ok(()))));
        proxy.heal();
        until("the settle", async || (left(&reading, &WINDOW).await == 100).then_some(())).await;
        until_decided(&settling).await;
    }
}

fn runtime() -> tokio::runtime::Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

#[tokio::test]
async fn a_settle_that_comes_too_late_is_told() {
    let lines = Lines::default();
    let _listening = listen(lines.clone());
    let mut server = RedisServer::start();
    let limiter = limiter(&server.url()).await;
    let brief = Policy::fixed_window("brief", Duration::from_millis(200), 100);
    let decisions = [take(&limiter, &brief, 2).await, take(&limiter, &brief, 2).await];
    server.kill();
    for decision in &decisions {
        decision.settle(1);
        until("the end of its window", async || limiter.flush().await.ok()).await;
    }
    let lines = lines.all();
    let told: Vec<_> = lines.iter().filter(|line| line.contains("could not be sent")).collect();
    // Once a minute.
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains("WARN"), "{told:?}");
    assert!(told[0].contains("unsent=1 policy=\"brief\" command=\"settle\""), "{told:?}");
    assert!(!told[0].contains("alice"), "{told:?}");
}

#[tokio::test]
async fn no_more_than_ten_thousand_settles_wait() {
    let lines = Lines::default();
    let mut server = RedisServer::start();
    // None of so many calls may be late.
    let limiter = harness::patient(&server.url()).await;
    let many = Policy::token_bucket("many", HOUR, 100_000);
    let mut decisions = Vec::new();
    for _ in 0..10_003 {
        decisions.push(take(&limiter, &many, 2).await);
    }
    server.kill();
    {
        let _listening = listen(lines.clone());
        for decision in &decisions {
            decision.settle(1);
        }
    }
    let is_logged = lines.all().iter().any(|line| line.contains("could not be sent"));
    assert!(is_logged, "{:?}", lines.all());
    assert_eq!(limiter.flush().await.unwrap_err().unsent(), 10_000);
}

/// A process that is killed while it sends its settles leaves each call with what it reserved, or with what
/// it was settled at.
#[tokio::test]
async fn a_process_killed_between_its_settles_leaves_every_call_charged_once() {
    const CALLS: u32 = 1_000;
    let server = RedisServer::start();
    let limiter = harness::patient(&server.url()).await;
    let policies = [
        Policy::sliding_window("settling", HOUR, 100_000),
        Policy::sliding_counter("settling", HOUR, 100_000),
        Policy::fixed_window("settling", HOUR, 100_000),
        Policy::token_bucket("settling", 10 * MONTH, 100_000),
    ];
    let taken = async |policy| 100_000 - limiter.peek(policy, 0).cost(0).await.unwrap().remaining();
    let mut between = 0;
    while between < 3 {
        for policy in &policies {
            limiter.reset(policy, 0).await.unwrap();
        }
        let mut process = Command::new(env!("CARGO_BIN_EXE_settling"));
        process.args([&server.url(), &CALLS.to_string()]).stdout(Stdio::piped());
        let mut process = process.spawn().expect("the process starts");
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        assert_eq!(lines.next().unwrap().unwrap(), "taken");
        thread::sleep(Duration::from_micros(fastrand::u64(..10_000)));
        process.kill().unwrap();
        process.wait().unwrap();
        // What has arrived is done by the time of the next reply.
        let entries: Vec<String> = {
            let log = server.keys().into_iter().find(|key| key.contains("sliding_window")).unwrap();
            server.command(&format!("ZRANGEBYSCORE {log} 1 +inf"))
        };
        let units: Vec<u32> =
            entries.iter().map(|it| it[it.len() - 8..].parse().unwrap()).collect();
        assert_eq!(units.len() * policies.len(), CALLS as usize);
        assert!(units.iter().all(|units| (1..=2).contains(units)), "{units:?}");
        let mut settled = 0;
        for policy in &policies {
            let taken = taken(policy).await;
            let calls = CALLS / 4;
            assert!((calls..=2 * calls).contains(&taken), "{taken} under {policy:?}");
            settled += 2 * calls - taken;
        }
        assert_eq!(taken(&policies[0]).await, units.iter().sum::<u32>());
        between += u32::from((1..CALLS).contains(&settled));
    }
}

/// Redis stands still for longer than one window, and not for another one.
#[tokio::test]
async fn an_outage_longer_than_a_window_loses_its_settles_and_no_others() {
    let lines = Lines::default();
    let _listening = listen(lines.clone());
    let server = RedisServer::start();
    let proxy = Proxy::start(server.port());
    let limiter = limiter(&proxy.url()).await;
    let brief = Policy::fixed_window("brief", Duration::from_millis(500), 100);
    let late = take(&limiter, &brief, 2).await;
    let mut decisions = Vec::new();
    for policy in &ALL {
        decisions.push(take(&limiter, policy, 3).await);
    }
    proxy.set(Network::Swallows);
    late.settle(1);
    for decision in &decisions {
        decision.settle(1);
    }
    let told = || lines.all().iter().filter(|line| line.contains("could not be sent")).count();
    let unsent = limiter.flush().await.unwrap_err().unsent();
    assert_eq!((unsent, told()), (1 + decisions.len(), 0));
    // The one is given up, and a flush that sees it tells it; the others wait.
    until("the end of the brief window", async || {
        let left = limiter.flush().await.unwrap_err().unsent();
        assert!((decisions.len()..=unsent).contains(&left), "{left}");
        (left == decisions.len()).then_some(())
    })
    .await;
    proxy.heal();
    until("the settles", async || limiter.flush().await.ok()).await;
    until_decided(&limiter).await;
    for policy in &ALL {
        assert_eq!(left(&limiter, policy).await, 99, "{policy:?}");
    }
    assert_eq!(left(&limiter, &brief).await, 100);
    let told: Vec<_> =
        lines.all().into_iter().filter(|line| line.contains("could not be sent")).collect();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains("unsent=1 policy=\"brief\" command=\"settle\""), "{told:?}");
}
