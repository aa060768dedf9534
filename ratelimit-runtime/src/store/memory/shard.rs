//! A part of the embedded store: callers in one dense list, found by the hash of their keys.

use std::hash::{BuildHasher, Hasher};

use hashbrown::{DefaultHashBuilder, HashTable};
use smallvec::SmallVec;

use super::{slots::Slots, state::State};
use crate::{
    key::Subject,
    policy::Name,
    store::{Outcome, Request},
};

/// The keys that each insertion passes over in search of expired ones. Half of the list at the
/// most is expired when every new key passes over more than two.
const PASSED_OVER: usize = 4;

#[derive(Default)]
pub(super) struct Shard {
    slots: Slots<Slot>,
    /// Where in `slots` a key is.
    index: HashTable<u32>,
    /// The next slot that an insertion passes over.
    hand: usize,
}

pub(super) struct Slot {
    name: &'static str,
    /// The caller's parts; most have room here.
    caller: SmallVec<[u8; 16]>,
    pub(super) state: State,
    /// From then on the state says no more than an absent one.
    pub(super) expires: u64,
}

impl Slot {
    pub(super) fn new(subject: Subject<'_>) -> Self {
        let Subject { algorithm, name, caller } = subject;
        let caller = SmallVec::from_slice(caller);
        Self { name: name.text(), caller, state: State::new(algorithm), expires: 0 }
    }

    #[inline]
    pub(super) fn decide(&mut self, now: u64, request: Request<'_>, looks: bool) -> Outcome {
        let outcome = self.state.decide(now, request, looks);
        if request.record {
            self.expires = self.expires.max(now + outcome.reset);
        }
        outcome
    }

    #[inline]
    fn is(&self, subject: Subject<'_>) -> bool {
        // Two policies of one name are rarely two texts.
        let name = subject.name.text();
        let same_name = || std::ptr::eq(self.name, name) || self.name == name;
        *self.caller == *subject.caller
            && same_name()
            && self.state.algorithm() == subject.algorithm
    }

    fn hash(&self, hasher: &DefaultHashBuilder) -> u64 {
        hash(hasher, Name::new(self.name), &self.caller)
    }
}

/// One caller of two algorithms of one name is rare: they need not differ here.
pub(super) fn hash(hasher: &DefaultHashBuilder, name: Name, caller: &[u8]) -> u64 {
    let mut state = hasher.build_hasher();
    state.write_u64(name.hash());
    state.write(caller);
    state.finish()
}

impl Shard {
    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.slots.len() == 0
    }

    #[inline]
    pub(super) fn find_mut(&mut self, hash: u64, subject: Subject<'_>) -> Option<&mut Slot> {
        let slots = &self.slots;
        let at = *self.index.find(hash, |at| slots[*at as usize].is(subject))?;
        Some(&mut self.slots[at as usize])
    }

    pub(super) fn insert(&mut self, hash: u64, slot: Slot, hasher: &DefaultHashBuilder) {
        // A shard of 2^32 keys does not fit the memory of any machine that has so many keys.
        let at = u32::try_from(self.slots.len()).expect("a shard has fewer than 2^32 keys");
        self.slots.push(slot);
        let slots = &self.slots;
        self.index.insert_unique(hash, at, |at| slots[*at as usize].hash(hasher));
    }

    /// Removes a key, and says whether it was there.
    pub(super) fn remove(
        &mut self,
        hash: u64,
        subject: Subject<'_>,
        hasher: &DefaultHashBuilder,
    ) -> bool {
        let slots = &self.slots;
        let found = self.index.find(hash, |at| slots[*at as usize].is(subject)).copied();
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
        let hash = self.slots[at].hash(hasher);
        if let Ok(entry) = self.index.find_entry(hash, |place| *place as usize == at) {
            entry.remove();
        }
        self.slots.swap_remove(at);
        // The last slot has moved here.
        if let Some(moved) = self.slots.get(at) {
            let (hash, from) = (moved.hash(hasher), self.slots.len());
            if let Some(place) = self.index.find_mut(hash, |place| *place as usize == from) {
                *place = u32::try_from(at).unwrap_or(u32::MAX);
            }
        }
    }

    /// Gives memory of the index back when three quarters of it are no longer needed.
    fn shrink(&mut self, hasher: &DefaultHashBuilder) {
        let keys = self.slots.len();
        if self.index.capacity() > 64 && keys < self.index.capacity() / 4 {
            let slots = &self.slots;
            self.index.shrink_to(keys * 2, |at| slots[*at as usize].hash(hasher));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{caller::Caller, policy::Policy};

    #[test]
    fn the_index_of_collected_keys_is_given_back_and_the_others_are_found() {
        const POLICY: Policy = Policy::sliding_window("p", Duration::from_secs(1), 1);
        let (mut shard, hasher) = (Shard::default(), DefaultHashBuilder::default());
        let callers: Vec<_> = (0..10_000).map(Caller::from).collect();
        let hash_of = |subject: Subject<'_>| hash(&hasher, subject.name, subject.caller);
        for (number, caller) in callers.iter().enumerate() {
            let subject = Subject::new(&POLICY, caller.parts());
            let expires = if number % 100 == 0 { 2 } else { 1 };
            shard.insert(hash_of(subject), Slot { expires, ..Slot::new(subject) }, &hasher);
        }
        assert!(shard.index.capacity() >= 10_000);
        assert_eq!(shard.collect_all(1, &hasher), (9_900, 2));
        assert!(shard.index.capacity() < 400, "{}", shard.index.capacity());
        for (number, caller) in callers.iter().enumerate() {
            let subject = Subject::new(&POLICY, caller.parts());
            assert_eq!(shard.find_mut(hash_of(subject), subject).is_some(), number % 100 == 0);
        }
    }
}
