//! Overrides reach limits whose numbers come with the call, also when those break a rule.

use std::time::Duration;

use harness::{Watch, admitted, exceeded, on_each_store};
use ratelimit_runtime::{
    Enforcement, Limiter, Override, Policy, RateLimitError, observe, rate_limit,
    stats::{self, Verdict},
    usage::UsageError,
};

const MINUTE: Duration = Duration::from_secs(60);

#[rate_limit(name = "search", period = 60, threshold = plan, key = user, limiter = limiter)]
async fn search(limiter: &Limiter, plan: u32, user: &str) -> Result<(), RateLimitError> {
    Ok(())
}

#[rate_limit(name = "upload", period = 60, threshold = 9, cost = size, key = user, limiter = limiter)]
async fn upload(limiter: &Limiter, size: u32, user: &str) -> Result<(), RateLimitError> {
    Ok(())
}

#[rate_limit(name = "by plan", period = 60, threshold = plan, concurrency = at_once, limiter = limiter, decision = decision)]
async fn by_plan(limiter: &Limiter, plan: u32, at_once: u32) -> Result<u32, RateLimitError> {
    Ok(decision.threshold())
}

#[rate_limit(name = "burst", algorithm = token_bucket, period = 60, threshold = 4, burst = burst, limiter = limiter, decision = decision)]
async fn bursts(limiter: &Limiter, burst: u32) -> Result<u32, RateLimitError> {
    Ok(decision.threshold())
}

/// The attribute declares 0 for each of these numbers.
#[tokio::test]
async fn limits_whose_burst_or_concurrency_comes_with_the_call_are_overridden_and_scaled() {
    on_each_store(async |limiter| {
        let here = limiter.overrides().here();
        here.set("by plan", Override::new().threshold(50)).unwrap();
        assert_eq!(by_plan(limiter, 10, 3).await.unwrap(), 50);
        here.remove("by plan");
        here.set("burst", Override::new().threshold(8)).unwrap();
        assert_eq!(bursts(limiter, 10).await.unwrap(), 8);
        here.remove("burst");
        here.set("*", Override::new().scale(0.5)).unwrap();
        let problems = format!("{:?}", limiter.overrides().problems());
        assert!(!problems.contains("by plan") && !problems.contains("burst"), "{problems}");
        assert_eq!(by_plan(limiter, 10, 3).await.unwrap(), 5);
        assert_eq!(bursts(limiter, 10).await.unwrap(), 2);
        here.remove("*");
        let usage = limiter.usage("by plan", "alice").await;
        assert!(matches!(usage, Err(UsageError::Dynamic { .. })), "{usage:?}");
    })
    .await;
}

/// Two that may wait are a rule that is broken, as any other.
#[tokio::test]
async fn the_kill_switch_and_a_dry_run_reach_two_calls_that_may_wait() {
    const ONE: Policy = Policy::sliding_window("waits first", MINUTE, 5);
    const OTHER: Policy = Policy::sliding_window("waits second", MINUTE, 5);
    on_each_store(async |limiter| {
        let both = || [&ONE, &OTHER].map(|it| limiter.check(it, "alice").max_wait(MINUTE));
        let check = async || limiter.check_all(both()).await.map(drop);
        let counted = || {
            let all = stats::snapshot();
            let of_limit = all.iter().filter(|it| it.name() == OTHER.name());
            of_limit.map(|it| it.total(Verdict::InvalidPolicy)).sum::<u64>()
        };
        let before = counted();
        assert!(is_invalid(&check().await));
        assert_eq!(counted(), before + 1);
        for enforcement in [Enforcement::Off, Enforcement::DryRun] {
            limiter.overrides().here().set("*", enforcement).unwrap();
            check().await.unwrap();
            limiter.overrides().here().remove("*");
        }
    })
    .await;
}

/// A limit with an invalid threshold.
async fn nothing(limiter: &Limiter) -> Result<(), RateLimitError> {
    search(limiter, 0, "alice").await
}

async fn by_hand(limiter: &Limiter) -> Result<(), RateLimitError> {
    let policy = Policy::sliding_window("by hand", MINUTE, 0);
    limiter.check(&policy, "alice").await.map(drop)
}

async fn too_short(limiter: &Limiter) -> Result<(), RateLimitError> {
    let policy = Policy::sliding_window("too short", Duration::ZERO, 1);
    limiter.check(&policy, "alice").await.map(drop)
}

async fn too_large(limiter: &Limiter) -> Result<(), RateLimitError> {
    upload(limiter, 12, "alice").await
}

fn is_invalid<T>(answer: &Result<T, RateLimitError>) -> bool {
    matches!(answer, Err(RateLimitError::InvalidPolicy(_)))
}

fn is_too_large<T>(answer: &Result<T, RateLimitError>) -> bool {
    matches!(answer, Err(RateLimitError::TooLarge(_)))
}

