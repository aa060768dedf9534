use std::time::Duration;

use super::*;
use crate::algorithms::{State, tests::take};
use crate::request::{Mark, Outcome, Settle};

const SECOND: u64 = 1_000_000;
const POLICY: Policy = Policy::sliding_counter("p", Duration::from_secs(10), 4);

fn taken(state: &mut State, now: u64, cost: u32) -> Outcome {
    take(state, &POLICY, now, cost)
}

#[test]
fn units_are_refunded_to_the_window_that_counted_them() {
    let refund = |state: &mut State, mark| {
        state.settle(Timestamp::new(112 * SECOND), &Settle::of_one_tier(&POLICY, 2, 0, mark));
    };
    let mut state = State::new(POLICY.state());
    let early = taken(&mut state, 105 * SECOND, 2).mark;
    let late = taken(&mut state, 112 * SECOND, 2).mark;
    // Of the two before, eight tenths count.
    assert!(!taken(&mut state, 112 * SECOND, 1).admitted);
    refund(&mut state, early);
    assert!(taken(&mut state, 112 * SECOND, 2).admitted);
    assert!(!taken(&mut state, 112 * SECOND, 1).admitted);
    refund(&mut state, late);
    assert_eq!(taken(&mut state, 112 * SECOND, 1).remaining, 1);
    // Units that have left both windows cannot be refunded.
    refund(&mut state, Mark { at: Timestamp::new(95 * SECOND), ..late });
    assert!(taken(&mut state, 112 * SECOND, 1).admitted);
    assert!(!taken(&mut state, 112 * SECOND, 1).admitted);
}

#[test]
fn a_clock_set_back_refuses_for_two_windows_at_the_most() {
    let mut state = State::new(POLICY.state());
    assert!(taken(&mut state, 1_000 * SECOND, 4).admitted);
    // The windows are those of now from the first call on, which is refused.
    assert!(!taken(&mut state, 500 * SECOND, 1).admitted);
    assert!(taken(&mut state, 519 * SECOND, 1).admitted);
    assert!(taken(&mut state, 520 * SECOND, 3).admitted);
}

#[test]
fn units_taken_over_before_a_clock_was_set_back_are_no_obstacle_to_refunds() {
    let longer = Policy::sliding_counter("p", Duration::from_secs(100), 9);
    let mut state = State::new(POLICY.state());
    assert!(taken(&mut state, 1_050 * SECOND, 1).admitted);
    assert!(take(&mut state, &longer, 1_050 * SECOND, 1).admitted);
    let now = 850 * SECOND;
    let late = take(&mut state, &longer, now, 3);
    assert_eq!(late.remaining, 4);
    let settle = &Settle::of_one_tier(&longer, 3, 0, late.mark);
    state.settle(Timestamp::new(now), settle);
    assert_eq!(take(&mut state, &longer, now, 1).remaining, 6);
}
