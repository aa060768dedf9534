//! The deny cache sends few commands during a flood, and soon notices changes by other processes.

use std::time::{Duration, Instant};

use fastrand::Rng;
use harness::{NOTICED, RedisServer, exceeded};
use ratelimit_runtime::{Limiter, Policy, RateLimitError};

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(60 * 60);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const LOGIN: Policy = Policy::sliding_window("login", MINUTE, 3);

/// A limiter of another process, as far as Redis can see.
async fn limiter(server: &RedisServer) -> Limiter {
    server.limiter().await
}

/// Runs `flood`. Returns the commands that decided calls, the admitted calls and the elapsed time.
async fn flood(
    server: &RedisServer,
    calls: usize,
    mut call: impl AsyncFnMut() -> Result<(), RateLimitError>,
) -> (u64, u64, Duration) {
    let before = server.calls()["evalsha"];
    let (start, mut admitted) = (Instant::now(), 0);
    for _ in 0..calls {
        match call().await {
            Ok(()) => admitted += 1,
            Err(RateLimitError::Exceeded(_)) => {}
            Err(error) => panic!("{error}"),
        }
    }
    (server.calls()["evalsha"] - before, admitted, start.elapsed())
}

/// Asserts one command a second, one for the first refusal, and one for each admitted call.
fn assert_few(what: &str, (commands, admitted, took): (u64, u64, Duration)) {
    assert!(
        commands <= 2 + admitted + took.as_secs(),
        "{what}: {commands} commands for {admitted} admitted calls in {took:?}"
    );
}

#[tokio::test]
async fn a_flood_on_an_exhausted_key_reaches_redis_once_a_second() {
    let server = RedisServer::start();
    let limiter = limiter(&server).await;
    limiter.check(&LOGIN, "alice").cost(3).await.unwrap();
    let start = Instant::now();
    let figures = flood(&server, 10_000, async || {
        let passed = start.elapsed();
        let refused = exceeded(limiter.check(&LOGIN, "alice").await);
        assert!(refused.retry_after() + passed <= MINUTE + Duration::from_millis(1));
        Err(refused.into())
    });
    assert_few("one cost", figures.await);
    // A reset by this process takes effect at once.
    limiter.reset(&LOGIN, "alice").await.unwrap();
    assert_eq!(limiter.check(&LOGIN, "alice").await.unwrap().remaining(), 2);
}

#[tokio::test]
async fn a_cached_refusal_ends_with_its_wait_and_a_foreign_reset_is_seen() {
    let server = RedisServer::start();
    let builder = Limiter::builder().deadline(Duration::from_secs(10));
    let limiter = builder.clone().connect(&server.url()).await.unwrap();
    let brief = Policy::sliding_window("brief", Duration::from_millis(150), 1);
    for _ in 0..3 {
        let start = Instant::now();
        while limiter.check(&brief, "alice").await.is_err() {
            tokio::task::yield_now().await;
        }
        assert!(start.elapsed() < Duration::from_millis(150) + NOTICED);
    }

    let soon = builder.deny_cache_ttl(Duration::from_millis(100));
    let soon = soon.connect(&server.url()).await.unwrap();
    while soon.check(&LOGIN, "alice").await.is_ok() {}
    let () = server.command("DEL ratelimit:sliding_window:login/alice");
    let start = Instant::now();
    while soon.check(&LOGIN, "alice").await.is_err() {
        tokio::task::yield_now().await;
    }
    assert!(start.elapsed() < Duration::from_millis(100) + NOTICED, "{:?}", start.elapsed());
}

