//! Random plain calls, decided by [`Entry::decide`] as well: both lead to the same
//! outcome and leave the same entry.
//!
//! `RATELIMIT_STRAIGHT_CALLS=10000000` runs more than the 100 000 calls of an ordinary test run.

use std::time::Duration;

use fastrand::Rng;

use super::shard::Entry;
use crate::{
    Algorithm, Policy,
    caller::Caller,
    key::KeyRef,
    request::{DecidedBy, Mark, Op, Outcome, PlainOutcome, PlainTimes, Request, Settle},
    time::{Micros, Timestamp},
};

type New = fn(&'static str, Duration, u32) -> Policy;

const ALGORITHMS: [New; 4] =
    [Policy::sliding_window, Policy::sliding_counter, Policy::fixed_window, Policy::token_bucket];

/// How the calls of an algorithm were decided.
#[derive(Debug, Default)]
struct Figures {
    admitted: u32,
    refused: u32,
    skipped: u32,
}

#[test]
fn the_straight_path_decides_as_the_long_way_and_leaves_the_same_state() {
    let calls = std::env::var("RATELIMIT_STRAIGHT_CALLS").map_or(100_000, |it| it.parse().unwrap());
    let mut rng = Rng::with_seed(7);
    for new in ALGORITHMS {
        let mut figures = Figures::default();
        for _ in 0..calls / 4 / 1_000 {
            follow_one_key(new, &mut rng, &mut figures);
        }
        let Figures { admitted, refused, skipped } = figures;
        let decided = admitted + refused;
        let is_tried = admitted > decided / 10 && refused > decided / 10 && skipped < decided;
        assert!(is_tried, "{figures:?}");
    }
}

/// A thousand calls of one key, mostly under one policy.
fn follow_one_key(new: New, rng: &mut Rng, figures: &mut Figures) {
    let period = Duration::from_micros(rng.u64(1_000..2_000_000));
    let policy = new("p", period, rng.u32(1..9) * rng.u32(1..9));
    // Another threshold, another period, several tiers and recorded refusals under the same key.
    let others = [
        new("p", period, rng.u32(1..40)),
        new("p", period * 3, rng.u32(1..9)),
        policy.tier(period * 10, policy.largest_threshold() * 5),
        policy.count_rejected(),
    ];
    let mut entry = Entry::new(KeyRef::new(&policy, Caller::from("alice").parts()));
    let mut now = Timestamp::new(rng.u64(4_000_000..1 << 50));
    let mut charged: Vec<(u32, Mark)> = Vec::new();
    let is_mixed = rng.u8(..6) == 0;
    if rng.bool() {
        // A log has entries from here on.
        long_way(
            &mut entry,
            now,
            Request::new(&policy, Op::Take, 2.min(policy.largest_threshold())),
        );
    }
    for _ in 0..1_000 {
        now = later(now, period, rng);
        let is_other = is_mixed && rng.u8(..20) == 0;
        let decided_by = if is_other { rng.choice(&others).unwrap() } else { &policy };
        if rng.u8(..30) == 0 {
            let cost = rng.u32(..4);
            let op = if cost > 0 && rng.bool() { Op::Take } else { Op::Peek };
            let request = Request { written: &policy, ..Request::new(decided_by, op, cost) };
            let outcome = long_way(&mut entry, now, request);
            if outcome.admitted && op == Op::Take {
                charged.push((cost, outcome.mark));
            }
        } else if rng.u8(..30) == 0 && !charged.is_empty() {
            let (cost, mark) = charged.swap_remove(rng.usize(..charged.len()));
            let to = rng.u32(..3 * cost + 2);
            entry.settle(now, &Settle::of_one_tier(&policy, cost, to, mark));
        } else {
            let units = if rng.u8(..4) == 0 { rng.u32(2..5) } else { 1 };
            // Few ids, so that they repeat; only logs heed them.
            let is_log = decided_by.algorithm() == Algorithm::SlidingWindow;
            let id = (is_log && rng.u8(..3) == 0).then(|| rng.u64(..30));
            let request = Request { id, ..Request::new(decided_by, Op::Take, units) };
            take_both_ways(&mut entry, now, request, figures);
        }
    }
}

/// The same instant, the next moment, some part of the period or more, and at times an earlier one.
fn later(now: Timestamp, period: Duration, rng: &mut Rng) -> Timestamp {
    let period = Micros::from(period).get();
    match rng.u16(..500) {
        0 => now - Micros::new(rng.u64(..period)),
        1..6 => now + Micros::new(rng.u64(..3 * period)),
        // Exactly when a window ends.
        6..11 => now + Micros::new(period),
        11..50 => now,
        50..300 => now + Micros::new(rng.u64(..period / 100 + 2)),
        _ => now + Micros::new(rng.u64(..period / 8)),
    }
}

fn long_way(entry: &mut Entry, now: Timestamp, request: Request<'_>) -> Outcome {
    entry.decide(now, request, &mut |_| true).expect("there is room")
}

fn take_both_ways(entry: &mut Entry, now: Timestamp, request: Request<'_>, figures: &mut Figures) {
    let policy = request.policy;
    let mut long = entry.clone();
    let before = entry.clone();
    let outcome = long_way(&mut long, now, request);
    let case = || format!("{policy:?} at {now:?}: {before:?}");
    let mut unread = entry.clone();
    let whole: Option<PlainOutcome> = entry.take_units(now, request);
    let times: Option<PlainTimes> = unread.take_units(now, request);
    let Some(answer) = whole else {
        figures.skipped += 1;
        assert_eq!((&*entry, &unread, times), (&before, &before, None));
        *entry = long;
        return;
    };
    assert_eq!(answer.outcome(DecidedBy::Store, now), outcome, "{}", case());
    // The copy of a log with entries has no spare room.
    let is_cut = entry.state.newest_unit().is_none() && times.is_none();
    assert!(is_cut || times == Some(outcome.into()), "{}", case());
    *(if outcome.admitted { &mut figures.admitted } else { &mut figures.refused }) += 1;
    assert_eq!((&*entry, if is_cut { &long } else { &unread }), (&long, &long), "{}", case());
}
