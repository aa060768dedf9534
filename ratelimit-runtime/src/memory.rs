//! The embedded store: one process, no server.
//!
//! Keys are spread over shards, each behind a mutex. A decision takes one lock, reads the clock
//! inside it (so that stamps are recorded in the order they were taken) and never awaits.
//!
//! Floor 5: imports `algorithms`, `telemetry` and plain data. `limiter` and `redis` import it.

mod block_vec;
mod clock;
mod ledger;
#[cfg(all(test, ratelimit_loom))]
mod schedules;
mod shard;
#[cfg(test)]
mod tests;

use std::sync::PoisonError;

use hashbrown::DefaultHashBuilder;

use self::{
    clock::Clock,
    ledger::{Holding, Ledger},
    shard::{Entry, ShardTable, Sweep},
};
use crate::{
    algorithms::NeedsRoom,
    error::UnavailableReason,
    key::KeyRef,
    request::{Detail, Op, Outcome, Refund, Request},
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    telemetry,
    time::Timestamp,
};

/// Enough that two threads rarely meet, few enough that an idle limiter is small.
const FEWEST_SHARDS: usize = 256;

/// Enough for what fits into a machine, few enough that a bound of `usize::MAX` costs some 8 MB.
const MOST_SHARDS: usize = 65_536;

/// The keys of a full shard, about: so many have to be hashed anew at once when it grows. With
/// fewer, a store of some thousand callers would be mostly shards, and the cache full of them.
const KEYS_PER_SHARD: usize = 4_096;

/// The most keys, about, that one call passes over in search of expired ones when the store is
/// full, which takes some milliseconds. No key is passed over twice unless it, or one of its
/// neighbours, has been called meanwhile; what a call has not come to, the next one does.
const MOST_PASSED_OVER: usize = 1 << 18;

/// To collect a key takes as long as to pass over so many.
const PASSED_OVER_FOR_ONE: usize = 8;

pub(crate) struct MemoryStore {
    shards: Box<[Shard]>,
    hasher: DefaultHashBuilder,
    clock: Clock,
    /// Locked by itself or under the lock of one shard.
    ledger: Mutex<Ledger>,
    /// The shard that room was last looked for in.
    hand: AtomicUsize,
}

/// On cache lines of its own: a thread that takes one lock does not disturb those at the next.
#[derive(Default)]
#[repr(align(64))]
struct Shard {
    shard: Mutex<ShardTable>,
    /// No key in the shard expires before this; readable without the lock.
    due: AtomicU64,
}

impl MemoryStore {
    pub(crate) fn new(max_keys: usize, max_bytes: usize) -> Self {
        let shards = (max_keys / KEYS_PER_SHARD).clamp(FEWEST_SHARDS, MOST_SHARDS);
        Self::with_shards(max_keys, max_bytes, shards.next_power_of_two())
    }

    /// A store of so many shards, a power of two.
    fn with_shards(max_keys: usize, max_bytes: usize, shards: usize) -> Self {
        Self {
            shards: (0..shards).map(|_| Shard::default()).collect(),
            hasher: DefaultHashBuilder::default(),
            clock: Clock::new(),
            ledger: Mutex::new(Ledger::new(Holding { keys: max_keys, bytes: max_bytes })),
            hand: AtomicUsize::new(0),
        }
    }

    pub(crate) fn decide(
        &self,
        subject: KeyRef<'_>,
        request: Request<'_>,
    ) -> Result<Outcome, UnavailableReason> {
        self.answer(subject, request, Detail::Full)
    }

    /// Decides a call that no one detail at once it is admitted: then nothing else is told of it.
    pub(crate) fn decide_unseen(
        &self,
        subject: KeyRef<'_>,
        request: Request<'_>,
    ) -> Result<Outcome, UnavailableReason> {
        self.answer(subject, request, Detail::Admission)
    }

