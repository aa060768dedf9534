//! A running Redis that cannot decide: calls end in time, the limiter recovers with the server, and no call
//! is counted twice.

use std::{
    thread,
    time::{Duration, Instant},
};

use harness::{
    DEADLINE, FaultLine, Load, NOTICED, Outcome, RedisServer, limiter_on, outage, unavailable,
    uncached, until, until_decided, wait_for,
};
use ratelimit_runtime::{OnStoreError, Policy, RateLimitError, UnavailableReason};

const MINUTE: Duration = Duration::from_secs(60);
const POLICY: Policy = Policy::sliding_window("p", MINUTE, 3);
const LOG: Policy = Policy::sliding_window("log", MINUTE, 100_000);

/// The time in which callers recover from an outage.
const BACK: Duration = Duration::from_secs(2);

/// Makes a server fail under tasks until it is healed.
async fn server_outage(
    fault: &str,
    server: &mut RedisServer,
    tasks: u32,
    hurt: impl FnOnce(&mut RedisServer),
    heal: impl FnOnce(&mut RedisServer),
) {
    let url = server.url();
    outage(fault, &url, tasks, server, hurt, heal).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_server_delays_no_call_and_is_found_again() {
    let mut server = RedisServer::start();
    let fault = "kill -9";
    server_outage(fault, &mut server, 64, RedisServer::kill, RedisServer::restart).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stalled_server_costs_a_task_one_deadline_and_is_found_again() {
    let mut server = RedisServer::start();
    let (stop, go) =
        (|s: &mut RedisServer| s.signal("STOP"), |s: &mut RedisServer| s.signal("CONT"));
    server_outage("kill -STOP", &mut server, 64, stop, go).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_sleeps_is_not_stormed_with_connections() {
    let mut server = RedisServer::with(&["--enable-debug-command", "local"]);
    let before = server.figure("total_connections_received");
    let (sender, woken) = std::sync::mpsc::channel();
    let sleep = |server: &mut RedisServer| {
        let mut connection = server.connection();
        thread::spawn(move || {
            let _ = redis::cmd("DEBUG").arg("SLEEP").arg(1).exec(&mut connection);
            let _ = sender.send(());
        });
    };
    let wake = |_: &mut RedisServer| woken.recv().expect("the server wakes up");
    server_outage("DEBUG SLEEP 1", &mut server, 64, sleep, wake).await;
    let connections = server.figure("total_connections_received") - before;
    FaultLine::of("DEBUG SLEEP 1 under 64 tasks")
        .with("connections made in all", connections)
        .print();
    assert!(connections <= 8, "{connections}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_pauses_writes_is_an_outage_that_passes() {
    let mut server = RedisServer::start();
    let pause = |server: &mut RedisServer| server.command("CLIENT PAUSE 60000 WRITE");
    let go = |server: &mut RedisServer| server.command("CLIENT UNPAUSE");
    server_outage("CLIENT PAUSE WRITE", &mut server, 16, pause, go).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flushed_scripts_cost_no_call_and_no_count() {
    let server = RedisServer::start();
    let limiter = uncached(&server.url()).await;
    let load = Load::start(&limiter, LOG, 16, 1, Duration::from_millis(2));
    let mut flushes = 0;
    let end = Instant::now() + Duration::from_secs(2);
    while Instant::now() < end {
        let () = server.command("SCRIPT FLUSH");
        flushes += 1;
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let history = load.stop().await;
    let units: usize = server.command("ZCOUNT ratelimit:sliding_window:log/0 0 +inf");
    FaultLine::of("SCRIPT FLUSH every 5 ms under 16 tasks")
        .with("flushes", flushes)
        .with("callers get", history.answers())
        .with("counted", units)
        .after("slowest call", history.slowest())
        .print();
    assert_eq!(history.unavailable(), 0);
    assert_eq!(history.count(|outcome| outcome == Outcome::Admitted), units);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flushed_database_restarts_counts_and_fails_no_call() {
    let server = RedisServer::start();
    let limiter = uncached(&server.url()).await;
    let load = Load::start(&limiter, POLICY, 8, 4, Duration::from_millis(5));
    for flushes in 0..10 {
        // Three for each of the four callers, and as many again after each flush.
        let all = 12 * (flushes + 1);
        until("all places to be taken", async || (load.admitted() == all).then_some(())).await;
        let refused = load.refused();
        until("refusals", async || (load.refused() > refused + 50).then_some(())).await;
        assert_eq!(load.admitted(), all);
        let () = server.command("FLUSHALL");
    }
    let history = load.stop().await;
    FaultLine::of("FLUSHALL ten times under 8 tasks")
        .with("callers get", history.answers())
        .print();
    assert_eq!(history.unavailable(), 0);
}

#[tokio::test]
async fn eviction_makes_room_and_drops_callers() {
    let server = RedisServer::start();
    let limiter = uncached(&server.url()).await;
    limiter.check(&POLICY, "warm").await.unwrap();
    let bytes = server.figure("used_memory") + 300_000;
    let () = server.command("CONFIG SET maxmemory-policy allkeys-lru");
    let () = server.command(&format!("CONFIG SET maxmemory {bytes}"));
    for caller in 0..5_000 {
        limiter.check(&POLICY, caller).await.unwrap();
    }
    let evicted = server.figure("evicted_keys");
    FaultLine::of("memory full, allkeys-lru")
        .with("calls decided", 5_000)
        .with("keys evicted", evicted)
        .print();
    assert!(evicted > 1_000, "{evicted}");
    // Which keys go is Redis's choice; of the oldest it is most.
    let mut forgotten = 0;
    for caller in 0..500 {
        let left = limiter.peek(&POLICY, caller).cost(0).await.unwrap().remaining();
        forgotten += u32::from(left == 3);
    }
    assert!(forgotten > 100, "{forgotten}");
}

/// Keys of a minute go before keys that a program beside the limiter keeps for an hour.
#[tokio::test]
async fn beside_a_cache_volatile_ttl_drops_callers_first() {
    let server = RedisServer::start();
    let limiter = uncached(&server.url()).await;
    for cached in 0..500 {
        let () = server.command(&format!("SET cache:{cached} {cached:0400} EX 3600"));
    }
    limiter.check(&POLICY, "warm").await.unwrap();
    let bytes = server.figure("used_memory") + 300_000;
    let () = server.command("CONFIG SET maxmemory-policy volatile-ttl");
    let () = server.command(&format!("CONFIG SET maxmemory {bytes}"));
    for caller in 0..5_000 {
        limiter.check(&POLICY, caller).await.unwrap();
    }
    let (cached, callers): (Vec<_>, Vec<_>) =
        server.keys().into_iter().partition(|key| key.starts_with("cache:"));
    let (cached, callers) = (cached.len(), callers.len());
    FaultLine::of("memory full, volatile-ttl, beside a cache")
        .with("calls decided", 5_000)
        .with("callers kept", callers)
        .with("of 500 cached", cached)
        .print();
    // Redis draws a few keys, and removes that with the shortest time of them.
    assert!(callers < 4_000 && cached >= 490, "{callers} {cached}");
}

#[tokio::test]
async fn under_each_algorithm_a_full_memory_is_reported_gets_the_chosen_answer_and_passes() {
    for policy in [
        POLICY,
        Policy::sliding_counter("p", MINUTE, 3),
        Policy::fixed_window("p", MINUTE, 3),
        Policy::token_bucket("p", MINUTE, 3),
    ] {
        let server = RedisServer::start();
        let limiter = limiter_on(&server.url(), OnStoreError::Deny).await;
        limiter.check(&policy, "alice").await.unwrap();
        let () = server.command("CONFIG SET maxmemory 1");
        let full = limiter.check(&policy, "bob").await;
        assert_eq!(unavailable(full), UnavailableReason::RefusesWrites, "{policy:?}");
        // Passes uncounted.
        for _ in 0..4 {
            limiter.check(&policy, "bob").on_store_error(OnStoreError::Allow).await.unwrap();
        }
        // Counted by this process alone.
        for remaining in [2, 1, 0] {
            let local = limiter.check(&policy, "bob").on_store_error(OnStoreError::Local).await;
            assert_eq!(local.unwrap().remaining(), remaining, "{policy:?}");
        }
        let refused = limiter.check(&policy, "bob").on_store_error(OnStoreError::Local).await;
        assert!(matches!(refused, Err(RateLimitError::Exceeded(_))), "{refused:?}");
        let algorithm = policy.algorithm().as_str();
        assert_eq!(server.command::<u32>(&format!("EXISTS ratelimit:{algorithm}:p/bob")), 0);

        let () = server.command("CONFIG SET maxmemory 0");
        until_decided(&limiter).await;
        assert_eq!(limiter.check(&policy, "alice").await.unwrap().remaining(), 1);
        assert_eq!(limiter.check(&policy, "bob").await.unwrap().remaining(), 2);
    }
}

#[tokio::test]
async fn a_server_that_cannot_save_is_reported_and_passes() {
    let server = RedisServer::start();
    let limiter = limiter_on(&server.url(), OnStoreError::Deny).await;
    limiter.check(&POLICY, "alice").await.unwrap();
    // A directory stands where the dump should go.
    let dump = server.directory().join("dump.rdb");
    std::fs::create_dir(&dump).unwrap();
    let mut connection = server.connection();
    let mut save = redis::cmd("CONFIG");
    let () = save.arg("SET").arg("save").arg("3600 1000000").query(&mut connection).unwrap();
    let saved = |status: &str| {
        let _: String = server.command("BGSAVE");
        wait_for("the end of the save", || {
            let info: String = server.command("INFO persistence");
            let is_over = info.contains("rdb_bgsave_in_progress:0");
            (is_over && info.contains(&format!("rdb_last_bgsave_status:{status}"))).then_some(())
        });
    };
    saved("err");
    let reason = unavailable(limiter.check(&POLICY, "bob").await);
    assert_eq!(reason, UnavailableReason::RefusesWrites);
    std::fs::remove_dir(&dump).unwrap();
    saved("ok");
    until_decided(&limiter).await;
    assert_eq!(limiter.check(&POLICY, "alice").await.unwrap().remaining(), 1);
}

#[tokio::test]
async fn a_server_that_loads_its_data_is_waited_for() {
    // Each key takes a millisecond to load, and it answers meanwhile.
    let mut server = RedisServer::with(
        [["--key-load-delay", "1000"], ["--loading-process-events-interval-bytes", "1024"]]
            .as_flattened(),
    );
    let _: String = {
        let mut eval = redis::cmd("EVAL");
        eval.arg("for i = 1, 1000 do redis.call('SET', i, string.rep('x', 100)) end return 'OK'");
        eval.arg(0).query(&mut server.connection()).unwrap()
    };
    let limiter = limiter_on(&server.url(), OnStoreError::Deny).await;
    limiter.check(&POLICY, "alice").await.unwrap();
    let _: String = server.command("SAVE");
    server.kill();
    server.begin_restart();
    let start = Instant::now();
    let mut reasons = Vec::new();
    let mut slowest = Duration::ZERO;
    let first = loop {
        let asked = Instant::now();
        let answer = limiter.check(&POLICY, "alice").await;
        slowest = slowest.max(asked.elapsed());
        match answer {
            Ok(decision) => break decision,
            Err(error) => reasons.push(unavailable::<()>(Err(error))),
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    };
    let back = start.elapsed();
    let loaded = server.figure("uptime_in_seconds");
    let count = |reason| reasons.iter().filter(|each| **each == reason).count();
    FaultLine::of("restart with a second of loading")
        .with(
            "callers get",
            format!(
                "{} Disconnected, {} NotReady, {} DeadlineExceeded",
                count(UnavailableReason::Disconnected),
                count(UnavailableReason::NotReady),
                count(UnavailableReason::DeadlineExceeded),
            ),
        )
        .after("slowest call", slowest)
        .after("decided again after", back)
        .print();
    // What was saved still counts.
    assert_eq!(first.remaining(), 1);
    assert!(count(UnavailableReason::NotReady) > 0, "{reasons:?}");
    assert!(slowest < DEADLINE + NOTICED, "{slowest:?}");
    assert!(back < Duration::from_secs(1) + BACK, "{back:?} {loaded}");
}

#[tokio::test]
async fn a_deleted_user_is_reported_and_its_return_is_seen() {
    let server = RedisServer::start();
    let create = "ACL SETUSER limiter on >secret ~ratelimit:* +@all";
    let () = server.command(create);
    let url = server.url().replace("redis://", "redis://limiter:secret@");
    let limiter = limiter_on(&url, OnStoreError::Deny).await;
    limiter.check(&POLICY, "alice").await.unwrap();
    let _: i64 = server.command("ACL DELUSER limiter");
    let start = Instant::now();
    let mut reasons = Vec::new();
    while start.elapsed() < Duration::from_millis(500) {
        reasons.push(unavailable(limiter.check(&POLICY, "alice").await));
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(reasons.last(), Some(&UnavailableReason::NotPermitted), "{reasons:?}");
    let () = server.command(create);
    let healed = Instant::now();
    until_decided(&limiter).await;
    FaultLine::of("user deleted")
        .with("callers get", "NotPermitted")
        .after("decided again after", healed.elapsed())
        .print();
    assert!(healed.elapsed() < BACK, "{:?}", healed.elapsed());
}
