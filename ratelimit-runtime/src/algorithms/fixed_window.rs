//! The fixed window in plain Rust: the same rule as `fixed_window.lua`.

use super::{
    Detail, Straight,
    packed::{PackedUnits, Word},
    per_tier::{Count, Header, OneTier},
    summary::Summary,
};
use crate::{
    policy::{Policy, Tier},
    request::{Mark, Outcome, Request},
    time::{Micros, Timestamp},
};

/// The window of one tier; one without a unit in it is not open.
///
/// Invariant: an open window counts every unit recorded since its start, whichever policy decides.
#[derive(Clone, Copy)]
#[cfg_attr(test, derive(Debug, PartialEq))]
pub(crate) struct Window {
    period: Micros,
    /// The time from which the window counts units; 0 if it has counted since the state's first
    /// call.
    since: Timestamp,
    start: Timestamp,
    units: u32,
}

#[derive(Clone, Copy)]
#[cfg_attr(test, derive(Debug, PartialEq))]
pub(crate) struct PackedWindow {
    period: Word,
    written: Word,
    start: Word,
    units: PackedUnits,
}

impl OneTier<Window> {
    /// Takes one unit, or refuses it.
    #[inline]
    pub(super) fn take_one<D: Detail>(&mut self, now: Timestamp, tier: &Tier) -> Straight<D> {
        let window = &mut self.packed;
        let (start, units) = (window.start.timestamp(), window.units.get());
        if window.period.micros() != tier.micros() || start > now {
            return Straight::Skipped;
        }
        let is_over = units == 0 || start + tier.micros() <= now;
        let (start, units) = if is_over { (now, 0) } else { (start, units) };
        let ends = start + tier.micros() - now;
        if units >= tier.threshold() {
            return Straight::Refused { wait: ends, reset: ends };
        }
        (window.start, window.units) = (start.into(), PackedUnits::new(units + 1));
        window.written = now.into();
        let detail = D::new(|| {
            let mark = Mark { at: now, charged: self.generation.charged() };
            Outcome::admitted(tier.threshold() - units - 1, ends, ends, mark)
        });
        Straight::Admitted { lasts: ends, detail }
    }
}

impl Count for Window {
    type Packed = PackedWindow;
    const EMPTY: PackedWindow = PackedWindow {
        period: Word::ZERO,
        written: Word::ZERO,
        start: Word::ZERO,
        units: PackedUnits::ZERO,
    };

    #[inline]
    fn unpack(packed: PackedWindow) -> Option<(Timestamp, Self)> {
        let PackedWindow { period, written, start, units } = packed;
        let (period, start, units) = (period.micros(), start.timestamp(), units.get());
        let window = Self { period, since: Timestamp::default(), start, units };
        (period > Micros::ZERO).then_some((written.timestamp(), window))
    }

    #[inline]
    fn pack(self, written: Timestamp) -> PackedWindow {
        let (period, start) = (self.period.into(), self.start.into());
        PackedWindow { period, written: written.into(), start, units: PackedUnits::new(self.units) }
    }

    #[inline]
    fn new(_: &Policy, tier: Tier, now: Timestamp) -> Self {
        Self { period: tier.micros(), since: Timestamp::default(), start: now, units: 0 }
    }

    #[inline]
    fn is_same(&self, other: &Self) -> bool {
        self.period == other.period
    }

    /// Returns the window with the units of the fullest other one. It opens at that one's start, or
    /// at the last write if it would be over by now otherwise.
    fn carried(self, others: &[Self], written: Timestamp, now: Timestamp) -> Self {
        let is_open = |start: Timestamp| now < start + self.period;
        let open = others.iter().filter(|window| window.units > 0).filter_map(|window| {
            let start = if is_open(window.start) { window.start } else { written };
            is_open(start).then_some((window.units, start))
        });
        let (units, start) = open.max().unwrap_or((0, now));
        Self { since: now, start, units, ..self }
    }

    #[inline]
    fn advance(header: &mut Header, windows: &mut [Self], now: Timestamp) -> bool {
        // A clock that stepped back leaves windows in the future. They start now instead.
        let mut ahead = false;
        for window in windows {
            ahead |= window.start > now;
            *window = window.at(now);
        }
        header.written = header.written.min(now);
        ahead
    }

    #[inline]
    fn decide(
        header: &mut Header,
        (own, others): (&mut [Self], &mut [Self]),
        now: Timestamp,
        request: Request<'_>,
    ) -> (Outcome, bool) {
        let Request { policy, cost, .. } = request;
        let tiers = policy.tiers();
        let has_room = |(window, tier): (&Self, &Tier)| window.has_room(*tier, cost);
        let admitted = own.iter().zip(tiers).all(has_room);
        let mut summary = Summary::new(admitted);
        for ((index, tier), window) in (0..).zip(tiers).zip(&mut *own) {
            if admitted {
                window.units += cost;
            }
            let left = tier.threshold().saturating_sub(window.units);
            let ends = window.ends(now);
            let is_waited_for = admitted || !window.has_room(*tier, cost);
            let wait = if is_waited_for { ends } else { Micros::ZERO };
            summary.add_tier(index, ends, left, wait);
        }
        let mark = Mark { at: now, charged: header.generation.charged() };
        let mut outcome = summary.outcome(mark, cost, |units| {
            let full = tiers.iter().zip(&*own).filter(|it| !it.1.has_room(*it.0, units));
            full.map(|(_, window)| window.ends(now)).max().unwrap_or_default()
        });
        for window in others {
            if admitted {
                window.units = window.units.saturating_add(cost);
            }
            outcome.lasts = outcome.lasts.max(window.ends(now));
        }
        if admitted {
            header.written = now;
        }
        (outcome, admitted)
    }

    fn lower(&mut self, _: Timestamp, units: u32, at: Timestamp, least: u32) {
        if self.since <= at && self.start <= at {
            self.units = self.units.saturating_sub(units).max(self.units.min(least));
        }
    }

    fn raise(&mut self, units: u32) {
        self.units = self.units.saturating_add(units);
    }

    fn lasts(&self, now: Timestamp) -> Micros {
        self.ends(now)
    }
}

impl Window {
    /// Returns the window at `now`: a new one if this one is over.
    #[inline]
    fn at(self, now: Timestamp) -> Self {
        let start = self.start.min(now);
        let open = self.units > 0 && now < start + self.period;
        if open { Self { start, ..self } } else { Self { start: now, units: 0, ..self } }
    }

    fn has_room(self, tier: Tier, units: u32) -> bool {
        units == 0 || u64::from(self.units) + u64::from(units) <= u64::from(tier.threshold())
    }

    /// Returns the time until the window is over, 0 if it is not open.
    fn ends(self, now: Timestamp) -> Micros {
        if self.units > 0 { self.start + self.period - now } else { Micros::ZERO }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::algorithms::{State, tests::take};

    const SECOND: u64 = 1_000_000;
    const POLICY: Policy = Policy::fixed_window("p", Duration::from_secs(10), 1);

    #[test]
    fn a_clock_set_back_refuses_for_one_window_at_the_most() {
        let mut state = State::new(POLICY.state());
        let mut admits = |now| take(&mut state, &POLICY, now, 1).admitted;
        assert!(admits(1_000 * SECOND));
        // The window starts at the first call, which is refused.
        assert!(!admits(500 * SECOND));
        assert!(!admits(510 * SECOND - 1));
        assert!(admits(510 * SECOND));
    }
}
