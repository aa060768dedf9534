mod units;

use std::time::Duration;

use super::*;
use crate::{
    algorithms::tests::within_room,
    policy::Policy,
    request::{Charged, EntryMark},
};

const SECOND: u64 = 1_000_000;
const MINUTE: Duration = Duration::from_secs(60);
const TOKENS: Policy = Policy::sliding_window("tokens", MINUTE, 1_000_000);

impl Log {
    pub(super) fn decided(&mut self, now: Timestamp, request: Request<'_>) -> Outcome {
        within_room(self, Self::heap_bytes, |log, room| log.decide(now, request, room))
    }
}

fn take(log: &mut Log, policy: &Policy, now: u64, cost: u32) -> Outcome {
    let request = Request::new(policy, Op::Take, cost);
    log.decided(Timestamp::new(now), request)
}

fn settle(log: &mut Log, now: u64, mark: Mark, from: u32, to: u32) {
    log.settle(Timestamp::new(now), &Settle::of_one_tier(&TOKENS, from, to, mark));
}

/// Returns the units that are left.
fn left(log: &mut Log, now: u64) -> u32 {
    let request = Request::new(&TOKENS, Op::Peek, 0);
    log.decided(Timestamp::new(now), request).remaining
}

#[test]
fn a_call_is_one_entry_whatever_it_costs() {
    let mut log = Log::default();
    for second in 0..10 {
        let outcome = take(&mut log, &TOKENS, second * SECOND, 100_000);
        assert_eq!(outcome.remaining, 900_000 - 100_000 * u32::try_from(second).unwrap());
    }
    assert!(log.heap_bytes() < 1_000, "{}", log.heap_bytes());
    let refused = take(&mut log, &TOKENS, 20 * SECOND, 250_000);
    // Three calls have to leave.
    assert_eq!((refused.admitted, refused.wait.get()), (false, 42 * SECOND));
    assert_eq!(refused.more.get(), 40 * SECOND);
    assert!(take(&mut log, &TOKENS, 62 * SECOND, 250_000).admitted);
}

#[test]
fn a_call_is_settled_once_and_in_its_own_window() {
    let mut log = Log::default();
    let first = take(&mut log, &TOKENS, 0, 500_000).mark;
    let second = take(&mut log, &TOKENS, 30 * SECOND, 100_000).mark;
    settle(&mut log, 31 * SECOND, first, 500_000, 200_000);
    settle(&mut log, 31 * SECOND, first, 500_000, 200_000);
    settle(&mut log, 31 * SECOND, first, 200_000, 0);
    assert_eq!(left(&mut log, 31 * SECOND), 700_000);
    // A debt counts from now on.
    settle(&mut log, 40 * SECOND, second, 100_000, 1_500_000);
    settle(&mut log, 40 * SECOND, second, 100_000, 1_500_000);
    assert_eq!(left(&mut log, 59 * SECOND), 0);
    let refused = take(&mut log, &TOKENS, 61 * SECOND, 1);
    assert_eq!((refused.admitted, refused.wait.get()), (false, 39 * SECOND));
    assert_eq!(left(&mut log, 100 * SECOND), 1_000_000);
    // It has left the window: nothing is given back.
    let third = take(&mut log, &TOKENS, 100 * SECOND, 400_000).mark;
    take(&mut log, &TOKENS, 170 * SECOND, 100_000);
    settle(&mut log, 170 * SECOND, third, 400_000, 0);
    assert_eq!(left(&mut log, 170 * SECOND), 900_000);
}

#[test]
fn what_exceeds_a_call_that_has_left_its_window_counts_once() {
    let mut log = Log::default();
    let early = take(&mut log, &TOKENS, 0, 100).mark;
    take(&mut log, &TOKENS, 61 * SECOND, 100);
    for _ in 0..2 {
        settle(&mut log, 62 * SECOND, early, 100, 1_100);
    }
    assert_eq!(left(&mut log, 62 * SECOND), 1_000_000 - 1_100);
}

#[test]
fn a_state_after_a_reset_owes_nothing_to_calls_before_it() {
    let mut log = Log::default();
    let mark = take(&mut log, &TOKENS, 0, 100).mark;
    log = Log::default();
    take(&mut log, &TOKENS, SECOND, 100);
    for to in [0, 50, 200] {
        settle(&mut log, 2 * SECOND, mark, 100, to);
    }
    assert_eq!(left(&mut log, 2 * SECOND), 999_900);
    // By now the log of the call would have expired, and what exceeds it is owed.
    settle(&mut log, 60 * SECOND, mark, 100, 250);
    assert_eq!(left(&mut log, 60 * SECOND), 999_750);
}

#[test]
fn a_crowded_log_joins_calls_and_never_forgets_a_unit() {
    let mut log = Log::default();
    // 16 667 calls a second, of which 244 fall into one part of the minute.
    let calls = 300_000;
    let mut last = None;
    for call in 0..calls {
        let outcome = take(&mut log, &TOKENS, call * 60, 1);
        assert!(outcome.admitted);
        assert_eq!(u64::from(outcome.remaining), 1_000_000 - call - 1);
        last = Some(outcome.mark);
    }
    // An entry takes 24 bytes.
    assert!(log.heap_bytes() < 32 * 100_000 * 24 / 20, "{}", log.heap_bytes());
    let now = calls * 60;
    // It has joined others, and can be raised alone.
    let Some(mark) = last else { panic!("no call") };
    assert!(matches!(mark.charged, Charged::Entry(entry) if entry.is_joined()));
    settle(&mut log, now, mark, 1, 0);
    assert_eq!(u64::from(left(&mut log, now)), 1_000_000 - calls);
    settle(&mut log, now, mark, 1, 101);
    assert_eq!(u64::from(left(&mut log, now)), 1_000_000 - calls - 100);
    // Each leaves a 4 096th of the minute late at most.
    for call in [100_000, 200_000, calls] {
        let gone = left(&mut log, (call - 1) * 60 + 60 * SECOND + 60 * SECOND / 4_096);
        assert!(u64::from(gone) >= 1_000_000 - (calls - call) - 100, "{call}: {gone}");
    }
}

