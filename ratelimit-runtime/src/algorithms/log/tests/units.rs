//! Logs of single units, and the entries that they become.

use std::time::Duration;

use super::{SECOND, take};
use crate::{
    algorithms::log::Log,
    policy::Policy,
    request::{Mark, Op, Request, Settle},
    time::Timestamp,
};

fn numbers(log: &mut Log, policy: &Policy, now: u64, cost: u32) -> (bool, u8, u32, u64, u64) {
    let decided = take(log, policy, now, cost);
    (decided.admitted, decided.tier, decided.remaining, decided.wait.get(), decided.reset.get())
}

fn stamps(log: &Log) -> Vec<u64> {
    let Log::Units(stamps) = log else { panic!("it has entries") };
    let ring = stamps.ring();
    (0..ring.len()).filter_map(|index| ring.get(index)).map(Timestamp::get).collect()
}

fn settle(log: &mut Log, policy: &Policy, now: u64, mark: Mark, to: u32) {
    log.settle(Timestamp::new(now), &Settle::of_one_tier(policy, 1, to, mark));
}

fn left(log: &mut Log, policy: &Policy, now: u64) -> u32 {
    log.decided(Timestamp::new(now), Request::new(policy, Op::Peek, 0)).remaining
}

#[test]
fn third_call_in_window_is_refused_until_the_first_has_left() {
    let policy = Policy::sliding_window("p", Duration::from_secs(30), 2);
    let mut log = Log::default();
    assert_eq!(numbers(&mut log, &policy, 0, 1), (true, 0, 1, 30 * SECOND, 30 * SECOND));
    assert_eq!(numbers(&mut log, &policy, 10 * SECOND, 1), (true, 0, 0, 20 * SECOND, 30 * SECOND));
    assert_eq!(numbers(&mut log, &policy, 12 * SECOND, 1), (false, 0, 0, 18 * SECOND, 28 * SECOND));
    assert_eq!(numbers(&mut log, &policy, 30 * SECOND - 1, 1), (false, 0, 0, 1, 10 * SECOND + 1));
    assert_eq!(numbers(&mut log, &policy, 30 * SECOND, 1), (true, 0, 0, 10 * SECOND, 30 * SECOND));
}

#[test]
fn all_tiers_or_none() {
    let policy = Policy::sliding_window("mail", Duration::from_secs(60), 1)
        .tier(Duration::from_secs(3600), 2);
    let mut log = Log::default();
    assert_eq!(numbers(&mut log, &policy, 0, 1), (true, 0, 0, 60 * SECOND, 3600 * SECOND));
    assert!(!numbers(&mut log, &policy, 59 * SECOND, 1).0);
    // Both tiers have nothing left now; the longer wait is the one that counts.
    assert_eq!(
        numbers(&mut log, &policy, 60 * SECOND, 1),
        (true, 1, 0, 3540 * SECOND, 3600 * SECOND)
    );
    assert_eq!(
        numbers(&mut log, &policy, 120 * SECOND, 1),
        (false, 1, 0, 3480 * SECOND, 3540 * SECOND)
    );
    assert!(numbers(&mut log, &policy, 3600 * SECOND, 1).0);
}

#[test]
fn a_cost_waits_for_as_many_units() {
    let policy = Policy::sliding_window("p", Duration::from_secs(10), 5);
    let mut log = Log::default();
    for second in 0..5 {
        assert!(numbers(&mut log, &policy, second * SECOND, 1).0);
    }
    assert_eq!(numbers(&mut log, &policy, 5 * SECOND, 3), (false, 0, 0, 7 * SECOND, 9 * SECOND));
    assert_eq!(numbers(&mut log, &policy, 12 * SECOND, 3), (true, 0, 0, SECOND, 10 * SECOND));
}

#[test]
fn the_log_is_never_longer_than_the_threshold() {
    let policy = Policy::sliding_window("p", Duration::from_secs(1), 3);
    let mut log = Log::default();
    for call in 0..1_000 {
        numbers(&mut log, &policy, call * SECOND / 2, 1);
        assert!(stamps(&log).len() <= 3);
    }
}

#[test]
fn units_of_the_future_are_units_of_now() {
    let policy = Policy::sliding_window("p", Duration::from_secs(10), 2);
    let mut log = Log::default();
    numbers(&mut log, &policy, 100 * SECOND, 1);
    numbers(&mut log, &policy, 105 * SECOND, 1);
    let peek = Request::new(&policy, Op::Peek, 1);
    let peeked = log.decided(Timestamp::new(50 * SECOND), peek);
    assert_eq!(peeked.wait.get(), 10 * SECOND);
    assert_eq!(stamps(&log), [100 * SECOND, 105 * SECOND]);
    assert_eq!(numbers(&mut log, &policy, 50 * SECOND, 1).3, 10 * SECOND);
    assert_eq!(stamps(&log), [50 * SECOND, 50 * SECOND]);
    assert!(numbers(&mut log, &policy, 60 * SECOND, 1).0);
}

