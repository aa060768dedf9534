//! One part of the store: entries in a dense list, found by the hash of their keys.

use hashbrown::HashTable;
use smallvec::SmallVec;

use super::{
    block_vec::{BLOCK_LEN, BlockVec},
    budget::Removed,
    hash::{KeyHasher, Lookup},
};
use crate::{
    algorithms::{State, Straight},
    key::KeyRef,
    policy::{Policy, PolicyName},
    request::{Op, Outcome, Request},
    time::Timestamp,
};

/// The bytes of a key without heap: its entry, and its part of the index and of the lists of
/// blocks. The index is at least 7/16 full until it shrinks.
const KEY_BYTES: usize = size_of::<Entry>() + 13;

/// The expiry of no key.
pub(super) const NEVER: Timestamp = Timestamp::new(u64::MAX);

#[derive(Default)]
pub(super) struct ShardTable {
    pub(super) entries: BlockVec<Entry>,
    /// The position of each key in `entries`.
    pub(super) index: HashTable<u32>,
    /// For each block of `entries`, a time before which no key in it expires. Calls to its keys do
    /// not update it, so it may be in the past.
    pub(super) next_expiry: Vec<Timestamp>,
    /// The position at which the next insertion starts its scan.
    pub(super) cursor: usize,
}

/// The state of one key.
#[cfg_attr(test, derive(Clone, Debug, PartialEq))]
pub(super) struct Entry {
    pub(super) name: &'static str,
    /// The caller's parts; up to 16 bytes are in place.
    pub(super) caller: SmallVec<[u8; 16]>,
    pub(super) state: State,
    /// The time from which the state decides like an absent one.
    pub(super) expires: Timestamp,
}

impl Entry {
    pub(super) fn new(key: KeyRef<'_>) -> Self {
        let KeyRef { algorithm, name, caller } = key;
        let caller = SmallVec::from_slice(caller);
        let (state, expires) = (State::new(algorithm), Timestamp::default());
        Self { name: name.text(), caller, state, expires }
    }

    /// Takes one unit, or refuses it: see [`State::take_one`].
    #[inline]
    pub(super) fn take_one(&mut self, now: Timestamp, policy: &Policy) -> Straight {
        let taken = self.state.take_one(now, policy);
        if let Straight::Admitted { lasts } | Straight::Refused { reset: lasts, .. } = taken {
            self.expires = self.expires.max(now + lasts);
        }
        taken
    }

    /// Decides a call. The heap grows by at most [`State::growth`].
    #[inline]
    pub(super) fn decide(&mut self, now: Timestamp, request: Request<'_>) -> Outcome {
        let outcome = self.state.decide(now, request);
        if request.op == Op::Take {
            self.expires = self.expires.max(now + outcome.lasts);
        }
        outcome
    }

    /// Returns the memory of the key.
    pub(super) fn bytes(&self) -> usize {
        let caller = if self.caller.spilled() { self.caller.capacity() } else { 0 };
        KEY_BYTES + caller + self.state.heap_bytes()
    }

    #[inline]
    fn is(&self, lookup: &Lookup<'_>) -> bool {
        // Two policies of one name are rarely two texts.
        let name = lookup.key.name.text();
        lookup.is_of_caller(&self.caller)
            && (std::ptr::eq(self.name, name) || self.name == name)
            && self.state.algorithm() == lookup.key.algorithm
    }

    pub(super) fn hash(&self, hasher: &KeyHasher) -> u64 {
        hasher.hash(PolicyName::new(self.name), &self.caller)
    }
}

impl ShardTable {
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the memory of all keys.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        (0..self.len()).map(|at| self.entries[at].bytes()).sum()
    }

    #[inline]
    pub(super) fn find_mut(&mut self, lookup: &Lookup<'_>) -> Option<&mut Entry> {
        let entries = &self.entries;
        let at = *self.index.find(lookup.hash, |at| entries[*at as usize].is(lookup))?;
        Some(&mut self.entries[at as usize])
    }

    pub(super) fn insert(&mut self, hash: u64, entry: Entry, hasher: &KeyHasher) {
        // 2^32 keys of one shard take more than 256 GiB, and other shards have as many.
        let at = u32::try_from(self.len()).expect("a shard has fewer than 2^32 keys");
        match self.next_expiry.get_mut(self.entries.len() / BLOCK_LEN) {
            Some(next) => *next = entry.expires.min(*next),
            None => self.next_expiry.push(entry.expires),
        }
        self.entries.push(entry);
        let entries = &self.entries;
        self.index.insert_unique(hash, at, |at| entries[*at as usize].hash(hasher));
    }

    /// Removes a key if it is there.
    pub(super) fn remove(&mut self, lookup: &Lookup<'_>, hasher: &KeyHasher) -> Removed {
        let (entries, mut removed) = (&self.entries, Removed::default());
        let found = self.index.find(lookup.hash, |at| entries[*at as usize].is(lookup)).copied();
        if let Some(at) = found {
            self.remove_at(at as usize, hasher, &mut removed);
        }
        removed
    }

    /// Removes the entry at this position. The last one takes its place.
    pub(super) fn remove_at(&mut self, at: usize, hasher: &KeyHasher, removed: &mut Removed) {
        let entry = &self.entries[at];
        removed.add(entry.name, entry.bytes());
        let hash = entry.hash(hasher);
        if let Ok(found) = self.index.find_entry(hash, |position| *position as usize == at) {
            found.remove();
        }
        self.entries.swap_remove(at);
        self.next_expiry.truncate(self.entries.len().div_ceil(BLOCK_LEN));
        if let Some(moved) = self.entries.get(at) {
            let (hash, from) = (moved.hash(hasher), self.entries.len());
            let next = &mut self.next_expiry[at / BLOCK_LEN];
            *next = moved.expires.min(*next);
            if let Some(position) = self.index.find_mut(hash, |at| *at as usize == from) {
                *position = u32::try_from(at).unwrap_or(u32::MAX);
            }
        }
    }
}
