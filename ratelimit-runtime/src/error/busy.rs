//! The error of a call that finds no permit free.

use std::time::Duration;

use super::guess::spread;
use crate::{
    policy::{Flags, Policy, plans},
    time::Micros,
};

/// The error of a call that is refused because as many calls of its caller are in flight as its
/// limit allows.
///
/// Nobody knows the wait: a permit is free as soon as one of those calls ends.
/// [`retry_after`](Self::retry_after) is a guess, without which many clients would repeat the call
/// at once.
///
/// ```
/// use ratelimit_runtime::{Limiter, Policy, RateLimitError};
///
/// const UPLOAD: Policy = Policy::concurrency_limit("upload", 1);
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), RateLimitError> {
/// let limiter = Limiter::in_memory();
/// let _upload = limiter.check(&UPLOAD, "alice").await?;
/// let Err(RateLimitError::Busy(busy)) = limiter.check(&UPLOAD, "alice").await else {
///     panic!("the first upload is still in flight");
/// };
/// assert_eq!((busy.policy(), busy.max_concurrency()), ("upload", 1));
/// assert!(busy.retry_after().is_some_and(|wait| (1.0..=2.0).contains(&wait.as_secs_f64())));
/// assert_eq!(busy.to_string(), "rate limit `upload` is busy: at most 1 in flight");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("rate limit `{}` is busy: at most {max_concurrency} in flight", self.shown_name())]
pub struct Busy {
    policy: &'static str,
    retry_after: Option<Micros>,
    max_concurrency: u32,
    flags: Flags,
    has_window: bool,
}

impl Busy {
    /// Creates the error with a spread of this wait. If it `is_shared`, several clients share the
    /// limit.
    pub(crate) fn new(policy: &Policy, wait: Option<Duration>, is_shared: bool) -> Self {
        Self {
            policy: policy.name(),
            retry_after: wait.map(spread),
            max_concurrency: policy.get_concurrency().unwrap_or_default(),
            flags: policy.flags().with(Flags::SHARED, is_shared),
            has_window: !policy.tiers().is_empty(),
        }
    }

    /// Returns the error with a spread of this wait in place of its own.
    #[cfg(any(feature = "actix", feature = "tower"))]
    pub(crate) fn with_wait(self, wait: Option<Duration>) -> Self {
        Self { retry_after: wait.map(spread), ..self }
    }

    /// Returns `true` if the policy limits units in a window too.
    #[cfg(feature = "web")]
    pub(crate) fn has_window(&self) -> bool {
        self.has_window
    }

    /// Returns the name by which clients know the policy: `api@pro` for a plan.
    pub(crate) fn shown_name(&self) -> &'static str {
        plans::shown(self.policy, self.flags)
    }

    /// Returns the name of the policy.
    #[must_use]
    pub fn policy(&self) -> &'static str {
        self.policy
    }

    /// Returns the wait that clients are told: a guess, between 1 and 2 s by default, so that they
    /// do not all repeat their calls together.
    /// [`LimiterBuilder::retry_busy_after`](crate::LimiterBuilder::retry_busy_after) sets it.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after.map(Duration::from)
    }

    /// Returns `true` if several clients share the limit, and `false` if it is the caller's own.
    /// See [`Exceeded::is_shared`](super::Exceeded::is_shared).
    #[must_use]
    pub fn is_shared(&self) -> bool {
        self.flags.has(Flags::SHARED)
    }

    /// Returns the calls of one caller that may be in flight at one time.
    #[must_use]
    pub fn max_concurrency(&self) -> u32 {
        self.max_concurrency
    }
}
