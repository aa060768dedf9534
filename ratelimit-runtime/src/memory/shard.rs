//! One part of the store: entries in a dense list, found by the hash of their keys.

use hashbrown::HashTable;

#[cfg(test)]
use super::names::interned;
use super::{block_vec::BlockVec, budget::Removed, permits::PermitTable};
use crate::{
    algorithms::{AskForRoom, State},
    key::{KeyHasher, Lookup, StoredCaller},
    policy::{Policy, PolicyName},
    request::{LinePlace, Op, Outcome, PlainAnswer, Request, Settle, Standing},
    time::{Micros, Timestamp},
};

/// The bytes of a key without heap: its entry, and its part of the index and of the list's blocks.
/// The index is at least 7/16 full until it shrinks.
pub(super) const KEY_BYTES: usize = size_of::<Entry>() + 2 * (size_of::<Slot>() + 1) + 2;

/// The time for which a state still counts after it has become equal to an absent one, as on Redis:
/// `write` in `per_tier.lua`. It matters under an override with a longer period. A full store
/// forgets it at once.
const LINGERS: Micros = Micros::new(1_000_000);

/// The expiry of no key.
pub(super) const NEVER: Timestamp = Timestamp::new(u64::MAX);

/// A look-up reads and writes only the first cache line, which the lock of the shard starts.
#[derive(Default)]
#[repr(C)]
pub(super) struct ShardTable {
    /// The latest time at which a call was decided.
    pub(super) latest: Timestamp,
    /// For each block, the list keeps a time before which no key in it expires. Calls to its keys
    /// do not update it, so it may be in the past.
    pub(super) entries: BlockVec<Entry>,
    pub(super) index: HashTable<Slot>,
    /// The calls in flight.
    pub(super) permits: PermitTable,
    /// The position at which the next insertion starts its scan.
    pub(super) cursor: usize,
}

/// The place of a key, with a part of its hash: an index that grows reads no entry.
#[derive(Clone, Copy)]
pub(super) struct Slot {
    hash: u32,
    at: u32,
}

impl Slot {
    fn new(hash: u64, at: usize) -> Self {
        // 2^32 keys of one shard take more than 256 GiB, and other shards have as many.
        let at = u32::try_from(at).expect("a shard has fewer than 2^32 keys");
        Self { hash: part_of_index(hash), at }
    }

    /// Returns the hash under which the index has it: the index takes its bits from both ends.
    pub(super) fn hash(self) -> u64 {
        u64::from(self.hash) << 32 | u64::from(self.hash)
    }
}

/// Returns the part of a hash by which the index finds a key. The rest chooses the shard.
#[expect(clippy::cast_possible_truncation, reason = "the lower half")]
fn part_of_index(hash: u64) -> u32 {
    hash as u32
}

/// The state of one key, in one cache line.
#[cfg_attr(test, derive(Clone, Debug, PartialEq))]
#[repr(align(64))]
pub(super) struct Entry {
    pub(super) caller: StoredCaller,
    pub(super) name: &'static PolicyName,
    /// The time from which the state decides like an absent one.
    pub(super) expires: Timestamp,
    pub(super) state: State,
}

impl Entry {
    #[cfg(test)]
    pub(super) fn new(key: crate::key::KeyRef<'_>) -> Self {
        let (caller, name) = (StoredCaller::new(key.caller), interned(key.name.text()));
        Self { caller, name, expires: Timestamp::default(), state: State::new(key.state) }
    }

    /// Takes units, or refuses one: see [`State::take_units`].
    #[inline(always)]
    pub(super) fn take_units<A: PlainAnswer>(
        &mut self,
        now: Timestamp,
        request: Request<'_>,
    ) -> Option<A> {
        if self.is_forgotten(now) {
            return None;
        }
        let answer: Option<A> = self.state.take_units(now, request, self.expires);
        if let Some(answer) = &answer {
            self.expires = self.expires.max(now + answer.reset());
        }
        answer
    }

    /// Decides a call: see [`State::decide`].
    pub(super) fn decide(
        &mut self,
        now: Timestamp,
        request: Request<'_>,
        room: AskForRoom<'_>,
    ) -> Option<Outcome> {
        let before = self.state.newest_unit();
        let outcome = self.state.decide(now, request, room)?;
        if request.op == Op::Take {
            self.extend(before, now, outcome.lasts);
        }
        Some(outcome)
    }

    /// Changes the units of a call, as far as they still count. With fewer, the quota may be back
    /// earlier.
    #[inline]
    pub(super) fn settle(&mut self, now: Timestamp, settle: &Settle) {
        let before = self.state.newest_unit();
        let lasts = self.state.settle(now, settle);
        self.extend(before, now, lasts);
        if settle.lowered() > 0
            && let Some(lasts) = self.state.lasts(now)
        {
            self.expires = self.expires.min(now + lasts);
        }
    }

    /// Lets the state last this long, if it counts. The expiry of a log moves with its newest unit:
    /// the time between them is the longest period of the policies that have written to the log.
    #[inline]
    fn extend(&mut self, newest: Option<Timestamp>, now: Timestamp, mut lasts: Micros) {
        match (newest, self.state.newest_unit()) {
            (Some(before), Some(after)) => self.expires = after + (self.expires - before),
            // Units have become entries, or the last one is given back.
            (Some(before), None) => {
                lasts = lasts.max(self.state.keep_period(now, self.expires - before));
            }
            (None, _) => {}
        }
        if lasts > Micros::ZERO {
            self.expires = self.expires.max(now + lasts);
        }
    }

