//! The refusals that follow from those of Redis.

use std::time::Duration;

use ratelimit_core::Algorithm;

use crate::{
    policy::{Policy, PolicyName, StateKind},
    request::{DecidedBy, Op, Outcome, OutcomeKind, Request},
    time::{Micros, Timestamp},
};

/// The refusals of one key under policies that can be compared, as steps: the larger the cost, the
/// longer the refusal.
///
/// A refusal of cost `c` with `r` units left adds two steps. Calls of cost `c` or more are refused
/// until its wait is over, and calls of more than `r` until one more unit is available. So the
/// newest refusal alone covers every cost; older ones only make waits longer and more exact.
///
/// Under a policy with blocks, a refusal adds one step for calls of its cost alone, until the block
/// is over. The window is asked anew then: a wait that was too short would make the next call an
/// offence.
#[cfg_attr(test, derive(Clone, Debug))]
pub(super) struct RefusalSteps {
    /// One of the policies.
    policy: Policy,
    /// The oldest comes first.
    steps: Vec<Step>,
    /// The latest end of a revalidation, in the past if there is none. While one call revalidates,
    /// steps older than the TTL still refuse the others.
    revalidating_until: Timestamp,
}

/// The most steps, which bounds the memory of a key.
const MAX_STEPS: usize = 8;

#[cfg(test)]
pub(super) const STEP_BYTES: usize = size_of::<Step>();

/// One step: calls that it refuses, and until when. Units are counted down from the threshold of
/// the first tier, so that one step serves policies of several thresholds.
#[cfg_attr(test, derive(Clone, Debug))]
struct Step {
    /// The step refuses calls whose cost leaves at most this much of the first tier's threshold.
    spare: i64,
    /// `true` if it is the refusal of a blocked caller, for calls that leave as much and no others.
    is_of_block: bool,
    /// The earliest end of the refusal.
    end: Timestamp,
    /// The instant from which the step needs revalidation: one TTL after the call was sent.
    fresh_until: Timestamp,
    tier: u8,
    kind: OutcomeKind,
    /// The first tier's threshold less the units that were left.
    used: i64,
    /// The earliest instant of the full quota.
    reset_at: Timestamp,
}

impl Step {
    /// Returns `true` if the step is about calls that leave `spare`.
    #[inline]
    fn refuses(&self, spare: i64) -> bool {
        spare == self.spare || spare < self.spare && !self.is_of_block
    }
}

impl RefusalSteps {
    pub(super) fn new(policy: &Policy) -> Self {
        Self { policy: *policy, steps: Vec::new(), revalidating_until: Timestamp::default() }
    }

    /// Returns `true` if these are refusals of the kind of state and the name.
    #[inline]
    pub(super) fn is_of(&self, state: StateKind, name: PolicyName) -> bool {
        self.policy.full_name().is(&name) && self.policy.state() == state
    }

    /// Returns `true` if refusals under this policy, of the same name, can be compared with these.
    #[inline]
    pub(super) fn is_comparable(&self, policy: &Policy) -> bool {
        // Only here do two thresholds see the same count: the rate of a bucket and the weights of a
        // counter's windows depend on the threshold. A refusal under a block is an offence, and of
        // its length.
        let is_window = |it: &Policy| {
            matches!(it.algorithm(), Algorithm::SlidingWindow | Algorithm::FixedWindow)
                && it.tiers().len() == 1
                && !it.has_block()
                && !it.counts_rejected()
        };
        is_window(&self.policy)
            && is_window(policy)
            && self.policy.longest_period() == policy.longest_period()
            || self.policy.limits_as(policy)
    }

    /// Lets the call revalidate the steps that refuse it and are older than the TTL. Removes those
    /// that have ended.
    pub(super) fn revalidate(&mut self, request: Request<'_>, ttl: Duration, now: Timestamp) {
        let spare = spare(request.policy, request.cost);
        self.steps.retain(|it| now < it.end);
        if self.steps.iter().any(|it| it.refuses(spare)) {
            self.revalidating_until = now + ttl;
        }
    }

    /// Returns the refusal that Redis would return; `None` if no step refuses, or if a revalidation
    /// is due.
    #[inline(always)]
    pub(super) fn get(&self, request: Request<'_>, now: Timestamp) -> Option<Outcome> {
        let step = self.longest(spare(request.policy, request.cost), now)?;
        let left = threshold(request.policy) - step.used;
        let remaining = u32::try_from(left.max(0)).unwrap_or(u32::MAX);
        // The window may refuse the call for longer than the block lasts.
        let admitted_at = if step.is_of_block { step.reset_at } else { step.end };
        let refused = Outcome::refused(admitted_at - now, step.reset_at - now);
        let Step { tier, kind, .. } = *step;
        let (more, lasts) = (Micros::ZERO, Micros::ZERO);
        let decided_by = DecidedBy::DenyCache;
        Some(Outcome { tier, remaining, more, lasts, decided_by, kind, ..refused })
    }

