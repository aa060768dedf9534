//! Stats count each call once, by verdict and by the part of the limiter that decided it.

use std::{future::IntoFuture, time::Duration};

use axum::{Router, body::Body, http::Request, routing::get};
use harness::{Lines, RedisServer, listen, ran_in_own_process};
use ratelimit_runtime::{
    DecidedBy, Enforcement, Limiter, OnStoreError, Override, Policy, RateLimitError, caller,
    rate_limit,
    stats::{self, PolicyStats, TimeWindow, Verdict},
    web::{
        OnMissing,
        tower::{Identity, Limit, RateLimitLayer},
    },
};
use tower::ServiceExt;

const MINUTE: Duration = Duration::from_secs(60);

/// Returns the stats of one limit.
fn of(name: &str) -> PolicyStats {
    let found = stats::snapshot().into_iter().find(|limit| limit.name() == name);
    found.expect("the limit was called")
}

/// Returns the counts that are not zero.
fn counts(stats: &PolicyStats) -> Vec<(Verdict, DecidedBy, u64)> {
    let deciders = [
        DecidedBy::Store,
        DecidedBy::DenyCache,
        DecidedBy::Lease,
        DecidedBy::Fallback,
        DecidedBy::Nobody,
        DecidedBy::Limiter,
    ];
    let pairs = Verdict::ALL.iter().flat_map(|verdict| deciders.map(|by| (*verdict, by)));
    let all = pairs.map(|(verdict, by)| (verdict, by, stats.calls(verdict, by)));
    all.filter(|(.., count)| *count > 0).collect()
}

#[rate_limit(name = "stats: annotated", period = 60, threshold = 2, key = user, limiter = limiter)]
async fn annotated(limiter: &Limiter, user: &str) -> Result<(), RateLimitError> {
    Ok(())
}

#[tokio::test]
async fn annotated_calls_and_checks_by_hand_are_counted_by_verdict() {
    let limiter = Limiter::in_memory();
    for _ in 0..3 {
        let _ = annotated(&limiter, "alice").await;
    }
    limiter.overrides().here().set("*", Enforcement::DryRun).unwrap();
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
    limiter.overrides().here().set("*", Enforcement::Off).unwrap();
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
    limiter.overrides().here().set(("stats: by hand", "alice"), Override::new().deny()).unwrap();
    limiter.check(&by_hand, "alice").await.unwrap_err();
    let stats = of("stats: by hand");
    assert_eq!(
        counts(&stats),
        [
            (Verdict::Admitted, DecidedBy::Store, 1),
            (Verdict::Denied, DecidedBy::Limiter, 1),
            (Verdict::TooLarge, DecidedBy::Limiter, 1),
            (Verdict::InvalidPolicy, DecidedBy::Limiter, 1),
        ]
    );
    assert_eq!(stats.policy(), Some(&by_hand));
}

#[tokio::test(start_paused = true)]
async fn the_largest_used_share_is_kept_for_a_minute_however_often_it_is_read() {
    // The tests of one process read the shares of all limits.
    if ran_in_own_process(
        "stats::the_largest_used_share_is_kept_for_a_minute_however_often_it_is_read",
    ) {
        return;
    }
    let limiter = Limiter::in_memory();
    let policy = Policy::fixed_window("stats: shares", MINUTE, 4);
    #[expect(clippy::cast_possible_truncation, reason = "a percentage")]
    let share = || (of("stats: shares").max_used_share() * 100.0) as i64;
    limiter.check(&policy, "alice").cost(3).await.unwrap();
    // A page reads each second, and an exporter now and then.
    for _ in 0..60 {
        assert_eq!(share(), 75);
        tokio::time::advance(Duration::from_secs(1)).await;
    }
    assert_eq!(share(), 75);
    tokio::time::advance(MINUTE).await;
    assert_eq!(share(), 0);
    limiter.check(&policy, "alice").cost(3).await.unwrap();
    limiter.check(&policy, "alice").cost(2).await.unwrap_err();
    assert_eq!(share(), 100);
    // Annotated functions read what is left for one of sixteen calls.
    for _ in 0..17 {
        sampled(&limiter).await.unwrap();
    }
    assert_eq!(of("stats: sampled").policy().unwrap().tiers()[0].threshold(), 100);
    let used = of("stats: sampled").max_used_share();
    assert!((used - 0.17).abs() < 1e-4, "{used}");
}

