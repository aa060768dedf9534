//! What a limit answers: from the store's numbers to a [`Decision`] or an [`Exceeded`].

use std::time::Duration;

use crate::{
    error::Exceeded,
    policy::{Policy, Tier},
    store::Outcome,
};

/// An admitted call, and what is left after it.
///
/// With several tiers it speaks of the one with the fewest units left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    policy: &'static str,
    tier: Tier,
    remaining: u32,
    replenish_after: Duration,
    reset_after: Duration,
}

impl Decision {
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
    let policy_name = policy.name();
    let tier = policy.tiers()[outcome.tier];
    let remaining = outcome.remaining;
    let wait = Duration::from_micros(outcome.wait);
    let reset_after = Duration::from_micros(outcome.reset);
    if outcome.admitted {
        Ok(Decision { policy: policy_name, tier, remaining, replenish_after: wait, reset_after })
    } else {
        Err(Exceeded { policy: policy_name, tier, remaining, retry_after: wait, reset_after })
    }
}
