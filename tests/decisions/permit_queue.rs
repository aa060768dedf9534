//! Calls that wait for a permit are served in the order of their arrival.

use std::time::Duration;

use harness::{on_each_store, until};
use ratelimit_runtime::{Decision, Limiter, Policy, RateLimitError};
use tokio::task::JoinHandle;

const MINUTE: Duration = Duration::from_secs(60);
const ONE: Policy = Policy::concurrency_limit("one", 1);

fn is_busy<T>(answer: &Result<T, RateLimitError>) -> bool {
    matches!(answer, Err(RateLimitError::Busy(_)))
}

#[tokio::test]
async fn a_call_waits_for_a_permit_for_as_long_as_it_may() {
    on_each_store(async |limiter| {
        let first = limiter.check(&ONE, "alice").await.unwrap();
        let brief = Duration::from_millis(20);
        assert!(is_busy(&limiter.check(&ONE, "alice").max_wait(brief).await));
        let waiting = arrive(limiter, ONE);
        tokio::time::sleep(brief).await;
        assert!(!waiting.is_finished());
        drop(first);
        let second = waiting.await.unwrap().unwrap();
        assert!(second.has_permit() && !second.waited().is_zero());
    })
    .await;
}

fn arrive(limiter: &Limiter, policy: Policy) -> JoinHandle<Result<Decision, RateLimitError>> {
    let limiter = limiter.clone();
    tokio::spawn(async move { limiter.check(&policy, "alice").max_wait(MINUTE).await })
}

#[tokio::test]
async fn freed_permits_go_to_the_calls_that_wait_in_the_order_of_their_arrival() {
    on_each_store(async |limiter| {
        let mut holder = limiter.check(&ONE, "alice").await.unwrap();
        let mut calls = Vec::new();
        for _ in 0..6 {
            calls.push(arrive(limiter, ONE));
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        // One in the middle leaves, and one that has waited for its turn.
        calls.remove(3).abort();
        calls.remove(0).abort();
        tokio::time::sleep(Duration::from_millis(20)).await;
        while !calls.is_empty() {
            // A call that does not wait does not overtake.
            assert!(is_busy(&limiter.check(&ONE, "alice").await));
            drop(holder);
            holder = calls.remove(0).await.unwrap().unwrap();
            tokio::time::sleep(Duration::from_millis(20)).await;
            assert!(calls.iter().all(|call| !call.is_finished()));
        }
        drop(holder);
        until("a free permit", async || limiter.check(&ONE, "alice").await.ok()).await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_call_takes_its_permit_with_its_turn_and_holds_it_while_it_waits() {
    let limiter = Limiter::in_memory();
    let policy = Policy::sliding_window("waits", MINUTE, 1).concurrency(2);
    let first = limiter.check(&policy, "alice").await.unwrap();
    let (second, third) = (arrive(&limiter, policy), arrive(&limiter, policy));
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(is_busy(&limiter.check(&policy, "alice").await));
    // Now the third has a permit, and the turn after the second.
    drop(first);
    let second = second.await.unwrap().unwrap();
    assert_eq!(second.waited(), MINUTE);
    assert!(matches!(third.await.unwrap(), Err(RateLimitError::Exceeded(_))));
    // A call that leaves the line frees its permit.
    let leaves = arrive(&limiter, policy);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(is_busy(&limiter.check(&policy, "alice").await));
    leaves.abort();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(matches!(limiter.check(&policy, "alice").await, Err(RateLimitError::Exceeded(_))));
    drop(second);
}

#[tokio::test(start_paused = true)]
async fn a_full_queue_for_permits_refuses_at_once() {
    let limiter = Limiter::builder().max_line(1).in_memory();
    let first = limiter.check(&ONE, "alice").await.unwrap();
    let waits = arrive(&limiter, ONE);
    tokio::task::yield_now().await;
    let start = tokio::time::Instant::now();
    assert!(is_busy(&limiter.check(&ONE, "alice").max_wait(MINUTE).await));
    assert_eq!(start.elapsed(), Duration::ZERO);
    drop(first);
    assert!(waits.await.unwrap().is_ok());
}
