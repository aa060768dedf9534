//! The memory store: one process, no server.
//!
//! Keys are spread over shards, each behind a mutex. A decision takes one lock, or none if its
//! [refusal] is known, and never awaits. It reads the processor's counter before the lock, and
//! under the lock takes no earlier time than the shard's latest: timestamps are recorded in
//! ascending order. Other clocks are read under the lock.
//!
//! Floor 5: imports `algorithms`, `telemetry` and plain data. `limiter` and `redis` import it.

mod block;
mod block_vec;
mod budget;
mod clock;
mod eviction;
mod in_flight;
mod line;
mod locked;
#[cfg(test)]
#[path = "../../tests/decisions/model/inside_the_store.rs"]
mod model;
mod names;
#[cfg(test)]
mod nearly_full;
#[cfg(test)]
mod pauses;
mod permits;
mod refusal;
#[cfg(all(test, ratelimit_loom))]
mod schedules;
mod settle;
mod shard;
#[cfg(test)]
mod straight;
#[cfg(test)]
mod tests;

use std::{num::NonZeroUsize, thread::available_parallelism};

pub(crate) use self::clock::Clock;
#[cfg(feature = "replay")]
pub(crate) use self::clock::EPOCH;
use self::{
    block::of_block,
    budget::{Budget, Usage},
    eviction::MAX_WORK,
    locked::Shard,
    shard::{Entry, KEY_BYTES, NEVER, ShardTable},
};
use crate::{
    algorithms::State,
    calendar::Zone,
    error::{Replied, UnavailableReason},
    key::{InlineBytes, KeyHasher, KeyRef, Lookup, StoredCaller},
    request::{Answered, DecidedBy, Op, Outcome, PlainAnswer, PlainOutcome, Request},
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicUsize, Ordering},
    },
    telemetry,
    time::Timestamp,
};

/// The minimum number of shards for each core: two threads rarely contend for one. With more, a
/// store of some thousand callers would consist mostly of shards, and not fit the cache.
const SHARDS_PER_CORE: usize = 16;

/// The maximum number of shards: enough for the memory of a machine. With a bound of `usize::MAX`
/// keys they take 8 MB.
const MAX_SHARDS: usize = 32_768;

/// The approximate number of keys in a full shard: the index moves this many places of 8 bytes at
/// once when it grows, which takes some hundred microseconds.
const KEYS_PER_SHARD: usize = 32_768;

pub(crate) struct MemoryStore {
    shards: Box<[Shard]>,
    hasher: KeyHasher,
    clock: Clock,
    /// Locked by itself or under the lock of one shard.
    budget: Mutex<Budget>,
    /// The shard at which the next search for expired keys starts.
    cursor: AtomicUsize,
}

impl MemoryStore {
    pub(crate) fn new(max_keys: usize, max_bytes: usize) -> Self {
        let cores = available_parallelism().map_or(1, NonZeroUsize::get);
        Self::with_shards(max_keys, max_bytes, shards_for(max_keys, cores))
    }

