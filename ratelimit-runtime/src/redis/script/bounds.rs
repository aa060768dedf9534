//! The bounds of the numbers in a reply.

use super::{DELAY, ScriptCall, turn::LONGEST_TURN};
use crate::{
    policy::{StateKind, Tier},
    request::Request,
    time::Micros,
};

impl ScriptCall<'_> {
    /// Returns the longest time that can pass until the state has any number of units again: that of a debt as
    /// large as the quota after the turns of other calls, or that of a block.
    pub(super) fn longest_wait(&self) -> Micros {
        let policy = self.request.policy;
        let fill = |tier: &Tier| {
            let bucket = policy.bucket(*tier);
            bucket.full.div_ceil(bucket.refill.max(1))
        };
        let fills = match policy.state() {
            StateKind::TokenBucket => policy.tiers().iter().map(fill).max().unwrap_or_default(),
            _ => policy.longest_period().get(),
        };
        let longest = fills.saturating_mul(2).saturating_add(LONGEST_TURN);
        policy.block_lengths().iter().copied().fold(Micros::new(longest), Micros::max)
    }

    /// Returns the longest time until the call's own turn.
    pub(super) fn longest_turn(&self) -> Micros {
        let Request { id, max_wait, .. } = self.request;
        // A repeated call got its turn before. The ways of both to the server may differ.
        let before = if id.is_some() { DELAY } else { 0 };
        Micros::new(max_wait.get().saturating_add(before))
    }
}
