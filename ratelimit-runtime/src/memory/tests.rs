use std::time::Duration;

use super::*;
use crate::{Policy, caller::Caller, request::Settle, time::Micros};

pub(super) const POLICY: Policy = Policy::sliding_window("p", Duration::from_secs(1), 2);
pub(super) const TAKE: Request<'_> = Request::new(&POLICY, Op::Take, 1);

pub(super) fn decide(
    store: &MemoryStore,
    caller: usize,
    request: Request<'_>,
) -> Result<Outcome, UnavailableReason> {
    store.decide(KeyRef::new(&POLICY, Caller::from(caller).parts()), request)
}

fn reset(store: &MemoryStore, caller: usize) {
    store.reset(KeyRef::new(&POLICY, Caller::from(caller).parts()));
}

/// Returns a store in which one limit has room for this many keys.
fn store(keys: usize) -> MemoryStore {
    MemoryStore::new((4 * keys).div_ceil(3), usize::MAX)
}

/// Returns a store of `shards` shards in which one limit has room for this many keys.
pub(super) fn store_of(shards: usize, keys: usize) -> MemoryStore {
    MemoryStore::with_shards((4 * keys).div_ceil(3), usize::MAX, shards)
}

/// Returns the number of keys, which is that of the budget.
pub(super) fn keys_of(store: &MemoryStore) -> usize {
    let mut used = Usage::default();
    for shard in &store.shards {
        let table = shard.table.lock();
        used.keys += table.len();
        used.bytes += table.bytes();
    }
    assert_eq!(store.budget.lock().used(), used);
    used.keys
}