#[tokio::test]
async fn the_kill_switch_and_a_dry_run_reach_a_limit_that_breaks_a_rule() {
    on_each_store(async |limiter| {
        let overrides = limiter.overrides();
        for enforcement in [Enforcement::Off, Enforcement::DryRun] {
            overrides.here().set("*", enforcement).unwrap();
            nothing(limiter).await.unwrap();
            too_large(limiter).await.unwrap();
            by_hand(limiter).await.unwrap();
            too_short(limiter).await.unwrap();
            overrides.here().remove("*");
            assert!(is_too_large(&nothing(limiter).await), "{enforcement}");
            assert!(is_too_large(&too_large(limiter).await), "{enforcement}");
            assert!(is_too_large(&by_hand(limiter).await), "{enforcement}");
            assert!(is_invalid(&too_short(limiter).await), "{enforcement}");

            for name in ["search", "upload", "by hand", "too short"] {
                overrides.here().set(name, Override::new().enforcement(enforcement)).unwrap();
            }
            nothing(limiter).await.unwrap();
            too_large(limiter).await.unwrap();
            by_hand(limiter).await.unwrap();
            too_short(limiter).await.unwrap();
            for name in ["search", "upload", "by hand", "too short"] {
                overrides.here().remove(name);
            }
        }
    })
    .await;
}

#[tokio::test]
async fn a_valid_override_repairs_a_limit_that_breaks_a_rule() {
    on_each_store(async |limiter| {
        let overrides = limiter.overrides();
        for (name, threshold) in [("search", 2), ("upload", 24), ("by hand", 2)] {
            overrides.here().set(name, Override::new().threshold(threshold)).unwrap();
        }
        assert_eq!(admitted(async || nothing(limiter).await).await, 2);
        assert_eq!(exceeded(nothing(limiter).await).threshold(), 2);
        assert_eq!(admitted(async || too_large(limiter).await).await, 2);
        assert_eq!(exceeded(too_large(limiter).await).threshold(), 24);
        let policy = Policy::sliding_window("by hand", MINUTE, 0);
        assert_eq!(limiter.peek(&policy, "alice").await.unwrap().remaining(), 1);
        assert_eq!(admitted(async || by_hand(limiter).await).await, 2);

        // The effective policy refuses a call that exceeds it.
        overrides.here().set("upload", Override::new().threshold(11)).unwrap();
        assert!(matches!(
            too_large(limiter).await,
            Err(RateLimitError::TooLarge(refused)) if refused.threshold() == 11
        ));
    })
    .await;
}

#[tokio::test]
async fn a_dry_run_reports_a_limit_that_breaks_a_rule() {
    let watch = Watch::start();
    let limiter = Limiter::in_memory();
    limiter.overrides().here().set("*", Enforcement::DryRun).unwrap();
    let (answer, seen) = observe(nothing(&limiter)).await;
    assert!(answer.is_ok() && seen.len() == 1 && is_too_large(&seen[0]), "{seen:?}");
    too_short(&limiter).await.unwrap();
    let passed =
        limiter.check(&Policy::sliding_window("by hand", MINUTE, 1), "alice").cost(2).await;
    assert_eq!(passed.unwrap().remaining(), 0);
    for rule in [
        "rate limit `search` admits nothing: its threshold is 0",
        "rate limit `by hand` never admits 2 units at once: at most 1 per 60s",
        "invalid rate limit policy `too short`: `period` must be at least 1 ms",
    ] {
        assert_eq!(watch.count(rule), 1, "{}", watch.text());
    }
    // A peek reports the limit, regardless of its enforcement.
    let policy = Policy::sliding_window("by hand", MINUTE, 0);
    assert!(is_too_large(&limiter.peek(&policy, "alice").await));
}

#[tokio::test]
async fn a_limit_with_dynamic_values_is_overridden_too() {
    let limiter = Limiter::in_memory();
    limiter.overrides().here().set("search", Override::new().threshold(1)).unwrap();
    assert_eq!(admitted(async || search(&limiter, 5, "alice").await).await, 1);
}

#[test]
fn an_override_that_no_call_could_have_is_refused() {
    let limiter = Limiter::in_memory();
    for (wrong, message) in [
        (Override::new().threshold(0), "`threshold` must be at least 1"),
        (
            Override::new().burst(2),
            "`burst` is the size of a `token_bucket`; a `sliding_window` has none",
        ),
    ] {
        let error = limiter.overrides().here().set("search", wrong).unwrap_err();
        let expected = format!("invalid override of rate limit `search`: {message}");
        assert_eq!((error.to_string(), error.limit()), (expected, Some("search")));
    }
}

#[tokio::test]
async fn an_override_for_other_tiers_changes_no_call_and_is_logged_once() {
    let watch = Watch::start();
    let limiter = Limiter::in_memory();
    let tiers = Policy::sliding_window("by hand", MINUTE, 1).tier(MINUTE * 60, 5);
    limiter.overrides().here().set("by hand", Override::new().threshold(3)).unwrap();
    limiter.check(&tiers, "alice").await.unwrap();
    assert_eq!(exceeded(limiter.check(&tiers, "alice").await).threshold(), 1);
    let warning = "the limit has 2 tiers; give all of them as `tiers`";
    assert_eq!(watch.count(warning), 1, "{}", watch.text());
    assert_eq!(watch.count("override does not fit"), 1, "{}", watch.text());
}
