//! The eviction of expired keys: a few with every insertion; when the store is full, until the call
//! has room.

use super::{
    MemoryStore, Shard,
    block_vec::BLOCK_LEN,
    budget::{Removed, Usage},
    report_keys,
    shard::{KEY_BYTES, NEVER, ShardTable},
};
use crate::{
    key::{KeyHasher, KeyRef},
    sync::atomic::Ordering,
    time::Timestamp,
};

/// The number of keys that each insertion scans. With more than two, at most half of the list is
/// expired.
const SCAN_PER_INSERT: usize = 4;

/// The work of one call that finds the store full, in scanned keys: some hundred microseconds. A
/// key is scanned again only after a call to it or to one of its neighbours. The next call
/// continues where this one ends.
pub(super) const MAX_WORK: usize = 1 << 15;

/// The work between two looks at the budget: a call goes on as soon as there is room for it.
const WORK_PER_LOOK: usize = 1 << 12;

/// The work of one eviction, in scanned keys. The caller's and the state's own memory is more.
const WORK_PER_EVICTION: usize = 32;

/// The bytes that are freed with the work of one scanned key.
const BYTES_PER_SCAN: usize = 64;

/// The blocks or shards without an expired key that are passed over with the work of one scanned
/// key.
const PASSED_PER_SCAN: usize = 8;

/// The result of a scan for expired keys.
#[derive(Debug, Default)]
pub(super) struct Sweep {
    pub(super) evicted: Removed,
    /// The work in scanned keys.
    pub(super) work: usize,
    /// `true` if no expired key is left.
    pub(super) is_over: bool,
}

impl MemoryStore {
    /// Evicts expired keys until the limit may take this much more, or `work` is used up. Returns
    /// `true` if there is room.
    #[cold]
    pub(super) fn evict_expired(&self, key: KeyRef<'_>, more: Usage, work: &mut usize) -> bool {
        let (limit, now) = (key.name.text(), self.clock.now());
        let first = self.cursor.load(Ordering::Relaxed);
        *work = work.saturating_sub(self.shards.len() / PASSED_PER_SCAN);
        for step in 0..self.shards.len() {
            let at = (first + step) & (self.shards.len() - 1);
            let mut is_over = self.shards[at].next_expiry.load(Ordering::Relaxed) > now.get();
            while !is_over {
                if *work == 0 {
                    self.cursor.store(at, Ordering::Relaxed);
                    return self.budget.lock().has_room(limit, more);
                }
                let sweep = self.sweep_shard(&self.shards[at], WORK_PER_LOOK.min(*work));
                *work = work.saturating_sub(sweep.work);
                is_over = sweep.is_over;
                let mut budget = self.budget.lock();
                budget.release_all(&sweep.evicted);
                let has_room = budget.has_room(limit, more);
                drop(budget);
                report_keys(Usage::default(), sweep.evicted.total());
                if has_room {
                    self.cursor.store(at, Ordering::Relaxed);
                    return true;
                }
            }
        }
        // Another call may have made room meanwhile.
        self.budget.lock().has_room(limit, more)
    }

    fn sweep_shard(&self, shard: &Shard, work: usize) -> Sweep {
        let counted = self.clock.counted();
        let mut table = shard.lock();
        // By the shard's own time, which may be another microsecond.
        let now = self.clock.ordered(counted, &mut table.latest);
        let sweep = table.evict_due(now, &self.hasher, work);
        shard.next_expiry.store(table.next_expiry().get(), Ordering::Relaxed);
        sweep
    }
}

impl ShardTable {
    /// Returns a time before which no key expires.
    pub(super) fn next_expiry(&self) -> Timestamp {
        self.entries.next_dues().min().unwrap_or(NEVER)
    }

