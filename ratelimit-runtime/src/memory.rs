//! The memory store: one process, no server.
//!
//! Keys are spread over shards, each behind a mutex. A decision takes one lock and never awaits. It
//! reads the clock under the lock, so that timestamps are recorded in the order in which they were
//! taken.
//!
//! Floor 5: imports `algorithms`, `telemetry` and plain data. `limiter` and `redis` import it.

mod block_vec;
mod budget;
mod clock;
mod eviction;
mod hash;
#[cfg(all(test, ratelimit_loom))]
mod schedules;
mod shard;
#[cfg(test)]
mod straight;
#[cfg(test)]
mod tests;

use std::sync::PoisonError;

use self::{
    budget::{Budget, Usage},
    clock::Clock,
    eviction::MAX_SCAN,
    hash::{KeyHasher, Lookup},
    shard::{Entry, NEVER, ShardTable},
};
use crate::{
    algorithms::Straight,
    error::UnavailableReason,
    key::KeyRef,
    policy::Policy,
    request::{Op, Outcome, Refund, Request},
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    telemetry,
    time::Timestamp,
};

/// The minimum number of shards: two threads rarely contend for one, and an idle limiter is small.
const MIN_SHARDS: usize = 256;

/// The maximum number of shards: enough for the memory of a machine. With a bound of `usize::MAX`
/// keys they take 8 MB.
const MAX_SHARDS: usize = 65_536;

/// The approximate number of keys in a full shard: this many are hashed again at once when its
/// index grows. With fewer, a store of some thousand callers would consist mostly of shards, and
/// not fit the cache.
const KEYS_PER_SHARD: usize = 4_096;

pub(crate) struct MemoryStore {
    shards: Box<[Shard]>,
    hasher: KeyHasher,
    clock: Clock,
    /// Locked by itself or under the lock of one shard.
    budget: Mutex<Budget>,
    /// The shard at which the next search for expired keys starts.
    cursor: AtomicUsize,
}

/// A part of the keys behind a lock, aligned to a cache line: locking one shard does not slow down
/// its neighbours.
#[derive(Default)]
#[repr(align(64))]
struct Shard {
    table: Mutex<ShardTable>,
    /// A time before which no key in the shard expires, readable without the lock.
    next_expiry: AtomicU64,
}

/// The result of the straight path, [`MemoryStore::take_known`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// The unit is taken.
    Admitted,
    /// No unit is left.
    Refused(Outcome),
    /// The call needs [`MemoryStore::decide`]: the key is new, or the policy has several tiers.
    Skipped,
}

impl MemoryStore {
    pub(crate) fn new(max_keys: usize, max_bytes: usize) -> Self {
        let shards = (max_keys / KEYS_PER_SHARD).clamp(MIN_SHARDS, MAX_SHARDS);
        Self::with_shards(max_keys, max_bytes, shards.next_power_of_two())
    }

    /// Creates a store with this many shards, a power of two.
    fn with_shards(max_keys: usize, max_bytes: usize, shards: usize) -> Self {
        Self {
            shards: (0..shards).map(|_| Shard::default()).collect(),
            hasher: KeyHasher::new(),
            clock: Clock::new(),
            budget: Mutex::new(Budget::new(Usage { keys: max_keys, bytes: max_bytes })),
            cursor: AtomicUsize::new(0),
        }
    }

    /// Takes one unit of a key that is stored, or refuses it, under a valid policy that no override
    /// changes.
    ///
    /// This is the straight path of [`decide`](Self::decide), on which most calls are decided. The
    /// state and the numbers of a refusal are the same; an admission builds no outcome.
    #[inline]
    pub(crate) fn take_known(&self, key: KeyRef<'_>, policy: &Policy) -> Taken {
        let lookup = self.hasher.lookup(key);
        let mut table = self.shard(&lookup).lock();
        let Some(entry) = table.find_mut(&lookup) else { return Taken::Skipped };
        match entry.take_one(self.clock.now(), policy) {
            Straight::Admitted { .. } => Taken::Admitted,
            Straight::Refused { wait, reset } => Taken::Refused(Outcome::refused(wait, reset)),
            Straight::Skipped => Taken::Skipped,
        }
    }

    /// Decides a call.
    ///
    /// # Errors
    ///
    /// [`StoreFull`](UnavailableReason::StoreFull) if the call needs memory and its limit may not
    /// take more.
    pub(crate) fn decide(
        &self,
        key: KeyRef<'_>,
        request: Request<'_>,
    ) -> Result<Outcome, UnavailableReason> {
        let lookup = self.hasher.lookup(key);
        let shard = self.shard(&lookup);
        let mut table = shard.lock();
        let now = self.clock.now();
        if let Some(entry) = table.find_mut(&lookup)
            && entry.state.growth(now, request) == 0
        {
            return Ok(entry.decide(now, request));
        }
        self.decide_with_memory(shard, table, now, &lookup, request)
    }

