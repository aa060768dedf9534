//! The sliding counter in plain Rust: the same rule as `sliding_counter.lua`.

#[cfg(test)]
mod tests;

use ratelimit_core::rules::MAX_EXACT_INTEGER;

use super::per_tier::{Count, GivenBack, OneTier};
use crate::{
    policy::{Policy, Tier},
    request::{PlainAnswer, PlainNumbers},
    time::{Micros, Timestamp},
};

/// Two adjacent windows of one tier, each of which starts at a multiple of the period. The state
/// was last written in the later one.
///
/// Invariant: every counter of the state counts all units, whichever policy decides. `current` is
/// at least the units recorded in the later window. `previous + current` is at least those recorded
/// in both, as far back as the state goes.
#[derive(Clone, Copy)]
#[cfg_attr(test, derive(Debug, PartialEq))]
pub(crate) struct Counter {
    period: Micros,
    /// The time from which on both windows together have the units of all charges, if that is not
    /// the start of the earlier one: they have taken over those of other counters. 0 if it is.
    since: Timestamp,
    /// The same of the later window alone.
    current_since: Timestamp,
    previous: u32,
    current: u32,
}

/// The time of the last write in two parts, so that a call in the same window divides nothing: the
/// start of its window, and the time since then. That has at most the 45 bits of the longest
/// period. Those above the 32nd are in the high bits of `period`.
#[derive(Clone, Copy, Default)]
#[cfg_attr(test, derive(Debug, PartialEq))]
#[repr(C, packed)]
pub(crate) struct PackedCounter {
    period: u64,
    start: Timestamp,
    since_start: u32,
    previous: u32,
    current: u32,
}

const LOW_48: u64 = (1 << 48) - 1;

impl PackedCounter {
    #[inline]
    fn new(counter: Counter, start: Timestamp, written: Timestamp) -> Self {
        let Counter { period, previous, current, .. } = counter;
        let since = (written - start).get();
        let period = period.get() & LOW_48 | since >> 32 << 48;
        #[expect(clippy::cast_possible_truncation, reason = "the low half")]
        let since_start = since as u32;
        Self { period, start, since_start, previous, current }
    }

    fn period(&self) -> Micros {
        Micros::new(self.period & LOW_48)
    }

    #[inline]
    fn written(&self) -> Timestamp {
        self.start + Micros::new(self.period >> 48 << 32 | u64::from(self.since_start))
    }
}

impl OneTier<Counter> {
    /// Takes units, or refuses them.
    #[inline(never)]
    pub(super) fn take_units<A: PlainAnswer>(
        &mut self,
        now: Timestamp,
        policy: &Policy,
        units: u32,
    ) -> Option<A> {
        let PackedCounter { start: latest, previous, current, .. } = self.packed;
        let [tier] = policy.tiers() else { return None };
        let period = tier.micros();
        // Another policy has counted, or the clock has stepped back.
        if self.packed.period() != period || latest > now {
            return None;
        }
        let mut counter = Counter { previous, current, ..Counter::empty(period) };
        let mut start = latest;
        if now >= latest + period {
            start = now.window_start(period);
            // An older window than the one before this one has no weight any more.
            counter.previous = if start - period <= latest { current } else { 0 };
            counter.current = 0;
        }
        let Counter { previous, current, .. } = counter;
        let ends = start + period - now;
        let position = || Position::new(counter, ends, *tier);
        // Without units in the window before, there is nothing to weigh.
        let is_below = current.checked_add(units).is_some_and(|all| all <= tier.threshold());
        if !(previous == 0 && is_below || position().has_room(units)) {
            let (wait, reset) = (position().wait(units), counter.lasts_by(ends));
            return A::refused_unit(policy, units, wait, reset);
        }
        let after = Counter { current: current + units, ..counter };
        self.packed = PackedCounter::new(after, start, now);
        // The units of this window still weigh in the next one.
        Some(A::taken(ends + period, || {
            let position = Position::new(after, ends, *tier);
            let remaining = position.left();
            let wait = position.wait(remaining.saturating_add(1));
            PlainNumbers { remaining, wait, charged: self.generation.charged() }
        }))
    }
}