    /// Creates a store without bounds, whose calls come from one thread and bring their times.
    #[cfg(feature = "replay")]
    pub(crate) fn for_replay() -> Self {
        let store = Self::with_shards(usize::MAX, usize::MAX, 1);
        store.clock.set_calendar(Timestamp::default(), 0);
        store
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

    /// Sets the time of the calendar, in microseconds since the UNIX epoch.
    #[cfg(all(feature = "testing", feature = "calendar"))]
    pub(crate) fn set_calendar(&self, unix: u64) {
        self.clock.set_calendar(self.clock.now(), unix);
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Takes units of a key that is stored, and a permit, or refuses a unit: see
    /// [`State::take_units`](crate::algorithms::State::take_units).
    #[inline(always)]
    pub(crate) fn take_units<A: PlainAnswer>(
        &self,
        caller: &InlineBytes,
        request: Request<'_>,
        takes_permit: bool,
    ) -> Answered<A> {
        let policy = request.policy;
        let counted = self.clock.counted();
        let lookup = self.hasher.lookup(KeyRef::new(policy, caller));
        let shard = self.shard(&lookup);
        let takes_one = !takes_permit && request.cost == 1 && request.id.is_none();
        if takes_one
            && shard.refusal.is_known(lookup.hash)
            && let Some([ends, resets]) = shard.refusal.of(lookup.hash, caller, policy)
        {
            let now = counted.unwrap_or_else(|| self.clock.now());
            if now < ends {
                let answer = Some(A::refused(ends - now, resets - now));
                return Answered { answer, decided_by: DecidedBy::Store, at: now };
            }
        }
        let mut table = if takes_one { shard.lock_for_unit() } else { shard.lock() };
        let now = self.clock.ordered(counted, &mut table.latest);
        let answer: Option<A> = if takes_permit {
            table.take_permit_and_units(&lookup, now, request)
        } else {
            table.take_units(&lookup, now, request)
        };
        if takes_one && let Some(answer) = &answer {
            if let Some(wait) = answer.refusal() {
                let times = [wait, answer.reset()];
                shard.refusal.keep(lookup.hash, caller, policy, now, times);
            } else if shard.refusal.is_known(lookup.hash) {
                // Under another policy of the key: the wait of the known refusal is longer now.
                shard.refusal.forget();
            }
        }
        Answered { answer, decided_by: DecidedBy::Store, at: now }
    }

    /// Decides a call.
    ///
    /// # Errors
    ///
    /// [`StoreFull`](UnavailableReason::StoreFull) if the call needs memory and its limit may not
    /// take more.
    #[inline]
    pub(crate) fn decide(&self, key: KeyRef<'_>, request: Request<'_>) -> Replied<Outcome> {
        self.decide_at(self.clock.counted(), key, request)
    }

    /// Decides a call at a time that was [counted](Clock::counted).
    #[inline]
    pub(crate) fn decide_at(
        &self,
        counted: Option<Timestamp>,
        key: KeyRef<'_>,
        request: Request<'_>,
    ) -> Replied<Outcome> {
        if request.policy.has_block() {
            return self.decide_unless_blocked(counted, key, request);
        }
        self.decide_window(counted, key, request)
    }

    /// Decides a call by the state of its key.
    #[inline(never)]
    fn decide_window(
        &self,
        counted: Option<Timestamp>,
        key: KeyRef<'_>,
        request: Request<'_>,
    ) -> Replied<Outcome> {
        let lookup = self.hasher.lookup(key);
        let shard = self.shard(&lookup);
        // It takes a lock of the whole process, so not under that of the shard.
        let zone = request.policy.get_zone().and_then(Zone::new);
        let mut table = shard.lock();
        let now = self.clock.ordered(counted, &mut table.latest);
        // The dated policy outlives the request that refers to it.
        let dated;
        let request = if request.policy.is_calendar() {
            dated = self.clock.dated(now, request, zone).ok_or(UnavailableReason::StoreError)?;
            dated.of(request)
        } else {
            request
        };
        self.decide_locked(shard, table, now, &lookup, request)
    }

    /// Decides a call, after an eviction if it needs memory for which there is no room.
    #[inline]
    fn decide_locked<'a>(
        &self,
        shard: &'a Shard,
        mut table: MutexGuard<'a, ShardTable>,
        mut now: Timestamp,
        lookup: &Lookup<'_>,
        request: Request<'_>,
    ) -> Replied<Outcome> {
        let mut work = MAX_WORK;
        loop {
            if let Some(outcome) = table.decide_permit(lookup, request) {
                return Ok(outcome);
            }
            let decided = match table.find_mut(lookup, now) {
                Some(entry) => {
                    let (decided, before, after) =
                        self.decide_known_key(entry, now, lookup.key, request);
                    if let Ok(outcome) = decided {
                        table.take_permit(lookup, request, outcome);
                    }
                    drop(table);
                    report_keys(after, before);
                    decided
                }
                None => self.decide_new_key(shard, table, now, lookup, request),
            };
            match decided {
                Ok(outcome) => return Ok(outcome),
                Err(more) if self.evict_expired(lookup.key, more, &mut work) => {}
                Err(_) => return Err(self.full(lookup.key, now)),
            }
            let counted = self.clock.counted();
            table = shard.lock();
            now = self.clock.ordered(counted, &mut table.latest);
        }
    }

    /// Decides a call of a known key, and returns its usage before and after. Without room for what
    /// the call needs nothing is decided, and the error is that usage.
    fn decide_known_key(
        &self,
        entry: &mut Entry,
        now: Timestamp,
        key: KeyRef<'_>,
        request: Request<'_>,
    ) -> (Result<Outcome, Usage>, Usage, Usage) {
        if request.takes_at_once()
            && let Some(answer) = entry.take_units::<PlainOutcome>(now, request)
        {
            let outcome = answer.outcome(DecidedBy::Store, now);
            return (Ok(outcome), Usage::default(), Usage::default());
        }
        let before = Usage { keys: 0, bytes: entry.bytes() };
        let (mut granted, mut more) = (before, Usage::default());
        let outcome = entry.decide(now, request, &mut |bytes| {
            more.bytes = bytes;
            // Mostly a call needs none. It is asked for at most once, and perhaps more than is
            // used.
            let has_room = bytes == 0 || self.budget.lock().take(key.name.text(), more).is_some();
            if has_room {
                granted.bytes += bytes;
            }
            has_room
        });
        let after = Usage { keys: 0, bytes: entry.bytes() };
        let unused = Usage { keys: 0, bytes: granted.bytes.saturating_sub(after.bytes) };
        if unused.bytes > 0 {
            self.budget.lock().release(key.name.text(), unused);
        }
        (outcome.ok_or(more), before, after)
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
        let mut state = State::new(lookup.key.state);
        // Nothing has changed until the entry is inserted.
        let outcome = state.decide(now, request, &mut |_| true).expect("there is room");
        if request.op == Op::Peek {
            return Ok(outcome);
        }
        let caller = StoredCaller::new(lookup.key.caller);
        let bytes = KEY_BYTES + caller.heap_bytes() + state.heap_bytes();
        let more = Usage { keys: 1, bytes };
        let forgotten = table.remove(lookup, &self.hasher);
        let evicted = table.evict_some(now, &self.hasher, forgotten);
        let mut budget = self.budget.lock();
        budget.release_all(&evicted);
        let name = budget.take(lookup.key.name.text(), more);
        drop(budget);
        let Some(name) = name else {
            drop(table);
            report_keys(Usage::default(), evicted.total());
            return Err(more);
        };
        let entry = Entry { caller, name, expires: now + outcome.lasts, state };
        table.take_permit(lookup, request, outcome);
        let next =
            if table.is_empty() { NEVER.get() } else { shard.next_expiry.load(Ordering::Relaxed) };
        shard.next_expiry.store(next.min(entry.expires.get()), Ordering::Relaxed);
        table.insert(lookup.hash, entry);
        drop(table);
        report_keys(more, evicted.total());
        Ok(outcome)
    }

    /// Reports that a call found no room.
    fn full(&self, key: KeyRef<'_>, now: Timestamp) -> UnavailableReason {
        let limit = key.name.text();
        let mut budget = self.budget.lock();
        let is_first = budget.record_full(limit, now);
        let used = budget.used_by(limit);
        drop(budget);
        telemetry::report(move || {
            telemetry::memory_full(limit, is_first, used.keys, used.bytes);
        });
        UnavailableReason::StoreFull
    }

    /// Removes a key, and the block of its caller.
    pub(crate) fn reset(&self, key: KeyRef<'_>) {
        for key in [key, of_block(key)] {
            let lookup = self.hasher.lookup(key);
            let removed = self.shard(&lookup).lock().remove(&lookup, &self.hasher);
            self.budget.lock().release_all(&removed);
            report_keys(Usage::default(), removed.total());
        }
    }

    /// Adds a call in flight to a key, above any bound: another store has admitted it.
    pub(crate) fn hold(&self, key: KeyRef<'_>) {
        let lookup = self.hasher.lookup(key);
        self.shard(&lookup).lock().permits.hold(&lookup);
    }

    /// Returns the permits of a key that calls have.
    pub(crate) fn held(&self, key: KeyRef<'_>) -> u32 {
        let lookup = self.hasher.lookup(key);
        self.shard(&lookup).lock().permits.held(&lookup)
    }

    /// Frees the permit of a call.
    pub(crate) fn release(&self, key: KeyRef<'_>) {
        let lookup = self.hasher.lookup(key);
        self.shard(&lookup).lock().permits.release(&lookup);
    }

    #[inline]
    fn shard(&self, lookup: &Lookup<'_>) -> &Shard {
        // The index has the lower half.
        &self.shards[(lookup.hash >> 32) as usize & (self.shards.len() - 1)]
    }
}

/// Returns the number of shards for this many keys and cores, a power of two.
fn shards_for(max_keys: usize, cores: usize) -> usize {
    let shards = (max_keys / KEYS_PER_SHARD).max(SHARDS_PER_CORE * cores);
    shards.min(MAX_SHARDS).next_power_of_two()
}

/// Reports a change of the usage. To be called without a lock: recorders are foreign code, may call
/// the limiter, and may panic.
fn report_keys(taken: Usage, released: Usage) {
    if taken != released {
        let number = |amount| i64::try_from(amount).unwrap_or(i64::MAX);
        let keys = number(taken.keys) - number(released.keys);
        let bytes = number(taken.bytes) - number(released.bytes);
        telemetry::report(move || telemetry::memory_held(keys, bytes));
    }
}

impl Drop for MemoryStore {
    fn drop(&mut self) {
        let used = self.budget.lock().used();
        report_keys(Usage::default(), used);
    }
}
