//! A part of the embedded store: callers in one dense list, found by the hash of their keys.

use std::hash::{BuildHasher, Hasher};

use hashbrown::{DefaultHashBuilder, HashTable};
use smallvec::SmallVec;

use super::{
    block_vec::{BLOCK_LEN, BlockVec},
    ledger::Gone,
};
use crate::{
    algorithms::{NeedsRoom, State},
    key::KeyRef,
    policy::PolicyName,
    request::{Detail, Op, Outcome, Request},
    time::Timestamp,
};

/// The keys that each insertion passes over in search of expired ones. Half of the list at the
/// most is expired when every new key passes over more than two.
const PASSED_OVER: usize = 4;

/// The memory of a key that has nothing on the heap: its slot, and its part of the index, which is
/// at the least 7/16 full until it shrinks, and of the lists of blocks.
const KEY_BYTES: usize = size_of::<Entry>() + 13;

/// The expiry of no key.
const NEVER: Timestamp = Timestamp::new(u64::MAX);

#[derive(Default)]
pub(super) struct ShardTable {
    slots: BlockVec<Entry>,
    /// Where in `slots` a key is.
    index: HashTable<u32>,
    /// For each block of `slots`: no key in it expires before this. A call to a known key does not
    /// touch it, and so it may be long over.
    due: Vec<Timestamp>,
    /// The next slot that an insertion passes over.
    hand: usize,
}

pub(super) struct Entry {
    name: &'static str,
    /// The caller's parts; most have room here.
    caller: SmallVec<[u8; 16]>,
    pub(super) state: State,
    /// From then on the state says no more than an absent one.
    pub(super) expires: Timestamp,
}

/// What came of a search for expired keys.
#[derive(Debug, Default)]
pub(super) struct Sweep {
    pub(super) gone: Gone,
    pub(super) passed_over: usize,
}

impl Entry {
    pub(super) fn new(subject: KeyRef<'_>) -> Self {
        let KeyRef { algorithm, name, caller } = subject;
        let caller = SmallVec::from_slice(caller);
        Self {
            name: name.text(),
            caller,
            state: State::new(algorithm),
            expires: Timestamp::default(),
        }
    }

    /// Decides a call. Nothing is recorded of one that needs more than `room` bytes for it.
    #[expect(
        clippy::inline_always,
        reason = "of several calls, that of a known key has to be fast"
    )]
    #[inline(always)]
    pub(super) fn decide(
        &mut self,
        now: Timestamp,
        request: Request<'_>,
        detail: Detail,
        room: usize,
    ) -> Result<Outcome, NeedsRoom> {
        let outcome = self.state.decide(now, request, detail, room)?;
        if request.op == Op::Take {
            self.expires = self.expires.max(now + outcome.lasts);
        }
        Ok(outcome)
    }

    /// The memory that it takes.
    pub(super) fn bytes(&self) -> usize {
        let caller = if self.caller.spilled() { self.caller.capacity() } else { 0 };
        KEY_BYTES + caller + self.state.heap_bytes()
    }

    #[inline]
    fn is(&self, subject: KeyRef<'_>) -> bool {
        // Two policies of one name are rarely two texts.
        let name = subject.name.text();
        let same_name = || std::ptr::eq(self.name, name) || self.name == name;
        *self.caller == *subject.caller
            && same_name()
            && self.state.algorithm() == subject.algorithm
    }

    fn hash(&self, hasher: &DefaultHashBuilder) -> u64 {
        hash(hasher, PolicyName::new(self.name), &self.caller)
    }
}

/// One caller of two algorithms of one name is rare: they need not differ here.
pub(super) fn hash(hasher: &DefaultHashBuilder, name: PolicyName, caller: &[u8]) -> u64 {
    let mut state = hasher.build_hasher();
    state.write_u64(name.hash());
    state.write(caller);
    state.finish()
}

impl ShardTable {
    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    /// The memory of all keys.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        (0..self.len()).map(|at| self.slots[at].bytes()).sum()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    #[inline]
    pub(super) fn find_mut(&mut self, hash: u64, subject: KeyRef<'_>) -> Option<&mut Entry> {
        let slots = &self.slots;
        let at = *self.index.find(hash, |at| slots[*at as usize].is(subject))?;
        Some(&mut self.slots[at as usize])
    }