#[rate_limit(name = "stats: sampled", period = 60, threshold = 100, key = 1, limiter = limiter)]
async fn sampled(limiter: &Limiter) -> Result<(), RateLimitError> {
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn units_and_tiers_are_counted() {
    let limiter = Limiter::in_memory();
    let policy = Policy::sliding_window("stats: tiers", MINUTE, 3).tier(MINUTE * 60, 4);
    limiter.check(&policy, "alice").cost(3).await.unwrap();
    limiter.check(&policy, "alice").cost(2).await.unwrap_err();
    tokio::time::advance(MINUTE).await;
    limiter.check(&policy, "alice").await.unwrap();
    limiter.check(&policy, "alice").await.unwrap_err();
    let stats = of("stats: tiers");
    assert_eq!((stats.units(Verdict::Admitted), stats.units(Verdict::Refused)), (4, 3));
    assert_eq!((stats.refused_by_tier(0), stats.refused_by_tier(1)), (0, 2));
}

#[tokio::test(start_paused = true)]
async fn refusals_of_a_dry_run_are_of_no_tier() {
    let limiter = Limiter::in_memory();
    let policy = Policy::sliding_window("stats: dry tiers", MINUTE, 3).tier(MINUTE * 60, 4);
    limiter.check(&policy, "alice").cost(3).await.unwrap();
    limiter.check(&policy, "alice").await.unwrap_err();
    tokio::time::advance(MINUTE).await;
    limiter.check(&policy, "alice").await.unwrap();
    limiter.overrides().here().set("*", Enforcement::DryRun).unwrap();
    limiter.check(&policy, "alice").await.unwrap();
    let stats = of("stats: dry tiers");
    assert_eq!(stats.total(Verdict::WouldHaveRefused), 1);
    assert_eq!((stats.refused_by_tier(0), stats.refused_by_tier(1)), (1, 0));
}

#[tokio::test]
async fn calls_that_redis_does_not_decide_are_sampled_too() {
    let mut server = RedisServer::start();
    let limiter = server.limiter().await;
    let policy = Policy::fixed_window("stats: sampled without redis", MINUTE * 60, 100);
    limiter.check(&policy, "alice").await.unwrap();
    server.kill();
    for _ in 0..40 {
        limiter.check(&policy, "bob").await.unwrap();
    }
    let stats = of("stats: sampled without redis");
    let by_fallback = stats.calls(Verdict::Admitted, DecidedBy::Fallback);
    assert_eq!(by_fallback, 40);
    assert!(stats.max_used_share() > 0.2, "{}", stats.max_used_share());
}

#[tokio::test]
async fn permits_that_are_held_are_counted_on_each_store() {
    let server = RedisServer::start();
    let on_redis = Limiter::builder().instrument(false).connect(&server.url()).await.unwrap();
    let in_memory = Limiter::builder().instrument(false).in_memory();
    let silent = [in_memory, on_redis];
    for (limiter, silent) in [Limiter::in_memory(), server.limiter().await].iter().zip(silent) {
        let name = if limiter.is_in_memory() { "stats: in memory" } else { "stats: permits" };
        let policy = Policy::concurrency_limit(name, 2);
        let held = limiter.check(&policy, "alice").await.unwrap();
        let _other = limiter.check(&policy, "bob").await.unwrap();
        // Nothing of this limiter is counted.
        let _uncounted = silent.check(&policy, "carol").await.unwrap();
        assert_eq!(of(name).permits_held(), 2);
        drop(held);
        assert_eq!(of(name).permits_held(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn refusals_are_kept_for_an_hour() {
    let limiter = Limiter::in_memory();
    let policy = Policy::fixed_window("stats: flooded", MINUTE, 1);
    let within = || TimeWindow::ALL.iter().map(|it| of("stats: flooded").refused_within(*it));
    let refused = |calls| (0..calls).map(|_| limiter.check(&policy, "mallory").into_future());
    for call in refused(101) {
        let _ = call.await;
    }
    assert_eq!(within().collect::<Vec<_>>(), [100; 3]);
    tokio::time::advance(MINUTE * 10).await;
    assert_eq!(within().collect::<Vec<_>>(), [0, 0, 100]);
    for call in refused(11) {
        let _ = call.await;
    }
    assert_eq!(within().collect::<Vec<_>>(), [10, 10, 110]);
    tokio::time::advance(MINUTE * 49).await;
    assert_eq!(within().collect::<Vec<_>>(), [0, 0, 110]);
    tokio::time::advance(MINUTE).await;
    assert_eq!(within().collect::<Vec<_>>(), [0, 0, 10]);
}

#[tokio::test]
async fn the_policy_is_the_effective_one_of_a_recent_call() {
    let limiter = Limiter::in_memory();
    let policy = Policy::token_bucket("stats: overridden", MINUTE, 4).burst(2);
    limiter.check(&policy, "alice").await.unwrap();
    assert_eq!(of("stats: overridden").policy(), Some(&policy));
    limiter.overrides().here().set("stats: overridden", Override::new().burst(40)).unwrap();
    for _ in 0..16 {
        limiter.check(&policy, "bob").await.unwrap();
    }
    let stats = of("stats: overridden");
    assert_eq!(stats.policy().unwrap().get_burst(), Some(40));
    assert_eq!(stats.policy().unwrap().tiers(), policy.tiers());
}

#[tokio::test]
async fn the_part_that_decided_is_counted_on_redis_and_without_it() {
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
    let limiter = Limiter::builder().instrument(false).in_memory();
    let policy = Policy::fixed_window("stats: silent", MINUTE, 1);
    for _ in 0..2 {
        let _ = limiter.check(&policy, "alice").await;
    }
    assert!(stats::snapshot().iter().all(|limit| limit.name() != "stats: silent"));
}

#[tokio::test]
async fn a_limit_without_callers_shares_one_bucket_and_is_logged_once() {
    const SHARED: Policy = Policy::sliding_window("stats: shared", MINUTE, 9);
    const BY_USER: Policy = Policy::sliding_window("stats: by user", MINUTE, 9);

    #[rate_limit(name = "stats: keyless", threshold = 9)]
    async fn keyless() -> Result<(), RateLimitError> {
        Ok(())
    }

    #[rate_limit(name = "stats: keyless", threshold = 9)]
    async fn keyless_too() -> Result<(), RateLimitError> {
        Ok(())
    }

    let lines = Lines::default();
    let _listening = listen(lines.clone());
    caller::scope("alice", keyless()).await.unwrap();
    assert!(!of("stats: keyless").shares_one_bucket());
    let layer = RateLimitLayer::new(Limit::new(BY_USER).identity(Identity::header("x-user")));
    let router = Router::new().route("/", get(async || keyless().await.is_ok().to_string()));
    let router = router.layer(layer.and(SHARED).on_missing(OnMissing::Shared));
    for _ in 0..2 {
        let request = Request::get("/").header("x-user", "alice").body(Body::empty()).unwrap();
        assert_eq!(router.clone().oneshot(request).await.unwrap().status(), 200);
        keyless_too().await.unwrap();
    }
    for (name, is_shared) in
        [("stats: shared", true), ("stats: by user", false), ("stats: keyless", true)]
    {
        assert_eq!(of(name).shares_one_bucket(), is_shared, "{name}");
        let policy = format!("policy=\"{name}\"");
        let is_it = |line: &&String| line.contains(&policy) && line.contains("share one bucket");
        assert_eq!(lines.all().iter().filter(is_it).count(), usize::from(is_shared), "{name}");
    }
}