#[test]
fn a_full_log_refuses_until_the_oldest_entry_has_left() {
    let policy = TOKENS.tier(MINUTE * 60 * 24, 100_000_000);
    let mut log = Log::default();
    // Each call lies in a part of the minute of its own.
    let mut admitted = 0;
    let mut now = 0;
    let refused = loop {
        let outcome = take(&mut log, &policy, now, 1);
        if !outcome.admitted {
            break outcome;
        }
        (admitted, now) = (admitted + 1, now + 20_000);
    };
    assert_eq!(admitted, 100_000);
    assert_eq!((refused.remaining, refused.wait.get()), (0, 86_400 * SECOND - now));
    assert_eq!(refused.more, refused.wait);
    let at = 86_400 * SECOND;
    assert!(!take(&mut log, &policy, at - 1, 1).admitted);
    assert!(take(&mut log, &policy, at, 1).admitted);
}

#[test]
fn a_full_log_refuses_until_no_policy_counts_its_oldest_entry() {
    const DAY: u64 = 86_400 * SECOND;
    let daily = Policy::sliding_window("tokens", MINUTE * 60 * 24, 1_000_000);
    let of_override = |now, op| {
        let written = Request::new(&daily, op, 1);
        (Timestamp::new(now), Request { policy: &TOKENS, ..written })
    };
    let mut log = Log::default();
    assert!(take(&mut log, &daily, 0, 1).admitted);
    let mut now = 0;
    let refused = loop {
        now += 20_000;
        let outcome = take(&mut log, &TOKENS, now, 1);
        if !outcome.admitted {
            break outcome;
        }
    };
    // The longer one counts until its last call is longer ago than its period.
    assert_eq!((refused.remaining, refused.wait.get()), (0, DAY + 1 - now));
    let (mut other, mut under_override) = (log.clone(), log.clone());
    assert!(!take(&mut other, &TOKENS, DAY, 1).admitted);
    assert!(take(&mut other, &TOKENS, DAY + 1, 1).admitted);
    // An override has shortened the period: its entries count again when it is removed.
    let (at, request) = of_override(now, Op::Take);
    let refused = under_override.decided(at, request);
    assert_eq!((refused.admitted, refused.wait.get()), (false, DAY - now));
    let (at, request) = of_override(DAY, Op::Take);
    assert!(under_override.decided(at, request).admitted);
}

#[test]
fn a_mark_keeps_all_of_its_numbers() {
    let (id, birth) = ((1 << 41) - 1, (1 << 54) - 1);
    for (id, birth) in [(id, birth), (id, 0), (0, birth), (5, 7)] {
        for is_joined in [false, true] {
            let mark = EntryMark::new(id, birth, is_joined);
            assert_eq!((mark.id(), mark.birth(), mark.is_joined()), (id, birth, is_joined));
        }
    }
    assert_eq!(size_of::<Mark>(), 24);
}

#[test]
fn a_policy_that_is_used_again_within_its_period_misses_nothing() {
    let hourly = Policy::sliding_window("tokens", MINUTE * 60, 100);
    let minutely = Policy::sliding_window("tokens", MINUTE, 100);
    let mut log = Log::default();
    take(&mut log, &hourly, 0, 10);
    for minute in 1..60 {
        assert!(take(&mut log, &minutely, minute * 60 * SECOND, 1).admitted);
    }
    assert_eq!(take(&mut log, &hourly, 3_600 * SECOND - 1, 1).remaining, 30);
}

#[test]
fn a_refusal_is_no_use_of_a_policy_and_changes_nothing() {
    const HOURLY: Policy = Policy::sliding_window("tokens", Duration::from_secs(3_600), 3);
    const MINUTELY: Policy = Policy::sliding_window("tokens", MINUTE, 3);
    const DAILY: Policy = Policy::sliding_window("tokens", Duration::from_secs(86_400), 3);
    let mut log = Log::default();
    take(&mut log, &HOURLY, 0, 2);
    take(&mut log, &MINUTELY, 0, 1);
    for (second, policy, cost) in [(1, HOURLY, 1), (61, HOURLY, 2), (3_600, MINUTELY, 4)] {
        let before = log.clone();
        assert!(!take(&mut log, &policy, second * SECOND, cost).admitted);
        assert_eq!(log, before, "{policy:?}");
    }
    // It counts from its first call on, although that is refused.
    assert!(!take(&mut log, &DAILY, 3_600 * SECOND, 1).admitted);
    take(&mut log, &MINUTELY, 3_660 * SECOND, 1);
    assert_eq!(take(&mut log, &DAILY, 3_661 * SECOND, 1).wait.get(), (86_400 - 3_661) * SECOND);
}
