//! A limiter decides by one command on one connection, and keeps exact, bounded state on Redis.

use std::time::{Duration, SystemTime};

use harness::{RedisServer, uncached};
use ratelimit_runtime::{Limiter, Policy, RateLimitError, UnavailableReason};

const POLICY: Policy = Policy::sliding_window("p", Duration::from_secs(60), 3);
const KEY: &str = "ratelimit:sliding_window:p/alice";

fn reason(error: RateLimitError) -> UnavailableReason {
    match error {
        RateLimitError::Unavailable(error) => error.reason(),
        other => panic!("{other}"),
    }
}

#[tokio::test]
async fn a_caller_is_one_sorted_set_of_at_most_the_threshold_with_a_ttl() {
    let server = RedisServer::start();
    let limiter = server.limiter().await;
    for _ in 0..10 {
        let _ = limiter.check(&POLICY, "alice").await;
    }
    assert_eq!(server.keys(), [KEY]);
    assert_eq!(server.command::<String>(&format!("TYPE {KEY}")), "zset");
    assert_eq!(server.command::<u32>(&format!("ZCOUNT {KEY} 0 +inf")), 3);
    let ttl: i64 = server.command(&format!("PTTL {KEY}"));
    assert!((60_000..=61_000).contains(&ttl), "{ttl}");
}

#[tokio::test]
async fn scores_are_the_servers_clock_to_the_microsecond() {
    let server = RedisServer::start();
    let limiter = server.limiter().await;
    let (before, _): (u64, u64) = server.command("TIME");
    limiter.check(&POLICY, "alice").await.unwrap();
    let (_, score): (String, u64) = server.command(&format!("ZRANGE {KEY} -1 -1 WITHSCORES"));
    let after = SystemTime::UNIX_EPOCH.elapsed().unwrap().as_micros();
    assert!(score >= before * 1_000_000 && u128::from(score) <= after, "{score}");
}

#[tokio::test]
async fn a_decision_is_one_command_also_when_the_script_is_gone() {
    let server = RedisServer::start();
    let limiter = uncached(&server.url()).await;
    for _ in 0..5 {
        let _ = limiter.check(&POLICY, "alice").await;
    }
    let calls = server.calls();
    // The first EVALSHA finds no script; EVAL follows and leaves it there.
    assert_eq!((calls["evalsha"], calls["eval"]), (5, 1));
    let () = server.command("SCRIPT FLUSH");
    assert!(matches!(limiter.check(&POLICY, "alice").await, Err(RateLimitError::Exceeded(_))));
    let calls = server.calls();
    assert_eq!((calls["evalsha"], calls["eval"]), (6, 2));
    assert_eq!(server.command::<u32>(&format!("ZCOUNT {KEY} 0 +inf")), 3);
}

#[tokio::test]
async fn all_clones_share_one_connection() {
    let server = RedisServer::start();
    let limiter = server.limiter().await;
    let calls: Vec<_> = (0..64)
        .map(|caller| {
            let limiter = limiter.clone();
            tokio::spawn(async move { limiter.check(&POLICY, caller).await })
        })
        .collect();
    for call in calls {
        call.await.unwrap().unwrap();
    }
    let clients: String = server.command("CLIENT LIST TYPE normal");
    // The limiter's connection, and the test's own.
    assert_eq!(clients.lines().count(), 2, "{clients}");
}

#[tokio::test]
async fn a_key_of_another_type_is_an_error_and_stays_as_it_is() {
    let server = RedisServer::start();
    let limiter = server.limiter().await;
    let () = server.command(&format!("SET {KEY} theirs"));
    let error = limiter.check(&POLICY, "alice").await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "rate limit `p` could not be decided: the value of its key in the store has another type"
    );
    assert_eq!(reason(error), UnavailableReason::WrongType);
    assert_eq!(server.command::<String>(&format!("GET {KEY}")), "theirs");
}

#[tokio::test]
async fn units_that_a_clock_wrote_into_the_future_are_units_of_now() {
    let server = RedisServer::start();
    let limiter = server.limiter().await;
    let (seconds, _): (u64, u64) = server.command("TIME");
    let ahead = (seconds + 3_600) * 1_000_000;
    for member in 0..3 {
        let () = server.command(&format!("ZADD {KEY} {ahead} {}00000001", 4 + 4 * member));
    }
    let Err(RateLimitError::Exceeded(refused)) = limiter.check(&POLICY, "alice").await else {
        panic!("the units count");
    };
    assert_eq!(refused.retry_after(), POLICY.tiers()[0].period());
    let (_, score): (String, u64) = server.command(&format!("ZRANGE {KEY} -1 -1 WITHSCORES"));
    assert!(score < ahead, "{score}");
    let ttl: i64 = server.command(&format!("PTTL {KEY}"));
    assert!((1..=61_000).contains(&ttl), "{ttl}");
}

#[tokio::test]
async fn a_prefix_keeps_limiters_apart() {
    let server = RedisServer::start();
    for prefix in ["a:", "b:"] {
        let limiter = Limiter::builder().prefix(prefix).connect(&server.url()).await.unwrap();
        assert_eq!(limiter.check(&POLICY, "alice").await.unwrap().remaining(), 2);
    }
    assert_eq!(server.keys(), ["a:sliding_window:p/alice", "b:sliding_window:p/alice"]);
}

#[tokio::test]
async fn settings_without_bounds_are_settings() {
    let server = RedisServer::start();
    let builder = Limiter::builder()
        .deadline(Duration::MAX)
        .deny_cache(usize::MAX)
        .deny_cache_ttl(Duration::MAX)
        .max_keys(usize::MAX);
    let limiter = builder.clone().connect(&server.url()).await.unwrap();
    for _ in 0..3 {
        limiter.check(&POLICY, "alice").await.unwrap();
    }
    for _ in 0..3 {
        assert!(matches!(limiter.check(&POLICY, "alice").await, Err(RateLimitError::Exceeded(_))));
    }
    limiter.reset(&POLICY, "alice").await.unwrap();
    let decision = limiter.check(&POLICY, "alice").await.unwrap();
    limiter.refund(&decision).await.unwrap();
    assert!(builder.in_memory().check(&POLICY, "alice").await.is_ok());
}
