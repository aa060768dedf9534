//! The error of a call that finds no permit free.

use std::{error::Error, fmt};

#[cfg(feature = "web")]
use crate::policy::plans;
use crate::policy::{Flags, Policy};

/// The error of a call that is refused because as many calls of its caller are in flight as its limit
/// allows.
///
/// There is no wait: a permit is free as soon as one of those calls ends.
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
/// assert_eq!(busy.to_string(), "rate limit `upload` is busy: at most 1 in flight");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Busy {
    policy: &'static str,
    max_concurrency: u32,
    flags: Flags,
    has_window: bool,
}

impl Busy {
    pub(crate) fn new(policy: &Policy) -> Self {
        let max_concurrency = policy.max_concurrency().unwrap_or_default();
        let has_window = !policy.tiers().is_empty();
        Self { policy: policy.name(), max_concurrency, flags: policy.flags(), has_window }
    }

    /// Returns `true` if the policy limits units in a window too.
    #[cfg(feature = "web")]
    pub(crate) fn has_window(&self) -> bool {
        self.has_window
    }

    /// Returns the name by which clients know the policy: `api@pro` for a plan.
    #[cfg(feature = "web")]
    pub(crate) fn shown_name(&self) -> &'static str {
        plans::shown(self.policy, self.flags)
    }

    /// Returns the name of the policy.
    #[must_use]
    pub fn policy(&self) -> &'static str {
        self.policy
    }

    /// Returns the calls of one caller that may be in flight at one time.
    #[must_use]
    pub fn max_concurrency(&self) -> u32 {
        self.max_concurrency
    }
}

impl fmt::Display for Busy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { policy, max_concurrency, .. } = self;
        write!(f, "rate limit `{policy}` is busy: at most {max_concurrency} in flight")
    }
}

impl Error for Busy {}
