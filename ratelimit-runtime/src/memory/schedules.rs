//! Promises of the memory store under every schedule of threads.

use std::{sync::Arc, time::Duration};

use super::*;
use crate::{
    Policy,
    caller::Caller,
    request::{PlainTimes, Settle},
    sync::{Thread, advance, each, each_bounded, with},
};

const POLICY: Policy = Policy::sliding_window("p", Duration::from_secs(1), 2);
const TAKE: Request<'_> = Request::new(&POLICY, Op::Take, 1);

type Answer = Result<bool, UnavailableReason>;
type Other = Thread<Answer>;

/// Returns a store in which one limit has room for this many keys.
fn store(keys: usize) -> Arc<MemoryStore> {
    Arc::new(MemoryStore::with_shards((4 * keys).div_ceil(3), usize::MAX, 2))
}

/// Returns the `nth` caller whose key is in this shard.
fn caller_in(store: &MemoryStore, shard: usize, nth: usize) -> Caller {
    let is_there = |caller: &Caller| {
        let own = store.shard(&store.hasher.lookup(KeyRef::new(&POLICY, caller.parts())));
        std::ptr::eq(own, &raw const store.shards[shard])
    };
    (0..).map(Caller::from).filter(is_there).nth(nth).expect("half of all callers are there")
}

fn take(store: &MemoryStore, caller: &Caller) -> Answer {
    take_under(&POLICY, store, caller)
}

/// Takes a unit as a plain call does.
fn take_under(policy: &Policy, store: &MemoryStore, caller: &Caller) -> Answer {
    let request = Request::new(policy, Op::Take, 1);
    let plain = store.take_units::<PlainTimes>(caller.parts(), request, false).answer;
    if let Some(answer) = plain {
        return Ok(answer.refusal().is_none());
    }
    let outcome = store.decide(KeyRef::new(policy, caller.parts()), request)?;
    Ok(outcome.admitted)
}

fn taking(store: &Arc<MemoryStore>, caller: &Caller) -> Other {
    let (store, caller) = (Arc::clone(store), caller.clone());
    Box::new(move || take(&store, &caller))
}

fn admitted(answers: &[Answer]) -> usize {
    answers.iter().filter(|answer| **answer == Ok(true)).count()
}

/// Returns the number of keys, which is that of the budget.
fn keys_of(store: &MemoryStore) -> usize {
    let keys = store.shards.iter().map(|shard| shard.table.lock().len()).sum();
    assert_eq!(store.budget.lock().used().keys, keys);
    keys
}

#[test]
fn calls_at_once_are_admitted_up_to_the_threshold_and_no_further() {
    each(|| {
        let store = store(10);
        let alice = caller_in(&store, 0, 0);
        let others = [taking(&store, &alice), taking(&store, &alice)];
        let answers = with(others, || take(&store, &alice));
        assert_eq!(admitted(&answers), 2);
        assert_eq!(keys_of(&store), 1);
    });
}

#[test]
fn no_more_new_callers_at_once_are_inserted_than_have_room() {
    each(|| {
        let store = store(1);
        let [alice, bob] = [0, 1].map(|shard| caller_in(&store, shard, 0));
        let answers = with([taking(&store, &alice)], || take(&store, &bob));
        assert_eq!(admitted(&answers), 1);
        assert!(answers.contains(&Err(UnavailableReason::StoreFull)));
        assert_eq!(keys_of(&store), 1);
    });
}

#[test]
fn an_expired_caller_makes_room_for_one_of_those_who_come_at_once() {
    each(|| {
        let store = store(1);
        let old = caller_in(&store, 0, 0);
        assert_eq!(take(&store, &old), Ok(true));
        advance(Duration::from_secs(1));
        let [alice, bob] = [0, 1].map(|shard| caller_in(&store, shard, 1));
        let answers = with([taking(&store, &alice)], || take(&store, &bob));
        assert_eq!(admitted(&answers), 1);
        assert_eq!(keys_of(&store), 1);
    });
}

