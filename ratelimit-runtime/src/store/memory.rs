//! The embedded store: one process, no server.
//!
//! Keys are spread over shards, each a map behind a mutex. A decision takes one lock, reads the
//! clock inside it (so that stamps are recorded in the order they were taken) and never awaits.

mod sliding_window;

use std::{
    hash::BuildHasher,
    sync::{Mutex, PoisonError},
};

use hashbrown::{DefaultHashBuilder, HashTable};
use tokio::time::Instant;

use self::sliding_window::Log;
use super::{Outcome, Request};
use crate::key::Key;

/// Enough that two threads rarely meet, few enough that an idle limiter is small.
const SHARDS: usize = 256;

pub(crate) struct MemoryStore {
    shards: Box<[Mutex<Shard>]>,
    hasher: DefaultHashBuilder,
    epoch: Instant,
}

#[derive(Default)]
struct Shard {
    slots: HashTable<Slot>,
}

struct Slot {
    key: Box<[u8]>,
    log: Log,
    /// From then on the log says no more than an absent one.
    expires: u64,
}

impl MemoryStore {
    pub(crate) fn new() -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            hasher: DefaultHashBuilder::default(),
            epoch: Instant::now(),
        }
    }

    pub(crate) fn decide(&self, key: &Key, request: Request<'_>) -> Outcome {
        self.with_shard(key, |shard, hash| {
            let now = self.now();
            if let Some(slot) = shard.slots.find_mut(hash, |slot| *slot.key == *key.as_bytes()) {
                let outcome = slot.log.decide(now, request);
                slot.expires = slot.log.expires(request.policy).max(slot.expires);
                return outcome;
            }
            let mut log = Log::default();
            let outcome = log.decide(now, request);
            if outcome.admitted && request.record {
                let expires = log.expires(request.policy);
                shard.insert(
                    hash,
                    Slot { key: key.as_bytes().into(), log, expires },
                    now,
                    &self.hasher,
                );
            }
            outcome
        })
    }

    pub(crate) fn reset(&self, key: &Key) {
        self.with_shard(key, |shard, hash| {
            if let Ok(slot) = shard.slots.find_entry(hash, |slot| *slot.key == *key.as_bytes()) {
                slot.remove();
            }
        });
    }

    fn with_shard<T>(&self, key: &Key, work: impl FnOnce(&mut Shard, u64) -> T) -> T {
        let hash = self.hasher.hash_one(key.as_bytes());
        // The map takes its bits from both ends of the hash; the shard comes from the middle.
        let shard = &self.shards[(hash >> 32) as usize % SHARDS];
        // A panic cannot leave a shard half written: nothing in here calls foreign code.
        work(&mut shard.lock().unwrap_or_else(PoisonError::into_inner), hash)
    }

    /// Microseconds since the store was made.
    fn now(&self) -> u64 {
        u64::try_from(self.epoch.elapsed().as_micros()).unwrap_or(u64::MAX)
    }
}

impl Shard {
    fn insert(&mut self, hash: u64, slot: Slot, now: u64, hasher: &DefaultHashBuilder) {
        // A full map is about to be copied to a larger one: expired keys leave before that, so
        // that it grows only with live ones, and their collection is paid for by the insertions.
        if self.slots.len() == self.slots.capacity() {
            self.slots.retain(|slot| slot.expires > now);
        }
        let hash_of = |slot: &Slot| hasher.hash_one(&*slot.key);
        self.slots.insert_unique(hash, slot, hash_of);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{Policy, caller::Caller};

    const POLICY: Policy = Policy::sliding_window("p", Duration::from_secs(1), 2);

    fn key(caller: usize) -> Key {
        Key::compose("", &POLICY, Caller::from(caller).parts())
    }

    fn keys_held(store: &MemoryStore) -> usize {
        store.shards.iter().map(|shard| shard.lock().unwrap().slots.len()).sum()
    }

    #[tokio::test(start_paused = true)]
    async fn idle_keys_are_collected_as_new_ones_come() {
        let store = MemoryStore::new();
        let request = Request { policy: &POLICY, cost: 1, record: true };
        let mut most = 0;
        for round in 0..10 {
            for caller in 0..10_000 {
                assert!(store.decide(&key(round * 10_000 + caller), request).admitted);
            }
            most = most.max(keys_held(&store));
            tokio::time::advance(Duration::from_secs(2)).await;
        }
        assert!(most < 30_000, "{most} keys held of 10 000 live ones");
    }

    #[tokio::test]
    async fn looking_leaves_nothing_behind() {
        let store = MemoryStore::new();
        assert!(
            store.decide(&key(1), Request { policy: &POLICY, cost: 1, record: false }).admitted
        );
        assert_eq!(keys_held(&store), 0);
    }
}