    /// Moves the turn of a waiting call forwards: see [`State::advance`].
    pub(super) fn advance(&mut self, now: Timestamp, place: LinePlace<'_>) -> Option<Standing> {
        let (standing, lasts) = self.state.advance(now, place)?;
        self.extend(None, now, lasts);
        Some(standing)
    }

    /// Admits nobody before `ends`: see [`State::pause`].
    pub(super) fn pause(&mut self, now: Timestamp, ends: Timestamp, policy: &Policy) {
        let before = self.state.newest_unit();
        let lasts = self.state.pause(now, ends, policy);
        self.extend(before, now, lasts);
    }

    /// Returns `true` if the key counts as absent.
    pub(super) fn is_forgotten(&self, now: Timestamp) -> bool {
        self.expires < now && self.has_lingered(now)
    }

    /// A cold function, so that most calls compare once.
    #[cold]
    fn has_lingered(&self, now: Timestamp) -> bool {
        now - self.expires >= LINGERS
    }

    /// Returns the memory of the key.
    #[inline]
    pub(super) fn bytes(&self) -> usize {
        KEY_BYTES + self.caller.heap_bytes() + self.state.heap_bytes()
    }

    pub(super) fn hash(&self, hasher: &KeyHasher) -> u64 {
        hasher.hash(*self.name, self.caller.bytes())
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

    /// Returns the entry of a key that does not count as absent.
    #[inline(always)]
    pub(super) fn find_mut(&mut self, lookup: &Lookup<'_>, now: Timestamp) -> Option<&mut Entry> {
        let at = self.position(lookup)?;
        self.entries.get_mut(at).filter(|entry| !entry.is_forgotten(now))
    }

    /// Takes units of a key that is stored, or refuses one: see [`State::take_units`], which
    /// returns nothing for a state of another kind. This returns nothing either if another key has
    /// the same part of a hash. In a loop that compares callers, as [`position`](Self::position)
    /// does, a plain call takes 14 instructions more (`--bench instructions`).
    #[inline(always)]
    pub(super) fn take_units<A: PlainAnswer>(
        &mut self,
        lookup: &Lookup<'_>,
        now: Timestamp,
        request: Request<'_>,
    ) -> Option<A> {
        let wanted = Slot { hash: part_of_index(lookup.hash), at: 0 };
        let slot = self.index.find(wanted.hash(), |slot| slot.hash == wanted.hash)?;
        let entry = self.entries.get_mut(slot.at as usize)?;
        // The name of the policy is that of the key, and is read once for both.
        let is_own =
            entry.caller.is(&lookup.key.caller) && entry.name.is(&request.policy.full_name());
        if is_own { entry.take_units(now, request) } else { None }
    }

    /// Returns the position of a key, also of one that counts as absent.
    #[inline(always)]
    pub(super) fn position(&self, lookup: &Lookup<'_>) -> Option<usize> {
        let wanted = Slot { hash: part_of_index(lookup.hash), at: 0 };
        // Without a closure, which would be called for each candidate.
        for slot in self.index.iter_hash(wanted.hash()) {
            let at = slot.at as usize;
            let Entry { caller, name, state, .. } = &self.entries[at];
            if slot.hash == wanted.hash
                && caller.is(&lookup.key.caller)
                && name.is(&lookup.key.name)
                && state.kind() == lookup.key.state
            {
                return Some(at);
            }
        }
        None
    }

    pub(super) fn insert(&mut self, hash: u64, entry: Entry) {
        let slot = Slot::new(hash, self.len());
        let expires = entry.expires;
        self.entries.push(entry, expires);
        self.index.insert_unique(slot.hash(), slot, |slot| slot.hash());
    }

    /// Removes a key if it is there.
    pub(super) fn remove(&mut self, lookup: &Lookup<'_>, hasher: &KeyHasher) -> Removed {
        let mut removed = Removed::default();
        if let Some(at) = self.position(lookup) {
            self.remove_at(at, hasher, &mut removed);
        }
        removed
    }

    /// Removes the entry at this position. The last one takes its place.
    pub(super) fn remove_at(&mut self, at: usize, hasher: &KeyHasher, removed: &mut Removed) {
        let entry = &self.entries[at];
        removed.add(entry.name.text(), entry.bytes());
        let gone = Slot::new(entry.hash(hasher), at);
        if let Ok(found) = self.index.find_entry(gone.hash(), |slot| slot.at == gone.at) {
            found.remove();
        }
        self.entries.swap_remove(at);
        if let Some(moved) = self.entries.get(at) {
            let (expires, from) = (moved.expires, self.entries.len());
            let moved = Slot::new(moved.hash(hasher), at);
            self.entries.bring_forward(at, expires);
            if let Some(slot) = self.index.find_mut(moved.hash(), |slot| slot.at as usize == from) {
                *slot = moved;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_a_cache_line() {
        assert_eq!((size_of::<Entry>(), align_of::<Entry>()), (64, 64));
    }
}
