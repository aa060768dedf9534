//! Ids that no other call of this or another process has.

use std::{
    hash::{BuildHasher, RandomState},
    sync::atomic::{AtomicU64, Ordering},
};

use once_cell::sync::Lazy;

/// Returns a new id, below 2^52.
pub(crate) fn next_id() -> u64 {
    static SEED: Lazy<RandomState> = Lazy::new(RandomState::new);
    static CALLS: AtomicU64 = AtomicU64::new(0);
    id(&SEED, std::process::id(), CALLS.fetch_add(1, Ordering::Relaxed))
}

/// Forked processes share the seed and the count, but not the process id.
fn id(seed: &RandomState, process: u32, call: u64) -> u64 {
    // 52 bits: exact as a double in a script, and so are the numbers that follow.
    seed.hash_one((process, call)) >> 12
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn ids_are_exact_in_a_double_and_do_not_repeat() {
        let ids: HashSet<u64> = (0..100_000).map(|_| next_id()).collect();
        assert_eq!(ids.len(), 100_000);
        assert!(ids.iter().all(|id| *id < 1 << 52));
    }

    #[test]
    fn processes_that_share_a_seed_do_not_share_ids() {
        let seed = RandomState::new();
        let of = |process| (0..10_000).map(|call| id(&seed, process, call)).collect();
        let (parent, child): (HashSet<u64>, HashSet<u64>) = (of(7), of(8));
        assert!(parent.is_disjoint(&child));
    }
}
