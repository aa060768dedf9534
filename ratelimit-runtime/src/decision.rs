//! Decisions: an admitted call's numbers with names and units, and the receipt for a refund.
//!
//! Floor 3: pure, imports plain data below it. `limiter`, `observe` and `web` import it.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use crate::{
    caller::Caller,
    error::RateLimitError,
    policy::{Policy, Tier},
    request::{DecidedBy, Mark, Outcome, Request},
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
#[derive(Clone, Debug)]
pub struct Decision {
    policy: &'static str,
    tier: Tier,
    remaining: u32,
    replenish_after: Duration,
    reset_after: Duration,
    is_dry_run: bool,
    receipt: Option<Arc<Receipt>>,
}

/// The receipt of an admitted call, by which it is refunded.
pub(crate) struct Receipt {
    pub(crate) caller: Caller,
    pub(crate) policy: Policy,
    pub(crate) cost: u32,
    pub(crate) id: Option<u64>,
    pub(crate) mark: Mark,
    pub(crate) decided_by: DecidedBy,
    refunded: AtomicBool,
}

/// The right to refund a call. One task has it at a time.
pub(crate) struct RefundGuard<'a> {
    refunded: &'a AtomicBool,
    /// `true` if another task may refund the call after this one.
    pub(crate) release: bool,
}

impl Receipt {
    pub(crate) fn new(caller: Caller, request: Request<'_>, outcome: &Outcome) -> Self {
        let Request { policy, cost, id, .. } = request;
        let Outcome { mark, decided_by, .. } = *outcome;
        let refunded = AtomicBool::new(false);
        Self { caller, policy: *policy, cost, id, mark, decided_by, refunded }
    }

    /// Claims the refund, unless it is done or under way.
    pub(crate) fn claim(&self) -> Option<RefundGuard<'_>> {
        let refunded = &self.refunded;
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
impl fmt::Debug for Receipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receipt").field("cost", &self.cost).finish_non_exhaustive()
    }
}

impl Decision {
    /// Builds the decision of an admitted call.
    pub(crate) fn new(policy: &Policy, outcome: &Outcome) -> Self {
        Self {
            policy: policy.name(),
            tier: policy.tiers()[usize::from(outcome.tier)],
            remaining: outcome.remaining,
            replenish_after: Duration::from(outcome.wait),
            reset_after: Duration::from(outcome.reset),
            is_dry_run: false,
            receipt: None,
        }
    }

    /// Marks the decision of a call that passes only because of a dry run.
    pub(crate) fn of_dry_run(self) -> Self {
        Self { is_dry_run: true, ..self }
    }

    pub(crate) fn with_receipt(self, receipt: Receipt) -> Self {
        Self { receipt: Some(Arc::new(receipt)), ..self }
    }

    pub(crate) fn receipt(&self) -> Option<&Receipt> {
        self.receipt.as_deref()
    }

    /// Returns the name of the policy.
    #[must_use]
    pub fn policy(&self) -> &'static str {
        self.policy
    }

    /// Returns the units that the call took; 0 for a [peek](crate::Limiter::peek), and for a call that
    /// passed without being counted.
    #[must_use]
    pub fn cost(&self) -> u32 {
        self.receipt.as_ref().map_or(0, |receipt| receipt.cost)
    }

    /// Returns `true` if the call would have failed, by a refusal or otherwise, without a dry run.
    #[must_use]
    pub fn is_dry_run(&self) -> bool {
        self.is_dry_run
    }

    /// Returns the threshold of the tier with the fewest units left.
    #[must_use]
    pub fn threshold(&self) -> u32 {
        self.tier.threshold()
    }

    /// Returns the period of the tier with the fewest units left.
    #[must_use]
    pub fn period(&self) -> Duration {
        self.tier.period()
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
        self.replenish_after
    }

    /// Returns the time until the full quota is back, if no other call comes.
    #[must_use]
    pub fn reset_after(&self) -> Duration {
        self.reset_after
    }
}
