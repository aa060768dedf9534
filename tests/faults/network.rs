//! A failing network: calls end in time, the limiter reconnects by itself, and no call is counted twice.

use std::time::{Duration, Instant};

use harness::{
    DEADLINE, FaultLine, Load, NOTICED, Network, Outcome, Proxy, RedisServer, exceeded, limiter_on,
    outage, patient, unavailable, uncached, until, until_decided,
};
use ratelimit_runtime::{Limiter, OnStoreError, Policy, RateLimitError, UnavailableReason};

const MINUTE: Duration = Duration::from_secs(60);
const POLICY: Policy = Policy::sliding_window("p", MINUTE, 3);
const WIDE: Policy = Policy::sliding_counter("wide", MINUTE, 1_000_000);

/// The time in which callers recover from an outage.
const BACK: Duration = Duration::from_secs(2);

/// Puts the network into this state under 16 tasks. Returns the number of attempted connections.
async fn network_outage(fault: &str, network: Network) -> usize {
    let server = RedisServer::start();
    let mut proxy = Proxy::start(server.port());
    let before = proxy.accepted();
    let hurt = |proxy: &mut Proxy| proxy.set(network);
    outage(fault, &proxy.url(), 16, &mut proxy, hurt, |proxy| proxy.heal()).await;
    proxy.accepted() - before
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_network_that_swallows_everything_costs_few_calls_the_deadline() {
    let connections = network_outage("network swallows everything", Network::Swallows).await;
    // Nothing reports the connection as dead: it is replaced.
    assert!(connections >= 2, "{connections}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_half_closed_connection_is_left_at_once() {
    network_outage("server's half of the connection closed", Network::HalfClosed).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_network_too_slow_for_the_deadline_is_an_outage() {
    let slow = Network::Slow { latency: 2 * DEADLINE, jitter: DEADLINE };
    network_outage("each way takes 200 to 300 ms", slow).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_died_silently_is_replaced() {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.port());
    let limiter = limiter_on(&proxy.url(), OnStoreError::Deny).await;
    limiter.check(&WIDE, "warm").await.unwrap();
    proxy.set(Network::Forgets);
    let hurt = Instant::now();
    let mut calls = 0;
    let mut slowest = Duration::ZERO;
    loop {
        let asked = Instant::now();
        let answer = limiter.check(&WIDE, "alice").await;
        slowest = slowest.max(asked.elapsed());
        match answer {
            Ok(_) => break,
            Err(error) => {
                assert_eq!(unavailable::<()>(Err(error)), UnavailableReason::DeadlineExceeded);
            }
        }
        calls += 1;
    }
    let back = hurt.elapsed();
    FaultLine::of("connection dead without a close")
        .with("calls lost", calls)
        .after("slowest call", slowest)
        .after("decided again after", back)
        .print();
    assert!(slowest < DEADLINE + NOTICED, "{slowest:?}");
    // Three calls without an answer are enough.
    assert!(calls <= 3, "{calls}");
    assert!(back < BACK, "{back:?}");
}

#[tokio::test]
async fn a_connection_that_breaks_anywhere_in_a_reply_costs_no_call_and_counts_it_once() {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.port());
    let builder = Limiter::builder().deadline(Duration::from_secs(10));
    let builder = builder.on_store_error(OnStoreError::Deny);
    let limiter = builder.connect(&proxy.url()).await.unwrap();
    // The script is known from here on.
    limiter.check(&POLICY, "warm").await.unwrap();
    let (mut lost, mut slowest) = (Vec::new(), Duration::ZERO);
    // A reply has some forty bytes.
    for bytes in 0..60 {
        until_decided(&limiter).await;
        proxy.set(Network::ResetsAfter(bytes));
        let caller = format!("cut-{bytes}");
        let asked = Instant::now();
        let answer = limiter.check(&POLICY, &caller).await;
        slowest = slowest.max(asked.elapsed());
        proxy.heal();
        let key = format!("ratelimit:sliding_window:p/{caller}");
        let units: u32 = server.command(&format!("ZCOUNT {key} 0 +inf"));
        assert!(units <= 1, "counted {units} times after {bytes} bytes");
        match answer {
            Ok(decision) => {
                assert_eq!((decision.remaining(), units), (2, 1), "after {bytes} bytes");
            }
            Err(error) => lost.push((bytes, error)),
        }
    }
    FaultLine::of("connection reset after 0 to 59 bytes of a reply")
        .with("calls lost", format!("{} of 60", lost.len()))
        .after("slowest call", slowest)
        .print();
    assert!(lost.is_empty(), "{lost:?}");
}

#[tokio::test]
async fn a_call_that_was_charged_before_a_block_is_admitted_after_its_reply_was_lost() {
    const LOG: Policy =
        Policy::sliding_window("log", MINUTE, 2).block(&[MINUTE.saturating_mul(60)]);
    let server = RedisServer::start();
    let proxy = Proxy::start(server.port());
    let limiter = patient(&proxy.url()).await;
    let direct = uncached(&server.url()).await;
    let in_flight = LOG.named("in-flight").concurrency(3);
    for policy in [LOG, LOG.named("tiers").tier(2 * MINUTE, 3), in_flight] {
        // The script is known from here on.
        limiter.check(&policy, "warm").await.unwrap();
        proxy.set(Network::LosesReplies);
        let limiter = limiter.clone();
        let call = tokio::spawn(async move { limiter.check(&policy, "alice").cost(2).await });
        until("the charge", async || direct.peek(&policy, "alice").await.err()).await;
        let offence = exceeded(direct.check(&policy, "alice").await);
        assert_eq!(offence.retry_after(), 60 * MINUTE, "{policy:?}");
        proxy.set(Network::Resets);
        let decision = call.await.unwrap().unwrap_or_else(|error| panic!("{policy:?}: {error}"));
        assert_eq!(decision.remaining(), 0, "{policy:?}");
        proxy.heal();
        // It lifts no block, and was charged once.
        assert!(exceeded(direct.check(&policy, "alice").await).retry_after() > MINUTE);
        let usage = direct.usage(&policy, "alice").await.unwrap();
        assert_eq!(usage.tiers()[0].used(), 2, "{policy:?}");
    }
}

#[tokio::test]
async fn a_connection_that_breaks_in_the_reply_to_its_first_command_costs_no_call() {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.port());
    for attempt in 0..10 {
        let builder = Limiter::builder().deadline(Duration::from_secs(10));
        let builder = builder.on_store_error(OnStoreError::Deny);
        let limiter = builder.connect(&proxy.url()).await.unwrap();
        proxy.set(Network::ResetsAfter(2));
        let decision = limiter.check(&POLICY, &*format!("first-{attempt}")).await.unwrap();
        assert_eq!(decision.remaining(), 2);
        proxy.heal();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_break_under_load_count_no_call_twice() {
    const LOG: Policy = Policy::sliding_window("log", MINUTE, 100_000);
    let server = RedisServer::start();
    let proxy = Proxy::start(server.port());
    let builder = Limiter::builder().deadline(Duration::from_secs(10));
    let builder = builder.on_store_error(OnStoreError::Deny);
    let limiter = builder.connect(&proxy.url()).await.unwrap();
    let load = Load::start(&limiter, LOG, 16, 1, Duration::from_millis(3));
    for reset in 0..20 {
        let admitted = load.admitted();
        proxy.set(Network::ResetsAfter(17 * reset));
        until("load", async || (load.admitted() > admitted + 50).then_some(())).await;
    }
    let history = load.stop().await;
    let units: usize = server.command("ZCOUNT ratelimit:sliding_window:log/0 0 +inf");
    let admitted = history.count(|outcome| outcome == Outcome::Admitted);
    FaultLine::of("20 resets under 16 tasks")
        .with("callers get", history.answers())
        .with("counted", units)
        .after("slowest call", history.slowest())
        .print();
    assert!(units >= admitted, "{admitted} calls were admitted, {units} counted");
    assert!(
        units <= admitted + history.unavailable(),
        "{admitted} calls were admitted, {units} counted"
    );
}

#[tokio::test]
async fn a_slow_and_chopped_link_changes_no_answer() {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.port());
    let limiter = uncached(&proxy.url()).await;
    let slow = |millis, jitter| Network::Slow {
        latency: Duration::from_millis(millis),
        jitter: Duration::from_millis(jitter),
    };
    for (round, network) in
        [Network::InBytes, slow(5, 0), slow(5, 50), slow(200, 0)].iter().enumerate()
    {
        proxy.set(*network);
        for remaining in [2, 1, 0] {
            let decision = limiter.check(&POLICY, round).await.unwrap();
            assert_eq!(decision.remaining(), remaining, "{network:?}");
        }
        let refused = exceeded(limiter.check(&POLICY, round).await);
        assert!(refused.retry_after() <= MINUTE);
    }
}

#[tokio::test]
async fn a_link_slower_than_the_deadline_now_and_then_returns_a_right_answer_or_none() {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.port());
    let limiter = limiter_on(&proxy.url(), OnStoreError::Deny).await;
    let log = Policy::sliding_window("log", MINUTE, 1_000);
    // The script is known from here on.
    limiter.check(&POLICY, "warm").await.unwrap();
    proxy.set(Network::Slow { latency: DEADLINE / 5, jitter: DEADLINE / 5 * 2 });
    let (mut admitted, mut late) = (0, 0);
    while admitted < 10 || late == 0 {
        let asked = Instant::now();
        match limiter.check(&log, "alice").await {
            Ok(_) => admitted += 1,
            answer => {
                assert_eq!(unavailable(answer), UnavailableReason::DeadlineExceeded);
                late += 1;
            }
        }
        assert!(asked.elapsed() < DEADLINE + NOTICED, "{:?}", asked.elapsed());
        assert!(admitted + late < 1_000, "{admitted} admitted, {late} late");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    proxy.heal();
    until_decided(&limiter).await;
    let units: u32 = server.command("ZCOUNT ratelimit:sliding_window:log/alice 0 +inf");
    FaultLine::of("each way takes 20 to 60 ms, deadline 100 ms")
        .with("callers get", format!("{admitted} Admitted, {late} DeadlineExceeded"))
        .with("counted", units)
        .print();
    assert!(units >= admitted && units <= admitted + late, "{units}");
}

#[tokio::test]
async fn the_first_call_after_an_idle_connection_was_closed_is_decided() {
    for protocol in ["resp2", "resp3"] {
        let server = RedisServer::start();
        let url = format!("{}?protocol={protocol}", server.url());
        let builder = Limiter::builder().deadline(Duration::from_secs(10));
        let limiter = builder.on_store_error(OnStoreError::Deny).connect(&url).await.unwrap();
        let info: String = server.command("CLIENT LIST TYPE normal");
        // Redis 7 and later report it.
        assert!(
            !info.contains("resp=")
                || info.contains(if protocol == "resp3" { "resp=3" } else { "resp=2" }),
            "{info}"
        );
        for round in 0..5 {
            limiter.check(&POLICY, round).await.unwrap();
            let _: i64 = server.command("CLIENT KILL TYPE normal SKIPME yes");
            // Also when the limiter has had no time to see it.
            let decision = limiter.check(&POLICY, round).await.unwrap();
            assert_eq!(decision.remaining(), 1, "{protocol}");
            let _: i64 = server.command("CLIENT KILL TYPE normal SKIPME yes");
            tokio::time::sleep(Duration::from_millis(20)).await;
            let decision = limiter.check(&POLICY, round).await.unwrap();
            assert_eq!(decision.remaining(), 0, "{protocol}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_address_that_leads_to_another_server_is_followed() {
    let (mut old, new) = (RedisServer::start(), RedisServer::start());
    let proxy = Proxy::start(old.port());
    let limiter = limiter_on(&proxy.url(), OnStoreError::Deny).await;
    limiter.check(&POLICY, "alice").await.unwrap();
    proxy.lead_to(new.port());
    old.kill();
    let moved = Instant::now();
    until_decided(&limiter).await;
    let back = moved.elapsed();
    FaultLine::of("address leads to another server").after("decided again after", back).print();
    assert!(back < BACK, "{back:?}");
    assert_eq!(limiter.check(&POLICY, "alice").await.unwrap().remaining(), 2);
    assert!(new.keys().contains(&"ratelimit:sliding_window:p/alice".to_owned()));
}

#[tokio::test]
async fn refused_connections_are_not_tried_in_a_storm() {
    let server = RedisServer::start();
    let () = server.command("ACL SETUSER limiter on >right ~* +@all");
    let url = server.url().replace("redis://", "redis://limiter:wrong@");
    let builder = Limiter::builder().deadline(DEADLINE).on_store_error(OnStoreError::Deny);
    let limiter = builder.connect_lazy(&url).unwrap();
    let before = server.figure("total_connections_received");
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(3) {
        let Err(RateLimitError::Unavailable(_)) = limiter.check(&POLICY, "alice").await else {
            panic!("nobody can log in");
        };
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    // The last of them is this test's own.
    let tried = server.figure("total_connections_received") - before - 1;
    FaultLine::of("wrong password").with("connections tried in 3 s", tried).print();
    // At first soon, then about one a second.
    assert!((3..=12).contains(&tried), "{tried}");
}