    /// Scans the next few keys, and evicts the forgotten ones. Returns them with those that were
    /// removed before.
    pub(super) fn evict_some(
        &mut self,
        now: Timestamp,
        hasher: &KeyHasher,
        mut evicted: Removed,
    ) -> Removed {
        for _ in 0..SCAN_PER_INSERT.min(self.len()) {
            if self.cursor >= self.len() {
                self.cursor = 0;
            }
            match self.entries.get(self.cursor) {
                // The last entry takes its place, and is scanned next.
                Some(entry) if entry.is_forgotten(now) => {
                    self.remove_at(self.cursor, hasher, &mut evicted);
                }
                _ => self.cursor += 1,
            }
        }
        self.shrink();
        evicted
    }

    /// Evicts expired keys until so much work is done. A block without any is scanned again only
    /// when the first of its keys expires.
    pub(super) fn evict_due(&mut self, now: Timestamp, hasher: &KeyHasher, work: usize) -> Sweep {
        let passed = self.entries.next_dues().len() / PASSED_PER_SCAN;
        let mut sweep = Sweep { work: passed, ..Sweep::default() };
        let (mut block, work) = (0, passed + work);
        sweep.is_over = loop {
            let due = self.entries.next_dues().skip(block).position(|due| due <= now);
            let Some(passed) = due else { break true };
            block += passed;
            if !self.sweep_block(block, now, hasher, work, &mut sweep) {
                break false;
            }
            block += 1;
        };
        self.shrink();
        sweep
    }

    /// Evicts the expired keys of a block. Returns `false` if the work is done before its end.
    fn sweep_block(
        &mut self,
        block: usize,
        now: Timestamp,
        hasher: &KeyHasher,
        work: usize,
        sweep: &mut Sweep,
    ) -> bool {
        let (mut at, mut next_due) = (block * BLOCK_LEN, NEVER);
        while at < (block + 1) * BLOCK_LEN
            && let Some(entry) = self.entries.get(at)
        {
            if sweep.work >= work {
                return false;
            }
            sweep.work += 1;
            if entry.expires <= now {
                let heap = entry.bytes() - KEY_BYTES;
                sweep.work += WORK_PER_EVICTION + heap / BYTES_PER_SCAN;
                // The last entry takes its place, and is scanned next.
                self.remove_at(at, hasher, &mut sweep.evicted);
            } else {
                next_due = next_due.min(entry.expires);
                at += 1;
            }
        }
        self.entries.set_next_due(block, next_due);
        true
    }

