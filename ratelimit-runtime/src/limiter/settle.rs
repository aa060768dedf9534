//! Reset and refund: units that are no longer counted.

use super::{Limiter, unavailable};
use crate::{caller::Caller, decision::Decision, error::RateLimitError, policy::Policy};
use ratelimit_core::Algorithm;

impl Limiter {
    /// Removes everything that is counted for `caller` under `policy`.
    ///
    /// # Errors
    ///
    /// [`RateLimitError::Unavailable`] if the store cannot do it within the deadline.
    pub async fn reset(
        &self,
        policy: &Policy,
        caller: impl Into<Caller>,
    ) -> Result<(), RateLimitError> {
        let reset = self.inner.backend.reset(policy, &caller.into()).await;
        unavailable(policy, reset)
    }

    /// Refunds an admitted call, once: a login that succeeded need not count.
    ///
    /// A sliding window is then as if the call had never been. A fixed window or sliding counter
    /// no longer counts its units, unless they have expired already. A token bucket receives its
    /// tokens, as far as there is room. A second refund of a decision, or one of a
    /// [peek](Self::peek), does nothing.
    ///
    /// ```
    /// use std::time::Duration;
    /// use ratelimit_runtime::{Limiter, Policy};
    ///
    /// const FAILURES: Policy =
    ///     Policy::sliding_window("login-failures", Duration::from_secs(900), 3);
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), ratelimit_runtime::RateLimitError> {
    /// # let password_is_right = true;
    /// let limiter = Limiter::in_memory();
    /// let decision = limiter.check(&FAILURES, "alice").await?;
    /// if password_is_right {
    ///     limiter.refund(&decision).await?;
    /// }
    /// assert_eq!(limiter.peek(&FAILURES, "alice").cost(0).await?.remaining(), 3);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`RateLimitError::Unavailable`] if the store cannot refund within the deadline. The refund
    /// can then be repeated, as after its future was dropped. For algorithms other than the sliding
    /// window, the repetition does nothing once the command was sent: the units may have been
    /// refunded.
    pub async fn refund(&self, decision: &Decision) -> Result<(), RateLimitError> {
        let Some(receipt) = decision.receipt() else { return Ok(()) };
        let Some(mut guard) = receipt.claim() else { return Ok(()) };
        // A log refunds its entries by their ids: entries that are gone are not refunded again.
        let on_send = || guard.release = receipt.policy.algorithm() == Algorithm::SlidingWindow;
        let refund = self.inner.backend.refund(receipt, on_send).await;
        guard.release &= refund.is_err();
        unavailable(&receipt.policy, refund)
    }
}
