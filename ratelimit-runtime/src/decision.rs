//! Decisions: an admitted call's numbers with names and units, and the receipt for a refund.
//!
//! Floor 3: pure, imports plain data below it. `limiter`, `observe` and `web` import it.

use std::{
    fmt,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use ratelimit_core::Algorithm;

use crate::{
    caller::Caller,
    error::RateLimitError,
    key::KeyRef,
    policy::{Policy, PolicyName},
    request::{DecidedBy, Mark, Op, Outcome, Request, Settle},
    time::Micros,
};

/// The answer to a check.
pub(crate) type Answer<A = Decision> = Result<A, RateLimitError>;

/// An admitted call, and what is left after it.
///
/// With several tiers its numbers are those of the tier with the fewest units left.
///
/// [`Limiter::refund`](crate::Limiter::refund) accepts it and refunds the call, once for all of its
/// clones.
///
/// ```
/// use std::time::Duration;
/// use ratelimit_runtime::{Limiter, Policy};
///
/// const EXPORT: Policy = Policy::sliding_window("export", Duration::from_secs(60), 10);
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), ratelimit_runtime::RateLimitError> {
/// let limiter = Limiter::in_memory();
/// let decision = limiter.check(&EXPORT, "alice").cost(3).await?;
/// assert_eq!(decision.cost(), 3);
/// assert_eq!(decision.remaining(), 7);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Decision {
    policy: PolicyName,
    period: Micros,
    replenish_after: Micros,
    reset_after: Micros,
    threshold: u32,
    remaining: u32,
    is_dry_run: bool,
    receipt: Option<Receipt>,
    permit: Option<Arc<dyn Permit>>,
}

/// The receipt of an admitted call, by which it is refunded.
#[derive(Clone)]
pub(crate) struct Receipt {
    caller: Caller,
    algorithm: Algorithm,
    cost: u32,
    id: Option<u64>,
    mark: Mark,
    pub(crate) decided_by: DecidedBy,
    refunded: SharedFlag,
}

/// The permit of a call in flight. It is free once the last clone of the decision is dropped.
pub(crate) trait Permit: Send + Sync {
    /// Returns `true` while the store counts the call as one in flight.
    fn is_held(&self) -> bool;
}

/// A flag that all clones share. The first clone allocates it: most decisions have none.
#[derive(Default)]
struct SharedFlag(OnceLock<Arc<AtomicBool>>);

/// The right to refund a call. One task has it at a time.
pub(crate) struct RefundGuard<'a> {
    refunded: &'a AtomicBool,
    /// `true` if another task may refund the call after this one.
    pub(crate) release: bool,
}

impl SharedFlag {
    fn get(&self) -> &Arc<AtomicBool> {
        self.0.get_or_init(Arc::default)
    }
}

impl Clone for SharedFlag {
    fn clone(&self) -> Self {
        Self(OnceLock::from(Arc::clone(self.get())))
    }
}

impl Receipt {
    pub(crate) fn settle(&self, to: u32) -> Settle {
        let Self { algorithm, cost, mark, id, .. } = *self;
        Settle { algorithm, from: cost, to, mark, id }
    }

    /// Claims the refund, unless it is done or under way.
    pub(crate) fn claim(&self) -> Option<RefundGuard<'_>> {
        let refunded = &**self.refunded.get();
        let is_free = !refunded.swap(true, Ordering::Relaxed);
        is_free.then(|| RefundGuard { refunded, release: true })
    }
}

impl Drop for RefundGuard<'_> {
    fn drop(&mut self) {
        if self.release {
            self.refunded.store(false, Ordering::Relaxed);
        }
    }
}

/// Does not show the caller: identities do not belong in logs.
impl fmt::Debug for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decision")
            .field("policy", &self.policy())
            .field("threshold", &self.threshold)
            .field("period", &self.period())
            .field("cost", &self.cost())
            .field("remaining", &self.remaining)
            .field("replenish_after", &self.replenish_after())
            .field("reset_after", &self.reset_after())
            .field("is_dry_run", &self.is_dry_run)
            .finish_non_exhaustive()
    }
}

impl Decision {
    /// Builds the decision of an admitted call.
    #[inline]
    pub(crate) fn new(policy: &Policy, outcome: Outcome) -> Self {
        let tier = policy.tier_of(outcome.tier);
        Self {
            policy: policy.full_name(),
            period: tier.micros(),
            replenish_after: outcome.wait,
            reset_after: outcome.reset,
            threshold: tier.threshold(),
            remaining: outcome.remaining,
            is_dry_run: false,
            receipt: None,
            permit: None,
        }
    }

