//! The window of the calendar in plain Rust: the same rule as `calendar_window.lua`.

use super::{
    per_tier::{Count, GivenBack},
    window_units::window_units,
};
use crate::{
    policy::{Policy, Tier},
    time::{Micros, Timestamp},
};

/// The last window of one unit of the calendar that has counted. Under another zone of the same unit it goes on.
///
/// Invariant: a window that is not over counts every unit recorded since its start, whichever policy decides.
#[derive(Clone, Copy)]
#[cfg_attr(test, derive(Debug, PartialEq))]
pub(crate) struct DatedWindow {
    /// The nominal length of the unit.
    period: Micros,
    /// The time from which on it has the units of all charges: its start, or that of another window of which
    /// it has taken over the units.
    since: Timestamp,
    start: Timestamp,
    /// The length, which is whole seconds in every zone.
    seconds: u32,
    units: u32,
}

#[derive(Clone, Copy, Default)]
#[cfg_attr(test, derive(Debug, PartialEq))]
#[repr(C, packed)]
pub(crate) struct PackedDates {
    days: u8,
    written: Timestamp,
    start: Timestamp,
    seconds: u32,
    units: u32,
}

/// In microseconds.
const SECOND: u64 = 1_000_000;
/// In microseconds.
const DAY: u64 = 24 * 60 * 60 * SECOND;

impl DatedWindow {
    fn end(&self) -> Timestamp {
        self.start + Micros::new(u64::from(self.seconds) * SECOND)
    }

    fn is_over(&self, now: Timestamp) -> bool {
        self.units == 0 || self.end() <= now
    }
}

impl Count for DatedWindow {
    type Packed = PackedDates;
    const COUNTS_REFUSED: bool = false;

    fn unpack(packed: PackedDates) -> Option<(Timestamp, Self)> {
        let PackedDates { days, written, start, seconds, units } = packed;
        let period = Micros::new(u64::from(days) * DAY);
        (days > 0).then_some((written, Self { period, since: start, start, seconds, units }))
    }

    fn pack(self, written: Timestamp) -> PackedDates {
        let Self { period, start, seconds, units, .. } = self;
        let days = u8::try_from(period.get() / DAY).unwrap_or(u8::MAX);
        PackedDates { days, written, start, seconds, units }
    }

    fn new(_: &Policy, tier: Tier, _: Timestamp) -> Self {
        let (start, seconds) = tier.dates();
        Self { period: tier.micros(), since: start, start, seconds, units: 0 }
    }

    fn is_same(&self, other: &Self) -> bool {
        self.period == other.period
    }

    /// Returns the window with the units of the fullest other one that is not over.
    fn carried(self, others: &[Self], _: Timestamp, now: Timestamp) -> Self {
        let open = others.iter().filter(|window| !window.is_over(now));
        // Of equal ones the first.
        let fullest = open.rev().max_by_key(|window| window.units);
        fullest.map_or(self, |it| Self { since: it.since, units: it.units, ..self })
    }

    /// Empties a window that is over.
    fn advance(&mut self, _: Timestamp, now: Timestamp) -> bool {
        if self.is_over(now) {
            self.units = 0;
        }
        self.start > now
    }

    /// Replaces an empty window by the present one, and one that starts in the future, with its units. If the
    /// present one starts much later than one that is not over, the process's clock was set forward: it is empty.
    fn date(&mut self, tier: &Tier, now: Timestamp) {
        let (start, seconds) = tier.dates();
        if start > self.start + Micros::new(u64::from(self.seconds) * SECOND / 2) {
            self.units = 0;
        }
        if self.units == 0 || self.start > now {
            *self = Self { since: start, start, seconds, ..*self };
        }
    }

    window_units!();

    /// Returns the time until the window is over, 0 if it has no unit.
    fn lasts(&self, now: Timestamp) -> Micros {
        if self.units > 0 { self.end() - now } else { Micros::ZERO }
    }
}
