//! Blocks in memory: a caller's last one is a state of its own, beside that of the window, in the same shard. So it
//! expires, is evicted and counts for the store's bounds as others do.

use super::MemoryStore;
use crate::{
    error::UnavailableReason,
    key::KeyRef,
    policy::{Policy, StateKind},
    request::{Op, Outcome, Request},
    time::{Micros, Timestamp},
};

impl MemoryStore {
    /// Decides a call under a policy with blocks. One that the window refuses is an offence, unless another
    /// thread's was faster. Without room for it in memory there is no block.
    #[cold]
    pub(super) fn decide_unless_blocked(
        &self,
        counted: Option<Timestamp>,
        key: KeyRef<'_>,
        request: Request<'_>,
    ) -> Result<Outcome, UnavailableReason> {
        let look = Request { op: Op::Peek, ..request };
        let look_at_window = || {
            let policy = &request.policy.without_concurrency();
            self.decide_window(counted, key, Request { policy, ..look })
        };
        let block = self.decide_window(counted, of_block(key), look)?;
        // A call of 0 units is never refused.
        if !block.admitted && request.cost > 0 {
            return Ok(refusal(block, look_at_window()?));
        }
        let window = self.decide_window(counted, key, request)?;
        if window.admitted || window.is_busy() || request.op == Op::Peek {
            return Ok(window);
        }
        let Ok(block) = self.decide_window(counted, of_block(key), request) else {
            return Ok(window);
        };
        // Another thread may have given units back meanwhile, and found no block to lift.
        if look_at_window()?.admitted {
            self.lift_block(counted, key, Timestamp::default());
        }
        Ok(refusal(block, window))
    }

    /// Returns the time for which the caller of a key is still blocked.
    pub(crate) fn blocked_for(
        &self,
        key: KeyRef<'_>,
        policy: &Policy,
    ) -> Result<Micros, UnavailableReason> {
        if !policy.has_block() {
            return Ok(Micros::ZERO);
        }
        let look = Request::new(policy, Op::Peek, 0);
        Ok(self.decide_window(self.clock.counted(), of_block(key), look)?.wait)
    }

    /// Lifts a block that began while units were taken, at `taken`, which are given back.
    pub(super) fn lift_block(&self, counted: Option<Timestamp>, key: KeyRef<'_>, taken: Timestamp) {
        let lookup = self.hasher.lookup(of_block(key));
        let mut table = self.shard(&lookup).table.lock();
        let now = self.clock.ordered(counted, &mut table.latest);
        if let Some(block) = table.find_mut(&lookup, now) {
            block.state.lift_block(taken);
        }
    }
}

/// Returns the refusal of a blocked caller by its block, and by the window that decides after it: the call waits for
/// both.
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
