//! The eviction of expired keys: a few with every insertion; when the store is full, until the call
//! has room.

use std::sync::atomic::Ordering;

use super::{
    MemoryStore,
    block_vec::BLOCK_LEN,
    budget::{Removed, Usage},
    hash::KeyHasher,
    report_keys,
    shard::{NEVER, ShardTable},
};
use crate::{key::KeyRef, time::Timestamp};

/// The number of keys that each insertion scans. With more than two, at most half of the list is
/// expired.
const SCAN_PER_INSERT: usize = 4;

/// The approximate maximum of keys that one call scans when the store is full, which takes some
/// milliseconds. A key is scanned again only after a call to it or to one of its neighbours. The
/// next call continues where this one ends.
pub(super) const MAX_SCAN: usize = 1 << 18;

/// The cost of one eviction, in scanned keys.
const SCANS_PER_EVICTION: usize = 8;

/// The result of a scan for expired keys.
#[derive(Debug, Default)]
pub(super) struct Sweep {
    pub(super) evicted: Removed,
    pub(super) scanned: usize,
}

impl MemoryStore {
    /// Evicts expired keys until the limit may take this much more, or `scans` are used up. Returns
    /// `true` if there is room.
    #[cold]
    pub(super) fn evict_expired(&self, key: KeyRef<'_>, more: Usage, scans: &mut usize) -> bool {
        let (limit, now) = (key.name.text(), self.clock.now());
        let first = self.cursor.load(Ordering::Relaxed);
        for step in 0..self.shards.len() {
            let at = (first + step) & (self.shards.len() - 1);
            let shard = &self.shards[at];
            if shard.next_expiry.load(Ordering::Relaxed) > now.get() {
                continue;
            }
            let mut table = shard.lock();
            let Sweep { evicted, scanned } = table.evict_all(now, &self.hasher);
            shard.next_expiry.store(table.next_expiry().get(), Ordering::Relaxed);
            drop(table);
            let mut budget = self.budget();
            budget.release_all(&evicted);
            let has_room = budget.has_room(limit, more);
            drop(budget);
            report_keys(Usage::default(), evicted.total());
            *scans = scans.saturating_sub(scanned + SCANS_PER_EVICTION * evicted.total().keys);
            if has_room || *scans == 0 {
                self.cursor.store(at, Ordering::Relaxed);
                return has_room;
            }
        }
        // Another call may have made room meanwhile.
        self.budget().has_room(limit, more)
    }
}

impl ShardTable {
    /// Returns a time before which no key expires.
    pub(super) fn next_expiry(&self) -> Timestamp {
        self.next_expiry.iter().copied().min().unwrap_or(NEVER)
    }

    /// Scans the next few keys, and evicts the expired ones.
    pub(super) fn evict_some(&mut self, now: Timestamp, hasher: &KeyHasher) -> Removed {
        let mut evicted = Removed::default();
        for _ in 0..SCAN_PER_INSERT.min(self.len()) {
            if self.cursor >= self.len() {
                self.cursor = 0;
            }
            match self.entries.get(self.cursor) {
                // The last entry takes its place, and is scanned next.
                Some(entry) if entry.expires <= now => {
                    self.remove_at(self.cursor, hasher, &mut evicted);
                }
                _ => self.cursor += 1,
            }
        }
        self.shrink(hasher);
        evicted
    }

    /// Evicts all expired keys. A block without any is scanned again only when the first of its
    /// keys expires.
    pub(super) fn evict_all(&mut self, now: Timestamp, hasher: &KeyHasher) -> Sweep {
        let mut sweep = Sweep::default();
        let mut block = 0;
        while let Some(next) = self.next_expiry.get(block) {
            if *next <= now {
                self.sweep_block(block, now, hasher, &mut sweep);
            }
            block += 1;
        }
        self.shrink(hasher);
        sweep
    }

    fn sweep_block(&mut self, block: usize, now: Timestamp, hasher: &KeyHasher, sweep: &mut Sweep) {
        let (mut at, mut next) = (block * BLOCK_LEN, NEVER);
        while at < (block + 1) * BLOCK_LEN
            && let Some(entry) = self.entries.get(at)
        {
            sweep.scanned += 1;
            if entry.expires <= now {
                // The last entry takes its place, and is scanned next.
                self.remove_at(at, hasher, &mut sweep.evicted);
            } else {
                next = next.min(entry.expires);
                at += 1;
            }
        }
        if let Some(known) = self.next_expiry.get_mut(block) {
            *known = next;
        }
    }

