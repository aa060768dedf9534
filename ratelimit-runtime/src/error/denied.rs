//! The error of a caller that an override shuts out.

use std::time::Duration;

use super::ceil_to_millis;
use crate::{policy::Policy, time::Micros};

/// The error of a call whose caller is shut out by an override:
/// [`Override::deny`](crate::Override::deny).
///
/// With an end it is like a limit that is reached: over HTTP it is status 429 with the wait.
/// Without one it is status 403.
///
/// ```
/// use std::time::Duration;
/// use ratelimit_runtime::{Limiter, Override, Policy, RateLimitError};
///
/// const MAIL: Policy = Policy::sliding_window("mail", Duration::from_secs(60), 5);
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let limiter = Limiter::in_memory();
/// limiter.overrides().here().set(("mail", "mallory"), Override::new().deny())?;
/// let Err(RateLimitError::Denied(denied)) = limiter.check(&MAIL, "mallory").await else {
///     panic!("the caller is shut out");
/// };
/// assert_eq!(denied.to_string(), "rate limit `mail` denies the caller");
/// assert_eq!(denied.retry_after(), None);
/// assert!(limiter.check(&MAIL, "alice").await.is_ok());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("rate limit `{policy}` denies the caller{}", self.wait())]
pub struct Denied {
    policy: &'static str,
    retry_after: Option<Micros>,
}

impl Denied {
    pub(crate) fn new(policy: &Policy, retry_after: Option<Duration>) -> Self {
        // Rounded up, because the caller waits for it.
        Self { policy: policy.name(), retry_after: retry_after.map(Micros::rounded_up) }
    }

    /// Returns the name of the policy.
    #[must_use]
    pub fn policy(&self) -> &'static str {
        self.policy
    }

    /// Returns the wait until the caller is admitted again; none without an end.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after.map(Duration::from)
    }

    /// Returns the end of the message.
    fn wait(&self) -> String {
        let wait = self.retry_after().map(ceil_to_millis);
        wait.map_or_else(String::new, |wait| format!(", retry after {wait:?}"))
    }
}