    /// The same where time matters less: inlined often, `find_mut` would not be where it matters.
    #[inline(never)]
    pub(super) fn find_again(&mut self, hash: u64, subject: KeyRef<'_>) -> Option<&mut Entry> {
        self.find_mut(hash, subject)
    }

    pub(super) fn insert(&mut self, hash: u64, slot: Entry, hasher: &DefaultHashBuilder) {
        // A shard of 2^32 keys does not fit the memory of any machine that has so many keys.
        let at = u32::try_from(self.slots.len()).expect("a shard has fewer than 2^32 keys");
        match self.due.get_mut(self.slots.len() / BLOCK_LEN) {
            Some(due) => *due = slot.expires.min(*due),
            None => self.due.push(slot.expires),
        }
        self.slots.push(slot);
        let slots = &self.slots;
        self.index.insert_unique(hash, at, |at| slots[*at as usize].hash(hasher));
    }

    /// Removes a key, if it is there.
    pub(super) fn remove(
        &mut self,
        hash: u64,
        subject: KeyRef<'_>,
        hasher: &DefaultHashBuilder,
    ) -> Gone {
        let (slots, mut gone) = (&self.slots, Gone::default());
        let found = self.index.find(hash, |at| slots[*at as usize].is(subject)).copied();
        if let Some(at) = found {
            self.remove_at(at as usize, hasher, &mut gone);
        }
        gone
    }

    /// Passes over the next few keys, and removes the expired ones.
    pub(super) fn collect_some(&mut self, now: Timestamp, hasher: &DefaultHashBuilder) -> Gone {
        let mut gone = Gone::default();
        for _ in 0..PASSED_OVER.min(self.slots.len()) {
            if self.hand >= self.slots.len() {
                self.hand = 0;
            }
            match self.slots.get(self.hand) {
                Some(slot) if slot.expires <= now => {
                    // The last slot takes its place, and is passed over next.
                    self.remove_at(self.hand, hasher, &mut gone);
                }
                _ => self.hand += 1,
            }
        }
        self.shrink(hasher);
        gone
    }

    /// When the next key expires, at the earliest.
    pub(super) fn due(&self) -> Timestamp {
        self.due.iter().copied().min().unwrap_or(NEVER)
    }

    /// Removes all expired keys. A block in which there is none is passed over again only when
    /// the first of its keys expires.
    pub(super) fn collect_due(&mut self, now: Timestamp, hasher: &DefaultHashBuilder) -> Sweep {
        let mut sweep = Sweep::default();
        let mut block = 0;
        while let Some(due) = self.due.get(block) {
            if *due <= now {
                self.sweep_block(block, now, hasher, &mut sweep);
            }
            block += 1;
        }
        self.shrink(hasher);
        sweep
    }

    fn sweep_block(
        &mut self,
        block: usize,
        now: Timestamp,
        hasher: &DefaultHashBuilder,
        sweep: &mut Sweep,
    ) {
        let (mut at, mut due) = (block * BLOCK_LEN, NEVER);
        while at < (block + 1) * BLOCK_LEN
            && let Some(slot) = self.slots.get(at)
        {
            sweep.passed_over += 1;
            if slot.expires <= now {
                // The last slot takes its place, and is passed over next.
                self.remove_at(at, hasher, &mut sweep.gone);
            } else {
                due = due.min(slot.expires);
                at += 1;
            }
        }
        if let Some(known) = self.due.get_mut(block) {
            *known = due;
        }
    }

