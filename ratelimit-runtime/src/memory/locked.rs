//! A shard: its table behind a lock, and what is read without it.

use std::hint;

use super::{refusal::LatestRefusal, shard::ShardTable};
use crate::sync::{Mutex, MutexGuard, atomic::AtomicU64};

/// The pauses of a thread that finds a shard locked, before it sleeps until another thread wakes
/// it.
const PAUSES: usize = 4;

/// The length of a pause, in rounds of some 20 ns.
const PAUSE: usize = 128;

/// A part of the keys behind a lock, aligned to a cache line: locking one shard does not slow down
/// its neighbours.
#[derive(Default)]
#[repr(align(64))]
pub(super) struct Shard {
    pub(super) table: Mutex<ShardTable>,
    /// A time before which no key in the shard expires, readable without the lock.
    pub(super) next_expiry: AtomicU64,
    pub(super) refusal: LatestRefusal,
}

impl Shard {
    /// Locks the shard for more than a plain unit.
    #[inline]
    pub(super) fn lock(&self) -> MutexGuard<'_, ShardTable> {
        let table = self.lock_for_unit();
        self.refusal.forget();
        table
    }

    /// Locks the shard for a unit of a plain call: the refusal of another caller stays known.
    #[inline]
    pub(super) fn lock_for_unit(&self) -> MutexGuard<'_, ShardTable> {
        // Loom would try each pause with every order of the other threads.
        if cfg!(all(test, ratelimit_loom)) {
            return self.table.lock();
        }
        self.table.try_lock().unwrap_or_else(|| self.lock_after_pauses())
    }

    /// Leaves the shard to the calls of another processor for a while. To hand it over takes longer
    /// than a call: two threads that take turns have half of the calls that they have one after the
    /// other.
    #[cold]
    #[inline(never)]
    fn lock_after_pauses(&self) -> MutexGuard<'_, ShardTable> {
        for _ in 0..PAUSES {
            (0..PAUSE).for_each(|_| hint::spin_loop());
            if let Some(table) = self.table.try_lock() {
                return table;
            }
        }
        self.table.lock()
    }
}