    fn answer(
        &self,
        subject: KeyRef<'_>,
        request: Request<'_>,
        detail: Detail,
    ) -> Result<Outcome, UnavailableReason> {
        let hash = self.hash(subject);
        let place = self.place(hash);
        let mut shard = place.lock();
        let now = self.clock.now();
        if let Some(slot) = shard.find_mut(hash, subject)
            && let Ok(outcome) = slot.decide(now, request, detail, 0)
        {
            return Ok(outcome);
        }
        self.take_more(place, shard, now, hash, subject, request)
    }

    /// Decides a call that takes memory, as soon as there is room.
    #[inline(never)]
    fn take_more<'a>(
        &self,
        place: &'a Shard,
        mut shard: MutexGuard<'a, ShardTable>,
        mut now: Timestamp,
        hash: u64,
        subject: KeyRef<'_>,
        request: Request<'_>,
    ) -> Result<Outcome, UnavailableReason> {
        let mut left = MOST_PASSED_OVER;
        loop {
            let decided = match shard.find_again(hash, subject) {
                Some(slot) => {
                    let decided = self.grow(slot, now, subject, request);
                    drop(shard);
                    decided.map(told)
                }
                None => self.meet(place, shard, now, hash, subject, request),
            };
            match decided {
                Ok(outcome) => return Ok(outcome),
                Err(more) if self.make_room(subject, more, &mut left) => {}
                Err(_) => return Err(self.full(subject, now)),
            }
            shard = place.lock();
            now = self.clock.now();
        }
    }

    /// Decides a call of a known key whose state has to grow, and returns by how much it did. If
    /// there is no room, nothing is decided, and the error is what it needs.
    fn grow(
        &self,
        slot: &mut Entry,
        now: Timestamp,
        subject: KeyRef<'_>,
        request: Request<'_>,
    ) -> Result<(Outcome, Holding), Holding> {
        let NeedsRoom { bytes } = match slot.decide(now, request, Detail::Full, 0) {
            Ok(outcome) => return Ok((outcome, Holding::default())),
            Err(needs) => needs,
        };
        let (limit, more) = (subject.name.text(), Holding { keys: 0, bytes });
        if !self.ledger().take(limit, more) {
            return Err(more);
        }
        let before = slot.bytes();
        let outcome = slot.decide(now, request, Detail::Full, bytes);
        let grown = Holding { keys: 0, bytes: slot.bytes() - before };
        self.settle(limit, more, grown);
        outcome.map(|outcome| (outcome, grown)).map_err(|_| more)
    }

    /// Decides the first call of a key, and keeps its slot. If there is no room, nothing is
    /// decided, and the error is what it needs.
    fn meet(
        &self,
        place: &Shard,
        mut shard: MutexGuard<'_, ShardTable>,
        now: Timestamp,
        hash: u64,
        subject: KeyRef<'_>,
        request: Request<'_>,
    ) -> Result<Outcome, Holding> {
        let mut slot = Entry::new(subject);
        let mut decided = slot.decide(now, request, Detail::Full, 0);
        let growth = match decided {
            Ok(outcome) if request.op == Op::Peek => return Ok(outcome),
            Ok(_) => 0,
            Err(NeedsRoom { bytes }) => bytes,
        };
        let bytes = slot.bytes() + growth;
        let (limit, more) = (subject.name.text(), Holding { keys: 1, bytes });
        let gone = shard.collect_some(now, &self.hasher);
        let mut ledger = self.ledger();
        ledger.give_back(&gone);
        let is_taken = ledger.take(limit, more);
        drop(ledger);
        if !is_taken {
            drop(shard);
            tell(Holding::default(), gone.total());
            return Err(more);
        }
        if growth > 0 {
            decided = slot.decide(now, request, Detail::Full, growth);
        }
        let taken = Holding { keys: 1, bytes: slot.bytes() };
        self.settle(limit, more, taken);
        // The first key of an empty shard makes it due; until then nothing in it is.
        let due = if shard.is_empty() { u64::MAX } else { place.due.load(Ordering::Relaxed) };
        place.due.store(due.min(slot.expires.get()), Ordering::Relaxed);
        shard.insert(hash, slot, &self.hasher);
        drop(shard);
        tell(taken, gone.total());
        decided.map_err(|_| more)
    }

    /// Gives back the bytes that a call could have needed, and did not.
    fn settle(&self, limit: &'static str, granted: Holding, taken: Holding) {
        if taken.bytes < granted.bytes {
            let bytes = granted.bytes - taken.bytes;
            self.ledger().give(limit, Holding { keys: 0, bytes });
        }
    }

    /// Collects expired keys until the limit may take this much more, or enough were passed over.
    #[cold]
    fn make_room(&self, subject: KeyRef<'_>, more: Holding, left: &mut usize) -> bool {
        let now = self.clock.now();
        let first = self.hand.load(Ordering::Relaxed);
        for step in 0..self.shards.len() {
            let at = (first + step) & (self.shards.len() - 1);
            let place = &self.shards[at];
            if place.due.load(Ordering::Relaxed) > now.get() {
                continue;
            }
            let mut shard = place.lock();
            let Sweep { gone, passed_over } = shard.collect_due(now, &self.hasher);
            place.due.store(shard.due().get(), Ordering::Relaxed);
            drop(shard);
            let mut ledger = self.ledger();
            ledger.give_back(&gone);
            let has_room = ledger.has_room(subject.name.text(), more);
            drop(ledger);
            tell(Holding::default(), gone.total());
            *left = left.saturating_sub(passed_over + PASSED_OVER_FOR_ONE * gone.total().keys);
            if has_room || *left == 0 {
                self.hand.store(at, Ordering::Relaxed);
                return has_room;
            }
        }
        // Another call may have made room meanwhile.
        self.ledger().has_room(subject.name.text(), more)
    }

    /// Reports that a call found no room.
    fn full(&self, subject: KeyRef<'_>, now: Timestamp) -> UnavailableReason {
        let mut ledger = self.ledger();
        let is_first = ledger.record_full(subject.name.text(), now);
        let held = ledger.held_by(subject.name.text());
        drop(ledger);
        telemetry::memory_full(subject.name.text(), is_first, held.keys, held.bytes);
        UnavailableReason::StoreFull
    }

    pub(crate) fn reset(&self, subject: KeyRef<'_>) {
        let hash = self.hash(subject);
        let gone = self.place(hash).lock().remove(hash, subject, &self.hasher);
        self.ledger().give_back(&gone);
        tell(Holding::default(), gone.total());
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn refund(&self, subject: KeyRef<'_>, refund: Refund<'_>) {
        let hash = self.hash(subject);
        if let Some(slot) = self.place(hash).lock().find_again(hash, subject) {
            slot.state.refund(refund);
        }
    }

    fn hash(&self, subject: KeyRef<'_>) -> u64 {
        shard::hash(&self.hasher, subject.name, subject.caller)
    }

    fn place(&self, hash: u64) -> &Shard {
        // The map takes its bits from both ends of the hash; the shard comes from the middle.
        &self.shards[(hash >> 32) as usize & (self.shards.len() - 1)]
    }
}

/// Reports that so much was taken, and so much given back: under no lock, because whoever counts it
/// may be called through here, and may panic.
fn tell(taken: Holding, given_back: Holding) {
    if taken != given_back {
        let number = |held| i64::try_from(held).unwrap_or(i64::MAX);
        telemetry::memory_held(
            number(taken.keys) - number(given_back.keys),
            number(taken.bytes) - number(given_back.bytes),
        );
    }
}

/// Reports how much was taken for an outcome.
fn told((outcome, taken): (Outcome, Holding)) -> Outcome {
    tell(taken, Holding::default());
    outcome
}

impl Drop for MemoryStore {
    fn drop(&mut self) {
        let held = self.ledger().held();
        tell(Holding::default(), held);
    }
}

impl Shard {
    fn lock(&self) -> MutexGuard<'_, ShardTable> {
        // A panic cannot leave a shard half written: nothing in here calls foreign code.
        self.shard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
