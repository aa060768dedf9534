//! `assert_covered` names what no test has seen.

use std::time::Duration;

use ratelimit_runtime::{Limiter, Plans, Policy, RateLimitError, rate_limit, testing};

use super::failure_of;

#[rate_limit(name = "covered", period = "1h", threshold = 1, key = user)]
async fn covered(user: &str) -> Result<(), RateLimitError> {
    Ok(())
}

#[rate_limit(name = "never refused", period = "1h", threshold = 100, key = user)]
async fn never_refused(user: &str) -> Result<(), RateLimitError> {
    Ok(())
}

#[rate_limit(name = "never called", period = "1h", threshold = 1, key = user)]
async fn never_called(user: &str) -> Result<(), RateLimitError> {
    Ok(())
}

#[rate_limit(name = "without a caller", period = "1h", threshold = 1)]
async fn without_a_caller() -> Result<(), RateLimitError> {
    Ok(())
}

#[rate_limit(name = "in a dry run", period = "1h", threshold = 1, key = user, dry_run)]
async fn in_a_dry_run(user: &str) -> Result<(), RateLimitError> {
    Ok(())
}

const HOUR: Duration = Duration::from_secs(3_600);
const BY_HAND: Policy = Policy::fixed_window("covered by hand", HOUR, 1);
const BY_HAND_ONLY_ONCE: Policy = Policy::fixed_window("never refused by hand", HOUR, 9);
const PLANS: Plans = Plans::new("planned", "free", Policy::fixed_window("free", HOUR, 1))
    .plan("pro", Policy::fixed_window("pro", HOUR, 2));

#[rate_limit(policy = PLANS, plan = plan)]
async fn planned(plan: &str) -> Result<(), RateLimitError> {
    Ok(())
}

/// The limits of the other tests, which run beside this one.
const OTHERS: [&str; 10] = [
    "by identity",
    "by plan",
    "report",
    "pairs",
    "fast",
    "slow",
    "plain",
    "p",
    "by hand",
    "several",
];

#[tokio::test]
async fn limits_that_no_test_has_seen_are_named_with_their_place() {
    testing::isolated(async {
        covered("alice").await.unwrap();
        covered("alice").await.unwrap_err();
        never_refused("alice").await.unwrap();
        without_a_caller().await.unwrap();
        without_a_caller().await.unwrap_err();
        in_a_dry_run("alice").await.unwrap();
        in_a_dry_run("alice").await.unwrap();
        planned("pro").await.unwrap();
        planned("pro").await.unwrap();
        planned("pro").await.unwrap_err();
        let limiter = Limiter::in_memory();
        limiter.check(&BY_HAND, "alice").await.unwrap();
        limiter.check(&BY_HAND, "alice").await.unwrap_err();
        limiter.check(&BY_HAND_ONLY_ONCE, "alice").await.unwrap();
        if false {
            never_called("alice").await.unwrap();
        }
    })
    .await;
    let failure = failure_of(async { testing::assert_covered_but(&OTHERS) }).await;
    let lines: Vec<&str> = failure.lines().skip(1).map(str::trim_start).collect();
    let shared = "was called without a caller, so that all share one bucket: write `key = ..`";
    let expected = [
        ("never called", "has admitted no call"),
        ("never called", "has refused no call"),
        ("never refused", "has refused no call"),
        ("planned@free", "has admitted no call"),
        ("planned@free", "has refused no call"),
        ("planned@pro", shared),
        ("without a caller", shared),
        ("never refused by hand", "has refused no call"),
    ];
    assert_eq!(lines.len(), expected.len(), "{failure}");
    for (line, (name, fault)) in lines.into_iter().zip(expected) {
        assert!(line.starts_with(&format!("{name} (")), "{line}");
        let place =
            if name.ends_with("by hand") { "(by hand or in a layer)" } else { "covered.rs:" };
        assert!(line.contains(place) && line.ends_with(fault), "{line}");
    }
    let rest = [
        "never called",
        "never refused",
        "without a caller",
        "planned@free",
        "planned@pro",
        "never refused by hand",
    ];
    testing::assert_covered_but(&[&OTHERS[..], &rest[..]].concat());
}
