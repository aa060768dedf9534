//! Blocks in memory: a caller's last one is a state of its own, beside that of the window, in the
//! same shard. So it expires, is evicted and counts for the store's bounds as others do.

use super::MemoryStore;
use crate::{
    error::{Replied, UnavailableReason},
    key::KeyRef,
    policy::{Policy, StateKind},
    request::{Op, Outcome, Request},
    time::{Micros, Timestamp},
};

impl MemoryStore {
    /// Decides a call under a policy with blocks. One that the window refuses is an offence, unless
    /// another thread's was faster. Without room for it in memory there is no block.
    #[cold]
    pub(super) fn decide_unless_blocked(
        &self,
        counted: Option<Timestamp>,
        key: KeyRef<'_>,
        request: Request<'_>,
    ) -> Replied<Outcome> {
        let look = Request { op: Op::Peek, ..request };
        let policy = &request.policy.without_concurrency();
        let look_at_window =
            |cost| self.decide_window(counted, key, Request { policy, cost, ..look });
        let block = self.decide_window(counted, of_block(key), look)?;
        // A call of 0 units is never refused.
        if !block.admitted && request.cost > 0 {
            return Ok(refusal(block, look_at_window(request.cost)?));
        }
        let window = self.decide_window(counted, key, request)?;
        if window.admitted || window.is_busy() || request.op == Op::Peek {
            return Ok(window);
        }
        // Of several tiers, the one with the fewest units left lacks the most. Where the refusal is
        // recorded as well, none is left.
        let lacked_by = |mut window: Outcome| {
            let mut left = request.cost;
            while !window.admitted {
                left = window.remaining.min(left.saturating_sub(1));
                window = look_at_window(left)?;
            }
            Ok::<_, UnavailableReason>(request.cost - left)
        };
        let lacked = lacked_by(window)?;
        let offence = Request { cost: lacked, ..request };
        let Ok(block) = self.decide_window(counted, of_block(key), offence) else {
            return Ok(window);
        };
        // Another thread may have given units back meanwhile, and found no block to lift.
        let still = lacked_by(look_at_window(request.cost)?)?;
        self.lift_block(counted, key, Timestamp::default(), lacked.saturating_sub(still));
        Ok(refusal(block, window))
    }

    /// Returns the time for which the caller of a key is still blocked.
    pub(crate) fn blocked_for(&self, key: KeyRef<'_>, policy: &Policy) -> Replied<Micros> {
        if !policy.has_block() {
            return Ok(Micros::ZERO);
        }
        let look = Request::new(policy, Op::Peek, 0);
        Ok(self.decide_window(self.clock.counted(), of_block(key), look)?.wait)
    }

    /// Gives back units that were taken at a time, which lifts a block that began since for lack of
    /// them.
    pub(super) fn lift_block(
        &self,
        counted: Option<Timestamp>,
        key: KeyRef<'_>,
        taken: Timestamp,
        units: u32,
    ) {
        let lookup = self.hasher.lookup(of_block(key));
        let mut table = self.shard(&lookup).lock();
        let now = self.clock.ordered(counted, &mut table.latest);
        if let Some(block) = table.find_mut(&lookup, now) {
            block.state.lift_block(taken, units);
        }
    }
}

/// Returns the refusal of a blocked caller by its block, and by the window that decides after it:
/// the call waits for both.
fn refusal(block: Outcome, window: Outcome) -> Outcome {
    if window.admitted {
        return block;
    }
    let wait = block.wait.max(window.wait);
    Outcome { tier: window.tier, wait, reset: wait, ..block }
}

/// Returns the key of a caller's block.
pub(super) fn of_block(key: KeyRef<'_>) -> KeyRef<'_> {
    KeyRef { state: StateKind::Block, ..key }
}

#[cfg(all(test, not(ratelimit_loom)))]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{Policy, request::Settle};

    const HOUR: Duration = Duration::from_secs(3_600);

    #[test]
    fn a_block_is_lifted_once_its_call_lacks_no_unit() {
        let wide = Policy::fixed_window("p", HOUR, 4).block(&[HOUR]);
        // A refusal is told for the second tier, and the first one has fewer units left.
        let two = Policy::fixed_window("p", HOUR, 4).tier(2 * HOUR, 5).block(&[HOUR]);
        let counting = Policy::sliding_window("p", HOUR, 4).count_rejected().block(&[HOUR]);
        for (policy, units, returns) in
            [(&wide, 2, 1), (&wide, 3, 2), (&two, 2, 1), (&two, 3, 2), (&counting, 3, 3)]
        {
            let store = MemoryStore::new(100, 1 << 20);
            let key = KeyRef::new(policy, &b"/alice"[..]);
            let take = |cost| store.decide(key, Request::new(policy, Op::Take, cost)).unwrap();
            let taken = [take(1), take(1), take(1)];
            assert!(!take(units).admitted, "{policy:?}");
            for (returned, outcome) in taken.iter().enumerate() {
                let is_lifted = store.blocked_for(key, policy).unwrap() == Micros::ZERO;
                assert_eq!(is_lifted, returned >= returns, "{returned} of {policy:?}");
                let settle = Settle::of_one_tier(policy, 1, 0, outcome.mark);
                store.settle(key, &Settle { lifts_block: true, ..settle });
            }
        }
    }
}
