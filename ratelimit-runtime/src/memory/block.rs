//! Blocks in memory: a caller's last one is a state of its own, beside that of the window, in the same shard. So it
//! expires, is evicted and counts for the store's bounds as others do.

use super::MemoryStore;
use crate::{
    error::UnavailableReason,
    key::KeyRef,
    policy::StateKind,
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
        let look = Request { op: Op::Peek, max_wait: Micros::ZERO, ..request };
        let blocked = self.decide_window(counted, of_block(key), look)?;
        if !blocked.admitted {
            return Ok(blocked);
        }
        let refused = self.decide_window(counted, key, request)?;
        if refused.admitted || refused.is_busy() || request.op == Op::Peek {
            return Ok(refused);
        }
        let offence = Request { max_wait: refused.wait, ..request };
        let blocked = self.decide_window(counted, of_block(key), offence);
        Ok(blocked.map_or(refused, |blocked| Outcome { tier: refused.tier, ..blocked }))
    }
}

/// Returns the key of a caller's block.
pub(super) fn of_block(key: KeyRef<'_>) -> KeyRef<'_> {
    KeyRef { state: StateKind::Block, ..key }
}