#[tokio::test(start_paused = true)]
async fn idle_keys_are_evicted_as_new_ones_come() {
    let store = store(1_000_000);
    let mut most = 0;
    for round in 0..10 {
        for caller in 0..10_000 {
            assert!(decide(&store, round * 10_000 + caller, TAKE).unwrap().admitted);
        }
        most = most.max(keys_of(&store));
        tokio::time::advance(Duration::from_secs(2)).await;
    }
    assert!(most < 20_000, "{most} keys of 10 000 live ones");
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_stands_still_since_before_the_store_was_made_moves_it_too() {
    let later = std::thread::spawn(|| {
        std::thread::sleep(Duration::from_millis(20));
        store(10)
    });
    let store = later.join().unwrap();
    for _ in 0..2 {
        assert!(decide(&store, 1, TAKE).unwrap().admitted);
    }
    assert_eq!(decide(&store, 1, TAKE).unwrap().wait, Micros::new(1_000_000));
    tokio::time::advance(Duration::from_secs(1)).await;
    assert!(decide(&store, 1, TAKE).unwrap().admitted);
}

#[test]
fn a_store_without_a_bound_is_no_larger_than_it_has_to_be() {
    for (max_keys, cores, shards) in [
        (0, 1, 16),
        (1_000_000, 2, 32),
        (1_000_000, 12, 256),
        (4_000_000, 2, 128),
        (usize::MAX, 2, 32_768),
        (0, 100_000, 32_768),
    ] {
        assert_eq!(shards_for(max_keys, cores), shards, "{max_keys} {cores}");
    }
    let store = MemoryStore::new(usize::MAX, usize::MAX);
    assert_eq!(size_of_val(&*store.shards), 8 << 20);
}

#[tokio::test]
async fn a_peek_leaves_nothing_behind() {
    let store = store(1);
    let peek = Request { op: Op::Peek, ..TAKE };
    assert!(decide(&store, 1, peek).unwrap().admitted);
    assert_eq!(keys_of(&store), 0);
}

/// Units that are given back leave a key whose quota is back in full before its window is over.
#[tokio::test(start_paused = true)]
async fn a_key_makes_room_once_its_units_are_given_back() {
    let second = Duration::from_secs(1);
    for new in [
        Policy::sliding_window,
        Policy::sliding_counter,
        Policy::fixed_window,
        Policy::token_bucket,
    ] {
        for policy in [new("p", second, 5), new("p", second, 5).tier(3 * second, 9)] {
            for cost in [1, 2] {
                let (store, [alice, bob]) = (store(1), ["alice", "bob"].map(Caller::from));
                let [alice, bob] = [&alice, &bob].map(|it| KeyRef::new(&policy, it.parts()));
                let take = |key| store.decide(key, Request::new(&policy, Op::Take, cost));
                let [first, second] = [(); 2].map(|()| take(alice).unwrap());
                // A search for room has seen when the key would have expired.
                assert_eq!(take(bob), Err(UnavailableReason::StoreFull));
                for outcome in [second, first] {
                    assert_eq!(take(bob), Err(UnavailableReason::StoreFull), "{policy:?}");
                    let settle = Settle::of_one_tier(&policy, cost, 0, outcome.mark);
                    store.settle(alice, &settle);
                }
                assert!(take(bob).is_ok_and(|it| it.admitted), "{policy:?} {cost}");
                assert_eq!(keys_of(&store), 1);
            }
        }
    }
}

/// The newest unit of a log is then an earlier one, and a bucket is full earlier.
#[tokio::test(start_paused = true)]
async fn a_key_makes_room_earlier_once_some_of_its_units_are_given_back() {
    let (second, millis) = (Duration::from_secs(1), Duration::from_millis);
    let log = Policy::sliding_window("p", second, 10);
    let bucket = Policy::token_bucket("p", second, 10);
    for (policy, first, later, to, full_at) in
        [(&log, 1, 1, 0, 1_000), (&log, 2, 1, 0, 1_000), (&bucket, 1, 7, 1, 200)]
    {
        let (store, [alice, bob]) = (store(1), ["alice", "bob"].map(Caller::from));
        let [alice, bob] = [&alice, &bob].map(|it| KeyRef::new(policy, it.parts()));
        let take = |key, cost| store.decide(key, Request::new(policy, Op::Take, cost));
        take(alice, first).unwrap();
        tokio::time::advance(millis(100)).await;
        let mark = take(alice, later).unwrap().mark;
        // Just before, the key is searched for and found to last for longer.
        tokio::time::advance(millis(full_at - 101)).await;
        assert_eq!(take(bob, 1), Err(UnavailableReason::StoreFull));
        store.settle(alice, &Settle::of_one_tier(policy, later, to, mark));
        assert_eq!(take(bob, 1), Err(UnavailableReason::StoreFull));
        tokio::time::advance(millis(1)).await;
        assert!(take(bob, 1).is_ok_and(|it| it.admitted), "{policy:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_full_store_keeps_its_live_keys_and_takes_new_ones_as_they_expire() {
    let store = store(3);
    for caller in 0..3 {
        assert!(decide(&store, caller, TAKE).unwrap().admitted);
        tokio::time::advance(Duration::from_millis(100)).await;
    }
    assert_eq!(decide(&store, 3, TAKE), Err(UnavailableReason::StoreFull));
    assert!(decide(&store, 3, Request { op: Op::Peek, ..TAKE }).is_ok());
    // Known callers still count.
    assert_eq!(decide(&store, 0, TAKE).unwrap().remaining, 0);
    assert!(!decide(&store, 0, TAKE).unwrap().admitted);
    // The first goes on until 1.3 s, the second is forgotten at 1.1 s and not before.
    tokio::time::advance(Duration::from_micros(799_999)).await;
    assert_eq!(decide(&store, 3, TAKE), Err(UnavailableReason::StoreFull));
    tokio::time::advance(Duration::from_micros(1)).await;
    assert!(decide(&store, 3, TAKE).unwrap().admitted);
    assert_eq!(decide(&store, 4, TAKE), Err(UnavailableReason::StoreFull));
    assert_eq!(decide(&store, 0, TAKE).unwrap().remaining, 0);
    assert_eq!(keys_of(&store), 3);
    // A key that is forgotten on demand makes room at once.
    reset(&store, 0);
    assert!(decide(&store, 4, TAKE).unwrap().admitted);
    assert_eq!(keys_of(&store), 3);
}

#[tokio::test(start_paused = true)]
async fn a_full_store_takes_new_callers_long_after_the_old_have_expired() {
    let store = store(100);
    for caller in 0..100 {
        assert!(decide(&store, caller, TAKE).unwrap().admitted);
    }
    tokio::time::advance(Duration::from_secs(3_600)).await;
    for caller in 100..200 {
        assert!(decide(&store, caller, TAKE).unwrap().admitted, "{caller}");
    }
    assert_eq!(decide(&store, 200, TAKE), Err(UnavailableReason::StoreFull));
}

#[tokio::test(start_paused = true)]
async fn callers_of_a_second_make_room_though_those_of_an_hour_came_after_them() {
    const LONG: Policy = Policy::sliding_window("long", Duration::from_secs(3_600), 2);
    // Each of the two has room for a thousand.
    let store = MemoryStore::new(2_333, usize::MAX);
    let take_long = |caller: usize| {
        let caller = Caller::from(caller);
        let request = Request { policy: &LONG, written: &LONG, ..TAKE };
        store.decide(KeyRef::new(&LONG, caller.parts()), request)
    };
    for caller in 0..1_000 {
        assert!(decide(&store, caller, TAKE).unwrap().admitted);
    }
    for caller in 0..1_000 {
        assert!(take_long(caller).unwrap().admitted);
    }
    tokio::time::advance(Duration::from_secs(1)).await;
    for caller in 1_000..2_000 {
        assert!(decide(&store, caller, TAKE).unwrap().admitted, "{caller}");
    }
}

#[tokio::test(start_paused = true)]
async fn every_expired_key_is_found_when_the_store_is_full() {
    let store = store(10_000);
    for round in 0..3 {
        for caller in 0..10_000 {
            let caller = round * 10_000 + caller;
            assert!(decide(&store, caller, TAKE).unwrap().admitted, "{caller}");
        }
        assert_eq!(decide(&store, 1_000_000, TAKE), Err(UnavailableReason::StoreFull));
        tokio::time::advance(Duration::from_secs(1)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_expired_key_is_found_though_all_others_have_been_extended() {
    const KEYS: usize = 30_000;
    let store = store_of(8, KEYS);
    for caller in 0..KEYS {
        assert!(decide(&store, caller, TAKE).unwrap().admitted);
    }
    tokio::time::advance(Duration::from_millis(900)).await;
    // All but those of the last shard go on.
    let shard_of = |caller: usize| {
        let caller = Caller::from(caller);
        let shard = store.shard(&store.hasher.lookup(KeyRef::new(&POLICY, caller.parts())));
        store.shards.iter().position(|it| std::ptr::eq(it, shard)).unwrap()
    };
    let mut expired = 0;
    for caller in 0..KEYS {
        if shard_of(caller) == 7 {
            expired += 1;
        } else {
            decide(&store, caller, TAKE).unwrap();
        }
    }
    tokio::time::advance(Duration::from_millis(100)).await;
    for caller in KEYS..KEYS + expired {
        assert!(decide(&store, caller, TAKE).unwrap().admitted, "{caller} of {expired}");
    }
    assert_eq!(decide(&store, KEYS + expired, TAKE), Err(UnavailableReason::StoreFull));
    assert_eq!(keys_of(&store), KEYS);
}

#[tokio::test(start_paused = true)]
async fn a_full_store_scans_only_keys_again_that_were_called_since() {
    const KEYS: usize = 10_000;
    let store = store_of(2, KEYS);
    for caller in 0..KEYS {
        assert!(decide(&store, caller, TAKE).unwrap().admitted);
    }
    tokio::time::advance(Duration::from_millis(900)).await;
    for caller in 0..KEYS {
        decide(&store, caller, TAKE).unwrap();
    }
    tokio::time::advance(Duration::from_millis(100)).await;
    let is_due = |now: Timestamp| {
        store.shards.iter().any(|shard| shard.next_expiry.load(Ordering::Relaxed) <= now.get())
    };
    assert!(is_due(store.clock.now()));
    assert_eq!(decide(&store, KEYS, TAKE), Err(UnavailableReason::StoreFull));
    assert!(!is_due(store.clock.now() + Micros::new(899_999)));
    assert!(is_due(store.clock.now() + Micros::new(900_000)));
}

/// A recorder is foreign code: it may call the limiter itself, and it may panic.
#[cfg(feature = "metrics")]
#[tokio::test(start_paused = true)]
async fn a_recorder_of_key_counts_finds_no_lock_and_may_panic() {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use crate::telemetry::foreign_recorder::with_foreign_recorder;

    let store = store_of(1, 2);
    let at_gauge = || {
        assert!(store.shards.iter().all(|shard| shard.table.try_lock().is_some()), "locked");
        panic!("as recorders may");
    };
    let panics_in = |work: &dyn Fn()| {
        let result = catch_unwind(AssertUnwindSafe(|| with_foreign_recorder(at_gauge, work)));
        let panicked = result.expect_err("the recorder is called");
        assert_eq!(panicked.downcast_ref::<&str>(), Some(&"as recorders may"));
    };
    for caller in 0..2 {
        panics_in(&|| _ = decide(&store, caller, TAKE));
        assert_eq!(keys_of(&store), caller + 1);
    }
    // The first new key after the others are forgotten evicts them.
    tokio::time::advance(Duration::from_secs(2)).await;
    panics_in(&|| _ = decide(&store, 2, TAKE));
    assert_eq!(keys_of(&store), 1);
    panics_in(&|| reset(&store, 2));
    assert_eq!(keys_of(&store), 0);
}

#[test]
fn threads_at_the_bound_never_pass_it() {
    let store = store(1_000);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let store = &store;
            scope.spawn(move || {
                for caller in 0..1_000 {
                    let caller = thread * 500 + caller;
                    let _ = decide(store, caller, TAKE);
                    if caller % 3 == 0 {
                        reset(store, caller);
                    }
                }
            });
        }
    });
    assert!(keys_of(&store) <= 1_000);
}

/// Every algorithm with one to three tiers, as overrides change them: the heap of a state grows and
/// shrinks in every way.
#[tokio::test(start_paused = true)]
async fn the_budget_is_exact_however_keys_come_grow_and_go() {
    const SECOND: Duration = Duration::from_secs(1);
    let mut rng = fastrand::Rng::with_seed(7);
    let store = MemoryStore::with_shards(300, 40_000, 4);
    let (mut full, mut least, mut grown) = (0, usize::MAX, 0);
    for _ in 0..50_000 {
        let make = rng.choice([
            Policy::sliding_window as fn(&'static str, Duration, u32) -> Policy,
            Policy::sliding_counter,
            Policy::fixed_window,
            Policy::token_bucket,
        ]);
        let name = rng.choice(["a", "b", "c"]).unwrap();
        let mut policy = make.unwrap()(name, 9 * SECOND, 60);
        for tier in 0..rng.u32(..3) {
            policy = policy.tier((20 + 10 * tier) * SECOND, 70 + 10 * tier);
        }
        let caller = Caller::from("x".repeat(rng.usize(..60)));
        let key = KeyRef::new(&policy, caller.parts());
        let id = Some(rng.u64(..9)).filter(|_| policy.state().names_charges() && rng.bool());
        let cost = if rng.bool() { 1 } else { rng.u32(1..30) };
        let op = if rng.u8(..9) > 0 { Op::Take } else { Op::Peek };
        let before = store.budget.lock().used();
        match store.decide(key, Request { id, ..Request::new(&policy, op, cost) }) {
            Ok(outcome) if outcome.admitted && op == Op::Take && rng.u8(..4) == 0 => {
                let to = rng.u32(..60);
                let settle = Settle::of_one_tier(&policy, cost, to, outcome.mark);
                store.settle(key, &Settle { id, ..settle });
            }
            Ok(_) => {}
            Err(reason) => {
                assert_eq!(reason, UnavailableReason::StoreFull);
                full += 1;
            }
        }
        let after = store.budget.lock().used();
        grown += usize::from(after.keys == before.keys && after.bytes > before.bytes);
        if rng.u8(..50) == 0 {
            store.reset(key);
        }
        if rng.u8(..99) == 0 {
            tokio::time::advance(SECOND * rng.u32(..9)).await;
            keys_of(&store);
        }
        least = least.min(40_000_usize.saturating_sub(after.bytes));
    }
    keys_of(&store);
    assert!(full > 1_000 && grown > 1_000, "{full} {grown}");
    assert!(least < 10_000, "{least}");
}