    /// Releases memory of the index when three quarters of it are unused.
    fn shrink(&mut self) {
        let keys = self.len();
        if self.index.capacity() > 64 && keys < self.index.capacity() / 4 {
            self.index.shrink_to(keys * 2, |slot| slot.hash());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{caller::Caller, memory::shard::Entry, policy::Policy, time::Micros};

    const POLICY: Policy = Policy::sliding_window("p", Duration::from_secs(1), 1);

    fn insert(table: &mut ShardTable, hasher: &KeyHasher, number: usize, expires: Timestamp) {
        let caller = Caller::from(number);
        let key = hasher.lookup(KeyRef::new(&POLICY, caller.parts()));
        table.insert(key.hash, Entry { expires, ..Entry::new(key.key) });
    }

    /// Evicts all, and returns the number of evicted keys and that of scanned ones.
    fn evict_all(table: &mut ShardTable, hasher: &KeyHasher, now: u64) -> (usize, usize) {
        let passed = table.entries.next_dues().len() / PASSED_PER_SCAN;
        let sweep = table.evict_due(Timestamp::new(now), hasher, usize::MAX / 2);
        let evicted = sweep.evicted.total().keys;
        (evicted, sweep.work - passed - WORK_PER_EVICTION * evicted)
    }

    #[test]
    fn the_index_of_evicted_keys_is_released_and_the_others_are_found() {
        let (mut table, hasher) = (ShardTable::default(), KeyHasher::new());
        for number in 0..10_000 {
            let expires = if number % 100 == 0 { 2 } else { 1 };
            insert(&mut table, &hasher, number, Timestamp::new(expires));
        }
        assert!(table.index.capacity() >= 10_000);
        assert_eq!(evict_all(&mut table, &hasher, 1), (9_900, 10_000));
        assert_eq!(table.next_expiry(), Timestamp::new(2));
        assert!(table.index.capacity() < 400, "{}", table.index.capacity());
        for number in 0..10_000 {
            let caller = Caller::from(number);
            let key = hasher.lookup(KeyRef::new(&POLICY, caller.parts()));
            assert_eq!(table.find_mut(&key, Timestamp::new(1)).is_some(), number % 100 == 0);
        }
    }

    #[test]
    fn only_the_block_of_a_key_that_was_called_is_scanned_again() {
        let (mut table, hasher) = (ShardTable::default(), KeyHasher::new());
        for number in 0..10 * BLOCK_LEN {
            let expires = if number == 100 { 1 } else { 5 };
            insert(&mut table, &hasher, number, Timestamp::new(expires));
        }
        table.entries.get_mut(100).unwrap().expires = Timestamp::new(9);
        assert_eq!(evict_all(&mut table, &hasher, 1), (0, BLOCK_LEN));
        assert_eq!(evict_all(&mut table, &hasher, 4), (0, 0));
        assert_eq!(table.next_expiry(), Timestamp::new(5));
    }

    /// Scans and evictions use the work up. The next sweep goes on where one has ended.
    #[test]
    fn a_sweep_ends_with_its_work_and_several_find_all() {
        let (mut table, hasher) = (ShardTable::default(), KeyHasher::new());
        for (expired, most) in [(0, 33), (1, 33), (10_000, 10_000 * 33 / 100)] {
            for number in 0..10_000 {
                let expires = if number < expired { 1 } else { 9 };
                insert(&mut table, &hasher, number, Timestamp::new(expires));
                table.entries.bring_forward(number, Timestamp::new(1));
            }
            let mut sweeps = 0;
            while table.next_expiry() <= Timestamp::new(1) {
                let before = table.entries.next_dues().filter(|due| due.get() <= 1).count();
                let Sweep { evicted, work, .. } =
                    table.evict_due(Timestamp::new(1), &hasher, 100 * 64);
                let after = table.entries.next_dues().filter(|due| due.get() <= 1).count();
                assert!(work <= 100 * 64 + 10_000 / 64 + WORK_PER_EVICTION, "{work}");
                assert!(evicted.total().keys <= 100 * 64 / WORK_PER_EVICTION + 1);
                assert!(evicted.total().keys > 0 || before - after <= 100, "{before} {after}");
                sweeps += 1;
            }
            assert_eq!(table.len(), 10_000 - expired);
            assert!((1..=most).contains(&sweeps), "{sweeps}");
            evict_all(&mut table, &hasher, 9);
        }
    }

    #[test]
    fn every_block_has_an_expiry_before_that_of_its_keys() {
        let (mut table, hasher) = (ShardTable::default(), KeyHasher::new());
        let mut rng = fastrand::Rng::with_seed(7);
        let mut now = Timestamp::new(0);
        for number in 0..20_000 {
            insert(&mut table, &hasher, number, now + Micros::new(rng.u64(1..300)));
            match rng.u8(..100) {
                0 => now = now + Micros::new(rng.u64(..100)),
                1..5 => drop(table.evict_some(now, &hasher, Removed::default())),
                5 => {
                    let live = |table: &ShardTable| {
                        let entries = (0..table.len()).map(|at| &table.entries[at]);
                        entries.filter(|entry| entry.expires > now).count()
                    };
                    let before = live(&table);
                    evict_all(&mut table, &hasher, now.get());
                    assert_eq!((table.len(), live(&table)), (before, before));
                    assert_eq!(evict_all(&mut table, &hasher, now.get()), (0, 0));
                }
                6..50 => {
                    let at = rng.usize(..table.len());
                    table.remove_at(at, &hasher, &mut Removed::default());
                }
                _ if !table.is_empty() => {
                    // A call to a known key.
                    let at = rng.usize(..table.len());
                    let more = Micros::new(rng.u64(..50));
                    let entry = table.entries.get_mut(at).unwrap();
                    entry.expires = entry.expires + more;
                }
                _ => {}
            }
            assert_eq!(table.entries.next_dues().len(), table.len().div_ceil(BLOCK_LEN));
        }
    }
}
