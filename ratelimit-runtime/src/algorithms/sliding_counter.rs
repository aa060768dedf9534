//! The sliding counter in plain Rust: the same rule as `store/redis/sliding_counter.lua`.

use ratelimit_core::rules::MAX_EXACT_INTEGER;

use super::{
    packed::{Period, Time, Units},
    per_tier::{Entry, Moment, Verdict},
    summary::Summary,
};
use crate::{
    policy::{Policy, Tier},
    request::{Detail, Mark, Request},
    time::{Micros, Timestamp},
};

/// Two adjacent windows, each of which starts at a multiple of the period: the later one is that in
/// which the state was last written.
///
/// Invariant: `current` is at least the units recorded in the later window, and both together are at
/// least those in both, as far as the state goes back. Whichever policy decides, every counter of
/// the state counts the units.
#[derive(Clone, Copy)]
pub(crate) struct Counter {
    period: Micros,
    /// 0: as long as the state.
    since: Timestamp,
    previous: u32,
    current: u32,
}

impl Entry for Counter {
    type Packed = (Period, Time, Units, Units);
    const NONE: Self::Packed = (Period::ZERO, Time::ZERO, Units::ZERO, Units::ZERO);

    #[inline]
    fn unpack((period, last, previous, current): Self::Packed) -> Option<(Timestamp, Self)> {
        let (previous, current) = (previous.count(), current.count());
        let since = Timestamp::default();
        let counter = Self { period: period.get(), since, previous, current };
        (counter.period > Micros::ZERO).then_some((last.get(), counter))
    }

    #[inline]
    fn pack(self, last: Timestamp) -> Self::Packed {
        let (previous, current) = (self.previous.into(), self.current.into());
        (Period::new(self.period), Time::new(last), Units::new(previous), Units::new(current))
    }

    #[inline]
    fn new(_: &Policy, tier: Tier, _: Timestamp) -> Self {
        Self { period: tier.micros(), since: Timestamp::default(), previous: 0, current: 0 }
    }

    #[inline]
    fn is_same(&self, other: &Self) -> bool {
        self.period == other.period
    }

    fn carried(self, others: &[Self], last: Timestamp, now: Timestamp) -> Self {
        let start = now.window_start(self.period);
        let current = recorded_since(start, others, last, now);
        let both = recorded_since(start - self.period, others, last, now);
        let previous = both.saturating_sub(current);
        let units = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        Self { since: now, previous: units(previous), current: units(current), ..self }
    }

    #[inline]
    fn see(moment: &mut Moment, entries: &mut [Self], now: Timestamp) -> bool {
        // A window of the future, left by a clock that stepped back, is one of now from here on.
        let mut ahead = false;
        for counter in entries {
            ahead |= moment.last.window_start(counter.period) > now.window_start(counter.period);
            *counter = counter.at(moment.last, now);
        }
        ahead
    }

    #[inline]
    fn judge(
        moment: &mut Moment,
        (own, others): (&mut [Self], &mut [Self]),
        now: Timestamp,
        request: Request<'_>,
        detail: Detail,
    ) -> Verdict {
        let Request { policy, cost, .. } = request;
        let tiers = policy.tiers();
        let at = |counter: &Self, tier: &Tier| Position::new(*counter, now, *tier);
        let admitted = own.iter().zip(tiers).all(|(it, tier)| at(it, tier).has_room(cost));
        let taken = admitted || policy.counts_rejected();
        let mut verdict = Summary::new(admitted, detail);
        let mut grown = 0;
        for (index, (tier, counter)) in tiers.iter().zip(&mut *own).enumerate() {
            if taken {
                let before = counter.current;
                counter.current = before.max(before.saturating_add(cost).min(tier.threshold()));
                grown = grown.max(counter.current - before);
            }
            let at = at(counter, tier);
            verdict.tier(index, at.wait(tier.threshold()), || {
                let left = at.left();
                let wanted = if admitted { left.saturating_add(1) } else { cost };
                (left, at.wait(wanted))
            });
        }
        let mark = Mark { at: now, charged: moment.generation.charged() };
        let mut outcome = verdict.outcome(mark, cost, |units| {
            let until = |(tier, counter): (&Tier, &Self)| at(counter, tier).wait(units);
            tiers.iter().zip(&*own).map(until).max().unwrap_or_default()
        });
        for counter in others {
            counter.current = counter.current.saturating_add(grown);
            outcome.lasts = outcome.lasts.max(counter.lasts(now));
        }
        moment.last = now;
        Verdict { outcome, is_taken: taken }
    }

    fn refund(&mut self, last: Timestamp, cost: u32, at: Timestamp) {
        if self.since > at {
            return;
        }
        let [charged, written] = [at, last].map(|at| at.window_start(self.period));
        if charged == written {
            self.current = self.current.saturating_sub(cost);
        } else if charged + self.period == written {
            self.previous = self.previous.saturating_sub(cost);
        }
    }
}

impl Counter {
    /// The two windows as they are now.
    #[inline]
    fn at(self, last: Timestamp, now: Timestamp) -> Self {
        let (previous, current) =
            match now.window_start(self.period) - last.window_start(self.period) {
                Micros::ZERO => (self.previous, self.current),
                passed if passed <= self.period => (self.current, 0),
                _ => (0, 0),
            };
        Self { previous, current, ..self }
    }

