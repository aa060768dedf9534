//! A promised turn, and the charge that it stands for.

use std::sync::Arc;

use tokio::time::Instant;

use super::waiter::Waiter;
use crate::{
    policy::{Policy, Tier},
    request::{LinePlace, Outcome},
    time::Timestamp,
};

/// The place of a turn in the order of its queue: the time of its charge, and a number that grows.
pub(super) type TurnPosition = (Timestamp, u64);

/// A promised turn, and the call that passes at it.
#[derive(Clone)]
pub(in crate::limiter) struct QueuedTurn {
    /// The store's answer, with the numbers of the turn.
    pub(in crate::limiter) outcome: Outcome,
    /// The turn by the clock of this process.
    pub(super) comes: Instant,
    /// The time of the answer.
    pub(in crate::limiter) promised: Instant,
    pub(in crate::limiter) claim: Claim,
    /// `true` if a pause has moved it: it may be beyond the wait of its call.
    pub(super) is_moved: bool,
    pub(in crate::limiter) waiter: Arc<Waiter>,
}

/// The charge that a turn stands for. Calls of one charge can pass at each other's turns.
#[derive(Clone, Copy, PartialEq, Eq)]
#[cfg_attr(test, derive(Debug))]
pub(in crate::limiter) struct Claim {
    pub(in crate::limiter) policy: Policy,
    pub(super) cost: u32,
    pub(in crate::limiter) id: Option<u64>,
}

impl Claim {
    /// A charge under a request id is that of its call alone.
    pub(super) fn is_shared_with(&self, other: &Self) -> bool {
        self.id.is_none() && self == other
    }

    /// Returns `true` if an override to this policy may forbid the turn. Counts that are carried to
    /// the numbers of a higher limit are rounded, and must refuse nobody. Other plans have other
    /// overrides.
    pub(super) fn is_laxer_than(&self, now: &Policy) -> bool {
        let before = &self.policy;
        if before.shown_name() != now.shown_name() {
            return false;
        }
        let is_kept = |(before, now): (&Tier, &Tier)| {
            before.period() >= now.period() && before.threshold() <= now.threshold()
        };
        before.tiers().len() != now.tiers().len()
            || !before.tiers().iter().zip(now.tiers()).all(is_kept)
            || before.get_burst() > now.get_burst()
    }
}

impl QueuedTurn {
    /// Returns the turn of an answer that came at `promised`.
    pub(in crate::limiter) fn new(
        waiter: &Arc<Waiter>,
        policy: &Policy,
        outcome: Outcome,
        promised: Instant,
    ) -> Self {
        let options = &waiter.call.options;
        let claim = Claim { policy: *policy, cost: options.cost, id: options.id };
        let (comes, waiter) = (promised + outcome.turn.into(), Arc::clone(waiter));
        Self { outcome, comes, promised, claim, is_moved: false, waiter }
    }

    /// Returns the place of the charge in its store's line.
    pub(in crate::limiter) fn place(&self) -> LinePlace<'_> {
        let Claim { policy, cost, id } = &self.claim;
        LinePlace { policy, cost: *cost, mark: self.outcome.mark, id: *id }
    }

    /// Returns `true` if both have the same mark and claim. In a state without entries, calls of
    /// one instant may.
    pub(super) fn is_charged_as(&self, other: &Self) -> bool {
        self.outcome.mark == other.outcome.mark && self.claim == other.claim
    }

    /// Returns the outcome with the numbers of the policy that the call waits under now.
    pub(super) fn outcome_under(&self, policy: &Policy) -> Outcome {
        let Self { outcome, claim, .. } = self;
        if claim.policy == *policy {
            return *outcome;
        }
        let quota = |policy: &Policy, tier| policy.quota_of(policy.tier_of(tier));
        // An override changes the quota, and not what is used of it.
        let used = quota(&claim.policy, outcome.tier).saturating_sub(outcome.remaining);
        let tier = if usize::from(outcome.tier) < policy.tiers().len() { outcome.tier } else { 0 };
        let remaining = quota(policy, tier).saturating_sub(used);
        Outcome { tier, remaining, ..*outcome }
    }
}
