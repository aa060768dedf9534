//! What a limit answers: from the store's numbers to a [`Decision`] or an [`Exceeded`].

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
    policy::{Policy, Tier},
    request::{DecidedBy, Mark, Outcome, Request},
};

/// An admitted call, and what is left after it.
///
/// With several tiers it speaks of the one with the fewest units left.
///
/// It is also what [`Limiter::refund`](crate::Limiter::refund) takes to give the call back, once for
/// all of its clones.
#[derive(Clone, Debug)]
pub struct Decision {
    policy: &'static str,
    tier: Tier,
    remaining: u32,
    replenish_after: Duration,
    reset_after: Duration,
    receipt: Option<Arc<Receipt>>,
}

/// What a call took, to give it back.
pub(crate) struct Receipt {
    pub(crate) caller: Caller,
    pub(crate) policy: Policy,
    pub(crate) cost: u32,
    pub(crate) id: Option<u64>,
    pub(crate) mark: Mark,
    pub(crate) decided_by: DecidedBy,
    refunded: AtomicBool,
}

/// The right to give back what a call took, which one has at a time.
pub(crate) struct RefundGuard<'a> {
    refunded: &'a AtomicBool,
    /// Whether another may have it after this one.
    pub(crate) release: bool,
}

impl Receipt {
    pub(crate) fn new(caller: Caller, request: Request<'_>, outcome: &Outcome) -> Self {
        let Request { policy, cost, id, .. } = request;
        let Outcome { mark, decided_by, .. } = *outcome;
        let refunded = AtomicBool::new(false);
        Self { caller, policy: *policy, cost, id, mark, decided_by, refunded }
    }

    /// The right to give it back, unless it is, or someone else is about to.
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

/// Names no one: an identity does not belong in a log.
impl fmt::Debug for Receipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receipt").field("cost", &self.cost).finish_non_exhaustive()
    }
}

impl Decision {
    /// Builds the decision of an admitted call, or of one that a dry run lets pass.
    pub(crate) fn new(policy: &Policy, outcome: &Outcome) -> Self {
        Self {
            policy: policy.name(),
            tier: policy.tiers()[usize::from(outcome.tier)],
            remaining: outcome.remaining,
            replenish_after: Duration::from(outcome.wait),
            reset_after: Duration::from(outcome.reset),
            receipt: None,
        }
    }

    pub(crate) fn with_receipt(self, receipt: Receipt) -> Self {
        Self { receipt: Some(Arc::new(receipt)), ..self }
    }

    pub(crate) fn receipt(&self) -> Option<&Receipt> {
        self.receipt.as_deref()
    }

    /// The name of the policy.
    #[must_use]
    pub fn policy(&self) -> &'static str {
        self.policy
    }

    /// The threshold of the tier with the fewest units left.
    #[must_use]
    pub fn threshold(&self) -> u32 {
        self.tier.threshold()
    }

    /// The period of the tier with the fewest units left.
    #[must_use]
    pub fn period(&self) -> Duration {
        self.tier.period()
    }

    /// The units that can be had at once after this call.
    #[must_use]
    pub fn remaining(&self) -> u32 {
        self.remaining
    }

    /// The time until more than [`remaining`](Self::remaining) units can be had, if no other call
    /// comes.
    #[must_use]
    pub fn replenish_after(&self) -> Duration {
        self.replenish_after
    }

    /// The time until the full quota is back, if no other call comes.
    #[must_use]
    pub fn reset_after(&self) -> Duration {
        self.reset_after
    }
}
