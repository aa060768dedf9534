//! The handle to a limiter, and the parts that its clones share.

use std::{fmt, sync::Arc, time::Duration};

use super::{
    backend::Backend, notices::Notices, queue::Queues, spread::Spread, warning::OnWarning,
};
#[cfg(feature = "calendar")]
use crate::calendar::database;
use crate::{
    caller::Caller,
    decision::LimiterId,
    key,
    opaque::Opaque,
    overrides::Overrides,
    telemetry::{self, LimitCounters},
};

/// A handle to a backend, in memory or on Redis, that counts calls and decides them.
///
/// Clones share one backend.
///
/// ```
/// use std::time::Duration;
/// use ratelimit_runtime::{Limiter, Policy, RateLimitError};
///
/// const REPLY: Policy = Policy::sliding_window("reply", Duration::from_secs(60), 1);
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let limiter = Limiter::in_memory();
/// assert_eq!(limiter.check(&REPLY, "harry").await.unwrap().remaining(), 0);
/// let refused = limiter.check(&REPLY, "harry").await.unwrap_err();
/// assert!(matches!(refused, RateLimitError::Exceeded(e) if e.retry_after() <= REPLY.tiers()[0].period()));
/// # }
/// ```
#[derive(Clone)]
pub struct Limiter {
    pub(super) inner: Arc<Inner>,
}

pub(super) struct Inner {
    /// The number by which decisions find this limiter.
    pub(super) id: LimiterId,
    pub(super) backend: Backend,
    pub(super) overrides: Overrides,
    pub(super) notices: Notices,
    /// The calls of this process that wait.
    pub(super) queues: Opaque<Queues>,
    pub(super) max_pause: Duration,
    /// The wait that a `Busy` names, before it is spread.
    pub(super) busy_wait: Option<Duration>,
    /// The refused clients of shared limits.
    pub(super) spread: Spread,
    pub(super) on_warning: Option<OnWarning>,
    /// `false` if nothing of this limiter is recorded.
    pub(super) is_instrumented: bool,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.id.forget();
    }
}

impl Limiter {
    /// Returns `true` if this process counts the calls, `false` if Redis does.
    #[must_use]
    pub fn is_in_memory(&self) -> bool {
        self.inner.backend.redis().is_none()
    }

    /// Returns the overrides of this limiter's limits, which its clones share.
    #[must_use]
    pub fn overrides(&self) -> &Overrides {
        &self.inner.overrides
    }

    /// Returns the [version](crate::LimiterBuilder::version) of the program, if one is set.
    #[must_use]
    pub fn version(&self) -> Option<&str> {
        self.overrides().shown().version.as_deref()
    }

    /// Records a call without a caller: it is counted for [`Caller::shared`].
    pub(crate) fn record_without_caller(&self, counters: &'static LimitCounters) {
        telemetry::without_caller(counters, self.inner.is_instrumented);
    }

    /// Returns `false` if nothing of this limiter is recorded.
    #[inline]
    pub(crate) fn is_instrumented(&self) -> bool {
        self.inner.is_instrumented
    }

    /// Returns the digest of a caller for events.
    pub(super) fn caller_digest(&self, caller: &Caller) -> Option<String> {
        let secret = self.overrides().shown().secret.as_ref()?;
        Some(key::caller_digest(secret, caller.parts()))
    }
}

impl fmt::Debug for Limiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut limiter = f.debug_struct("Limiter");
        limiter.field("store", &self.inner.backend.name());
        limiter.field("prefix", &self.inner.backend.prefix());
        #[cfg(feature = "calendar")]
        if let Some(name) = database::name() {
            limiter.field("calendar", &name);
        }
        limiter.finish()
    }
}
