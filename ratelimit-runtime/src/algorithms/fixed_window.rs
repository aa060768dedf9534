//! The fixed window in plain Rust: the same rule as `fixed_window.lua`.

use super::{
    per_tier::{Count, GivenBack, OneTier},
    window_units::window_units,
};
use crate::{
    policy::{Policy, Tier},
    request::{PlainAnswer, PlainNumbers},
    time::{Micros, Timestamp},
};

/// The window of one tier; one without a unit in it is not open.
///
/// Invariant: an open window counts every unit recorded since its start, whichever policy decides.
#[derive(Clone, Copy)]
#[cfg_attr(test, derive(Debug, PartialEq))]
pub(crate) struct Window {
    period: Micros,
    /// The time from which on it has the units of all charges: its start, or an earlier time if it
    /// has taken over those of another window.
    since: Timestamp,
    start: Timestamp,
    units: u32,
}

#[derive(Clone, Copy, Default)]
#[cfg_attr(test, derive(Debug, PartialEq))]
#[repr(C, packed)]
pub(crate) struct PackedWindow {
    period: Micros,
    written: Timestamp,
    start: Timestamp,
    units: u32,
}

impl OneTier<Window> {
    /// Takes units, or refuses them.
    #[inline(never)]
    pub(super) fn take_units<A: PlainAnswer>(
        &mut self,
        now: Timestamp,
        policy: &Policy,
        more: u32,
    ) -> Option<A> {
        let PackedWindow { period, start, units, .. } = self.packed;
        let [tier] = policy.tiers() else { return None };
        if period != tier.micros() || start > now {
            return None;
        }
        // A window opens with its first unit.
        let is_over = units == 0 || now - start >= period;
        let (start, units) = if is_over { (now, 0) } else { (start, units) };
        let ends = period - (now - start);
        let Some(left) = tier.threshold().saturating_sub(units).checked_sub(more) else {
            return A::refused_unit(policy, more, ends, ends);
        };
        self.packed = PackedWindow { period, written: now, start, units: units + more };
        Some(A::taken(ends, || {
            let charged = self.generation.charged();
            PlainNumbers { remaining: left, wait: ends, charged }
        }))
    }
}

impl Count for Window {
    type Packed = PackedWindow;
    const COUNTS_REFUSED: bool = false;

    #[inline]
    fn unpack(packed: PackedWindow) -> Option<(Timestamp, Self)> {
        let PackedWindow { period, written, start, units } = packed;
        let window = Self { period, since: start, start, units };
        (period > Micros::ZERO).then_some((written, window))
    }

    #[inline]
    fn pack(self, written: Timestamp) -> PackedWindow {
        let Self { period, start, units, .. } = self;
        PackedWindow { period, written, start, units }
    }

    #[inline]
    fn new(_: &Policy, tier: Tier, now: Timestamp) -> Self {
        Self { period: tier.micros(), since: now, start: now, units: 0 }
    }

    fn is_same(&self, other: &Self) -> bool {
        self.period == other.period
    }

    /// Returns the window with the units of the fullest other one. It opens at that one's start, or
    /// at the last write if it would be over by now otherwise.
    fn carried(self, others: &[Self], written: Timestamp, now: Timestamp) -> Self {
        let is_open = |start: Timestamp| now < start + self.period;
        let open = others.iter().filter(|window| window.units > 0).filter_map(|window| {
            let start = if is_open(window.start) { window.start } else { written };
            is_open(start).then_some(Self { start, period: self.period, ..*window })
        });
        // Of equal ones the first.
        open.rev().max_by_key(|window| (window.units, window.start)).unwrap_or(self)
    }

    /// Starts a new window if this one is over. One that lies in the future starts now.
    #[inline]
    fn advance(&mut self, _: Timestamp, now: Timestamp) -> bool {
        let is_ahead = self.start > now;
        self.start = self.start.min(now);
        self.since = self.since.min(now);
        if self.units == 0 || now >= self.start + self.period {
            *self = Self { since: now, start: now, units: 0, ..*self };
        }
        is_ahead
    }

    window_units!();

    /// Returns the time until the window is over, 0 if it is not open.
    #[inline]
    fn lasts(&self, now: Timestamp) -> Micros {
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
