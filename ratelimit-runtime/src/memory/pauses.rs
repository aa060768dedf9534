//! The most that one call does, in scanned, evicted and moved keys.

use std::time::Duration;

use super::{
    block_vec::BLOCK_LEN,
    tests::{POLICY, TAKE, decide, keys_of, store_of},
    *,
};
use crate::caller::Caller;

/// Returns a full store of `keys` keys, all of which were called again before the clock stood where
/// the first call of each would have expired: every block has to be scanned. The first `expired`
/// have not been called again.
async fn stale_store(shards: usize, keys: usize, expired: usize) -> MemoryStore {
    let store = store_of(shards, keys);
    for caller in 0..keys {
        assert!(decide(&store, caller, TAKE).unwrap().admitted);
    }
    tokio::time::advance(Duration::from_millis(900)).await;
    for caller in expired..keys {
        decide(&store, caller, TAKE).unwrap();
    }
    tokio::time::advance(Duration::from_millis(100)).await;
    store
}

/// Returns the number of blocks that have not been scanned since their keys were called.
fn stale_blocks(store: &MemoryStore) -> usize {
    let now = store.clock.now();
    let blocks =
        |shard: &Shard| shard.table.lock().entries.next_dues().filter(|due| *due <= now).count();
    store.shards.iter().map(blocks).sum()
}

#[tokio::test(start_paused = true)]
async fn one_call_scans_a_bounded_number_of_keys_and_evicts_no_more_than_it_needs() {
    const KEYS: usize = 200_000;
    for shards in [2, 32] {
        let store = stale_store(shards, KEYS, 0).await;
        let (mut before, mut calls) = (stale_blocks(&store), 0);
        assert!(before >= KEYS / BLOCK_LEN);
        while before > 0 {
            assert_eq!(decide(&store, KEYS, TAKE), Err(UnavailableReason::StoreFull));
            let after = stale_blocks(&store);
            assert!(
                (before - after) * BLOCK_LEN <= MAX_WORK + shards * BLOCK_LEN,
                "{before} {after}"
            );
            (before, calls) = (after, calls + 1);
        }
        assert!(calls <= KEYS / MAX_WORK + 2, "{calls}");
        // All have expired: a call takes a few hundred of them, and not all.
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(decide(&store, KEYS, TAKE).unwrap().admitted);
        let evicted = KEYS + 1 - keys_of(&store);
        assert!((1..1_000).contains(&evicted), "{evicted}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_full_store_finds_its_expired_keys_within_as_many_calls_as_scan_all() {
    const KEYS: usize = 200_000;
    let store = stale_store(8, KEYS, 3).await;
    let mut refused = 0;
    for caller in KEYS..KEYS + 3 {
        while decide(&store, caller, TAKE).is_err() {
            refused += 1;
        }
    }
    assert!(refused <= KEYS / MAX_WORK + 2, "{refused}");
    assert_eq!(keys_of(&store), KEYS);
}

/// The largest work of an insertion besides an allocation is the index of a shard that grows.
#[test]
fn no_shard_has_many_more_keys_than_an_index_is_to_move_at_once() {
    const KEYS: usize = 8 * KEYS_PER_SHARD;
    let store = store_of(shards_for(KEYS, 0), KEYS);
    let mut keys = vec![0; store.shards.len()];
    for caller in 0..KEYS {
        let caller = Caller::from(caller);
        let shard = store.shard(&store.hasher.lookup(KeyRef::new(&POLICY, caller.parts())));
        keys[store.shards.iter().position(|it| std::ptr::eq(it, shard)).unwrap()] += 1;
    }
    assert!(keys.iter().all(|keys| *keys < KEYS_PER_SHARD + 2_000), "{keys:?}");
}
