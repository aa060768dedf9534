//! Random calls of many callers in stores that are nearly full: each ends, however often it finds
//! no room.

use std::time::Duration;

use fastrand::Rng;

use super::{MemoryStore, tests::keys_of};
use crate::{
    CalendarUnit, Policy,
    caller::Caller,
    error::UnavailableReason,
    key::KeyRef,
    request::{LinePlace, Op, Outcome, Request, Settle},
    time::Micros,
};

const SECOND: Duration = Duration::from_secs(1);

/// How often one call may ask for memory. It asks for its state and for its block, each again after
/// an eviction, and once more if that has removed its key.
const MOST_ASKED: usize = 6;

/// The kinds of policies: without the feature there are no windows of the calendar.
const KINDS: u8 = if cfg!(feature = "calendar") { 6 } else { 5 };

/// A call that was admitted.
struct Charge {
    caller: Caller,
    policy: Policy,
    cost: u32,
    id: Option<u64>,
    outcome: Outcome,
    has_permit: bool,
}

#[derive(Debug, Default)]
struct Figures {
    full: u32,
    turns: u32,
    busy: u32,
    settled: u32,
    asked_twice: u32,
}

/// Returns a policy of a kind.
fn random_policy(kind: u8, rng: &mut Rng) -> Policy {
    let name = rng.choice(["a", "b"]).unwrap();
    let mut policy = match kind {
        0 => Policy::sliding_window(name, 2 * SECOND, 5),
        1 => Policy::sliding_counter(name, 2 * SECOND, 5),
        2 => Policy::fixed_window(name, 2 * SECOND, 5),
        3 => Policy::token_bucket(name, 2 * SECOND, 5),
        4 => Policy::concurrency_limit(name, 2),
        _ => Policy::calendar_window(name, CalendarUnit::Day, 50),
    };
    if policy.has_window() && !policy.is_calendar() {
        for tier in 1..=rng.u32(..3) {
            policy = policy.tier(2 * SECOND * (tier + 1), 5 + 10 * tier);
        }
        if rng.u8(..4) == 0 {
            policy = policy.concurrency(2);
        }
        policy = match rng.u8(..6) {
            0 => policy.block(&[SECOND]),
            1 => policy.count_rejected(),
            _ => policy,
        };
    }
    policy
}

/// Makes one call, or ends one.
fn step(
    store: &MemoryStore,
    kind: u8,
    charges: &mut Vec<Charge>,
    rng: &mut Rng,
    figures: &mut Figures,
) {
    if !charges.is_empty() && rng.u8(..4) == 0 {
        let Charge { caller, policy, cost, id, outcome, has_permit } =
            charges.swap_remove(rng.usize(..charges.len()));
        let key = KeyRef::new(&policy, caller.parts());
        let place = LinePlace { policy: &policy, cost, mark: outcome.mark, id };
        if has_permit {
            store.release(key);
        }
        if !policy.has_window() {
            return;
        }
        figures.settled += 1;
        match rng.u8(..4) {
            0 => store.settle(key, &place.leave()),
            1 => drop(store.advance(key, place)),
            _ => {
                let lifts_block = policy.has_block();
                let settle = Settle::of_one_tier(&policy, cost, rng.u32(..9), outcome.mark);
                store.settle(key, &Settle { id, lifts_block, ..settle });
            }
        }
        return;
    }
    let policy = random_policy(kind, rng);
    // Of different lengths.
    let number = rng.usize(..5);
    let caller = Caller::from(format!("{number:0$}", 9 * number));
    let key = KeyRef::new(&policy, caller.parts());
    match rng.u8(..60) {
        0 => return store.reset(key),
        1 if policy.state().names_charges() => {
            let length = Micros::from(SECOND.mul_f64(rng.f64()));
            let paused = store.pause(key, &policy, length, None);
            assert!(matches!(paused, Ok(_) | Err(UnavailableReason::StoreFull)), "{paused:?}");
            return;
        }
        _ => {}
    }
    let is_named = policy.state().names_charges() && policy.has_window();
    let id = Some(rng.u64(..9)).filter(|_| is_named && rng.u8(..3) == 0);
    let op = if rng.u8(..9) == 0 { Op::Peek } else { Op::Take };
    let cost = rng.u32(1..5);
    let waits = policy.has_window() && policy.validate_wait().is_ok() && rng.bool();
    let (max_wait, max_line) =
        if waits { ((60 * SECOND).into(), rng.u32(1..60)) } else { (Micros::ZERO, 0) };
    let request = Request { id, max_wait, max_line, ..Request::new(&policy, op, cost) };
    match store.decide(key, request) {
        Ok(outcome) => {
            figures.busy += u32::from(outcome.is_busy());
            figures.turns += u32::from(outcome.turn > Micros::ZERO);
            if outcome.admitted && op == Op::Take {
                let has_permit = request.takes_permit();
                charges.push(Charge { caller, policy, cost, id, outcome, has_permit });
            }
        }
        Err(reason) => {
            assert_eq!(reason, UnavailableReason::StoreFull);
            figures.full += 1;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn every_call_in_a_nearly_full_store_ends() {
    let mut rng = Rng::with_seed(7);
    let mut figures = Figures::default();
    for _ in 0..200 {
        let bounds = [rng.usize(5..50), rng.usize(1_000..12_000)];
        let store = MemoryStore::with_shards(bounds[0], bounds[1], 1 << rng.u32(..3));
        let kinds = [rng.u8(..KINDS), rng.u8(..KINDS)];
        let mut charges = Vec::new();
        for _ in 0..1_000 {
            store.budget.lock().asks_left = MOST_ASKED;
            let kind = rng.choice(kinds).unwrap();
            step(&store, kind, &mut charges, &mut rng, &mut figures);
            figures.asked_twice += u32::from(store.budget.lock().asks_left + 1 < MOST_ASKED);
            if rng.u8(..40) == 0 {
                tokio::time::advance(SECOND.mul_f64(2. * rng.f64())).await;
            }
        }
        keys_of(&store);
    }
    let Figures { full, turns, busy, settled, asked_twice } = figures;
    let least = [full, turns, busy, settled, asked_twice].into_iter().min();
    assert!(least > Some(500), "{figures:?}");
}