    /// Until both windows hold nothing.
    fn lasts(self, now: Timestamp) -> Micros {
        let end = now.window_start(self.period) + self.period - now;
        match (self.previous, self.current) {
            (0, 0) => Micros::ZERO,
            (_, 0) => end,
            _ => end + self.period,
        }
    }
}

/// A counter as a tier of a policy sees it now.
#[derive(Clone, Copy)]
struct Position {
    counter: Counter,
    threshold: u32,
    /// Until the later window ends.
    ends: Micros,
    tick: u64,
    /// The ticks of a period.
    ticks: u64,
    /// What the two windows weigh together, rounded up to whole units.
    used: u64,
}

impl Position {
    #[inline]
    fn new(counter: Counter, now: Timestamp, tier: Tier) -> Self {
        let (threshold, tick) = (tier.threshold(), tier.tick());
        let ends = now.window_start(counter.period) + counter.period - now;
        let ticks = counter.period.get() / tick;
        let mut position = Self { counter, threshold, ends, tick, ticks, used: 0 };
        // Less time left than there is would be less weight: it is rounded up.
        let left = ends.get().div_ceil(tick).min(ticks);
        let previous = (position.weighing(counter.previous) * left).div_ceil(ticks);
        position.used = u64::from(counter.current) + previous;
        position
    }

    /// So many of these units weigh: with more, products would not be exact.
    #[inline]
    fn weighing(self, units: u32) -> u64 {
        if units <= self.threshold {
            units.into()
        } else {
            (MAX_EXACT_INTEGER / self.ticks).min(units.into())
        }
    }

    #[inline]
    fn has_room(self, units: u32) -> bool {
        units == 0 || self.used + u64::from(units) <= u64::from(self.threshold)
    }

    /// The units that can be had.
    #[inline]
    fn left(self) -> u32 {
        u32::try_from(u64::from(self.threshold).saturating_sub(self.used)).unwrap_or(u32::MAX)
    }

    /// How long until this many units, or as many as the threshold, can be had.
    fn wait(self, units: u32) -> Micros {
        let units = units.min(self.threshold);
        if self.has_room(units) {
            return Micros::ZERO;
        }
        // The most ticks with which `count`, weighted, leaves room for `free` units.
        let most = |count: u32, free: u32| {
            let ticks = u64::from(free) * self.ticks / self.weighing(count).max(1);
            Micros::new(ticks * self.tick)
        };
        let Counter { period, previous, current, .. } = self.counter;
        match (self.threshold - units).checked_sub(current) {
            // In this window, when what is left of it is short enough; at its end at the latest.
            Some(free) => self.ends - most(previous, free),
            // In the next one, in which the current units weigh, or at its end.
            None => self.ends + period - most(current, self.threshold - units),
        }
    }
}

/// At least the units recorded from `at` on, of what the counters know.
fn recorded_since(at: Timestamp, counters: &[Counter], last: Timestamp, now: Timestamp) -> u64 {
    if last < at {
        return 0;
    }
    let both = |counter: &Counter| u64::from(counter.previous) + u64::from(counter.current);
    let known = counters.iter().filter_map(|counter| match now.window_start(counter.period) {
        start if start <= at => Some(counter.current.into()),
        start if start - counter.period <= at => Some(both(counter)),
        _ => None,
    });
    known.min().or_else(|| counters.iter().map(both).max()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::algorithms::{State, tests::take};
    use crate::request::{Outcome, Refund};

    const SECOND: u64 = 1_000_000;
    const POLICY: Policy = Policy::sliding_counter("p", Duration::from_secs(10), 4);

    fn taken(state: &mut State, now: u64, cost: u32) -> Outcome {
        take(state, &POLICY, now, cost)
    }

    #[test]
    fn units_are_given_back_to_the_window_they_were_counted_in() {
        let refund = |state: &mut State, mark| {
            state.refund(Refund { policy: &POLICY, cost: 2, mark, id: None });
        };
        let mut state = State::new(POLICY.algorithm());
        let early = taken(&mut state, 105 * SECOND, 2).mark;
        let late = taken(&mut state, 112 * SECOND, 2).mark;
        // Of the two before, eight tenths count.
        assert!(!taken(&mut state, 112 * SECOND, 1).admitted);
        refund(&mut state, early);
        assert!(taken(&mut state, 112 * SECOND, 2).admitted);
        assert!(!taken(&mut state, 112 * SECOND, 1).admitted);
        refund(&mut state, late);
        assert_eq!(taken(&mut state, 112 * SECOND, 1).remaining, 1);
        // What has left both windows is given back no more.
        refund(&mut state, Mark { at: Timestamp::new(95 * SECOND), ..late });
        assert!(taken(&mut state, 112 * SECOND, 1).admitted);
        assert!(!taken(&mut state, 112 * SECOND, 1).admitted);
    }

    #[test]
    fn a_clock_set_back_refuses_for_two_windows_at_the_most() {
        let mut state = State::new(POLICY.algorithm());
        assert!(taken(&mut state, 1_000 * SECOND, 4).admitted);
        // It is of now from the first call on, also of one that is refused.
        assert!(!taken(&mut state, 500 * SECOND, 1).admitted);
        assert!(taken(&mut state, 519 * SECOND, 1).admitted);
        assert!(taken(&mut state, 520 * SECOND, 3).admitted);
    }
}
