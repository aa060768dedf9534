//! The uses of a caller's units in real time, checked against the rule of an algorithm.

use super::{History, Outcome};

/// The admitted units of one caller, by the times between which each was used.
///
/// Numbers are lower bounds: units count in a span of time if their call was asked and answered
/// within it.
#[derive(Clone, Debug, Default)]
pub struct Uses {
    asked: Vec<Units>,
    answered: Vec<Units>,
}

/// The units up to a time, this one included.
#[derive(Clone, Copy, Debug)]
struct Units {
    at: u64,
    sum: u64,
}

impl Uses {
    /// Returns the units that were certainly used at `from` or later and before `to`, in
    /// microseconds.
    pub fn within(&self, from: u64, to: u64) -> u64 {
        // A call from before the span until after it is in the second number alone.
        before(&self.answered, to).saturating_sub(before(&self.asked, from))
    }

    /// Returns the most units of any real window of so many microseconds.
    pub fn fullest(&self, period: u64) -> u64 {
        self.asked.iter().map(|first| self.within(first.at, first.at + period)).max().unwrap_or(0)
    }

    /// Returns the most units that a sliding counter had to count when one was used: those of the
    /// aligned window, and those of the window before by the part of it that is left, at least.
    pub fn heaviest(&self, period: u64) -> u64 {
        let weight = |end: &Units| {
            let start = end.at - end.at % period;
            let before = self.within(start.saturating_sub(period), start);
            before * (start + period - end.at) / period + self.within(start, end.at + 1)
        };
        self.answered.iter().map(weight).max().unwrap_or(0)
    }

    /// Returns the size of the smallest bucket, refilled by `threshold` tokens a period, that would
    /// have had all of these units.
    pub fn smallest_bucket(&self, period: u64, threshold: u64) -> u64 {
        // In parts of a token. A span starts with a question, where the fewest tokens are short.
        let parts = |units: u64, at: u64| {
            i128::from(units) * i128::from(period) - i128::from(at) * i128::from(threshold)
        };
        let mut starts = self.asked.iter().scan(0, |sum, it| {
            let before = std::mem::replace(sum, it.sum);
            Some((it.at, parts(before, it.at)))
        });
        let (mut next, mut least, mut most) = (starts.next(), i128::MAX, 0);
        for end in &self.answered {
            while let Some((_, short)) = next.filter(|(at, _)| *at <= end.at) {
                least = least.min(short);
                next = starts.next();
            }
            most = most.max(parts(end.sum, end.at + 1) - least);
        }
        let tokens = most.div_euclid(period.into()) + i128::from(most % i128::from(period) > 0);
        tokens.try_into().expect("a number of tokens")
    }
}

fn before(units: &[Units], time: u64) -> u64 {
    let count = units.partition_point(|it| it.at < time);
    count.checked_sub(1).map_or(0, |last| units[last].sum)
}

impl History {
    /// Returns the admitted units of a caller.
    pub fn uses(&self, caller: u32) -> Uses {
        let calls = self.calls.iter().filter(|call| call.caller == caller);
        let admitted: Vec<_> = calls.filter(|call| call.outcome == Outcome::Admitted).collect();
        let units = |mut all: Vec<(u64, usize)>| {
            all.sort_unstable();
            let sums = all.into_iter().scan(0, |sum, (at, cost)| {
                *sum += cost as u64;
                Some(Units { at, sum: *sum })
            });
            sums.collect()
        };
        Uses {
            asked: units(admitted.iter().map(|call| (call.asked, call.cost)).collect()),
            answered: units(admitted.iter().map(|call| (call.answered, call.cost)).collect()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::Call;

    /// Calls by when they were asked and answered, and their units.
    fn uses(calls: &[(u64, u64, usize)]) -> Uses {
        let call = |&(asked, answered, cost): &(u64, u64, usize)| {
            let outcome = Outcome::Admitted;
            Call { caller: 7, asked, answered, outcome, cost, settled: None }
        };
        let stranger = Call { caller: 8, ..call(&(0, 5_000, 99)) };
        let refused = Call { outcome: Outcome::Refused, ..call(&(100, 110, 99)) };
        History::new(calls.iter().map(call).chain([stranger, refused]).collect()).uses(7)
    }

    #[test]
    fn a_window_holds_the_units_asked_and_answered_in_it() {
        let all = uses(&[(100, 110, 2), (150, 190, 3), (1_090, 1_099, 4), (1_095, 1_100, 5)]);
        assert_eq!([all.within(100, 1_100), all.within(150, 1_150)], [9, 12]);
        assert_eq!([all.fullest(1_000), all.fullest(1_001)], [12, 14]);
        assert_eq!([all.within(100, 191), all.within(101, 191), all.within(100, 190)], [5, 3, 2]);
        assert_eq!(uses(&[]).fullest(1_000), 0);
    }

    #[test]
    fn one_unit_too_many_makes_a_window_overfull_wherever_it_starts() {
        // Ten in each window of 1 000, and one more in one of them.
        let mut calls: Vec<_> = (0..100).map(|n| (n * 100, n * 100 + 1, 1)).collect();
        assert_eq!(uses(&calls).fullest(1_000), 10);
        calls.push((4_320, 4_330, 1));
        assert_eq!(uses(&calls).fullest(1_000), 11);
        // One that may have been used before or after them.
        calls.push((4_290, 5_310, 1));
        assert!(uses(&calls).fullest(1_000) <= 11);
    }

    #[test]
    fn a_counter_weighs_the_window_before_by_what_is_left_of_its_own() {
        // Ten in the first window of 1 000. At 1 250 three quarters of them count.
        let first = (0..10).map(|n| (n * 10, n * 10 + 1, 1));
        let with = |calls: &[(u64, u64, usize)]| {
            uses(&first.clone().chain(calls.iter().copied()).collect::<Vec<_>>()).heaviest(1_000)
        };
        assert_eq!(
            [with(&[]), with(&[(1_240, 1_250, 2)]), with(&[(1_240, 1_250, 4)])],
            [10, 10, 11]
        );
        assert_eq!(with(&[(1_240, 1_250, 3), (1_490, 1_500, 4)]), 12);
        // One that may have been used in the window before, and one in the window after the next.
        assert_eq!([with(&[(990, 1_250, 9)]), with(&[(2_010, 2_020, 9)])], [10, 10]);
        assert_eq!(uses(&[]).heaviest(1_000), 0);
    }

    #[test]
    fn a_bucket_is_as_large_as_its_uses_run_ahead_of_the_refill() {
        // Ten tokens in 1 000: one in 100.
        let mut calls: Vec<_> = (1..50).map(|n| (n * 100, n * 100, 1)).collect();
        assert_eq!(uses(&calls).smallest_bucket(1_000, 10), 1);
        // Four at once are ahead by three, later ones are not.
        calls.extend([(2_050, 2_050, 3)]);
        assert_eq!(uses(&calls).smallest_bucket(1_000, 10), 4);
        // A pause lets the bucket fill up, and a burst after it counts by itself.
        calls.extend([(9_000, 9_001, 4), (9_100, 9_101, 1)]);
        assert_eq!(uses(&calls).smallest_bucket(1_000, 10), 4);
        calls.extend([(9_101, 9_102, 1)]);
        assert_eq!(uses(&calls).smallest_bucket(1_000, 10), 5);
        assert_eq!(uses(&[]).smallest_bucket(1_000, 10), 0);
    }
}