impl Count for Counter {
    type Packed = PackedCounter;
    const COUNTS_REFUSED: bool = true;

    #[inline]
    fn unpack(packed: PackedCounter) -> Option<(Timestamp, Self)> {
        let PackedCounter { previous, current, .. } = packed;
        let period = packed.period();
        let counter = Self { previous, current, ..Self::empty(period) };
        (period > Micros::ZERO).then_some((packed.written(), counter))
    }

    #[inline]
    fn pack(self, written: Timestamp) -> PackedCounter {
        PackedCounter::new(self, written.window_start(self.period), written)
    }

    fn new(_: &Policy, tier: Tier, _: Timestamp) -> Self {
        Self::empty(tier.micros())
    }

    fn is_same(&self, other: &Self) -> bool {
        self.period == other.period
    }

    fn carried(self, others: &[Self], written: Timestamp, now: Timestamp) -> Self {
        let start = now.window_start(self.period);
        let (current, current_since) = recorded_since(start, others, written, now);
        let (both, since) = recorded_since(start - self.period, others, written, now);
        let units = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        let previous = units(both.saturating_sub(current));
        Self { since, current_since, previous, current: units(current), ..self }
    }

    /// Moves the two windows to `now`, also back from the future.
    #[inline]
    fn advance(&mut self, written: Timestamp, now: Timestamp) -> bool {
        // After a step back, calls come from before these times.
        if written > now {
            self.since = self.since.min(now);
            self.current_since = self.current_since.min(now);
        }
        let Self { period, current, current_since, .. } = *self;
        let [now, written] = [now, written].map(|at| at.window_start(period));
        match now - written {
            Micros::ZERO => {}
            passed if passed <= period => {
                let since = current_since;
                *self = Self { since, previous: current, ..Self::empty(period) };
            }
            // Both windows are older than the one before this one.
            _ => *self = Self::empty(period),
        }
        written > now
    }

    fn has_room(&self, now: Timestamp, tier: &Tier, units: u32) -> bool {
        self.position(now, tier).has_room(units)
    }

    fn left(&self, now: Timestamp, tier: &Tier) -> u32 {
        self.position(now, tier).left()
    }

    fn until(&self, now: Timestamp, tier: &Tier, units: u32) -> Micros {
        self.position(now, tier).wait(units)
    }

    #[inline]
    fn take(&mut self, tier: &Tier, units: u32) -> u32 {
        let before = self.current;
        // What is admitted fits. A refusal that counts fills the window, and no more.
        self.current = before.max(before.saturating_add(units).min(tier.threshold()));
        self.current - before
    }

    fn lower(&mut self, written: Timestamp, charge: GivenBack, _: u32) -> u32 {
        let GivenBack { units, at, .. } = charge;
        let start = written.window_start(self.period);
        if self.both_since(start) <= at && at < start + self.period {
            let is_current = self.current_since(start) <= at;
            let window = if is_current { &mut self.current } else { &mut self.previous };
            *window = window.saturating_sub(units);
        }
        units
    }

    fn raise(&mut self, units: u32) {
        self.current = self.current.saturating_add(units);
    }

    fn lasts(&self, now: Timestamp) -> Micros {
        self.lasts_by(self.ends(now))
    }
}

impl Counter {
    #[inline]
    fn empty(period: Micros) -> Self {
        let [since, current_since] = [Timestamp::default(); 2];
        Self { period, since, current_since, previous: 0, current: 0 }
    }

    /// Returns the time from which on both windows have the units of all charges, if the later one
    /// starts at this time.
    fn both_since(&self, start: Timestamp) -> Timestamp {
        Some(self.since).filter(|since| since.get() > 0).unwrap_or(start - self.period)
    }

    /// Returns the time from which on the later window has them, if it starts at this time.
    fn current_since(&self, start: Timestamp) -> Timestamp {
        Some(self.current_since).filter(|since| since.get() > 0).unwrap_or(start)
    }

