//! Takes back what has been counted.

use ratelimit_core::Algorithm;

use super::{Limiter, Store, unavailable};
use crate::{
    caller::Caller,
    decision::Decision,
    error::RateLimitError,
    key::KeyRef,
    policy::Policy,
    request::{DecidedBy, Refund},
};

impl Limiter {
    /// Forgets what `caller` has consumed under `policy`.
    ///
    /// # Errors
    ///
    /// [`RateLimitError::Unavailable`] when the store cannot do it within the deadline.
    pub async fn reset(
        &self,
        policy: &Policy,
        caller: impl Into<Caller>,
    ) -> Result<(), RateLimitError> {
        let caller = caller.into();
        match &self.inner.store {
            Store::Memory(store) => {
                store.reset(KeyRef::new(policy, caller.parts()));
                Ok(())
            }
            Store::RedisBackend(store) => {
                unavailable(policy, store.reset(&self.key(policy, &caller)).await)
            }
        }
    }

    /// Gives back what an admitted call took, once: a login that succeeded need not count.
    ///
    /// A sliding window is then as if the call had never been; a fixed window or sliding counter
    /// counts its units no more, if it still did; a token bucket gets its tokens back, as far as
    /// there is room. Giving back a decision a second time, or one that was only
    /// [looked](Self::peek) at, does nothing.
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
    /// assert_eq!(limiter.peek_n(&FAILURES, "alice", 0).await?.remaining(), 3);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`RateLimitError::Unavailable`] when the store cannot do it within the deadline. It can then be
    /// tried again, as after a refund whose future was dropped; of another algorithm than a sliding
    /// window only if nothing was sent to the store yet, else the units may have been given back
    /// already, and are not a second time.
    pub async fn refund(&self, decision: &Decision) -> Result<(), RateLimitError> {
        let Some(charge) = decision.charge() else { return Ok(()) };
        let Some(mut claim) = charge.claim() else { return Ok(()) };
        let (policy, caller) = (&charge.policy, &charge.caller);
        let refund = Refund { policy, cost: charge.cost, mark: charge.mark, id: charge.id };
        let answer = match &self.inner.store {
            // Passed uncounted, for want of room.
            Store::Memory(_) if charge.decided_by == DecidedBy::Nobody => Ok(()),
            Store::Memory(store) => {
                store.refund(KeyRef::new(policy, caller.parts()), refund);
                Ok(())
            }
            Store::RedisBackend(store) => {
                let key = self.key(policy, caller);
                // A log gives back by name: what is gone is not taken out again.
                let sent = || claim.again = policy.algorithm() == Algorithm::SlidingWindow;
                unavailable(policy, store.refund(&key, refund, charge.decided_by, sent).await)
            }
        };
        claim.again &= answer.is_err();
        answer
    }
}
