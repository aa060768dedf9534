//! Calls of a hot key under a policy with a lease.

use std::{
    future::{IntoFuture, poll_fn},
    pin::pin,
    task::Poll,
};

use ratelimit_runtime::{Decision, Limiter, Policy, RateLimitError};

/// Calls as `alice`. Returns the answer, and `true` if nothing was awaited for it.
pub async fn call_at_once(
    limiter: &Limiter,
    policy: &Policy,
) -> (Result<Decision, RateLimitError>, bool) {
    let mut check = pin!(limiter.check(policy, "alice").into_future());
    let first = poll_fn(|context| Poll::Ready(check.as_mut().poll(context))).await;
    match first {
        Poll::Ready(answer) => (answer, true),
        Poll::Pending => (check.await, false),
    }
}

/// Calls as `alice` until the key is hot. Returns the number of admitted calls.
pub async fn heat(limiter: &Limiter, policy: &Policy) -> u32 {
    let mut admitted = 0;
    loop {
        let (answer, is_leased) = call_at_once(limiter, policy).await;
        answer.unwrap();
        admitted += 1;
        if is_leased {
            return admitted;
        }
        assert!(admitted < 100, "the key stays cold");
    }
}