    fn remove_at(&mut self, at: usize, hasher: &DefaultHashBuilder, gone: &mut Gone) {
        let slot = &self.slots[at];
        gone.add(slot.name, slot.bytes());
        let hash = slot.hash(hasher);
        if let Ok(entry) = self.index.find_entry(hash, |place| *place as usize == at) {
            entry.remove();
        }
        self.slots.swap_remove(at);
        self.due.truncate(self.slots.len().div_ceil(BLOCK_LEN));
        // The last slot has moved here.
        if let Some(moved) = self.slots.get(at) {
            let (hash, from) = (moved.hash(hasher), self.slots.len());
            let due = &mut self.due[at / BLOCK_LEN];
            *due = moved.expires.min(*due);
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
    use crate::{caller::Caller, policy::Policy, time::Micros};

    /// The keys that were collected, and those that were passed over.
    fn counts(sweep: &Sweep) -> (usize, usize) {
        (sweep.gone.total().keys, sweep.passed_over)
    }

    #[test]
    fn the_index_of_collected_keys_is_given_back_and_the_others_are_found() {
        const POLICY: Policy = Policy::sliding_window("p", Duration::from_secs(1), 1);
        let (mut shard, hasher) = (ShardTable::default(), DefaultHashBuilder::default());
        let callers: Vec<_> = (0..10_000).map(Caller::from).collect();
        let hash_of = |subject: KeyRef<'_>| hash(&hasher, subject.name, subject.caller);
        for (number, caller) in callers.iter().enumerate() {
            let subject = KeyRef::new(&POLICY, caller.parts());
            let expires = Timestamp::new(if number % 100 == 0 { 2 } else { 1 });
            shard.insert(hash_of(subject), Entry { expires, ..Entry::new(subject) }, &hasher);
        }
        assert!(shard.index.capacity() >= 10_000);
        let sweep = shard.collect_due(Timestamp::new(1), &hasher);
        assert_eq!(counts(&sweep), (9_900, 10_000));
        assert_eq!(shard.due(), Timestamp::new(2));
        assert!(shard.index.capacity() < 400, "{}", shard.index.capacity());
        for (number, caller) in callers.iter().enumerate() {
            let subject = KeyRef::new(&POLICY, caller.parts());
            assert_eq!(shard.find_mut(hash_of(subject), subject).is_some(), number % 100 == 0);
        }
    }

    #[test]
    fn a_key_that_was_called_has_its_block_passed_over_again_and_no_other() {
        const POLICY: Policy = Policy::sliding_window("p", Duration::from_secs(1), 1);
        let (mut shard, hasher) = (ShardTable::default(), DefaultHashBuilder::default());
        for number in 0..10 * BLOCK_LEN {
            let caller = Caller::from(number);
            let subject = KeyRef::new(&POLICY, caller.parts());
            let place = hash(&hasher, subject.name, subject.caller);
            let expires = Timestamp::new(if number == 100 { 1 } else { 5 });
            shard.insert(place, Entry { expires, ..Entry::new(subject) }, &hasher);
        }
        shard.slots[100].expires = Timestamp::new(9);
        assert_eq!(counts(&shard.collect_due(Timestamp::new(1), &hasher)), (0, BLOCK_LEN));
        assert_eq!(counts(&shard.collect_due(Timestamp::new(4), &hasher)), (0, 0));
        assert_eq!(shard.due(), Timestamp::new(5));
    }

    #[test]
    fn what_is_due_is_known_of_every_block_however_keys_come_and_go() {
        const POLICY: Policy = Policy::sliding_window("p", Duration::from_secs(1), 1);
        let (mut shard, hasher) = (ShardTable::default(), DefaultHashBuilder::default());
        let mut rng = fastrand::Rng::with_seed(7);
        let mut now = Timestamp::new(0);
        for number in 0..20_000 {
            let caller = Caller::from(number);
            let subject = KeyRef::new(&POLICY, caller.parts());
            let place = hash(&hasher, subject.name, subject.caller);
            let expires = now + Micros::new(rng.u64(1..300));
            shard.insert(place, Entry { expires, ..Entry::new(subject) }, &hasher);
            match rng.u8(..100) {
                0 => now = now + Micros::new(rng.u64(..100)),
                1..5 => drop(shard.collect_some(now, &hasher)),
                5 => {
                    let live = |shard: &ShardTable| {
                        let slots = (0..shard.len()).map(|at| &shard.slots[at]);
                        slots.filter(|slot| slot.expires > now).count()
                    };
                    let held = live(&shard);
                    shard.collect_due(now, &hasher);
                    assert_eq!((shard.len(), live(&shard)), (held, held));
                    assert_eq!(shard.collect_due(now, &hasher).passed_over, 0);
                }
                6..50 => {
                    let at = rng.usize(..shard.len());
                    shard.remove_at(at, &hasher, &mut Gone::default());
                }
                _ if !shard.is_empty() => {
                    // A call to a known key.
                    let at = rng.usize(..shard.len());
                    let more = Micros::new(rng.u64(..50));
                    shard.slots[at].expires = shard.slots[at].expires + more;
                }
                _ => {}
            }
            assert_eq!(shard.due.len(), shard.len().div_ceil(BLOCK_LEN));
        }
    }
}
