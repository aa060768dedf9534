//! The anchor on a simulated machine, whose system and counter are set by the tests.

#![allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]

use std::ops::Range;

use fastrand::Rng;

use super::*;

const MICROSECOND: u64 = 1_000;
const MILLISECOND: u64 = 1_000 * MICROSECOND;
const SECOND: u64 = 1_000 * MILLISECOND;

/// The counter's ticks per nanosecond: processors of 2.6 and 5 GHz, ARM's counters, and one that
/// counts nanoseconds.
const RATES: [f64; 5] = [2.595_993_117, 5.1, 0.024, 0.054, 1.0];

struct Machine {
    /// The system's clock.
    nanos: u64,
    counter: u64,
    ticks_per_nano: f64,
    /// The part of a tick that has passed.
    part: f64,
    /// The time that each reading takes.
    width: u64,
    anchor: Anchor,
    rng: Rng,
}

impl Machine {
    fn new(ticks_per_nano: f64) -> Self {
        let (nanos, part, width, rng) = (0, 0.0, 25, Rng::with_seed(7));
        // The counter wraps around after a minute.
        let counter = 0_u64.wrapping_sub((6e10 * ticks_per_nano) as u64);
        let anchor = Anchor::default();
        let mut it = Self { nanos, counter, ticks_per_nano, part, width, anchor, rng };
        it.anchor = Anchor::new(it.read());
        it
    }

    fn pass(&mut self, nanos: u64) {
        self.nanos += nanos;
        let ticks = nanos as f64 * self.ticks_per_nano + self.part;
        self.counter = self.counter.wrapping_add(ticks as u64);
        self.part = ticks.fract();
    }

    /// Reads both clocks. Once in a while something else runs meanwhile.
    fn read(&mut self) -> Reading {
        let before = self.counter;
        self.pass_some();
        let nanos = self.nanos;
        self.pass_some();
        Reading { before, nanos, after: self.counter }
    }

    fn pass_some(&mut self) {
        let interruption = if self.rng.u8(..) == 0 { self.rng.u64(..20_000) } else { 0 };
        let passed = self.width / 2 + self.rng.u64(..self.width) + interruption;
        self.pass(passed);
    }

    /// Returns the deviation of the time from the system's clock, in nanoseconds, if it is the
    /// counter's.
    fn deviation(&mut self) -> Option<u64> {
        let nanos = self.anchor.nanos_at(self.counter);
        if nanos.is_none() {
            let first = self.read();
            if self.anchor.is_over(first.nanos) {
                let reading = narrowest(first, || self.read());
                self.anchor = self.anchor.next(reading).unwrap_or(self.anchor);
            }
        }
        Some(nanos?.abs_diff(self.nanos))
    }

    /// Reads the time again and again.
    fn run(&mut self, nanos: u64, longest_pause: u64) -> Run {
        let (mut readings, mut by_counter, mut largest) = (0, 0, 0);
        let end = self.nanos + nanos;
        while self.nanos < end {
            let pause = self.rng.u64(..longest_pause);
            self.pass(pause);
            readings += 1;
            if let Some(deviation) = self.deviation() {
                by_counter += 1;
                largest = largest.max(deviation);
            }
        }
        Run { by_counter: f64::from(by_counter) / f64::from(readings), largest }
    }

    /// Moves the counter alone.
    fn step(&mut self, nanos: f64) {
        let ticks = (nanos.abs() * self.ticks_per_nano) as u64;
        let ticks = if nanos < 0.0 { ticks.wrapping_neg() } else { ticks };
        self.counter = self.counter.wrapping_add(ticks);
    }
}

#[derive(Debug)]
struct Run {
    /// The share of readings that the counter answered.
    by_counter: f64,
    /// Their largest deviation from the system's clock, in nanoseconds.
    largest: u64,
}

#[test]
fn hours_by_the_counter_stay_within_a_microsecond_of_the_system() {
    let mut machine = Machine::new(RATES[0]);
    for minute in 0..120 {
        // The oscillator warms up and cools down.
        machine.ticks_per_nano = RATES[0] * (1.0 + f64::from(minute % 7) * 1e-5);
        let run = machine.run(60 * SECOND, 3 * MILLISECOND);
        assert!(run.largest <= MICROSECOND && run.by_counter > 0.5, "{run:?}");
    }
}

