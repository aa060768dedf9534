//! A part of the embedded store: callers in one dense list, found by the hash of their keys.

use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashTable};

use super::State;

/// The keys that each insertion passes over in search of expired ones. Half of the list at the
/// most is expired when every new key passes over more than two.
const PASSED_OVER: usize = 4;

#[derive(Default)]
pub(super) struct Shard {
    slots: Vec<Slot>,
    /// Where in `slots` a key is.
    index: HashTable<u32>,
    /// The next slot that an insertion passes over.
    hand: usize,
}

pub(super) struct Slot {
    pub(super) key: Box<[u8]>,
    pub(super) state: State,
    /// From then on the state says no more than an absent one.
    pub(super) expires: u64,
}

impl Shard {
    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    pub(super) fn find_mut(&mut self, hash: u64, key: &[u8]) -> Option<&mut Slot> {
        let slots = &self.slots;
        let at = *self.index.find(hash, |at| *slots[*at as usize].key == *key)?;
        Some(&mut self.slots[at as usize])
    }

    pub(super) fn insert(&mut self, hash: u64, slot: Slot, hasher: &DefaultHashBuilder) {
        if self.slots.len() == self.slots.capacity() {
            // By an eighth: a list of many keys is then never half empty.
            self.slots.reserve_exact((self.slots.len() / 8).max(4));
        }
        // A shard of 2^32 keys does not fit the memory of any machine that has so many keys.
        let at = u32::try_from(self.slots.len()).expect("a shard has fewer than 2^32 keys");
        self.slots.push(slot);
        let slots = &self.slots;
        self.index.insert_unique(hash, at, |at| hasher.hash_one(&*slots[*at as usize].key));
    }

    /// Removes a key, and says whether it was there.
    pub(super) fn remove(&mut self, hash: u64, key: &[u8], hasher: &DefaultHashBuilder) -> bool {
        let slots = &self.slots;
        let found = self.index.find(hash, |at| *slots[*at as usize].key == *key).copied();
        if let Some(at) = found {
            self.remove_at(at as usize, hasher);
        }
        found.is_some()
    }

    /// Passes over the next few keys, removes the expired ones and counts them.
    pub(super) fn collect_some(&mut self, now: u64, hasher: &DefaultHashBuilder) -> usize {
        let mut collected = 0;
        for _ in 0..PASSED_OVER.min(self.slots.len()) {
            if self.hand >= self.slots.len() {
                self.hand = 0;
            }
            match self.slots.get(self.hand) {
                Some(slot) if slot.expires <= now => {
                    // The last slot takes its place, and is passed over next.
                    self.remove_at(self.hand, hasher);
                    collected += 1;
                }
                _ => self.hand += 1,
            }
        }
        self.shrink(hasher);
        collected
    }

    /// Removes all expired keys; counts them, and tells when the next one expires.
    pub(super) fn collect_all(&mut self, now: u64, hasher: &DefaultHashBuilder) -> (usize, u64) {
        let before = self.slots.len();
        let (mut at, mut due) = (0, u64::MAX);
        while let Some(slot) = self.slots.get(at) {
            if slot.expires <= now {
                self.remove_at(at, hasher);
            } else {
                due = due.min(slot.expires);
                at += 1;
            }
        }
        self.shrink(hasher);
        (before - self.slots.len(), due)
    }

    fn remove_at(&mut self, at: usize, hasher: &DefaultHashBuilder) {
        let hash = hasher.hash_one(&*self.slots[at].key);
        if let Ok(entry) = self.index.find_entry(hash, |place| *place as usize == at) {
            entry.remove();
        }
        self.slots.swap_remove(at);
        // The last slot has moved here.
        if let Some(moved) = self.slots.get(at) {
            let (hash, from) = (hasher.hash_one(&*moved.key), self.slots.len());
            if let Some(place) = self.index.find_mut(hash, |place| *place as usize == from) {
                *place = u32::try_from(at).unwrap_or(u32::MAX);
            }
        }
    }

    /// Gives memory back when three quarters of it are no longer needed.
    fn shrink(&mut self, hasher: &DefaultHashBuilder) {
        let keys = self.slots.len();
        if self.slots.capacity() > 64 && keys < self.slots.capacity() / 4 {
            self.slots.shrink_to(keys * 2);
            let slots = &self.slots;
            self.index.shrink_to(keys * 2, |at| hasher.hash_one(&*slots[*at as usize].key));
        }
    }
}
