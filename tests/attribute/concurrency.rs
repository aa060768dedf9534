//! `concurrency` bounds the calls in flight; a call holds its permit until its body has ended, however it
//! ends.
#![deny(
    warnings,
    clippy::all,
    clippy::pedantic,
    clippy::nursery,
    unused,
    rust_2018_idioms,
    missing_docs,
    unused_qualifications
)]
#![allow(clippy::redundant_pub_crate, reason = "`unreachable_pub` asks for the contrary")]

use std::{
    future::Future,
    pin::{Pin, pin},
    task::{Context, Waker},
    time::Duration,
};

use harness::{exceeded, on_each_store, until};
use ratelimit_runtime::{Limiter, Policy, RateLimitError, rate_limit};
use tokio::sync::Notify;

type Done = Result<(), RateLimitError>;

const SHARED: Policy = Policy::concurrency_limit("in-flight-shared", 1);

#[rate_limit(concurrency = 1, key = user, limiter = limiter)]
async fn alone(limiter: &Limiter, user: &str, end: &Notify) -> Done {
    end.notified().await;
    Ok(())
}

#[rate_limit(
    period = 60,
    threshold = 2,
    concurrency = calls,
    concurrency_timeout = Duration::from_secs(5),
    skip = calls == 0,
    limiter = limiter,
    key = 1
)]
async fn with_a_window(limiter: &Limiter, calls: u32, end: &Notify) -> Done {
    end.notified().await;
    Ok(())
}

#[rate_limit(policy = SHARED, fallible, limiter = limiter, key = 1)]
async fn shared(limiter: &Limiter, end: &Notify) -> u32 {
    end.notified().await;
    7
}

#[rate_limit(concurrency = 1, decision = quota, otherwise = false, limiter = limiter, key = 1)]
async fn decided(limiter: &Limiter, end: &Notify) -> bool {
    end.notified().await;
    quota.has_permit()
}

#[rate_limit(name = "in-flight-first", threshold = 9, limiter = limiter, key = 1)]
#[rate_limit(name = "in-flight-second", concurrency = 1, limiter = limiter, key = 1)]
async fn stacked(limiter: &Limiter, end: &Notify) -> Done {
    end.notified().await;
    Ok(())
}

#[rate_limit(concurrency = 1, limiter = limiter, key = 1)]
async fn panics(limiter: &Limiter, does: bool) -> Done {
    assert!(!does, "as asked");
    Ok(())
}

struct Service {
    limiter: Limiter,
    end: Notify,
}

#[async_trait::async_trait]
trait Upload {
    async fn upload(&self, user: String) -> Done;
}

#[async_trait::async_trait]
impl Upload for Service {
    #[rate_limit(concurrency = 1, key = user, limiter = self.limiter)]
    async fn upload(&self, user: String) -> Done {
        drop(user);
        self.end.notified().await;
        Ok(())
    }
}

const fn is_busy<T>(answer: &Result<T, RateLimitError>) -> bool {
    matches!(answer, Err(RateLimitError::Busy(_)))
}

#[allow(
    clippy::future_not_send,
    clippy::option_if_let_else,
    clippy::single_match_else,
    reason = "a helper of the test, on one thread"
)]
/// Two calls at one time: the second is refused, and the permit is free after the first.
async fn one_at_a_time<T, F: Future<Output = Result<T, RateLimitError>>>(
    end: &Notify,
    call: impl Fn() -> F,
) {
    let mut first = Box::pin(call());
    until("a call in flight", async || {
        let pending = tokio::time::timeout(Duration::ZERO, &mut first).await.is_err();
        assert!(pending, "the body has not ended");
        is_busy(&tokio::time::timeout(Duration::from_millis(50), call()).await.ok()?).then_some(())
    })
    .await;
    end.notify_one();
    assert!(first.await.is_ok());
    // A call that is dropped frees its permit too.
    let mut dropped: Pin<Box<F>> = Box::pin(call());
    until("the permit is free again", async || {
        match tokio::time::timeout(Duration::from_millis(50), &mut dropped).await {
            Ok(answer) => {
                assert!(is_busy(&answer));
                dropped = Box::pin(call());
                None
            }
            Err(_) => Some(()),
        }
    })
    .await;
    drop(dropped);
    until("the permit of the dropped call", async || {
        let mut last = Box::pin(call());
        let answer = match tokio::time::timeout(Duration::from_millis(50), &mut last).await {
            Ok(answer) => answer,
            // It runs, or Redis has not answered yet.
            Err(_) => {
                end.notify_one();
                last.await
            }
        };
        assert!(answer.is_ok() || is_busy(&answer));
        answer.ok().map(drop)
    })
    .await;
}

#[tokio::test]
async fn a_call_in_flight_refuses_the_next_until_it_ends() {
    on_each_store(async |limiter| {
        let end = Notify::new();
        one_at_a_time(&end, || alone(limiter, "alice", &end)).await;
        one_at_a_time(&end, || shared(limiter, &end)).await;
        one_at_a_time(&end, || stacked(limiter, &end)).await;
        let service = Service { limiter: limiter.clone(), end: Notify::new() };
        one_at_a_time(&service.end, || service.upload("alice".to_owned())).await;
    })
    .await;
}

#[tokio::test]
async fn windows_and_permits_are_taken_together() {
    let limiter = Limiter::in_memory();
    let end = Notify::new();
    let mut first = pin!(with_a_window(&limiter, 1, &end));
    let mut context = Context::from_waker(Waker::noop());
    assert!(first.as_mut().poll(&mut context).is_pending());
    for _ in 0..5 {
        assert!(is_busy(&with_a_window(&limiter, 1, &end).await));
    }
    end.notify_one();
    first.await.unwrap();
    end.notify_one();
    with_a_window(&limiter, 1, &end).await.unwrap();
    exceeded(with_a_window(&limiter, 1, &end).await);
    end.notify_one();
    with_a_window(&limiter, 0, &end).await.unwrap();
    let mut first = pin!(decided(&limiter, &end));
    assert!(first.as_mut().poll(&mut context).is_pending());
    assert!(!decided(&limiter, &end).await);
    end.notify_one();
    assert!(first.await);
}

#[tokio::test]
async fn a_panic_frees_the_permit() {
    let limiter = Limiter::in_memory();
    let in_task = limiter.clone();
    let panicked = tokio::spawn(async move { panics(&in_task, true).await }).await;
    assert!(panicked.unwrap_err().is_panic());
    panics(&limiter, false).await.unwrap();
}

const fn assert_send<T: Send>(_: &T) {}

#[test]
fn futures_that_hold_a_permit_stay_send_and_small() {
    let (limiter, end) = (Limiter::in_memory(), Notify::new());
    let (alone, stacked) = (alone(&limiter, "a", &end), stacked(&limiter, &end));
    assert_send(&alone);
    assert_send(&stacked);
    println!("alone: {} bytes, two: {} bytes", size_of_val(&alone), size_of_val(&stacked));
    assert!(size_of_val(&alone) < 1024 && size_of_val(&stacked) < 2048);
}