#[test]
fn refused_calls_are_recorded_where_the_policy_says_so() {
    let policy = Policy::sliding_window("p", Duration::from_secs(10), 2).count_rejected();
    let mut log = Log::default();
    numbers(&mut log, &policy, 0, 1);
    numbers(&mut log, &policy, SECOND, 1);
    assert_eq!(numbers(&mut log, &policy, 9 * SECOND, 1), (false, 0, 0, 2 * SECOND, 10 * SECOND));
    assert_eq!(numbers(&mut log, &policy, 10 * SECOND, 1), (false, 0, 0, 9 * SECOND, 10 * SECOND));
    assert_eq!(stamps(&log).len(), 2);
    assert!(numbers(&mut log, &policy, 19 * SECOND, 1).0);
}

#[test]
fn a_lowered_threshold_goes_on_with_the_same_history() {
    let wide = Policy::sliding_window("p", Duration::from_secs(10), 4);
    let narrow = Policy::sliding_window("p", Duration::from_secs(10), 2);
    let mut log = Log::default();
    for second in 0..4 {
        assert!(numbers(&mut log, &wide, second * SECOND, 1).0);
    }
    assert_eq!(numbers(&mut log, &narrow, 4 * SECOND, 1), (false, 0, 0, 8 * SECOND, 9 * SECOND));
    assert!(numbers(&mut log, &narrow, 12 * SECOND, 1).0);
}

#[test]
fn a_unit_is_given_back_and_raised_after_its_log_has_got_entries() {
    let policy = Policy::sliding_window("p", Duration::from_secs(10), 10);
    let mut log = Log::default();
    let [early, late] = [0, 1].map(|now| take(&mut log, &policy, now, 1).mark);
    assert!(matches!(log, Log::Units(_)));
    take(&mut log, &policy, 2, 3);
    assert!(matches!(log, Log::Entries(_)));
    assert_eq!(left(&mut log, &policy, 2), 5);
    settle(&mut log, &policy, 3, early, 0);
    assert_eq!(left(&mut log, &policy, 3), 6);
    settle(&mut log, &policy, 4, late, 3);
    assert_eq!(left(&mut log, &policy, 4), 4);
    // What exceeds the unit counts from the settle on.
    assert_eq!(left(&mut log, &policy, 10 * SECOND + 3), 8);
    assert_eq!(left(&mut log, &policy, 10 * SECOND + 4), 10);
}

#[test]
fn a_unit_that_is_raised_makes_entries_and_one_that_is_refused_does_not() {
    let policy = Policy::sliding_window("p", Duration::from_secs(10), 3);
    let mut log = Log::default();
    let mark = take(&mut log, &policy, 0, 1).mark;
    assert!(!take(&mut log, &policy, 1, 3).admitted);
    assert!(matches!(log, Log::Units(_)));
    settle(&mut log, &policy, 2, mark, 5);
    assert_eq!(left(&mut log, &policy, 2), 0);
    // The unit has left, and four count for two microseconds more.
    assert_eq!(numbers(&mut log, &policy, 10 * SECOND, 1), (false, 0, 0, 2, 2));
}

#[test]
fn a_unit_is_raised_although_newer_ones_have_taken_its_place() {
    let short = Policy::sliding_window("p", Duration::from_secs(1), 2);
    let hourly = Policy::sliding_window("p", Duration::from_secs(3_600), 50);
    let mut log = Log::default();
    let old = take(&mut log, &short, 0, 1).mark;
    for now in [SECOND, 2 * SECOND] {
        take(&mut log, &short, now, 1);
        take(&mut log, &short, now, 1);
    }
    assert!(take(&mut log, &hourly, 3 * SECOND, 2).admitted);
    let before = left(&mut log, &hourly, 3 * SECOND);
    settle(&mut log, &short, 3 * SECOND, old, 11);
    assert_eq!(left(&mut log, &hourly, 3 * SECOND), before - 10);
}

#[test]
fn a_charge_of_another_state_changes_nothing_until_its_window_is_over() {
    let policy = Policy::sliding_window("p", Duration::from_secs(10), 9);
    let mark = take(&mut Log::default(), &policy, 0, 1).mark;
    for cost in [1, 2] {
        let mut log = Log::default();
        take(&mut log, &policy, 5 * SECOND, cost);
        settle(&mut log, &policy, 6 * SECOND, mark, 0);
        settle(&mut log, &policy, 6 * SECOND, mark, 4);
        assert_eq!(left(&mut log, &policy, 6 * SECOND), 9 - cost);
        settle(&mut log, &policy, 10 * SECOND, mark, 4);
        assert_eq!(left(&mut log, &policy, 10 * SECOND), 6 - cost);
    }
}
