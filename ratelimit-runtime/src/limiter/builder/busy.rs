//! The setting of the wait that a `Busy` names.

use std::time::Duration;

use super::LimiterBuilder;

impl LimiterBuilder {
    /// Sets the wait that clients are told by a [`Busy`](crate::Busy), or `None` for none; 1 s by default. It is a guess, and
    /// spread: each client gets a time between this one and twice that.
    ///
    /// Without a wait many clients repeat a refused call at once, see
    /// [clients that wait](crate::guide::clients#clients-that-wait). A layer may set another one.
    ///
    /// ```
    /// use std::time::Duration;
    /// use ratelimit_runtime::{Limiter, Policy, RateLimitError};
    ///
    /// const UPLOAD: Policy = Policy::concurrency_limit("upload", 1);
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), RateLimitError> {
    /// let limiter = Limiter::builder().retry_busy_after(Duration::from_secs(20)).in_memory();
    /// let _upload = limiter.check(&UPLOAD, "alice").await?;
    /// let Err(RateLimitError::Busy(busy)) = limiter.check(&UPLOAD, "alice").await else { panic!() };
    /// assert!((20..=40).contains(&busy.retry_after().unwrap().as_secs()));
    /// # Ok(())
    /// # }
    /// ```
    pub fn retry_busy_after(mut self, wait: impl Into<Option<Duration>>) -> Self {
        self.busy_wait = wait.into();
        self
    }
}
