//! `assert_limited` holds for what the limits promise, and fails for anything else.

use std::{
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use ratelimit_runtime::{Limiter, Policy, RateLimitError, rate_limit, testing};

use super::{failure_of, report};

const MINUTE: Duration = Duration::from_secs(60);

#[rate_limit(name = "fast", period = 1, threshold = 1, key = user)]
#[rate_limit(name = "slow", algorithm = token_bucket, period = "1h", threshold = 3, key = user)]
async fn stacked(user: &str) -> Result<(), RateLimitError> {
    Ok(())
}

#[rate_limit(name = "plain", period = 60, threshold = 1, fallible, key = user)]
async fn plain(user: &str) -> u8 {
    7
}

async fn unlimited() {}

fn policies() -> [Policy; 6] {
    [
        Policy::sliding_window("p", MINUTE, 5),
        Policy::sliding_counter("p", MINUTE, 5),
        Policy::fixed_window("p", MINUTE, 5),
        Policy::token_bucket("p", MINUTE, 5),
        Policy::sliding_window("p", MINUTE, 5),
        Policy::sliding_window("p", MINUTE, 5).count_rejected(),
    ]
}

#[tokio::test(start_paused = true)]
async fn the_wait_of_each_algorithm_is_exact() {
    testing::isolated(testing::assert_limited(2, || report("alice"))).await;
    testing::isolated(testing::assert_limited(1, || plain("alice"))).await;
    for policy in policies() {
        let limiter = Limiter::in_memory();
        testing::assert_limited(5, || limiter.check(&policy, "alice").into_future()).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_limit_that_admits_more_or_fewer_fails_with_its_answers() {
    let more = failure_of(testing::isolated(testing::assert_limited(1, || report("alice")))).await;
    assert!(more.contains("the next call was admitted; the answers were:\n  Ok("), "{more}");
    assert!(more.contains("assertions.rs:"), "{more}");
    let fewer = failure_of(testing::isolated(testing::assert_limited(3, || report("alice")))).await;
    assert!(fewer.contains("call 3 of 3 was refused"), "{fewer}");
    assert!(fewer.contains("  Err("), "{fewer}");
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_is_not_kept_fails() {
    // Both limits refuse in turn: the wait of the first is not that of the call.
    let both = async {
        stacked("alice").await.unwrap();
        tokio::time::advance(Duration::from_secs(1)).await;
        stacked("alice").await.unwrap();
        tokio::time::advance(Duration::from_secs(1)).await;
        stacked("alice").await.unwrap();
        testing::assert_limited(0, || stacked("alice")).await;
    };
    let failure = failure_of(testing::isolated(both)).await;
    assert!(failure.contains("when its wait was over"), "{failure}");
    let busy = async {
        testing::busy("report");
        testing::assert_limited(0, || report("alice")).await;
    };
    let failure = failure_of(testing::isolated(busy)).await;
    assert!(failure.contains("not refused by its quota"), "{failure}");
}

/// The refusal of one call promises a second, and the limit keeps an hour.
#[tokio::test(start_paused = true)]
async fn a_promise_that_is_too_early_fails() {
    let early = async {
        let calls = AtomicU32::new(0);
        let call = || {
            match calls.fetch_add(1, Ordering::Relaxed) {
                2 => testing::refuse("report", Duration::from_secs(1)),
                _ => testing::restore("report"),
            }
            report("alice")
        };
        testing::assert_limited(2, call).await;
    };
    let failure = failure_of(testing::isolated(early)).await;
    let expected = "the call was refused for 3599.000001s when 1µs of its wait was left";
    assert!(failure.contains(expected), "{failure}");
}

#[tokio::test(start_paused = true)]
async fn a_call_that_asks_no_limit_fails() {
    let failure = failure_of(testing::assert_limited(1, unlimited)).await;
    assert!(failure.contains("the call asked no limit"), "{failure}");
}

#[tokio::test]
async fn a_clock_that_is_not_paused_fails() {
    let failure = failure_of(testing::isolated(testing::assert_limited(2, || report("alice"))));
    let failure = failure.await;
    assert!(failure.contains("#[tokio::test(start_paused = true)]"), "{failure}");
}