#[tokio::test]
async fn a_refund_by_another_process_counts_in_full_as_soon_as_it_is_seen() {
    let server = RedisServer::start();
    let elsewhere = limiter(&server).await;
    let ttl = Duration::from_millis(200);
    let here = Limiter::builder().deadline(Duration::from_secs(10)).deny_cache_ttl(ttl);
    let here = here.connect(&server.url()).await.unwrap();
    for policy in [
        Policy::sliding_window("log", DAY, 5),
        Policy::sliding_counter("counter", DAY, 5),
        Policy::fixed_window("window", DAY, 5),
        Policy::token_bucket("bucket", DAY, 5),
    ] {
        for change in ["reset", "refund", "DEL", "FLUSHALL"] {
            let taken = elsewhere.check(&policy, "alice").cost(5).await.unwrap();
            let refused = exceeded(here.check(&policy, "alice").await);
            assert!(refused.retry_after() > MINUTE);
            match change {
                "reset" => elsewhere.reset(&policy, "alice").await.unwrap(),
                "refund" => elsewhere.refund(&taken).await.unwrap(),
                "DEL" => server.command(&format!("DEL {}", server.keys()[0])),
                command => server.command(command),
            }
            let start = Instant::now();
            while here.check(&policy, "alice").await.is_err() {
                tokio::task::yield_now().await;
            }
            assert!(start.elapsed() < ttl + NOTICED, "{:?}", start.elapsed());
            for unit in 2..=5 {
                let again = here.check(&policy, "alice").await;
                assert!(again.is_ok(), "{policy:?} after {change}, unit {unit}: {again:?}");
            }
            elsewhere.reset(&policy, "alice").await.unwrap();
            here.reset(&policy, "alice").await.unwrap();
        }
    }
}

#[tokio::test]
async fn part_of_a_quota_refunded_elsewhere_is_seen_for_all_costs() {
    let server = RedisServer::start();
    let (here, elsewhere) = (limiter(&server).await, limiter(&server).await);
    let policy = Policy::sliding_window("p", DAY, 100);
    let taken = elsewhere.check(&policy, "alice").cost(30).await.unwrap();
    elsewhere.check(&policy, "alice").cost(70).await.unwrap();
    for cost in [1, 20, 50] {
        exceeded(here.check(&policy, "alice").cost(cost).await);
    }
    elsewhere.refund(&taken).await.unwrap();
    // Refused calls revalidate at their times, and so show that 30 units are free.
    let start = Instant::now();
    let mut admitted = 0;
    while admitted < 30 {
        exceeded(here.check(&policy, "alice").cost(50).await);
        admitted += u32::from(here.check(&policy, "alice").await.is_ok());
        assert!(start.elapsed() < Duration::from_secs(1) + 2 * NOTICED, "{admitted} admitted");
    }
}

#[tokio::test]
async fn a_flood_of_varying_costs_reaches_redis_once_a_second() {
    let server = RedisServer::start();
    let limiter = limiter(&server).await;
    for policy in [
        Policy::sliding_window("log", DAY, 1_000),
        Policy::sliding_counter("counter", DAY, 1_000),
        Policy::fixed_window("window", DAY, 1_000),
        Policy::token_bucket("bucket", DAY, 60),
        Policy::sliding_window("tiers", DAY, 1_000).tier(2 * DAY, 1_500),
    ] {
        let most = policy.tiers()[0].threshold();
        limiter.check(&policy, "alice").cost(most - 7).await.unwrap();
        let mut rng = Rng::with_seed(7);
        let figures = flood(&server, 20_000, async || {
            limiter.check(&policy, "alice").cost(rng.u32(1..=30)).await.map(drop)
        });
        assert_few(policy.name(), figures.await);
        limiter.reset(&policy, "alice").await.unwrap();
        limiter.check(&policy, "alice").cost(most).await.unwrap();
        let mut costs = (1..=30).rev().cycle();
        let figures = flood(&server, 20_000, async || {
            limiter.check(&policy, "alice").cost(costs.next().unwrap()).await.map(drop)
        });
        assert_few(policy.name(), figures.await);
    }
}

