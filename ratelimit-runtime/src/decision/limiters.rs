//! The limiters of this process, as the decisions of their calls find them: by a number, which
//! costs a decision nothing to copy or to drop.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Weak,
        atomic::{AtomicU32, Ordering},
    },
};

use parking_lot::RwLock;

use super::Decision;

/// A limiter that settles its calls.
pub(crate) trait Settler: Send + Sync {
    /// Settles a call at `to` units without being awaited.
    fn settle(&self, decision: &Decision, to: u32, lifts_block: bool);
}

/// The number of a limiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LimiterId(u32);

static LIMITERS: RwLock<BTreeMap<u32, Weak<dyn Settler>>> = RwLock::new(BTreeMap::new());

impl LimiterId {
    /// Returns the number of a new limiter.
    pub(crate) fn next() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }

    /// Makes the limiter known to its decisions.
    pub(crate) fn register(self, limiter: Weak<dyn Settler>) {
        LIMITERS.write().insert(self.0, limiter);
    }

    /// Forgets a limiter that is dropped.
    pub(crate) fn forget(self) {
        LIMITERS.write().remove(&self.0);
    }

    /// Returns the limiter, unless it is dropped.
    pub(super) fn get(self) -> Option<Arc<dyn Settler>> {
        LIMITERS.read().get(&self.0)?.upgrade()
    }
}
