//! Stats count each call once, by verdict and by the part of the limiter that decided it.

use std::time::Duration;

use harness::RedisServer;
use ratelimit_runtime::{
    Enforcement, Limiter, OnStoreError, Override, Policy, RateLimitError, rate_limit,
    stats::{self, DecidedBy, PolicyStats, Verdict},
};

const MINUTE: Duration = Duration::from_secs(60);

/// Returns the stats of one limit.
fn of(name: &str) -> PolicyStats {
    let found = stats::snapshot().into_iter().find(|limit| limit.name() == name);
    found.expect("the limit was called")
}

/// Returns the counts that are not zero.
fn counts(stats: &PolicyStats) -> Vec<(Verdict, DecidedBy, u64)> {
    let pairs = Verdict::ALL
        .iter()
        .flat_map(|verdict| DecidedBy::ALL.iter().map(move |decided_by| (*verdict, *decided_by)));
    let all = pairs.map(|(verdict, by)| (verdict, by, stats.calls(verdict, by)));
    all.filter(|(.., count)| *count > 0).collect()
}

#[rate_limit(name = "stats: annotated", period = 60, threshold = 2, key = user, limiter = limiter)]
async fn annotated(limiter: &Limiter, user: &str) -> Result<(), RateLimitError> {
    Ok(())
}

#[tokio::test]
async fn annotated_calls_and_checks_by_hand_are_counted_by_verdict() {
    stats::enable();
    let limiter = Limiter::in_memory();
    for _ in 0..3 {
        let _ = annotated(&limiter, "alice").await;
    }
    limiter.overrides().enforce(Some(Enforcement::DryRun));
    annotated(&limiter, "alice").await.unwrap();
    let stats = of("stats: annotated");
    let expected = [
        (Verdict::Admitted, DecidedBy::Store, 2),
        (Verdict::Refused, DecidedBy::Store, 1),
        (Verdict::WouldHaveRefused, DecidedBy::Store, 1),
    ];
    assert_eq!(counts(&stats), expected);
    assert_eq!(stats.total(Verdict::Admitted), 2);
    // While a limit is off, nothing is decided.
    limiter.overrides().enforce(Some(Enforcement::Off));
    annotated(&limiter, "alice").await.unwrap();
    assert_eq!(counts(&of("stats: annotated")), expected);

    let by_hand = Policy::fixed_window("stats: by hand", MINUTE, 4);
    let limiter = Limiter::in_memory();
    limiter.check(&by_hand, "alice").await.unwrap();
    limiter.peek(&by_hand, "alice").await.unwrap();
    limiter.check(&by_hand, "alice").cost(5).await.unwrap_err();
    limiter
        .check(&Policy::fixed_window("stats: by hand", MINUTE * 99_999_999, 4), "alice")
        .await
        .unwrap_err();
    let stats = of("stats: by hand");
    assert_eq!(
        counts(&stats),
        [
            (Verdict::Admitted, DecidedBy::Store, 1),
            (Verdict::TooLarge, DecidedBy::Limiter, 1),
            (Verdict::InvalidPolicy, DecidedBy::Limiter, 1),
        ]
    );
    assert_eq!(stats.policy(), Some(&by_hand));
}

#[tokio::test(start_paused = true)]
async fn the_least_share_is_that_of_two_seconds() {
    stats::enable();
    let limiter = Limiter::in_memory();
    let policy = Policy::fixed_window("stats: shares", MINUTE, 4);
    let share = || of("stats: shares").least_share_left();
    limiter.check(&policy, "alice").cost(3).await.unwrap();
    limiter.check(&policy, "bob").await.unwrap();
    assert_eq!(share(), Some(0.25));
    assert_eq!(share(), Some(0.25), "reading resets nothing");
    tokio::time::advance(Duration::from_secs(1)).await;
    limiter.check(&policy, "bob").await.unwrap();
    assert_eq!(share(), Some(0.25));
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!(share(), Some(0.5));
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!(share(), None);
}

#[tokio::test]
async fn the_policy_is_the_effective_one_of_the_latest_call() {
    stats::enable();
    let limiter = Limiter::in_memory();
    let policy = Policy::token_bucket("stats: overridden", MINUTE, 4).burst(2);
    limiter.check(&policy, "alice").await.unwrap();
    assert_eq!(of("stats: overridden").policy(), Some(&policy));
    limiter.overrides().set("stats: overridden", Override::new().burst(8)).unwrap();
    limiter.check(&policy, "alice").await.unwrap();
    let stats = of("stats: overridden");
    assert_eq!(stats.policy().unwrap().explicit_burst(), Some(8));
    assert_eq!(stats.policy().unwrap().tiers(), policy.tiers());
}

#[tokio::test]
async fn the_part_that_decided_is_counted_on_redis_and_without_it() {
    stats::enable();
    let mut server = RedisServer::start();
    let limiter = server.limiter().await;
    let policy = Policy::sliding_window("stats: on redis", MINUTE, 1);
    for _ in 0..3 {
        let _ = limiter.check(&policy, "alice").await;
    }
    server.kill();
    for (caller, on_store_error) in
        [("bob", OnStoreError::Local), ("carol", OnStoreError::Allow), ("dora", OnStoreError::Deny)]
    {
        let _ = limiter.check(&policy, caller).on_store_error(on_store_error).await;
    }
    assert_eq!(
        counts(&of("stats: on redis")),
        [
            (Verdict::Admitted, DecidedBy::Store, 1),
            (Verdict::Admitted, DecidedBy::Fallback, 1),
            (Verdict::Admitted, DecidedBy::Nobody, 1),
            (Verdict::Refused, DecidedBy::Store, 1),
            (Verdict::Refused, DecidedBy::DenyCache, 1),
            (Verdict::Unavailable, DecidedBy::Nobody, 1),
        ]
    );
}

#[tokio::test]
async fn calls_of_a_limiter_that_is_not_instrumented_are_not_counted() {
    stats::enable();
    let limiter = Limiter::builder().instrument(false).in_memory();
    let policy = Policy::fixed_window("stats: silent", MINUTE, 1);
    for _ in 0..2 {
        let _ = limiter.check(&policy, "alice").await;
    }
    assert!(stats::snapshot().iter().all(|limit| limit.name() != "stats: silent"));
}
