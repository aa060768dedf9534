//! A pause: nobody under a key is admitted before its end.

use std::time::Duration;

use super::Limiter;
#[cfg(feature = "tower")]
use crate::decision::Decision;
use crate::{
    caller::IntoCaller,
    error::{RateLimitError, Unavailable},
    key::KeyRef,
    policy::Policy,
    time::{Micros, Timestamp},
};

/// The longest pause that a limiter admits by default.
pub(super) const MAX_PAUSE: Duration = Duration::from_secs(24 * 3_600);

impl Limiter {
    /// Admits none of `caller`'s calls under `policy` before `duration` is over, in no process: a
    /// remote service has asked for a pause. `heed`, with the feature `tower`, reads that from its
    /// answer.
    ///
    /// Calls that wait keep their order and their distances, and pass after the pause. One whose
    /// turn is then beyond its [`max_wait`](crate::Check::max_wait) is refused. This process knows
    /// the new turns on return, and others within a second. Other calls are refused, and wait for
    /// the exact rest. A pause only grows: a shorter one changes nothing. It ends by itself, or by
    /// a [reset](Self::reset), and is at most [`max_pause`](crate::LimiterBuilder::max_pause) long.
    ///
    /// ```
    /// use std::time::Duration;
    /// use ratelimit_runtime::{Limiter, Policy, RateLimitError};
    ///
    /// const PACE: Policy =
    ///     Policy::sliding_window("weather", Duration::from_secs(60), 100);
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), RateLimitError> {
    /// let limiter = Limiter::in_memory();
    /// limiter.pause(&PACE, "all", Duration::from_secs(30)).await?;
    /// let refused = limiter.check(&PACE, "all").await.unwrap_err();
    /// assert!(matches!(refused, RateLimitError::Exceeded(it) if it.retry_after().as_secs() == 30));
    /// assert!(limiter.check(&PACE, "all").max_wait(Duration::from_secs(60)).await.is_ok());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// - [`RateLimitError::InvalidPolicy`] if the policy is no [sliding
    ///   window](Policy::sliding_window), has a [lease](Policy::lease), or [counts rejected
    ///   calls](Policy::count_rejected).
    /// - [`RateLimitError::Unavailable`] if the store cannot write it within the deadline. This
    ///   process keeps the pause for calls that it decides without Redis, and logs that at `warn`.
    pub async fn pause<'a>(
        &self,
        policy: &Policy,
        caller: impl IntoCaller<'a>,
        duration: Duration,
    ) -> Result<(), RateLimitError> {
        let caller = caller.into_caller();
        let key = KeyRef::new(policy, caller.parts());
        self.pause_key(key, policy, duration, None).await.map(drop)
    }

    /// Pauses the key of an admitted call after a remote service has asked for it. Returns `false`
    /// if the pause is over already, counted from the call's turn. The clock of another limiter's
    /// store is not compared.
    #[cfg(feature = "tower")]
    pub(crate) async fn pause_after(
        &self,
        decision: &Decision,
        duration: Duration,
    ) -> Result<bool, RateLimitError> {
        // Without a charge, enforcement is off, or in a dry run.
        let Some((key, policy)) = decision.paused() else { return Ok(false) };
        let wait = Micros::rounded_up(duration);
        let ends = decision.charged_at(self.inner.id).map(|charged| charged + wait);
        self.pause_key(key, &policy, duration, ends).await
    }

    async fn pause_key(
        &self,
        key: KeyRef<'_>,
        policy: &Policy,
        duration: Duration,
        ends: Option<Timestamp>,
    ) -> Result<bool, RateLimitError> {
        policy.validate_pause()?;
        let max_pause = self.inner.max_pause;
        if duration > max_pause {
            tracing::warn!(
                policy = policy.name(),
                asked = ?duration,
                ?max_pause,
                "a pause is cut to `max_pause`: after it, calls are sent although the remote service asked for none"
            );
        }
        let length = Micros::rounded_up(duration.min(max_pause));
        let paused = self.inner.backend.pause(key, policy, length, ends).await;
        // Calls that wait also follow a pause whose answer is lost.
        self.move_turns(key).await;
        paused.map_err(|reason| Unavailable::new(policy.name(), reason).into())
    }
}