    /// Returns the step that refuses a call the longest.
    #[inline]
    fn longest(&self, spare: i64, now: Timestamp) -> Option<&Step> {
        let is_revalidating = now < self.revalidating_until;
        let mut longest: Option<&Step> = None;
        for step in &self.steps {
            if step.refuses(spare)
                && now < step.end
                && (is_revalidating || now < step.fresh_until)
                && longest.is_none_or(|longest| longest.end <= step.end)
            {
                longest = Some(step);
            }
        }
        longest
    }

    /// Returns `true` if by this outcome more is available than these steps admit.
    pub(super) fn is_contradicted(
        &self,
        request: Request<'_>,
        outcome: Outcome,
        answered: Timestamp,
    ) -> bool {
        let Request { policy, op, cost, .. } = request;
        if !self.is_comparable(policy) {
            // Other numbers recorded units: their effect on these is unknown.
            return op == Op::Take && (outcome.admitted || policy.counts_rejected());
        }
        let Outcome { admitted, remaining, wait, more, .. } = outcome;
        let contradicts = |units: u32, wait: Micros| {
            let free_at = answered + wait;
            let spare = spare(policy, units);
            let mut steps = self.steps.iter();
            // A block ends for calls of every cost.
            steps.any(|it| (it.is_of_block || spare <= it.spare) && free_at < it.end)
        };
        if admitted {
            return contradicts(remaining.saturating_add(cost), Micros::ZERO);
        }
        // With several tiers, another one may have fewer units left. Without any, more may be used
        // already than this policy admits.
        (policy.tiers().len() == 1 && remaining > 0 && contradicts(remaining, Micros::ZERO))
            || contradicts(remaining.saturating_add(1), more)
            || contradicts(cost, wait)
    }

    /// Receives an answer that contradicts no step. It ends a revalidation. No step reports more
    /// units left than the answer.
    pub(super) fn receive(&mut self, request: Request<'_>, outcome: Outcome) {
        self.revalidating_until = Timestamp::default();
        if request.op == Op::Take {
            let used = threshold(request.policy) - i64::from(outcome.remaining);
            self.steps.iter_mut().for_each(|step| step.used = step.used.max(used));
        }
    }

    /// Adds a refusal that contradicts no step.
    pub(super) fn insert(
        &mut self,
        request: Request<'_>,
        outcome: Outcome,
        sent: Timestamp,
        ttl: Duration,
    ) {
        let fresh_until = sent + ttl;
        // Replies may arrive out of order: the newest one covers all costs.
        if self.steps.iter().any(|it| fresh_until < it.fresh_until) {
            return;
        }
        self.revalidating_until = Timestamp::default();
        self.steps.retain(|it| sent < it.fresh_until);
        let Outcome { tier, remaining, wait, more, reset, .. } = outcome;
        let is_of_block = request.policy.has_block();
        // Whoever repeats an offence is blocked.
        let kind = if is_of_block { OutcomeKind::Gated } else { outcome.kind };
        let used = threshold(request.policy) - i64::from(remaining);
        let next = remaining.saturating_add(1);
        let cost = request.cost.max(1);
        let refusals: &[_] =
            if is_of_block { &[(cost, more)] } else { &[(cost, wait), (next.min(cost), more)] };
        for &(units, wait) in refusals {
            let spare = spare(request.policy, units);
            let (end, reset_at) = (sent + wait, sent + reset);
            self.steps.retain(|it| spare < it.spare || end < it.end);
            if self.steps.len() == MAX_STEPS {
                self.steps.remove(0);
            }
            self.steps.reserve_exact(1);
            let step = Step { spare, is_of_block, end, fresh_until, tier, kind, used, reset_at };
            self.steps.push(step);
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.steps.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }
}

/// Returns the first tier's threshold less `units`. Negative if a bucket is larger than the
/// threshold.
fn spare(policy: &Policy, units: u32) -> i64 {
    threshold(policy) - i64::from(units)
}

fn threshold(policy: &Policy) -> i64 {
    policy.tiers().first().map_or(0, |tier| tier.threshold().into())
}
