//! The window of the calendar in plain Rust: the rule of `calendar_window.lua`, for one process.
//!
//! It has no `turn` and no `early`, because one process has one database of zones, by which each
//! window has one end. It has a zone and `before`, because the system's clock may be set while the
//! store's goes on: a window that seemed to be over is then the present one of its zone once more.

use super::{
    per_tier::{Count, GivenBack},
    window_units::window_units,
};
use crate::{
    calendar::Zone,
    policy::{Policy, Span, Tier},
    time::{Micros, Timestamp},
};

/// The last window of one unit of the calendar that has counted. Under another zone of the same
/// unit it goes on.
///
/// Invariant: a window that is not over counts every unit recorded since its start, whichever
/// policy decides. A month counts them from the first call of its own policy on.
#[derive(Clone, Copy)]
#[cfg_attr(test, derive(Debug, PartialEq))]
pub(crate) struct DatedWindow {
    /// The nominal length of the unit.
    period: Micros,
    /// The zone of its start and its end.
    zone: Option<Zone>,
    /// The time from which on it has the units of all charges: its start, or that of another window
    /// of which it has taken over the units.
    since: Timestamp,
    start: Timestamp,
    span: Span,
    units: u32,
    /// The units before it seemed to be over: the clock may have been set back since.
    before: u32,
}

#[derive(Clone, Copy, Default)]
#[cfg_attr(test, derive(Debug, PartialEq))]
#[repr(C, packed)]
pub(crate) struct PackedDates {
    days: u8,
    zone: Option<Zone>,
    written: Timestamp,
    start: Timestamp,
    span: Span,
    units: u32,
}

/// In microseconds.
const DAY: u64 = 24 * 60 * 60 * 1_000_000;

/// The length of a February, in microseconds.
const SHORTEST_MONTH: u64 = 28 * DAY;

impl DatedWindow {
    fn end(&self) -> Timestamp {
        self.start + self.span.length()
    }

    fn is_over(&self, now: Timestamp) -> bool {
        self.units == 0 || self.end() <= now
    }
}

impl Count for DatedWindow {
    type Packed = PackedDates;
    const COUNTS_REFUSED: bool = false;

    fn unpack(packed: PackedDates) -> Option<(Timestamp, Self)> {
        let PackedDates { days, zone, written, start, span, units } = packed;
        let period = Micros::new(u64::from(days) * DAY);
        let window = Self { period, zone, since: start, start, span, units, before: 0 };
        (days > 0).then_some((written, window))
    }

    fn pack(self, written: Timestamp) -> PackedDates {
        let Self { period, zone, start, span, units, .. } = self;
        // The longest unit is a month.
        let days = u8::try_from(period.get() / DAY).unwrap_or(u8::MAX);
        PackedDates { days, zone, written, start, span, units }
    }

    fn new(policy: &Policy, tier: Tier, _: Timestamp) -> Self {
        let (start, span) = tier.dates();
        let (period, zone) = (tier.micros(), policy.dated_zone());
        Self { period, zone, since: start, start, span, units: 0, before: 0 }
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
            (self.before, self.units) = (self.units, 0);
        }
        self.start > now
    }

    /// Replaces an empty window by the present one, and with its units one of the same zone, as the
    /// process's clock may have been set: it ends with its unit of the calendar, and the next one
    /// is empty. A window of another zone goes on, unless it starts in the future, or much earlier
    /// than the present one.
    fn date(&mut self, policy: &Policy, tier: &Tier, now: Timestamp) {
        let present = Self::new(policy, *tier, now);
        let is_of_zone = present.zone == self.zone;
        let is_next = if is_of_zone {
            present.span.is_after(self.span)
        } else {
            (present.start - self.start).get() > self.span.length().get() / 2
        };
        if is_next {
            self.units = 0;
        } else if is_of_zone {
            // If it seemed to be over, the clock was set back since: by the calendar it goes on.
            self.units = self.units.max(self.before);
        }
        if self.units == 0 || is_of_zone || self.start > now {
            let since = if self.units == 0 { present.start } else { self.since.min(present.start) };
            *self = Self { since, units: self.units, ..present };
        }
    }

    window_units!();

    /// Takes units that a call under another policy has taken. Of a window that is over, only its
    /// own policy names the next one. Until then that of a day or a week has the nominal length. A
    /// month has none: the next one starts with the first call of its own policy.
    fn follow(&mut self, units: u32, charged: Option<Timestamp>) {
        let (period, end) = (self.period, self.end());
        let is_over = |now: &Timestamp| end <= *now && period.get() < SHORTEST_MONTH;
        if let Some(now) = charged.filter(is_over) {
            let left_out = (now - end).get() / period.get();
            let start = end + Micros::new(left_out * period.get());
            let span = self.span.later(1 + left_out, period);
            *self = Self { since: start, start, span, before: 0, ..*self };
        }
        self.raise(units);
    }

    /// Returns the time until the window is over, 0 if it has no unit.
    fn lasts(&self, now: Timestamp) -> Micros {
        if self.units > 0 { self.end() - now } else { Micros::ZERO }
    }
}
