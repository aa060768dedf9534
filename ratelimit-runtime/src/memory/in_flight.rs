//! Decisions by the permits of a caller, before and after that of its window.

use super::shard::ShardTable;
use crate::{
    key::Lookup,
    request::{Mark, Outcome, Request},
    time::Micros,
};

impl ShardTable {
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