    /// Releases memory of the index when three quarters of it are unused.
    fn shrink(&mut self, hasher: &KeyHasher) {
        let keys = self.len();
        if self.index.capacity() > 64 && keys < self.index.capacity() / 4 {
            let entries = &self.entries;
            self.index.shrink_to(keys * 2, |at| entries[*at as usize].hash(hasher));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{caller::Caller, memory::shard::Entry, policy::Policy, time::Micros};

    /// The evicted keys, and the scanned ones.
    fn counts(sweep: &Sweep) -> (usize, usize) {
        (sweep.evicted.total().keys, sweep.scanned)
    }

    #[test]
    fn the_index_of_evicted_keys_is_released_and_the_others_are_found() {
        const POLICY: Policy = Policy::sliding_window("p", Duration::from_secs(1), 1);
        let (mut table, hasher) = (ShardTable::default(), KeyHasher::new());
        let callers: Vec<_> = (0..10_000).map(Caller::from).collect();
        for (number, caller) in callers.iter().enumerate() {
            let key = hasher.lookup(KeyRef::new(&POLICY, caller.parts()));
            let expires = Timestamp::new(if number % 100 == 0 { 2 } else { 1 });
            table.insert(key.hash, Entry { expires, ..Entry::new(key.key) }, &hasher);
        }
        assert!(table.index.capacity() >= 10_000);
        let sweep = table.evict_all(Timestamp::new(1), &hasher);
        assert_eq!(counts(&sweep), (9_900, 10_000));
        assert_eq!(table.next_expiry(), Timestamp::new(2));
        assert!(table.index.capacity() < 400, "{}", table.index.capacity());
        for (number, caller) in callers.iter().enumerate() {
            let key = hasher.lookup(KeyRef::new(&POLICY, caller.parts()));
            assert_eq!(table.find_mut(&key).is_some(), number % 100 == 0);
        }
    }

    #[test]
    fn only_the_block_of_a_key_that_was_called_is_scanned_again() {
        const POLICY: Policy = Policy::sliding_window("p", Duration::from_secs(1), 1);
        let (mut table, hasher) = (ShardTable::default(), KeyHasher::new());
        for number in 0..10 * BLOCK_LEN {
            let caller = Caller::from(number);
            let key = hasher.lookup(KeyRef::new(&POLICY, caller.parts()));
            let expires = Timestamp::new(if number == 100 { 1 } else { 5 });
            table.insert(key.hash, Entry { expires, ..Entry::new(key.key) }, &hasher);
        }
        table.entries[100].expires = Timestamp::new(9);
        assert_eq!(counts(&table.evict_all(Timestamp::new(1), &hasher)), (0, BLOCK_LEN));
        assert_eq!(counts(&table.evict_all(Timestamp::new(4), &hasher)), (0, 0));
        assert_eq!(table.next_expiry(), Timestamp::new(5));
    }

    #[test]
    fn every_block_has_an_expiry_before_that_of_its_keys() {
        const POLICY: Policy = Policy::sliding_window("p", Duration::from_secs(1), 1);
        let (mut table, hasher) = (ShardTable::default(), KeyHasher::new());
        let mut rng = fastrand::Rng::with_seed(7);
        let mut now = Timestamp::new(0);
        for number in 0..20_000 {
            let caller = Caller::from(number);
            let key = hasher.lookup(KeyRef::new(&POLICY, caller.parts()));
            let expires = now + Micros::new(rng.u64(1..300));
            table.insert(key.hash, Entry { expires, ..Entry::new(key.key) }, &hasher);
            match rng.u8(..100) {
                0 => now = now + Micros::new(rng.u64(..100)),
                1..5 => drop(table.evict_some(now, &hasher)),
                5 => {
                    let live = |table: &ShardTable| {
                        let entries = (0..table.len()).map(|at| &table.entries[at]);
                        entries.filter(|entry| entry.expires > now).count()
                    };
                    let before = live(&table);
                    table.evict_all(now, &hasher);
                    assert_eq!((table.len(), live(&table)), (before, before));
                    assert_eq!(table.evict_all(now, &hasher).scanned, 0);
                }
                6..50 => {
                    let at = rng.usize(..table.len());
                    table.remove_at(at, &hasher, &mut Removed::default());
                }
                _ if !table.is_empty() => {
                    // A call to a known key.
                    let at = rng.usize(..table.len());
                    let more = Micros::new(rng.u64(..50));
                    table.entries[at].expires = table.entries[at].expires + more;
                }
                _ => {}
            }
            assert_eq!(table.next_expiry.len(), table.len().div_ceil(BLOCK_LEN));
        }
    }
}
