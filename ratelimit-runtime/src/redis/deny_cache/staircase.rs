//! The refusals that follow from those the store has given.

use std::time::Duration;

use ratelimit_core::Algorithm;
use tokio::time::Instant;

use super::Trip;
use crate::{
    policy::Policy,
    request::{DecidedBy, Mark, Op, Outcome, Request},
    time::Micros,
};

/// The refusals of one key under policies that can be compared, as a staircase: calls of larger
/// costs are refused for longer.
///
/// A refusal of cost `c` with `r` units left gives two steps: calls of cost `c` or more are refused
/// until its wait is over, and calls of more than `r` until one more unit can be had. So the newest
/// answer alone is about each cost; the others only make waits longer and more exact.
pub(super) struct Staircase {
    /// One of the policies.
    policy: Policy,
    /// The oldest comes first.
    steps: Vec<Step>,
    /// While a call asks the store anew, others are refused by what is older than the time to live:
    /// until then, if no answer comes.
    asks_until: Option<Instant>,
}

/// More would waste memory: steps that are older than the time to live go with the next answer.
const MOST: usize = 8;

#[cfg(test)]
pub(super) const STEP: usize = size_of::<Step>();

/// Units are counted from the threshold down, so that one step serves several thresholds.
struct Step {
    /// Calls that would leave no more than this of their threshold are refused ..
    spare: i64,
    /// .. until then, if not longer.
    end: Instant,
    /// Until then what was refused is recent: by the time to live after the call was sent.
    recent_until: Instant,
    tier: u8,
    /// The first threshold less the units left in the tier.
    used: i64,
    /// When the full quota is back, if not later.
    full: Instant,
}

impl Staircase {
    pub(super) fn new(policy: &Policy) -> Self {
        Self { policy: *policy, steps: Vec::new(), asks_until: None }
    }

    /// Returns `true` if refusals under this policy can be compared with those in here.
    pub(super) fn is_about(&self, policy: &Policy) -> bool {
        // Of these alone two thresholds see the same count: a bucket's rate and the weights of a
        // counter's windows depend on them.
        let is_window = |it: &Policy| {
            matches!(it.algorithm(), Algorithm::SlidingWindow | Algorithm::FixedWindow)
                && it.tiers().len() == 1
                && !it.counts_rejected()
        };
        self.policy == *policy
            || is_window(&self.policy)
                && is_window(policy)
                && self.policy.longest_period() == policy.longest_period()
    }

    /// The refusal that the store would give as well, unless what is known is so old that this
    /// call has to ask.
    pub(super) fn find(
        &mut self,
        request: Request<'_>,
        ttl: Duration,
        now: Instant,
    ) -> Option<Outcome> {
        self.steps.retain(|it| now < it.end);
        let asks = self.asks_until.is_some_and(|until| now < until);
        let spare = spare(request.policy, request.cost);
        let mut refusing = self.steps.iter().filter(|it| spare <= it.spare);
        let recent = refusing.clone().filter(|it| asks || now < it.recent_until);
        let Some(step) = recent.max_by_key(|it| it.end) else {
            if refusing.next().is_some() {
                self.asks_until = Some(now + ttl);
            }
            return None;
        };
        let left = threshold(request.policy) - step.used;
        Some(Outcome {
            admitted: false,
            tier: step.tier,
            remaining: u32::try_from(left.max(0)).unwrap_or(u32::MAX),
            wait: micros_until(step.end, now),
            more: Micros::ZERO,
            reset: micros_until(step.full, now),
            lasts: Micros::ZERO,
            mark: Mark::NONE,
            decided_by: DecidedBy::DenyCache,
        })
    }

    /// Returns `true` if by the store's answer more can be had than is known here.
    pub(super) fn is_refuted(&self, request: Request<'_>, outcome: Outcome, trip: Trip) -> bool {
        let Request { policy, op, cost, .. } = request;
        if !self.is_about(policy) {
            // What is written by other numbers may be less by these.
            return op == Op::Take && (outcome.admitted || policy.counts_rejected());
        }
        let Outcome { admitted, remaining, wait, more, .. } = outcome;
        let refutes = |units: u32, wait: Micros| {
            let free_at = trip.answered.checked_add(Duration::from(wait));
            let spare = spare(policy, units);
            let mut steps = self.steps.iter();
            steps.any(|it| spare <= it.spare && free_at.is_some_and(|free_at| free_at < it.end))
        };
        if admitted {
            return refutes(remaining.saturating_add(cost), Micros::ZERO);
        }
        // Of several tiers, another one may have less left.
        (policy.tiers().len() == 1 && refutes(remaining, Micros::ZERO))
            || refutes(remaining.saturating_add(1), more)
            || refutes(cost, wait)
    }

    /// The store has answered a call: what is old is repeated no longer.
    pub(super) fn end_asking(&mut self) {
        self.asks_until = None;
    }

    /// Takes in a refusal that refutes nothing in here.
    pub(super) fn add(
        &mut self,
        request: Request<'_>,
        outcome: Outcome,
        trip: Trip,
        ttl: Duration,
    ) {
        let sent = trip.sent;
        let recent_until = sent + ttl;
        // Answers may come in another order: the newest is about all costs.
        if self.steps.iter().any(|it| recent_until < it.recent_until) {
            return;
        }
        self.end_asking();
        self.steps.retain(|it| sent < it.recent_until);
        let Outcome { tier, remaining, wait, more, reset, .. } = outcome;
        let used = threshold(request.policy) - i64::from(remaining);
        let at = |micros| sent.checked_add(Duration::from(micros));
        let next = remaining.saturating_add(1);
        let cost = request.cost.max(1);
        for (units, wait) in [(cost, wait), (next.min(cost), more)] {
            let (Some(end), Some(full)) = (at(wait), at(reset)) else { continue };
            let spare = spare(request.policy, units);
            self.steps.retain(|it| spare < it.spare || end < it.end);
            if self.steps.len() == MOST {
                self.steps.remove(0);
            }
            self.steps.reserve_exact(1);
            self.steps.push(Step { spare, end, recent_until, tier, used, full });
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

/// The units of the first threshold beyond `units`. Negative where a bucket is larger.
fn spare(policy: &Policy, units: u32) -> i64 {
    threshold(policy) - i64::from(units)
}

fn threshold(policy: &Policy) -> i64 {
    policy.tiers().first().map_or(0, |tier| tier.threshold().into())
}

/// Rounded up: a call that waits as long is not early.
fn micros_until(end: Instant, now: Instant) -> Micros {
    Micros::rounded_up(end.saturating_duration_since(now))
}
