//! The embedded store: one process, no server.
//!
//! Keys are spread over shards, each behind a mutex. A decision takes one lock, reads the clock
//! inside it (so that stamps are recorded in the order they were taken) and never awaits.

mod fixed_window;
mod per_tier;
#[cfg(all(test, ratelimit_loom))]
mod schedules;
mod shard;
mod sliding_counter;
mod sliding_window;
mod slots;
mod stamps;
mod state;
#[cfg(test)]
mod tests;
mod token_bucket;

use std::{sync::PoisonError, time::Duration};

use hashbrown::DefaultHashBuilder;
use tokio::time::Instant;

use self::shard::{Shard, Slot};
use super::{Outcome, Refund, Request};
use crate::{
    error::UnavailableReason,
    key::Subject,
    report,
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

/// Enough that two threads rarely meet, few enough that an idle limiter is small.
const FEWEST_SHARDS: usize = 256;

/// Enough for what fits into a machine, few enough that a bound of `usize::MAX` costs some 8 MB.
const MOST_SHARDS: usize = 65_536;

/// The keys of a full shard, about: so many have to be hashed anew at once when it grows. With
/// fewer, a store of some thousand callers would be mostly shards, and the cache full of them.
const KEYS_PER_SHARD: usize = 4_096;

/// The most keys, about, that one call passes over in search of an expired one when the store is
/// full, which takes ten milliseconds or so. No key is passed over twice unless it, or one of its
/// neighbours, has been called meanwhile; what a call has not come to, the next one does.
const MOST_PASSED_OVER: usize = 1 << 20;

/// How long before it is made the time of a store begins: several tests, each with a clock that
/// stands still at its own beginning, may share the embedded limiter.
const BEFORE: Duration = Duration::from_secs(3_600);

pub(crate) struct MemoryStore {
    shards: Box<[Place]>,
    hasher: DefaultHashBuilder,
    epoch: Instant,
    /// The keys held by all shards, never more than `max_keys`.
    keys: AtomicUsize,
    max_keys: usize,
    /// The shard that room was last looked for in.
    hand: AtomicUsize,
}

/// On cache lines of its own: a thread that takes one lock does not disturb those at the next.
#[derive(Default)]
#[repr(align(64))]
struct Place {
    shard: Mutex<Shard>,
    /// No key in the shard expires before this; readable without the lock.
    due: AtomicU64,
}

impl MemoryStore {
    pub(crate) fn new(max_keys: usize) -> Self {
        let shards = (max_keys / KEYS_PER_SHARD).clamp(FEWEST_SHARDS, MOST_SHARDS);
        Self::with_shards(max_keys, shards.next_power_of_two())
    }

    /// A store of so many shards, a power of two.
    fn with_shards(max_keys: usize, shards: usize) -> Self {
        let now = Instant::now();
        Self {
            shards: (0..shards).map(|_| Place::default()).collect(),
            hasher: DefaultHashBuilder::default(),
            epoch: now.checked_sub(BEFORE).unwrap_or(now),
            keys: AtomicUsize::new(0),
            max_keys,
            hand: AtomicUsize::new(0),
        }
    }

    pub(crate) fn decide(
        &self,
        subject: Subject<'_>,
        request: Request<'_>,
    ) -> Result<Outcome, UnavailableReason> {
        self.answer(subject, request, true)
    }

    /// Decides a call that no one looks at once it is admitted: then nothing else is told of it.
    pub(crate) fn decide_unseen(
        &self,
        subject: Subject<'_>,
        request: Request<'_>,
    ) -> Result<Outcome, UnavailableReason> {
        self.answer(subject, request, false)
    }

    fn answer(
        &self,
        subject: Subject<'_>,
        request: Request<'_>,
        looks: bool,
    ) -> Result<Outcome, UnavailableReason> {
        let hash = self.hash(subject);
        loop {
            let place = self.place(hash);
            let mut shard = place.lock();
            let now = self.now();
            if let Some(slot) = shard.find_mut(hash, subject) {
                return Ok(slot.decide(now, request, looks));
            }
            if let Some(outcome) = self.meet(place, shard, now, hash, subject, request) {
                return Ok(outcome);
            }
            if !self.make_room() {
                return Err(UnavailableReason::StoreFull);
            }
        }
    }

    /// Decides the first call of a key, and keeps its slot; nothing is decided if there is no room.
    #[inline(never)]
    fn meet(
        &self,
        place: &Place,
        mut shard: MutexGuard<'_, Shard>,
        now: u64,
        hash: u64,
        subject: Subject<'_>,
        request: Request<'_>,
    ) -> Option<Outcome> {
        let mut slot = Slot::new(subject);
        let outcome = slot.decide(now, request, true);
        if !request.record {
            return Some(outcome);
        }
        let collected = shard.collect_some(now, &self.hasher);
        self.keys.fetch_sub(collected, Ordering::Relaxed);
        let is_held = self.take_in(place, &mut shard, hash, slot);
        drop(shard);
        tell(usize::from(is_held), collected);
        is_held.then_some(outcome)
    }

    /// Keeps a new slot, if there is room for it.
    fn take_in(&self, place: &Place, shard: &mut Shard, hash: u64, slot: Slot) -> bool {
        let vacant = |keys| (keys < self.max_keys).then_some(keys + 1);
        if self.keys.fetch_update(Ordering::Relaxed, Ordering::Relaxed, vacant).is_err() {
            return false;
        }
        // The first key of an empty shard makes it due; until then nothing in it is.
        let due = if shard.is_empty() { u64::MAX } else { place.due.load(Ordering::Relaxed) };
        place.due.store(due.min(slot.expires), Ordering::Relaxed);
        shard.insert(hash, slot, &self.hasher);
        true
    }

    /// Collects expired keys until there are fewer than the bound, or enough were passed over.
    #[cold]
    fn make_room(&self) -> bool {
        let (now, mut passed_over) = (self.now(), 0);
        let first = self.hand.load(Ordering::Relaxed);
        for step in 0..self.shards.len() {
            let at = (first + step) & (self.shards.len() - 1);
            let place = &self.shards[at];
            if place.due.load(Ordering::Relaxed) > now {
                continue;
            }
            let mut shard = place.lock();
            let sweep = shard.collect_due(now, &self.hasher);
            place.due.store(shard.due(), Ordering::Relaxed);
            self.keys.fetch_sub(sweep.collected, Ordering::Relaxed);
            drop(shard);
            if sweep.collected > 0 {
                self.hand.store(at, Ordering::Relaxed);
                tell(0, sweep.collected);
                return true;
            }
            passed_over += sweep.passed_over;
            if passed_over > MOST_PASSED_OVER {
                self.hand.store(at, Ordering::Relaxed);
                break;
            }
        }
        // Another call may have made room meanwhile.
        self.keys.load(Ordering::Relaxed) < self.max_keys
    }

    pub(crate) fn reset(&self, subject: Subject<'_>) {
        let hash = self.hash(subject);
        if self.place(hash).lock().remove(hash, subject, &self.hasher) {
            self.forget(1);
        }
    }

    /// So many keys are held no longer.
    fn forget(&self, keys: usize) {
        if keys > 0 {
            self.keys.fetch_sub(keys, Ordering::Relaxed);
            tell(0, keys);
        }
    }

    pub(crate) fn refund(&self, subject: Subject<'_>, refund: Refund<'_>) {
        let hash = self.hash(subject);
        if let Some(slot) = self.place(hash).lock().find_mut(hash, subject) {
            slot.state.refund(refund);
        }
    }

    fn hash(&self, subject: Subject<'_>) -> u64 {
        shard::hash(&self.hasher, subject.name, subject.caller)
    }

    fn place(&self, hash: u64) -> &Place {
        // The map takes its bits from both ends of the hash; the shard comes from the middle.
        &self.shards[(hash >> 32) as usize & (self.shards.len() - 1)]
    }

    /// Microseconds since the store was made.
    fn now(&self) -> u64 {
        let passed = self.epoch.elapsed();
        passed.as_secs() * 1_000_000 + u64::from(passed.subsec_micros())
    }
}

/// Reports that so many keys came, and so many went: under no lock, because whoever counts them may
/// be called through here, and may panic.
fn tell(came: usize, went: usize) {
    let number = |keys| i64::try_from(keys).unwrap_or(i64::MAX);
    if came > 0 || went > 0 {
        report::keys_held(number(came) - number(went));
    }
}

impl Drop for MemoryStore {
    fn drop(&mut self) {
        self.forget(self.keys.load(Ordering::Relaxed));
    }
}

impl Place {
    fn lock(&self) -> MutexGuard<'_, Shard> {
        // A panic cannot leave a shard half written: nothing in here calls foreign code.
        self.shard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