#[tokio::test]
async fn a_flood_under_thresholds_of_its_own_reaches_redis_once_a_second_for_each() {
    let server = RedisServer::start();
    let limiter = limiter(&server).await;
    for of in [Policy::sliding_window, Policy::fixed_window] {
        let plan = |threshold| of("plan", DAY, threshold);
        limiter.check(&plan(1_000), "alice").cost(1_000).await.unwrap();
        let mut rng = Rng::with_seed(7);
        let thresholds = [10, 100, 1_000];
        let (commands, admitted, took) = flood(&server, 20_000, async || {
            let threshold = thresholds[rng.usize(..3)];
            limiter.check(&plan(threshold), "alice").cost(rng.u32(1..=threshold)).await.map(drop)
        })
        .await;
        assert_eq!(admitted, 0);
        assert!(commands <= 3 * (1 + took.as_secs()), "{commands} commands in {took:?}");
        // A threshold above the known ones reaches Redis.
        assert!(limiter.check(&plan(1_001), "alice").await.is_ok());
    }
}

#[tokio::test]
async fn a_call_that_would_wait_too_long_is_refused_without_redis_and_any_other_reaches_it() {
    let server = RedisServer::start();
    let limiter = limiter(&server).await;
    let policy = Policy::sliding_window("p", HOUR, 3);
    limiter.check(&policy, "alice").cost(3).await.unwrap();
    let figures = flood(&server, 2_000, async || {
        let request = limiter.check(&policy, "alice").max_wait(MINUTE);
        request.await.map(drop)
    });
    assert_few("max_wait", figures.await);

    // A refund elsewhere serves a call that would have waited, also within the second.
    let brief = Policy::sliding_window("brief", MINUTE, 3);
    limiter.check(&brief, "alice").cost(3).await.unwrap();
    exceeded(limiter.check(&brief, "alice").await);
    let () = server.command("FLUSHALL");
    let waits = limiter.check(&brief, "alice").max_wait(HOUR);
    tokio::time::timeout(Duration::from_secs(15), waits).await.expect("a place at once").unwrap();
}

#[tokio::test]
async fn a_wait_from_memory_is_never_longer_than_redis_has_it() {
    let server = RedisServer::start();
    let (here, elsewhere) = (limiter(&server).await, limiter(&server).await);
    let policy = Policy::sliding_window("p", MINUTE, 100);
    for units in [10, 40, 30, 20] {
        elsewhere.check(&policy, "alice").cost(units).await.unwrap();
    }
    let mut rng = Rng::with_seed(7);
    for _ in 0..500 {
        let (cost, start) = (rng.u32(1..=100), Instant::now());
        let refused = exceeded(here.check(&policy, "alice").cost(cost).await);
        let asked = exceeded(elsewhere.peek(&policy, "alice").cost(cost).await);
        // Redis decided later, when less of the wait remained.
        let longest = asked.retry_after() + start.elapsed() + Duration::from_millis(1);
        assert!(refused.retry_after() <= longest, "{cost}: {refused} / {asked}");
        assert_eq!(refused.remaining(), 0);
    }
}

#[tokio::test]
async fn no_refusal_outlives_the_override_or_the_kill_switch_that_it_came_from() {
    use ratelimit_runtime::{Enforcement, Override};

    let server = RedisServer::start();
    let limiter = limiter(&server).await;
    let policy = Policy::sliding_window("p", MINUTE, 100);
    limiter.check(&policy, "alice").cost(10).await.unwrap();
    let lowered = Override::new().threshold(5).period(HOUR);
    limiter.overrides().here().set("p", lowered).unwrap();
    let refused = exceeded(limiter.check(&policy, "alice").await);
    assert!(refused.retry_after() > MINUTE);
    limiter.overrides().here().set("p", Override::new().enforcement(Enforcement::Off)).unwrap();
    assert!(limiter.check(&policy, "alice").await.is_ok());
    limiter.overrides().here().remove("p");
    assert!(limiter.check(&policy, "alice").await.is_ok());
}