    /// Returns the time until the later window ends.
    #[inline]
    fn ends(&self, now: Timestamp) -> Micros {
        now.window_start(self.period) + self.period - now
    }

    /// Returns the time until neither window has a unit, if the later one ends after this time.
    #[inline]
    fn lasts_by(&self, ends: Micros) -> Micros {
        match (self.previous, self.current) {
            (0, 0) => Micros::ZERO,
            (_, 0) => ends,
            _ => ends + self.period,
        }
    }

    fn position(&self, now: Timestamp, tier: &Tier) -> Position {
        Position::new(*self, self.ends(now), *tier)
    }
}

/// A counter by the numbers of one tier, at one instant.
#[derive(Clone, Copy)]
struct Position {
    counter: Counter,
    threshold: u32,
    /// The time until the later window ends.
    ends: Micros,
    /// The microseconds of a tick.
    tick: u64,
    /// The ticks of a period.
    ticks: u64,
    /// The weight of the two windows together, rounded up to whole units.
    used: u64,
}

impl Position {
    #[inline]
    fn new(counter: Counter, ends: Micros, tier: Tier) -> Self {
        let (threshold, tick) = (tier.threshold(), tier.tick());
        // Mostly a tick is a microsecond, and there is nothing to divide.
        let (ticks, left) = match tick {
            1 => (counter.period.get(), ends.get()),
            // Less time than is left would be less weight: it is rounded up.
            _ => (counter.period.get() / tick, ends.get().div_ceil(tick)),
        };
        let mut position = Self { counter, threshold, ends, tick, ticks, used: 0 };
        let previous = match counter.previous {
            0 => 0,
            // Rounded up, `left` may be more than a whole period.
            units => (position.weighing(units) * left.min(ticks)).div_ceil(ticks),
        };
        position.used = u64::from(counter.current) + previous;
        position
    }

    /// Returns the units of which a share counts, fewer than `units` if their product with the
    /// ticks of a period would exceed 2^53.
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

    /// Returns the units that are left.
    #[inline]
    fn left(self) -> u32 {
        u32::try_from(u64::from(self.threshold).saturating_sub(self.used)).unwrap_or(u32::MAX)
    }

    /// Returns the time until this many units, at most the threshold, are left.
    fn wait(self, units: u32) -> Micros {
        let units = units.min(self.threshold);
        if self.has_room(units) {
            return Micros::ZERO;
        }
        // The most ticks with which the share of `count` leaves room for `free` units.
        let most = |count: u32, free: u32| {
            let ticks = u64::from(free) * self.ticks / self.weighing(count).max(1);
            Micros::new(ticks * self.tick)
        };
        let Counter { period, previous, current, .. } = self.counter;
        match (self.threshold - units).checked_sub(current) {
            // In this window, once its rest is short enough, and at its end at the latest.
            Some(free) => self.ends - most(previous, free),
            // In the next one, in which the current units have weight, or at its end.
            None => self.ends + period - most(current, self.threshold - units),
        }
    }
}

/// Returns an upper bound of the units that the counters recorded from `at` on, and the time from
/// which on it has the units of all charges. Of equal ones the first.
fn recorded_since(
    at: Timestamp,
    counters: &[Counter],
    written: Timestamp,
    now: Timestamp,
) -> (u64, Timestamp) {
    if written < at {
        return (0, at);
    }
    let both = |counter: &Counter| {
        let units = u64::from(counter.previous) + u64::from(counter.current);
        (units, counter.both_since(now.window_start(counter.period)))
    };
    let known = counters.iter().filter_map(|counter| match now.window_start(counter.period) {
        start if start <= at => Some((counter.current.into(), counter.current_since(start))),
        start if start - counter.period <= at => Some(both(counter)),
        _ => None,
    });
    let least = known.min_by_key(|(units, _)| *units);
    // No counter goes back so far: the fullest one is the bound.
    // Reversed, because of equal ones `max_by_key` returns the last.
    least.or_else(|| counters.iter().rev().map(both).max_by_key(|it| it.0)).unwrap_or((0, at))
}
