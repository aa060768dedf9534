//! `assert_covered` names what no test has seen.

use ratelimit_runtime::{RateLimitError, rate_limit, testing};

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

/// The limits of the other tests, which run beside this one.
const OTHERS: [&str; 5] = ["report", "pairs", "fast", "slow", "plain"];

#[tokio::test]
async fn limits_that_no_test_has_seen_are_named_with_their_place() {
    testing::isolated(async {
        covered("alice").await.unwrap();
        covered("alice").await.unwrap_err();
        never_refused("alice").await.unwrap();
        without_a_caller().await.unwrap();
        without_a_caller().await.unwrap_err();
        if false {
            never_called("alice").await.unwrap();
        }
    })
    .await;
    let failure = failure_of(async { testing::assert_covered_but(&OTHERS) }).await;
    let lines: Vec<&str> = failure.lines().skip(1).map(str::trim_start).collect();
    let expected = [
        ("never called", "has admitted no call"),
        ("never called", "has refused no call"),
        ("never refused", "has refused no call"),
        (
            "without a caller",
            "was called without a caller, so that all share one bucket: write `key = ..`",
        ),
    ];
    assert_eq!(lines.len(), expected.len(), "{failure}");
    for (line, (name, fault)) in lines.into_iter().zip(expected) {
        assert!(line.starts_with(&format!("{name} (")), "{line}");
        assert!(line.contains("covered.rs:") && line.ends_with(fault), "{line}");
    }
    let rest = ["never called", "never refused", "without a caller"];
    testing::assert_covered_but(&[&OTHERS[..], &rest[..]].concat());
}
