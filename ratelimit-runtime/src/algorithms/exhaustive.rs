//! The counters' rounding against exact rationals, for all small numbers.

use std::time::Duration;

use super::{State, tests::take};
use crate::{
    policy::Policy,
    request::{Op, Request},
    time::Timestamp,
};

/// A multiple of all periods here.
const START: u64 = 5_040_000;

fn peeks(state: &State, policy: &Policy, now: u64, cost: u32) -> bool {
    let mut state = state.clone();
    state.decided(Timestamp::new(now), Request::new(policy, Op::Peek, cost)).admitted
}

/// Returns the state after a take of these units, if it is admitted. None are a fresh state's.
fn after(state: &State, policy: &Policy, now: u64, units: u32) -> Option<State> {
    let mut state = state.clone();
    (units == 0 || take(&mut state, policy, now, units).admitted).then_some(state)
}

/// The units of the window before count by the part of it that the period still covers: no more,
/// and no fewer.
#[test]
fn a_sliding_counter_admits_by_the_exact_weight() {
    let mut decisions = 0;
    for period in 1..=8_u64 {
        for threshold in 1..=4 {
            let policy = &Policy::sliding_counter("p", Duration::from_micros(period), threshold);
            let has_room = |previous: u32, current: u32, elapsed: u64, cost: u32| {
                let shares = u128::from(previous) * u128::from(period - elapsed);
                let whole = (u128::from(current) + u128::from(cost)) * u128::from(period);
                shares + whole <= u128::from(threshold) * u128::from(period)
            };
            let fresh = State::new(policy.state());
            for previous in 0..=threshold {
                let before = after(&fresh, policy, START, previous).expect("within the threshold");
                for first in 0..period {
                    for current in 0..=threshold {
                        let now = START + period;
                        let both = after(&before, policy, now + first, current);
                        let is_admitted = current == 0 || has_room(previous, 0, first, current);
                        assert_eq!(both.is_some(), is_admitted, "{policy:?} {previous} {current}");
                        let Some(both) = both else { continue };
                        for elapsed in first..period {
                            for cost in 1..=threshold {
                                let admitted = peeks(&both, policy, now + elapsed, cost);
                                let expected = has_room(previous, current, elapsed, cost);
                                assert_eq!(
                                    admitted, expected,
                                    "{policy:?}: {previous} before, {current} at {first}, {cost} at {elapsed}"
                                );
                                decisions += 1;
                            }
                        }
                    }
                }
            }
        }
    }
    assert!(decisions > 10_000, "{decisions}");
}

/// A bucket regains threshold / period tokens each microsecond, up to its size, without any
/// rounding.
#[test]
fn a_token_bucket_refills_by_the_exact_rate() {
    let mut decisions = 0;
    for period in 1..=7_u64 {
        for (threshold, burst) in (1..=4).flat_map(|it| (1..=4).map(move |burst| (it, burst))) {
            let policy = Policy::token_bucket("p", Duration::from_micros(period), threshold);
            let policy = &policy.burst(burst);
            // In parts of which a token has as many as the period has microseconds.
            let full = u128::from(burst) * u128::from(period);
            let refilled = |parts: u128, micros: u64| {
                full.min(parts + u128::from(micros) * u128::from(threshold))
            };
            let price = |units: u32| u128::from(units) * u128::from(period);
            let fresh = State::new(policy.state());
            for first in 0..=burst {
                let after_first = after(&fresh, policy, START, first).expect("a full bucket");
                let parts = full - price(first);
                for (pause, second) in (0..=period).flat_map(|it| (0..=burst).map(move |b| (it, b)))
                {
                    let level = refilled(parts, pause);
                    let after_second = after(&after_first, policy, START + pause, second);
                    assert_eq!(after_second.is_some(), second == 0 || price(second) <= level);
                    let Some(state) = after_second else { continue };
                    for (later, cost) in
                        (0..=period).flat_map(|it| (1..=burst).map(move |c| (it, c)))
                    {
                        let expected = price(cost) <= refilled(level - price(second), later);
                        let admitted = peeks(&state, policy, START + pause + later, cost);
                        assert_eq!(
                            admitted, expected,
                            "{policy:?}: {first}, {second} after {pause}, {cost} after {later}"
                        );
                        decisions += 1;
                    }
                }
            }
        }
    }
    assert!(decisions > 10_000, "{decisions}");
}
