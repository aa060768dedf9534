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
    error::Exceeded,
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
    charge: Option<Arc<Receipt>>,
}

/// What a call took, to give it back.
pub(crate) struct Receipt {
    pub(crate) caller: Caller,
    pub(crate) policy: Policy,
    pub(crate) cost: u32,
    pub(crate) id: Option<u64>,
    pub(crate) mark: Mark,
    pub(crate) decided_by: DecidedBy,
    given_back: AtomicBool,
}

/// The right to give back what a call took, which one has at a time.
pub(crate) struct RefundGuard<'a> {
    given_back: &'a AtomicBool,
    /// Whether another may have it after this one.
    pub(crate) again: bool,
}

impl Receipt {
    pub(crate) fn new(caller: Caller, request: Request<'_>, outcome: &Outcome) -> Self {
        let Request { policy, cost, id, .. } = request;
        let Outcome { mark, decided_by, .. } = *outcome;
        let given_back = AtomicBool::new(false);
        Self { caller, policy: *policy, cost, id, mark, decided_by, given_back }
    }

    /// The right to give it back, unless it is, or someone else is about to.
    pub(crate) fn claim(&self) -> Option<RefundGuard<'_>> {
        let given_back = &self.given_back;
        let is_free = !given_back.swap(true, Ordering::Relaxed);
        is_free.then(|| RefundGuard { given_back, again: true })
    }
}

impl Drop for RefundGuard<'_> {
    fn drop(&mut self) {
        if self.again {
            self.given_back.store(false, Ordering::Relaxed);
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
    pub(crate) fn with_charge(self, charge: Receipt) -> Self {
        Self { charge: Some(Arc::new(charge)), ..self }
    }

    pub(crate) fn charge(&self) -> Option<&Receipt> {
        self.charge.as_deref()
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

/// Puts a name and units to the numbers a store returned.
pub(crate) fn decide(policy: &Policy, outcome: &Outcome) -> Result<Decision, Exceeded> {
    if outcome.admitted { Ok(passed(policy, outcome)) } else { Err(exceeded(policy, outcome)) }
}

/// Puts a name and units to the numbers of a call that passes, be it only rehearsed.
pub(crate) fn passed(policy: &Policy, outcome: &Outcome) -> Decision {
    Decision {
        policy: policy.name(),
        tier: policy.tiers()[usize::from(outcome.tier)],
        remaining: outcome.remaining,
        replenish_after: Duration::from(outcome.wait),
        reset_after: Duration::from(outcome.reset),
        charge: None,
    }
}

/// Puts a name and units to the numbers of a refusal.
pub(crate) fn exceeded(policy: &Policy, outcome: &Outcome) -> Exceeded {
    Exceeded {
        policy: policy.name(),
        tier: policy.tiers()[usize::from(outcome.tier)],
        remaining: outcome.remaining,
        retry_after: Duration::from(outcome.wait),
        reset_after: Duration::from(outcome.reset),
    }
}
