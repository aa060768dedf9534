//! Decisions by the permits of a caller, before and after that of its window.

use super::shard::ShardTable;
use crate::{
    key::Lookup,
    request::{Charged, Mark, Outcome, PlainAnswer, PlainNumbers, Request},
    time::{Micros, Timestamp},
};

impl ShardTable {
    /// Takes a permit, and units if the policy has a window. Returns nothing, and takes nothing, if
    /// no permit is free or [the units](Self::take_units) need the long way.
    #[inline]
    pub(super) fn take_permit_and_units<A: PlainAnswer>(
        &mut self,
        lookup: &Lookup<'_>,
        now: Timestamp,
        request: Request<'_>,
    ) -> Option<A> {
        let most = request.policy.get_concurrency()?;
        // Most calls get the permit: it is looked up once.
        let answer = match most.checked_sub(self.permits.hold(lookup)) {
            Some(_) if request.policy.has_window() => self.take_units(lookup, now, request),
            Some(remaining) => {
                let (wait, charged) = (Micros::ZERO, Charged::Nothing);
                Some(A::taken(wait, || PlainNumbers { remaining, wait, charged }))
            }
            None => None,
        };
        if answer.as_ref().is_none_or(|answer| answer.refusal().is_some()) {
            self.permits.release(lookup);
        }
        answer
    }

    /// Returns the outcome of a call that finds no permit free, or whose policy has no window.
    #[inline]
    pub(super) fn decide_permit(
        &mut self,
        lookup: &Lookup<'_>,
        request: Request<'_>,
    ) -> Option<Outcome> {
        let Request { policy, cost, .. } = request;
        let free = policy.get_concurrency()?.saturating_sub(self.permits.held(lookup));
        if cost > 0 && free == 0 {
            return Some(Outcome::busy());
        }
        if !policy.tiers().is_empty() {
            return None;
        }
        let free = free.saturating_sub(cost.min(1));
        let outcome = Outcome::admitted(free, Micros::ZERO, Micros::ZERO, Mark::NONE);
        self.take_permit(lookup, request, outcome);
        Some(outcome)
    }

    /// Adds an admitted call to those in flight, if its policy bounds their number.
    #[inline]
    pub(super) fn take_permit(
        &mut self,
        lookup: &Lookup<'_>,
        request: Request<'_>,
        outcome: Outcome,
    ) {
        if request.takes_permit() && outcome.admitted {
            self.permits.hold(lookup);
        }
    }
}
