//! A clock jump of Redis costs at most one period of extra refusal and one threshold of extra admission. No
//! key outlives its window by more than a second.
//!
//! A library that is preloaded into the server moves its clock, which requires Linux.

use std::time::{Duration, Instant};

use harness::{
    Clock, FaultLine, Load, Promise, Proxy, RedisServer, uncached, until, until_decided, wait_for,
};
use ratelimit_runtime::{Limiter, Policy};

const PERIOD: Duration = Duration::from_millis(800);
const ALGORITHMS: [Policy; 4] = [
    Policy::sliding_window("p", PERIOD, 4),
    Policy::sliding_counter("p", PERIOD, 4),
    Policy::fixed_window("p", PERIOD, 4),
    Policy::token_bucket("p", PERIOD, 4),
];

/// Beside the window, for the answer to come in.
const SLACK: Duration = Duration::from_millis(200);

/// Consumes the whole quota. Returns the consumed units.
async fn exhaust(limiter: &Limiter, policy: &Policy) -> u32 {
    let mut taken = 0;
    while limiter.check(policy, "alice").await.is_ok() {
        taken += 1;
        assert!(taken < 100, "there is no end to it");
    }
    taken
}

/// Returns the longest TTL of the keys of a server, in milliseconds.
fn longest_ttl(server: &RedisServer) -> i64 {
    let ttl = |key: &String| server.command::<i64>(&format!("PTTL {key}"));
    let keys = server.keys();
    assert!(!keys.is_empty());
    keys.iter().map(ttl).map(|ttl| if ttl < 0 { i64::MAX } else { ttl }).max().unwrap_or(0)
}

/// Two windows, as the counter has them, and a second.
const LONGEST_TTL: i64 = 2_600;

#[tokio::test]
async fn a_clock_set_back_refuses_for_one_period_at_the_most() {
    for policy in ALGORITHMS {
        let clock = Clock::new();
        let server = clock.server(&[]);
        let limiter = uncached(&server.url()).await;
        assert!(exhaust(&limiter, &policy).await >= 4);
        clock.step(&server, -3_600_000);
        let jumped = Instant::now();
        let mut longest = 0;
        until("an admitted call", async || {
            let answer = limiter.check(&policy, "alice").await;
            longest = longest.max(longest_ttl(&server));
            if let Err(error) = &answer {
                let refused = harness::exceeded::<()>(Err(error.clone()));
                assert!(refused.retry_after() <= PERIOD * 2, "{:?}", refused.retry_after());
            }
            answer.ok()
        })
        .await;
        let back = jumped.elapsed();
        FaultLine::of(&format!("clock set back an hour, {:?}", policy.algorithm()))
            .after("admitted again after", back)
            .with("longest TTL in ms", longest)
            .print();
        // A counter's units fade over the window after.
        let windows = if policy.algorithm() == ALGORITHMS[1].algorithm() { 2 } else { 1 };
        assert!(back < PERIOD * windows + SLACK, "{back:?}");
        assert!(longest <= LONGEST_TTL, "{longest}");
    }
}

#[tokio::test]
async fn a_clock_set_forward_admits_one_threshold_more_at_the_most() {
    for policy in ALGORITHMS {
        let clock = Clock::new();
        let server = clock.server(&[]);
        let limiter = uncached(&server.url()).await;
        // Units that a slow machine earns meanwhile are not due to the clock.
        let start = Instant::now();
        let before = exhaust(&limiter, &policy).await;
        clock.step(&server, 600_000);
        let after = exhaust(&limiter, &policy).await;
        let earned = 4 * start.elapsed().as_millis() / PERIOD.as_millis();
        let extra = before + after - 4;
        FaultLine::of(&format!("clock set forward ten minutes, {:?}", policy.algorithm()))
            .with("admitted beyond the threshold of 4", extra)
            .print();
        assert!(u128::from(extra) <= 4 + earned, "{extra}");
        assert!(longest_ttl(&server) <= LONGEST_TTL);
        // From there on the limit is exact again.
        let start = Instant::now();
        until("an admitted call", async || limiter.check(&policy, "alice").await.ok()).await;
        assert!(start.elapsed() < PERIOD * 2 + SLACK, "{:?}", start.elapsed());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_that_shakes_by_50_ms_moves_a_window_by_no_more() {
    let clock = Clock::new();
    let server = clock.server(&[]);
    let limiter = uncached(&server.url()).await;
    let load =
        Load::start(&limiter, Policy::sliding_window("shaken", PERIOD, 20), 8, 2, PERIOD / 100);
    let end = Instant::now() + PERIOD * 4;
    let mut ahead = 50;
    while Instant::now() < end {
        clock.set_ahead(ahead);
        ahead = -ahead;
        tokio::time::sleep(Duration::from_millis(fastrand::u64(5..60))).await;
    }
    let history = load.stop().await;
    FaultLine::of("clock shaken by 50 ms under 8 tasks")
        .with("callers get", history.answers())
        .print();
    let promise =
        |millis: u64| Promise { period: millis * 1_000, threshold: 20, ..Promise::default() };
    assert_eq!(history.unavailable(), 0);
    assert_eq!(history.overfull_windows(&promise(800 - 100)), [""; 0]);
    assert_eq!(history.unjust_refusals(&promise(800 + 100)), [""; 0]);
}

#[tokio::test]
async fn a_replica_with_another_clock_takes_over_within_one_period() {
    for (name, ahead) in [("behind", -30_000), ("ahead", 30_000)] {
        let clock = Clock::new();
        clock.set_ahead(ahead);
        let primary = RedisServer::start();
        let replica = clock.server(&["--repl-diskless-sync-delay", "0"]);
        let () = primary.command("CONFIG SET repl-diskless-sync-delay 0");
        let () = replica.command(&format!("REPLICAOF 127.0.0.1 {}", primary.port()));
        wait_for("the replica", || {
            let info: String = replica.command("INFO replication");
            info.contains("master_link_status:up").then_some(())
        });
        let proxy = Proxy::start(primary.port());
        let limiter = uncached(&proxy.url()).await;
        let policy = ALGORITHMS[0];
        let before = exhaust(&limiter, &policy).await;
        let _: i64 = primary.command("WAIT 1 1000");
        let () = replica.command("REPLICAOF NO ONE");
        proxy.lead_to(replica.port());
        let _: i64 = primary.command("CLIENT KILL TYPE normal");
        let jumped = Instant::now();
        until_decided(&limiter).await;
        let after = exhaust(&limiter, &policy).await;
        let ttl: i64 = replica.command("PTTL ratelimit:sliding_window:p/alice");
        until("an admitted call", async || limiter.check(&policy, "alice").await.ok()).await;
        let back = jumped.elapsed();
        FaultLine::of(&format!("failover to a replica whose clock is 30 s {name}"))
            .with("admitted before and after", format!("{before} and {after}"))
            .after("admitted again after", back)
            .with("TTL in ms", ttl)
            .print();
        assert!(after <= 4, "{after}");
        assert!(back < PERIOD + SLACK, "{back:?}");
        assert!((0..=LONGEST_TTL).contains(&ttl), "{ttl}");
    }
}
