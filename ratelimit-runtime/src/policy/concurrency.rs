//! The part of a policy that bounds calls in flight.

use std::time::Duration;

use ratelimit_core::Algorithm;

use super::Policy;
use crate::time::Micros;

/// The timeout without [`Policy::concurrency_timeout`].
const DEFAULT_TIMEOUT: Micros = Micros::new(30_000_000);

impl Policy {
    /// Creates a policy of at most `calls` in flight at one time, without a window.
    ///
    /// A call that finds no permit free fails with [`Busy`](crate::Busy).
    ///
    /// ```
    /// use ratelimit_runtime::{Limiter, Policy, RateLimitError};
    ///
    /// const UPLOAD: Policy = Policy::concurrency_limit("upload", 1);
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), RateLimitError> {
    /// let limiter = Limiter::in_memory();
    /// let upload = limiter.check(&UPLOAD, "alice").await?;
    /// let second = limiter.check(&UPLOAD, "alice").await;
    /// assert!(matches!(second, Err(RateLimitError::Busy(_))));
    /// drop(upload);
    /// assert!(limiter.check(&UPLOAD, "alice").await?.has_permit());
    /// # Ok(())
    /// # }
    /// ```
    pub const fn concurrency_limit(name: &'static str, calls: u32) -> Self {
        Self::without_tiers(name, Algorithm::SlidingWindow).concurrency(calls)
    }

    /// Admits a call only while fewer than `calls` of its caller are in flight, over all processes.
    ///
    /// An admitted call holds a permit until the last clone of its [`Decision`](crate::Decision) is
    /// dropped. The windows and the permit are decided together: a call takes both or none.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use ratelimit_runtime::Policy;
    /// /// A hundred exports a day, and two at one time.
    /// const EXPORT: Policy =
    ///     Policy::sliding_window("export", Duration::from_secs(86_400), 100).concurrency(2);
    /// assert_eq!(EXPORT.get_concurrency(), Some(2));
    /// ```
    ///
    /// # Faults of permits
    ///
    /// Redis never counts more calls than the limit. More run only if a call goes on without its permit:
    ///
    /// | Event | Calls above the limit, at most |
    /// |---|---|
    /// | a process is killed, or a release is lost or comes before its call | none; the permit is taken until its timeout |
    /// | a process is paused, or cut off from Redis, for a timeout | the permits that it held |
    /// | Redis loses all state, or its clock steps forward by the timeout | the limit, until the next renewals |
    /// | a failover loses the last writes | the permits that were granted in them |
    /// | Redis' clock steps back | none |
    /// | Redis is away, under [`OnStoreError::Local`](crate::OnStoreError::Local) | the limit for each process, which counts the permits that it holds already |
    pub const fn concurrency(mut self, calls: u32) -> Self {
        self.concurrency = Some(calls);
        self.checked()
    }

    /// Returns this policy without a bound of calls in flight.
    pub(crate) const fn without_concurrency(mut self) -> Self {
        (self.concurrency, self.concurrency_timeout) = (None, None);
        self.checked()
    }

    /// Sets the time after which the permit of a process that died is free; 30 s by default, at least
    /// 100 ms and at most one day.
    ///
    /// It matters on Redis alone. Permits of living processes are renewed there each third of the
    /// timeout, so that a call may take longer. In memory a permit ends with its process.
    pub const fn concurrency_timeout(mut self, timeout: Duration) -> Self {
        self.concurrency_timeout = Some(Micros::whole_millis(timeout));
        self.checked()
    }

    /// Returns the time after which a permit that is not renewed is free.
    pub(crate) fn permit_timeout(&self) -> Micros {
        self.concurrency_timeout.unwrap_or(DEFAULT_TIMEOUT)
    }

    /// Returns the calls of one caller that may be in flight at one time, if
    /// [`concurrency`](Self::concurrency) has set their number.
    #[must_use]
    pub const fn get_concurrency(&self) -> Option<u32> {
        self.concurrency
    }
}
