//! The embedded store: its clock, and the memory that it and each of its limits may take.

use std::time::Duration;

use harness::exceeded;
use ratelimit_runtime::{Limiter, Policy};
use tokio::runtime::Runtime;

const HOUR: Duration = Duration::from_secs(3_600);
const MINUTE: Duration = Duration::from_secs(60);
const ALGORITHMS: [Policy; 4] = [
    Policy::sliding_window("p", MINUTE, 2),
    Policy::sliding_counter("p", MINUTE, 2),
    Policy::fixed_window("p", MINUTE, 2),
    Policy::token_bucket("p", MINUTE, 2),
];

/// A runtime whose clock stands still, so far ahead of others.
fn paused(ahead: Duration) -> Runtime {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_time().start_paused(true).build().unwrap();
    runtime.block_on(tokio::time::advance(ahead));
    runtime
}

/// Two calls are admitted, the third only after its wait.
async fn assert_counts(limiter: &Limiter, policy: &Policy, caller: &str) {
    for _ in 0..2 {
        limiter.check(policy, caller).await.unwrap();
    }
    let wait = exceeded(limiter.check(policy, caller).await).retry_after();
    assert!(wait <= 2 * MINUTE, "{wait:?}");
    tokio::time::advance(wait - Duration::from_micros(1)).await;
    exceeded(limiter.check(policy, caller).await);
    tokio::time::advance(Duration::from_micros(1)).await;
    limiter.check(policy, caller).await.unwrap();
}

#[test]
fn clocks_that_are_hours_apart_move_one_store() {
    for policy in ALGORITHMS {
        // Made by the first test that uses it, as the embedded limiter is.
        let limiter = paused(HOUR * 5).block_on(async { Limiter::in_memory() });
        for (caller, hours) in [("first", 5), ("behind", 0), ("ahead", 1_000), ("again", 2)] {
            paused(HOUR * hours).block_on(assert_counts(&limiter, &policy, caller));
        }
    }
}

#[test]
fn a_caller_of_a_clock_that_is_ahead_is_refused_for_one_period_at_the_most() {
    for policy in ALGORITHMS {
        let limiter = paused(HOUR * 5).block_on(async {
            let limiter = Limiter::in_memory();
            for _ in 0..2 {
                limiter.check(&policy, "alice").await.unwrap();
            }
            limiter
        });
        paused(Duration::ZERO).block_on(async {
            let wait = exceeded(limiter.check(&policy, "alice").await).retry_after();
            assert!(wait <= 2 * MINUTE, "{wait:?}");
            tokio::time::advance(wait).await;
            limiter.check(&policy, "alice").await.unwrap();
        });
    }
}
