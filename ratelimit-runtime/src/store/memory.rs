//! The embedded store: one process, no server.
//!
//! Keys are spread over shards, each behind a mutex. A decision takes one lock, reads the clock
//! inside it (so that stamps are recorded in the order they were taken) and never awaits.

mod fixed_window;
mod shard;
mod sliding_counter;
mod sliding_window;
mod token_bucket;

use std::{
    hash::BuildHasher,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

use hashbrown::DefaultHashBuilder;
use smallvec::SmallVec;
use tokio::time::Instant;

use self::{
    fixed_window::FixedWindow,
    shard::{Shard, Slot},
    sliding_counter::SlidingCounter,
    sliding_window::Log,
    token_bucket::TokenBucket,
};
use super::{Outcome, Refund, Request};
use crate::{error::UnavailableReason, key::Key, rules::Algorithm};

/// Enough that two threads rarely meet, few enough that an idle limiter is small.
const FEWEST_SHARDS: usize = 256;

/// The keys of a full shard, about: so many have to be hashed anew at once when it grows.
const KEYS_PER_SHARD: usize = 1_024;

/// The most keys, about, that one call passes over in search of an expired one when the store is
/// full; the next call goes on from there.
const MOST_PASSED_OVER: usize = 8 * KEYS_PER_SHARD;

/// A state that most policies have one of.
type PerTier<T> = SmallVec<[T; 1]>;

pub(crate) struct MemoryStore {
    shards: Box<[Place]>,
    hasher: DefaultHashBuilder,
    epoch: Instant,
    /// The keys held by all shards, never more than `max_keys`.
    keys: AtomicUsize,
    max_keys: usize,
}

#[derive(Default)]
struct Place {
    shard: Mutex<Shard>,
    /// No key in the shard expires before this; readable without the lock.
    due: AtomicU64,
}

/// What is known of one caller under one policy. A key holds the algorithm's name, so that under
/// one key only one of these ever occurs.
enum State {
    SlidingWindow(Log),
    SlidingCounter(SlidingCounter),
    FixedWindow(FixedWindow),
    TokenBucket(TokenBucket),
}

impl State {
    fn new(algorithm: Algorithm) -> Self {
        match algorithm {
            Algorithm::SlidingWindow => Self::SlidingWindow(Log::default()),
            Algorithm::SlidingCounter => Self::SlidingCounter(SlidingCounter::default()),
            Algorithm::FixedWindow => Self::FixedWindow(FixedWindow::default()),
            Algorithm::TokenBucket => Self::TokenBucket(TokenBucket::default()),
        }
    }

    fn decide(&mut self, now: u64, request: Request<'_>) -> Outcome {
        match self {
            Self::SlidingWindow(log) => log.decide(now, request),
            Self::SlidingCounter(counter) => counter.decide(now, request),
            Self::FixedWindow(window) => window.decide(now, request),
            Self::TokenBucket(bucket) => bucket.decide(now, request),
        }
    }

    fn refund(&mut self, refund: Refund<'_>) {
        match self {
            Self::SlidingWindow(log) => log.refund(refund),
            Self::SlidingCounter(counter) => counter.refund(refund),
            Self::FixedWindow(window) => window.refund(refund),
            Self::TokenBucket(bucket) => bucket.refund(refund),
        }
    }
}

impl MemoryStore {
    pub(crate) fn new(max_keys: usize) -> Self {
        let shards = (max_keys / KEYS_PER_SHARD).next_power_of_two().max(FEWEST_SHARDS);
        Self {
            shards: (0..shards).map(|_| Place::default()).collect(),
            hasher: DefaultHashBuilder::default(),
            epoch: Instant::now(),
            keys: AtomicUsize::new(0),
            max_keys,
        }
    }

    pub(crate) fn decide(
        &self,
        key: &Key,
        request: Request<'_>,
    ) -> Result<Outcome, UnavailableReason> {
        loop {
            if let Some(outcome) = self.decide_with_room(key, request) {
                return Ok(outcome);
            }
            if !self.make_room() {
                return Err(UnavailableReason::StoreFull);
            }
        }
    }

    /// Decides, unless that takes a new key and there is no room for it.
    fn decide_with_room(&self, key: &Key, request: Request<'_>) -> Option<Outcome> {
        let hash = self.hasher.hash_one(key.as_bytes());
        let place = self.place(hash);
        let mut shard = place.lock();
        let now = self.now();
        if let Some(slot) = shard.find_mut(hash, key.as_bytes()) {
            let outcome = slot.state.decide(now, request);
            if request.record {
                slot.expires = slot.expires.max(now + outcome.reset);
            }
            return Some(outcome);
        }
        let mut state = State::new(request.policy.algorithm());
        let outcome = state.decide(now, request);
        if request.record {
            let collected = shard.collect_some(now, &self.hasher);
            self.keys.fetch_sub(collected, Ordering::Relaxed);
            let vacant = |keys| (keys < self.max_keys).then_some(keys + 1);
            self.keys.fetch_update(Ordering::Relaxed, Ordering::Relaxed, vacant).ok()?;
            let expires = now + outcome.reset;
            // The first key of an empty shard makes it due; until then nothing in it is.
            let due = if shard.is_empty() { u64::MAX } else { place.due.load(Ordering::Relaxed) };
            place.due.store(due.min(expires), Ordering::Relaxed);
            shard.insert(hash, Slot { key: key.as_bytes().into(), state, expires }, &self.hasher);
        }
        Some(outcome)
    }

    /// Collects expired keys until there are fewer than the bound, or enough were passed over.
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
                self.keys.fetch_sub(collected, Ordering::Relaxed);
                return true;
            }
            if passed_over > MOST_PASSED_OVER {
                break;
            }
        }
        // Another call may have made room meanwhile.
        self.keys.load(Ordering::Relaxed) < self.max_keys
    }

    pub(crate) fn reset(&self, key: &Key) {
        let hash = self.hasher.hash_one(key.as_bytes());
        if self.place(hash).lock().remove(hash, key.as_bytes(), &self.hasher) {
            self.keys.fetch_sub(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn refund(&self, key: &Key, refund: Refund<'_>) {
        let hash = self.hasher.hash_one(key.as_bytes());
        if let Some(slot) = self.place(hash).lock().find_mut(hash, key.as_bytes()) {
            slot.state.refund(refund);
        }
    }

    fn place(&self, hash: u64) -> &Place {
        // The map takes its bits from both ends of the hash; the shard comes from the middle.
        &self.shards[(hash >> 32) as usize & (self.shards.len() - 1)]
    }

    /// Microseconds since the store was made.
    fn now(&self) -> u64 {
        u64::try_from(self.epoch.elapsed().as_micros()).unwrap_or(u64::MAX)
    }
}

impl Place {
    fn lock(&self) -> std::sync::MutexGuard<'_, Shard> {
        // A panic cannot leave a shard half written: nothing in here calls foreign code.
        self.shard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{Policy, caller::Caller};

    const POLICY: Policy = Policy::sliding_window("p", Duration::from_secs(1), 2);
    const TAKE: Request<'_> = Request { policy: &POLICY, cost: 1, record: true, id: None };

    fn key(caller: usize) -> Key {
        Key::compose("", &POLICY, Caller::from(caller).parts())
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
                assert!(store.decide(&key(round * 10_000 + caller), TAKE).unwrap().admitted);
            }
            most = most.max(keys_held(&store));
            tokio::time::advance(Duration::from_secs(2)).await;
        }
        assert!(most < 20_000, "{most} keys held of 10 000 live ones");
    }

    #[tokio::test]
    async fn looking_leaves_nothing_behind() {
        let store = MemoryStore::new(1);
        let look = Request { record: false, ..TAKE };
        assert!(store.decide(&key(1), look).unwrap().admitted);
        assert_eq!(keys_held(&store), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_full_store_keeps_its_live_keys_and_takes_new_ones_as_they_expire() {
        let store = MemoryStore::new(3);
        for caller in 0..3 {
            assert!(store.decide(&key(caller), TAKE).unwrap().admitted);
            tokio::time::advance(Duration::from_millis(100)).await;
        }
        assert_eq!(store.decide(&key(3), TAKE), Err(UnavailableReason::StoreFull));
        assert!(store.decide(&key(3), Request { record: false, ..TAKE }).is_ok());
        // Callers who are known go on counting.
        assert_eq!(store.decide(&key(0), TAKE).unwrap().remaining, 0);
        assert!(!store.decide(&key(0), TAKE).unwrap().admitted);
        // The first goes on until 1.3 s, the second is forgotten at 1.1 s and not before.
        tokio::time::advance(Duration::from_micros(799_999)).await;
        assert_eq!(store.decide(&key(3), TAKE), Err(UnavailableReason::StoreFull));
        tokio::time::advance(Duration::from_micros(1)).await;
        assert!(store.decide(&key(3), TAKE).unwrap().admitted);
        assert_eq!(store.decide(&key(4), TAKE), Err(UnavailableReason::StoreFull));
        assert_eq!(store.decide(&key(0), TAKE).unwrap().remaining, 0);
        assert_eq!(keys_held(&store), 3);
        // A key that is forgotten on demand makes room at once.
        store.reset(&key(0));
        assert!(store.decide(&key(4), TAKE).unwrap().admitted);
        assert_eq!(keys_held(&store), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn every_expired_key_is_found_when_the_store_is_full() {
        let store = MemoryStore::new(10_000);
        for round in 0..3 {
            for caller in 0..10_000 {
                let key = key(round * 10_000 + caller);
                assert!(store.decide(&key, TAKE).unwrap().admitted, "{round} {caller}");
            }
            assert_eq!(store.decide(&key(1_000_000), TAKE), Err(UnavailableReason::StoreFull));
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
                        let key = key(thread * 500 + caller);
                        let _ = store.decide(&key, TAKE);
                        if caller % 3 == 0 {
                            store.reset(&key);
                        }
                    }
                });
            }
        });
        assert!(keys_held(&store) <= 1_000);
    }
}
