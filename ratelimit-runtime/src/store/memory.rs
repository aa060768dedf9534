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

/// The keys of a full shard, about: so many have to be hashed anew at once when it grows. With
/// fewer, a store of some thousand callers would be mostly shards, and the cache full of them.
const KEYS_PER_SHARD: usize = 4_096;

/// The most keys, about, that one call passes over in search of an expired one when the store is
/// full; the next call goes on from there.
const MOST_PASSED_OVER: usize = 2 * KEYS_PER_SHARD;

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
        let shards = (max_keys / KEYS_PER_SHARD).next_power_of_two().max(FEWEST_SHARDS);
        Self::with_shards(max_keys, shards)
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
            if let Some(outcome) = self.meet(place, &mut shard, now, hash, subject, request) {
                return Ok(outcome);
            }
            drop(shard);
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
        shard: &mut Shard,
        now: u64,
        hash: u64,
        subject: Subject<'_>,
        request: Request<'_>,
    ) -> Option<Outcome> {
        let mut slot = Slot::new(subject);
        let outcome = slot.decide(now, request, true);
        let held = !request.record || self.take_in(place, shard, now, hash, slot);
        held.then_some(outcome)
    }

    /// Keeps a new slot, if there is room for it.
    fn take_in(&self, place: &Place, shard: &mut Shard, now: u64, hash: u64, slot: Slot) -> bool {
        self.forget(shard.collect_some(now, &self.hasher));
        let vacant = |keys| (keys < self.max_keys).then_some(keys + 1);
        if self.keys.fetch_update(Ordering::Relaxed, Ordering::Relaxed, vacant).is_err() {
            return false;
        }
        report::keys_held(1);
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
        for place in &self.shards {
            if place.due.load(Ordering::Relaxed) > now {
                continue;
            }
            let mut shard = place.lock();
            passed_over += shard.len();
            let (collected, due) = shard.collect_all(now, &self.hasher);
            place.due.store(due, Ordering::Relaxed);
            if collected > 0 {
                self.forget(collected);
                return true;
            }
            if passed_over > MOST_PASSED_OVER {
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
            report::keys_held(-i64::try_from(keys).unwrap_or(i64::MAX));
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

#[cfg(test)]
mod tests {

    use super::*;
    use crate::{Policy, caller::Caller};

    const POLICY: Policy = Policy::sliding_window("p", Duration::from_secs(1), 2);
    const TAKE: Request<'_> = Request { policy: &POLICY, cost: 1, record: true, id: None };

    fn decide(
        store: &MemoryStore,
        caller: usize,
        request: Request<'_>,
    ) -> Result<Outcome, UnavailableReason> {
        store.decide(Subject::new(&POLICY, Caller::from(caller).parts()), request)
    }

    fn reset(store: &MemoryStore, caller: usize) {
        store.reset(Subject::new(&POLICY, Caller::from(caller).parts()));
    }

    fn keys_held(store: &MemoryStore) -> usize {
        let held = store.shards.iter().map(|place| place.lock().len()).sum();
        assert_eq!(store.keys.load(Ordering::Relaxed), held);
        held
    }

    #[tokio::test(start_paused = true)]
    async fn idle_keys_are_collected_as_new_ones_come() {
        let store = MemoryStore::new(1_000_000);
        let mut most = 0;
        for round in 0..10 {
            for caller in 0..10_000 {
                assert!(decide(&store, round * 10_000 + caller, TAKE).unwrap().admitted);
            }
            most = most.max(keys_held(&store));
            tokio::time::advance(Duration::from_secs(2)).await;
        }
        assert!(most < 20_000, "{most} keys held of 10 000 live ones");
    }

    #[tokio::test(start_paused = true)]
    async fn a_clock_that_stands_still_since_before_the_store_was_made_moves_it_too() {
        let later = std::thread::spawn(|| {
            std::thread::sleep(Duration::from_millis(20));
            MemoryStore::new(10)
        });
        let store = later.join().unwrap();
        for _ in 0..2 {
            assert!(decide(&store, 1, TAKE).unwrap().admitted);
        }
        assert_eq!(decide(&store, 1, TAKE).unwrap().wait, 1_000_000);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(decide(&store, 1, TAKE).unwrap().admitted);
    }

    #[tokio::test]
    async fn looking_leaves_nothing_behind() {
        let store = MemoryStore::new(1);
        let look = Request { record: false, ..TAKE };
        assert!(decide(&store, 1, look).unwrap().admitted);
        assert_eq!(keys_held(&store), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_full_store_keeps_its_live_keys_and_takes_new_ones_as_they_expire() {
        let store = MemoryStore::new(3);
        for caller in 0..3 {
            assert!(decide(&store, caller, TAKE).unwrap().admitted);
            tokio::time::advance(Duration::from_millis(100)).await;
        }
        assert_eq!(decide(&store, 3, TAKE), Err(UnavailableReason::StoreFull));
        assert!(decide(&store, 3, Request { record: false, ..TAKE }).is_ok());
        // Callers who are known go on counting.
        assert_eq!(decide(&store, 0, TAKE).unwrap().remaining, 0);
        assert!(!decide(&store, 0, TAKE).unwrap().admitted);
        // The first goes on until 1.3 s, the second is forgotten at 1.1 s and not before.
        tokio::time::advance(Duration::from_micros(799_999)).await;
        assert_eq!(decide(&store, 3, TAKE), Err(UnavailableReason::StoreFull));
        tokio::time::advance(Duration::from_micros(1)).await;
        assert!(decide(&store, 3, TAKE).unwrap().admitted);
        assert_eq!(decide(&store, 4, TAKE), Err(UnavailableReason::StoreFull));
        assert_eq!(decide(&store, 0, TAKE).unwrap().remaining, 0);
        assert_eq!(keys_held(&store), 3);
        // A key that is forgotten on demand makes room at once.
        reset(&store, 0);
        assert!(decide(&store, 4, TAKE).unwrap().admitted);
        assert_eq!(keys_held(&store), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn a_full_store_takes_new_callers_long_after_the_old_have_expired() {
        let store = MemoryStore::new(100);
        for caller in 0..100 {
            assert!(decide(&store, caller, TAKE).unwrap().admitted);
        }
        tokio::time::advance(Duration::from_secs(3_600)).await;
        for caller in 100..200 {
            assert!(decide(&store, caller, TAKE).unwrap().admitted, "{caller}");
        }
        assert_eq!(decide(&store, 200, TAKE), Err(UnavailableReason::StoreFull));
    }

    #[tokio::test(start_paused = true)]
    async fn callers_of_a_second_make_room_though_those_of_an_hour_came_after_them() {
        const LONG: Policy = Policy::sliding_window("long", Duration::from_secs(3_600), 2);
        let store = MemoryStore::new(2_000);
        let take_long = |caller: usize| {
            let caller = Caller::from(caller);
            let request = Request { policy: &LONG, ..TAKE };
            store.decide(Subject::new(&LONG, caller.parts()), request)
        };
        for caller in 0..1_000 {
            assert!(decide(&store, caller, TAKE).unwrap().admitted);
        }
        for caller in 0..1_000 {
            assert!(take_long(caller).unwrap().admitted);
        }
        tokio::time::advance(Duration::from_secs(1)).await;
        for caller in 1_000..2_000 {
            assert!(decide(&store, caller, TAKE).unwrap().admitted, "{caller}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn every_expired_key_is_found_when_the_store_is_full() {
        let store = MemoryStore::new(10_000);
        for round in 0..3 {
            for caller in 0..10_000 {
                let caller = round * 10_000 + caller;
                assert!(decide(&store, caller, TAKE).unwrap().admitted, "{caller}");
            }
            assert_eq!(decide(&store, 1_000_000, TAKE), Err(UnavailableReason::StoreFull));
            tokio::time::advance(Duration::from_secs(1)).await;
        }
    }

    #[test]
    fn threads_at_the_bound_never_pass_it() {
        let store = MemoryStore::new(1_000);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let store = &store;
                scope.spawn(move || {
                    for caller in 0..1_000 {
                        let caller = thread * 500 + caller;
                        let _ = decide(store, caller, TAKE);
                        if caller % 3 == 0 {
                            reset(store, caller);
                        }
                    }
                });
            }
        });
        assert!(keys_held(&store) <= 1_000);
    }
}
