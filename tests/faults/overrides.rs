//! A failing Redis with overrides, or a hash with too many of them, delays no decision.

use std::time::{Duration, Instant};

use harness::{DEADLINE, FaultLine, Network, Proxy, RedisServer, Watch, limiter_on, until};
use ratelimit_runtime::{Limiter, OnStoreError, Override, Policy, overrides::OverrideSource};

const MINUTE: Duration = Duration::from_secs(60);
const POLICY: Policy = Policy::sliding_counter("p", MINUTE, 1_000_000);

/// Writes so many overrides to the server, each with so many bytes of spaces.
fn fill(server: &RedisServer, fields: u32, bytes: u32) {
    const FILL: &str = "for i = 1, ARGV[1] do redis.call('HSET', KEYS[1], 'limit-' .. i, \
                        '{\"threshold\": 5' .. string.rep(' ', ARGV[2]) .. '}') end return 'OK'";
    let mut eval = redis::cmd("EVAL");
    let eval = eval.arg(FILL).arg(1).arg("ratelimit:overrides").arg(fields).arg(bytes);
    let _: String = eval.query(&mut server.connection()).unwrap();
}

/// Returns `true` if the hash overrides a limit of this name.
fn follows(limiter: &Limiter, name: &str) -> bool {
    limiter.overrides().source(name) == Some(OverrideSource::Redis)
}

#[tokio::test]
async fn overrides_behind_an_open_breaker_are_not_waited_for() {
    let server = RedisServer::start();
    let limiter = limiter_on(&server.url(), OnStoreError::Deny).await;
    let what = Override::new().threshold(2).period(MINUTE);
    limiter.overrides().fleet().set("p", what.clone()).await.unwrap();
    server.signal("STOP");
    until("the breaker", async || {
        let _ = limiter.check(&POLICY, "alice").await;
        limiter.servers()[0].failure()
    })
    .await;
    let start = Instant::now();
    let (mut asked, mut waited) = (0, 0);
    while start.elapsed() < Duration::from_secs(2) {
        let sent = Instant::now();
        limiter.overrides().fleet().set("p", what.clone()).await.unwrap_err();
        asked += 1;
        waited += u32::from(sent.elapsed() >= DEADLINE);
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    FaultLine::of("kill -STOP, overrides are published for 2 s, one after the other")
        .with("asked", asked)
        .with("waited for the deadline", waited)
        .print();
    // Only probes of the circuit breaker wait.
    assert!(waited <= 8 && asked > 2 * waited, "{waited} of {asked}");
    server.signal("CONT");
}

#[tokio::test]
async fn a_program_that_only_follows_overrides_finds_its_server_again() {
    let server = RedisServer::start();
    let limiter = limiter_on(&server.url(), OnStoreError::Deny).await;
    server.signal("STOP");
    until("the breaker", async || limiter.servers()[0].failure()).await;
    server.signal("CONT");
    let back = Instant::now();
    fill(&server, 1, 0);
    until("the override", async || follows(&limiter, "limit-1").then_some(())).await;
    FaultLine::of("kill -STOP, the program only follows overrides")
        .after("followed again after", back.elapsed())
        .print();
    assert!(back.elapsed() < Duration::from_secs(3), "{:?}", back.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_hash_of_overrides_delays_no_decision() {
    let server = RedisServer::start();
    fill(&server, 4_000, 900);
    let proxy = Proxy::start(server.port());
    let builder = Limiter::builder().deadline(Duration::from_secs(10)).follow_overrides(false);
    let limiter = builder.on_store_error(OnStoreError::Deny).connect(&proxy.url()).await.unwrap();
    limiter.check(&POLICY, "warm").await.unwrap();
    // Its 4 MB come in pieces.
    proxy.set(Network::Slow { latency: Duration::from_millis(20), jitter: Duration::ZERO });
    let of_task = limiter.clone();
    let start = Instant::now();
    let read = tokio::spawn(async move {
        of_task.overrides().follow_redis().await.unwrap();
        start.elapsed()
    });
    let (mut calls, mut slowest) = (0, Duration::ZERO);
    while !read.is_finished() {
        let asked = Instant::now();
        limiter.check(&POLICY, "alice").await.unwrap();
        slowest = slowest.max(asked.elapsed());
        calls += 1;
    }
    let read = read.await.unwrap();
    FaultLine::of("4 MB of overrides over a slow link")
        .after("read after", read)
        .with("decisions meanwhile", calls)
        .after("slowest", slowest)
        .print();
    assert!(follows(&limiter, "limit-4000"));
    assert!(slowest < read / 3, "{slowest:?} of {read:?}");
    assert!(calls > 4, "{calls}");
}

#[tokio::test]
async fn a_hash_with_too_many_overrides_is_not_read_and_the_last_ones_stay() {
    const BOUND: &str = "more than 10000 fields or 4 MB";
    for (fields, bytes) in [(10_001, 0), (100, 50_000)] {
        let server = RedisServer::start();
        fill(&server, 1, 0);
        let watch = Watch::start();
        let limiter = limiter_on(&server.url(), OnStoreError::Deny).await;
        assert!(follows(&limiter, "limit-1"));
        let reads = || server.calls().get("hgetall").copied().unwrap_or(0);

        fill(&server, fields, bytes);
        until("a warning", async || (watch.count(BOUND) > 0).then_some(())).await;
        let read = reads();
        // The hash is polled two or three times a second.
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(2) {
            limiter.check(&POLICY, "alice").await.unwrap();
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(limiter.servers()[0].failure(), None);
        assert_eq!(reads(), read, "{fields} fields of {bytes} bytes are not read again");
        assert_eq!(watch.count(BOUND), 1, "{}", watch.text());
        assert!(follows(&limiter, "limit-1"));
        assert!(!follows(&limiter, "limit-100"));
    }
}