    /// Decides a call that takes memory, after an eviction if there is no room.
    #[inline(never)]
    fn decide_with_memory<'a>(
        &self,
        shard: &'a Shard,
        mut table: MutexGuard<'a, ShardTable>,
        mut now: Timestamp,
        lookup: &Lookup<'_>,
        request: Request<'_>,
    ) -> Result<Outcome, UnavailableReason> {
        let mut scans = MAX_SCAN;
        loop {
            let decided = match table.find_mut(lookup) {
                Some(entry) => {
                    let decided = self.decide_known_key(entry, now, lookup.key, request);
                    drop(table);
                    decided.map(|(outcome, grown)| {
                        report_keys(grown, Usage::default());
                        outcome
                    })
                }
                None => self.decide_new_key(shard, table, now, lookup, request),
            };
            match decided {
                Ok(outcome) => return Ok(outcome),
                Err(more) if self.evict_expired(lookup.key, more, &mut scans) => {}
                Err(_) => return Err(self.full(lookup.key, now)),
            }
            table = shard.lock();
            now = self.clock.now();
        }
    }

    /// Decides a call whose state may grow, and returns its growth. Without room for it nothing is
    /// decided, and the error is the usage that the call needs.
    fn decide_known_key(
        &self,
        entry: &mut Entry,
        now: Timestamp,
        key: KeyRef<'_>,
        request: Request<'_>,
    ) -> Result<(Outcome, Usage), Usage> {
        let growth = Usage { keys: 0, bytes: entry.state.growth(now, request) };
        if !self.budget().take(key.name.text(), growth) {
            return Err(growth);
        }
        let before = entry.bytes();
        let outcome = entry.decide(now, request);
        let grown = Usage { keys: 0, bytes: entry.bytes() - before };
        self.release_unused(key, growth, grown);
        Ok((outcome, grown))
    }

    /// Decides the first call of a key, and inserts its entry. Without room for it nothing is
    /// decided, and the error is the usage that the call needs.
    fn decide_new_key(
        &self,
        shard: &Shard,
        mut table: MutexGuard<'_, ShardTable>,
        now: Timestamp,
        lookup: &Lookup<'_>,
        request: Request<'_>,
    ) -> Result<Outcome, Usage> {
        let mut entry = Entry::new(lookup.key);
        if request.op == Op::Peek {
            return Ok(entry.decide(now, request));
        }
        let more = Usage { keys: 1, bytes: entry.bytes() + entry.state.growth(now, request) };
        let evicted = table.evict_some(now, &self.hasher);
        let mut budget = self.budget();
        budget.release_all(&evicted);
        let has_room = budget.take(lookup.key.name.text(), more);
        drop(budget);
        if !has_room {
            drop(table);
            report_keys(Usage::default(), evicted.total());
            return Err(more);
        }
        let outcome = entry.decide(now, request);
        let taken = Usage { keys: 1, bytes: entry.bytes() };
        self.release_unused(lookup.key, more, taken);
        let next =
            if table.is_empty() { NEVER.get() } else { shard.next_expiry.load(Ordering::Relaxed) };
        shard.next_expiry.store(next.min(entry.expires.get()), Ordering::Relaxed);
        table.insert(lookup.hash, entry, &self.hasher);
        drop(table);
        report_keys(taken, evicted.total());
        Ok(outcome)
    }

    /// Releases the bytes that a call could have needed, and did not.
    fn release_unused(&self, key: KeyRef<'_>, granted: Usage, taken: Usage) {
        if taken.bytes < granted.bytes {
            let unused = Usage { keys: 0, bytes: granted.bytes - taken.bytes };
            self.budget().release(key.name.text(), unused);
        }
    }

    /// Reports that a call found no room.
    fn full(&self, key: KeyRef<'_>, now: Timestamp) -> UnavailableReason {
        let limit = key.name.text();
        let mut budget = self.budget();
        let is_first = budget.record_full(limit, now);
        let used = budget.used_by(limit);
        drop(budget);
        telemetry::memory_full(limit, is_first, used.keys, used.bytes);
        UnavailableReason::StoreFull
    }

    /// Removes a key.
    pub(crate) fn reset(&self, key: KeyRef<'_>) {
        let lookup = self.hasher.lookup(key);
        let removed = self.shard(&lookup).lock().remove(&lookup, &self.hasher);
        self.budget().release_all(&removed);
        report_keys(Usage::default(), removed.total());
    }

    /// Refunds the units of a call to its key, as far as they still count.
    pub(crate) fn refund(&self, key: KeyRef<'_>, refund: Refund<'_>) {
        let lookup = self.hasher.lookup(key);
        if let Some(entry) = self.shard(&lookup).lock().find_mut(&lookup) {
            entry.state.refund(refund);
        }
    }

    fn budget(&self) -> MutexGuard<'_, Budget> {
        self.budget.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[inline]
    fn shard(&self, lookup: &Lookup<'_>) -> &Shard {
        // The index takes its bits from both ends of the hash; the shard comes from the middle.
        &self.shards[(lookup.hash >> 32) as usize & (self.shards.len() - 1)]
    }
}

/// Reports a change of the usage. To be called without a lock: recorders are foreign code, may call
/// the limiter, and may panic.
fn report_keys(taken: Usage, released: Usage) {
    if taken != released {
        let number = |amount| i64::try_from(amount).unwrap_or(i64::MAX);
        telemetry::memory_held(
            number(taken.keys) - number(released.keys),
            number(taken.bytes) - number(released.bytes),
        );
    }
}

impl Drop for MemoryStore {
    fn drop(&mut self) {
        let used = self.budget().used();
        report_keys(Usage::default(), used);
    }
}

impl Shard {
    #[inline]
    fn lock(&self) -> MutexGuard<'_, ShardTable> {
        // A panic cannot leave a shard half written: nothing in here calls foreign code.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