#[test]
fn counters_of_all_rates_answer_most_readings() {
    for rate in RATES {
        let run = Machine::new(rate).run(10 * SECOND, MILLISECOND / 10);
        assert!(run.largest <= MICROSECOND && run.by_counter > 0.95, "{rate}: {run:?}");
    }
}

#[test]
fn a_correction_of_the_system_s_clock_is_followed_within_a_window() {
    for correction in [1.0005, 0.9995] {
        let mut machine = Machine::new(RATES[0]);
        machine.run(SECOND, MILLISECOND / 10);
        machine.ticks_per_nano *= correction;
        let run = machine.run(2 * WINDOW, MILLISECOND / 10);
        assert!(run.largest <= 3 * MICROSECOND, "{run:?}");
        let run = machine.run(SECOND, MILLISECOND / 10);
        assert!(run.largest <= MICROSECOND && run.by_counter > 0.9, "{run:?}");
    }
}

#[test]
fn after_a_suspension_the_system_s_clock_is_right() {
    let (hour, wrapped_around) = (3.6e12, 6e10);
    // The counter ran on, started again long before the anchor, or where it was made.
    for step in [hour, -hour, -wrapped_around] {
        let mut machine = Machine::new(RATES[0]);
        machine.run(SECOND, MILLISECOND / 10);
        machine.step(step);
        assert_eq!(machine.deviation(), None);
        let run = machine.run(SECOND, MILLISECOND / 10);
        assert!(run.largest <= MICROSECOND && run.by_counter > 0.9, "{run:?}");
    }
}

#[test]
fn a_step_of_the_counter_is_felt_for_no_longer_than_a_window_and_by_no_more() {
    for step in [1e4, 1e6, 3.9e6, 1e7, 1e9, -1e4, -1e6, -1e9] {
        let mut machine = Machine::new(RATES[0]);
        machine.run(SECOND, MILLISECOND / 10);
        machine.step(step);
        let (end, mut largest) = (machine.nanos + WINDOW + MILLISECOND, 0);
        while machine.nanos < end {
            machine.pass(MILLISECOND / 10);
            largest = machine.deviation().map_or(largest, |it| largest.max(it));
        }
        assert!(largest <= WINDOW, "{step}: {largest}");
        let run = machine.run(SECOND, MILLISECOND / 10);
        assert!(run.largest <= MICROSECOND && run.by_counter > 0.9, "{step}: {run:?}");
    }
}

#[test]
fn a_counter_that_changes_its_rate_answers_few_readings() {
    let mut machine = Machine::new(RATES[0]);
    let (mut by_counter, mut rng) = (0.0, Rng::with_seed(1));
    for _ in 0..1_000 {
        machine.ticks_per_nano = RATES[0] * (0.5 + rng.f64());
        by_counter += machine.run(2 * MILLISECOND, MILLISECOND / 10).by_counter / 1_000.0;
    }
    assert!(by_counter < 0.05, "{by_counter}");
}

#[test]
fn a_counter_that_stands_still_answers_no_reading() {
    let run = Machine::new(0.0).run(SECOND, MILLISECOND / 10);
    assert!(run.by_counter < f64::EPSILON, "{run:?}");
}

#[test]
fn readings_that_take_too_long_are_no_anchor() {
    let mut machine = Machine::new(RATES[0]);
    machine.width = MAX_WIDTH;
    let run = machine.run(SECOND, MILLISECOND / 10);
    assert!(run.by_counter < f64::EPSILON, "{run:?}");
}

#[test]
fn a_counter_that_the_system_trusts_no_more_after_a_failed_window_answers_no_reading() {
    for is_trusted in [true, false] {
        let shared = SharedAnchor::new(Reading { before: 0, nanos: 0, after: 0 });
        let renew = |window: u64, step: u64| {
            let nanos = window * WINDOW;
            let reading = Reading { before: nanos + step, nanos, after: nanos + step };
            assert_eq!(shared.renew(|| reading, || is_trusted), nanos);
            shared.nanos_at(nanos + step + 1)
        };
        let run = |windows: Range<u64>, step| windows.fold(None, |_, window| renew(window, step));
        assert_eq!(run(1..4, 0), Some(3 * WINDOW + 1));
        assert_eq!(renew(4, SECOND), None);
        assert_eq!(run(5..9, SECOND), is_trusted.then_some(8 * WINDOW + 1));
    }
}