    /// Builds the decision of a call that a store counted, with its receipt.
    #[inline]
    pub(crate) fn counted(caller: &Caller, request: Request<'_>, outcome: Outcome) -> Self {
        let Request { policy, cost, id, .. } = request;
        let Outcome { mark, decided_by, .. } = outcome;
        let (algorithm, refunded) = (policy.algorithm(), SharedFlag::default());
        let caller = caller.clone();
        let receipt = Some(Receipt { caller, algorithm, cost, id, mark, decided_by, refunded });
        Self { receipt, ..Self::new(policy, outcome) }
    }

    /// Builds the decision of a call that is not checked.
    pub(crate) fn of_skipped(policy: &Policy) -> Self {
        let request = Request { policy, written: policy, op: Op::Peek, cost: 0, id: None };
        Self::new(policy, Outcome::unlimited(request))
    }

    /// Adds the permit that the call holds.
    #[inline]
    pub(crate) fn with_permit(self, permit: Arc<dyn Permit>) -> Self {
        Self { permit: Some(permit), ..self }
    }

    /// Marks the decision of a call that passes only because of a dry run.
    pub(crate) fn of_dry_run(self) -> Self {
        Self { is_dry_run: true, ..self }
    }

    /// Returns the receipt of the call and the key that it was charged to, unless the call passed
    /// without being counted.
    pub(crate) fn charge(&self) -> Option<(KeyRef<'_>, &Receipt)> {
        let receipt = self.receipt.as_ref()?;
        let Receipt { algorithm, caller, .. } = receipt;
        let key =
            KeyRef { algorithm: *algorithm, name: self.policy, caller: caller.parts().into() };
        Some((key, receipt))
    }

    /// Returns the name of the policy.
    #[must_use]
    pub fn policy(&self) -> &'static str {
        self.policy.text()
    }

    /// Returns the units that the call took; 0 for a [peek](crate::Limiter::peek), and for a call that
    /// passed without being counted.
    #[must_use]
    pub fn cost(&self) -> u32 {
        self.receipt.as_ref().map_or(0, |receipt| receipt.cost)
    }

    /// Returns `true` if a store counted the call. It is `false` for a [peek](crate::Limiter::peek), for a
    /// call that took 0 units, and for a call that passed without a check, in a dry run, or under
    /// [`OnStoreError::Allow`](crate::OnStoreError::Allow). A refund then does nothing.
    #[must_use]
    pub fn is_counted(&self) -> bool {
        self.receipt.is_some()
    }

    /// Returns `true` while the call holds a permit of its policy's
    /// [`concurrency`](crate::Policy::concurrency): until the last clone of this decision is dropped.
    ///
    /// On Redis a permit that is not renewed within its
    /// [timeout](crate::Policy::concurrency_timeout) is lost: the process was cut off from Redis, or
    /// Redis lost its state. It is then `false`, and the call goes on beside the one that may have
    /// taken its place. A permit that finds a free place again is held again. Without `concurrency`,
    /// and in the copies that [`observe`](crate::observe) returns, there is no permit.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.permit.as_ref().is_some_and(|permit| permit.is_held())
    }

    /// Returns `true` if the call would have failed, by a refusal or otherwise, without a dry run.
    #[must_use]
    pub fn is_dry_run(&self) -> bool {
        self.is_dry_run
    }

    /// Returns the threshold of the tier with the fewest units left.
    #[must_use]
    pub fn threshold(&self) -> u32 {
        self.threshold
    }

    /// Returns the period of the tier with the fewest units left.
    #[must_use]
    pub fn period(&self) -> Duration {
        self.period.into()
    }

    /// Returns the units that are available at once after this call.
    #[must_use]
    pub fn remaining(&self) -> u32 {
        self.remaining
    }

    /// Returns the time until more than [`remaining`](Self::remaining) units are available, if no
    /// other call comes.
    #[must_use]
    pub fn replenish_after(&self) -> Duration {
        self.replenish_after.into()
    }

    /// Returns the time until the full quota is back, if no other call comes.
    #[must_use]
    pub fn reset_after(&self) -> Duration {
        self.reset_after.into()
    }
}