#[test]
fn a_known_caller_is_not_evicted_while_others_make_room() {
    each_bounded(|| {
        let store = store(2);
        let [old, known, new] = [0, 1, 2].map(|nth| caller_in(&store, 0, nth));
        let elsewhere = caller_in(&store, 1, 0);
        assert_eq!(take(&store, &old), Ok(true));
        advance(Duration::from_millis(999));
        assert_eq!(take(&store, &known), Ok(true));
        assert_eq!(take(&store, &known), Ok(true));
        advance(Duration::from_millis(1));
        let others = [taking(&store, &new), taking(&store, &elsewhere)];
        let answers = with(others, || take(&store, &known));
        assert_eq!(answers.last(), Some(&Ok(false)));
        assert_eq!(admitted(&answers), 1);
        assert_eq!(take(&store, &known), Ok(false));
        assert_eq!(keys_of(&store), 2);
    });
}

#[test]
fn a_reset_makes_one_threshold_free() {
    each_bounded(|| {
        let store = store(10);
        let alice = caller_in(&store, 0, 0);
        assert_eq!(admitted(&[take(&store, &alice), take(&store, &alice)]), 2);
        let (of_reset, caller) = (Arc::clone(&store), alice.clone());
        let reset: Other = Box::new(move || {
            of_reset.reset(KeyRef::new(&POLICY, caller.parts()));
            Ok(false)
        });
        let answers = with([reset, taking(&store, &alice)], || take(&store, &alice));
        let after = [take(&store, &alice), take(&store, &alice)];
        assert_eq!(admitted(&answers) + admitted(&after), 2);
        assert_eq!(keys_of(&store), 1);
    });
}

#[test]
fn refunded_units_are_taken_once() {
    each_bounded(|| {
        let store = store(10);
        let alice = caller_in(&store, 0, 0);
        let key = KeyRef::new(&POLICY, alice.parts());
        let mark = store.decide(key, TAKE).unwrap().mark;
        assert_eq!(take(&store, &alice), Ok(true));
        let (of_refund, caller) = (Arc::clone(&store), alice.clone());
        let refund: Other = Box::new(move || {
            let settle = Settle::of_one_tier(&POLICY, 1, 0, mark);
            of_refund.settle(KeyRef::new(&POLICY, caller.parts()), &settle);
            Ok(false)
        });
        let answers = with([refund, taking(&store, &alice)], || take(&store, &alice));
        let after = [take(&store, &alice), take(&store, &alice)];
        assert_eq!(admitted(&answers) + admitted(&after), 1);
    });
}

/// A thread that has reset or refunded units is not refused by what was known before. It reads
/// nothing first: a thread that has is not tried by loom 0.7 before another one that reads.
#[test]
fn what_is_known_of_a_refusal_ends_with_what_made_it() {
    each_bounded(|| {
        let store = store(10);
        let [alice, bob] = [0, 1].map(|nth| caller_in(&store, 0, nth));
        let mark = store.decide(KeyRef::new(&POLICY, alice.parts()), TAKE).unwrap().mark;
        let one = |caller| take(&store, caller);
        assert_eq!([one(&bob), one(&bob), one(&bob)], [Ok(true), Ok(true), Ok(false)]);
        assert_eq!([one(&alice), one(&alice), one(&bob)], [Ok(true), Ok(false), Ok(false)]);
        for (caller, is_reset) in [(&bob, true), (&alice, false)] {
            let (of_other, own) = (Arc::clone(&store), caller.clone());
            let other: Other = Box::new(move || {
                let key = KeyRef::new(&POLICY, own.parts());
                if is_reset {
                    of_other.reset(key);
                } else {
                    of_other.settle(key, &Settle::of_one_tier(&POLICY, 1, 0, mark));
                }
                take(&of_other, &own)
            });
            let answers = with([other], || take(&store, caller));
            let freed = if is_reset { 2 } else { 1 };
            assert!(is_reset <= (answers[0] == Ok(true)), "{answers:?}");
            let after = [take(&store, caller), take(&store, caller)];
            assert_eq!(admitted(&answers) + admitted(&after), freed);
        }
    });
}
