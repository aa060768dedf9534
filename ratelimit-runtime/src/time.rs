//! Microseconds as types: a length of time, and an instant on a store's clock.
//!
//! Floor 1: imports nothing of this crate. Every room above may import it.

use std::{
    fmt,
    ops::{Add, Sub},
    time::Duration,
};

use once_cell::sync::Lazy;
use tokio::time::Instant;

/// A length of time in microseconds. Sums saturate, differences end at 0.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Micros(u64);

/// An instant in microseconds on the clock of one store. Instants of two stores do not compare.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Timestamp(u64);

/// The maximum of durations that users set, as long as the longest period: `Instant + LONGEST`
/// never overflows.
pub(crate) const LONGEST: Duration = Duration::from_secs(366 * 24 * 60 * 60);

/// Returns the time since this was first called in the process.
pub(crate) fn uptime() -> Duration {
    static FIRST: Lazy<Instant> = Lazy::new(Instant::now);
    let first = *FIRST;
    Instant::now().saturating_duration_since(first)
}

/// Returns the days from 1970 to a date, whose month and day count from 1; 0 before 1970.
pub(crate) fn days_since_1970(year: u64, month: u64, day: u64) -> u64 {
    // Years from March on, so that a leap day is the last one.
    let (year, month) =
        if month > 2 { (year, month - 3) } else { (year.saturating_sub(1), month + 9) };
    let of_year = (153 * month + 2) / 5 + day - 1;
    (365 * year + year / 4 - year / 100 + year / 400 + of_year).saturating_sub(719_468)
}

impl Micros {
    pub(crate) const ZERO: Self = Self(0);

    pub(crate) const fn new(micros: u64) -> Self {
        Self(micros)
    }

    pub(crate) const fn get(self) -> u64 {
        self.0
    }

    /// Returns the whole milliseconds of a duration, rounded down. What does not fit is far beyond
    /// any maximum, also when it saturates.
    pub(crate) const fn whole_millis(duration: Duration) -> Self {
        let seconds = duration.as_secs().saturating_mul(1_000_000);
        Self(seconds.saturating_add(duration.subsec_millis() as u64 * 1_000))
    }

    /// Returns the whole microseconds of a duration, rounded up.
    pub(crate) fn rounded_up(duration: Duration) -> Self {
        let fraction = u64::from(duration.subsec_nanos().div_ceil(1_000));
        Self(duration.as_secs().saturating_mul(1_000_000).saturating_add(fraction))
    }

    /// Returns the text of a period: whole days as such.
    pub(crate) fn as_period(self) -> String {
        const DAY: u64 = 86_400_000_000;
        match (self.0 / DAY, self.0 % DAY) {
            (1, 0) => "1 day".to_owned(),
            (days @ 2.., 0) => format!("{days} days"),
            _ => format!("{:?}", Duration::from(self)),
        }
    }
}

impl Timestamp {
    pub(crate) const fn new(micros: u64) -> Self {
        Self(micros)
    }

    pub(crate) const fn get(self) -> u64 {
        self.0
    }

    /// Returns the start of the window in which the instant lies, of those that start at multiples
    /// of `period`.
    pub(crate) fn window_start(self, period: Micros) -> Self {
        Self(self.0 - self.0 % period.0)
    }
}

/// Rounded down to whole microseconds.
impl From<Duration> for Micros {
    #[inline]
    fn from(duration: Duration) -> Self {
        let fraction = u64::from(duration.subsec_micros());
        Self(duration.as_secs().saturating_mul(1_000_000).saturating_add(fraction))
    }
}

impl From<Micros> for Duration {
    fn from(micros: Micros) -> Self {
        Self::from_micros(micros.0)
    }
}

impl fmt::Debug for Micros {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Duration::from(*self).fmt(f)
    }
}

/// Implements operators on microseconds, which end at the bounds.
macro_rules! saturating {
    ($($operator:ident($method:ident: $left:ty, $right:ty) -> $output:ident by $saturating:ident;)+) => {$(
        impl $operator<$right> for $left {
            type Output = $output;

            fn $method(self, other: $right) -> $output {
                $output(self.0.$saturating(other.0))
            }
        }
    )+};
}

// The difference of two instants is the time since the earlier one; 0 if that is later.
saturating! {
    Add(add: Micros, Micros) -> Micros by saturating_add;
    Sub(sub: Micros, Micros) -> Micros by saturating_sub;
    Add(add: Timestamp, Micros) -> Timestamp by saturating_add;
    Sub(sub: Timestamp, Micros) -> Timestamp by saturating_sub;
    Sub(sub: Timestamp, Timestamp) -> Micros by saturating_sub;
}

/// Rounded down to whole microseconds.
impl Add<Duration> for Timestamp {
    type Output = Self;

    fn add(self, length: Duration) -> Self {
        self + Micros::from(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_rounded_down_or_up_to_whole_microseconds() {
        for (nanos, down, up) in
            [(0, 0, 0), (1, 0, 1), (1_999, 1, 2), (1_000_000_001, 1_000_000, 1_000_001)]
        {
            let duration = Duration::from_nanos(nanos);
            assert_eq!(Micros::from(duration), Micros::new(down));
            assert_eq!(Micros::rounded_up(duration), Micros::new(up));
        }
        assert_eq!(Micros::rounded_up(Duration::MAX), Micros::from(Duration::MAX));
        assert_eq!(Duration::from(Micros::new(1_500_000)), Duration::from_millis(1_500));
    }

    #[test]
    fn sums_and_differences_end_at_the_bounds() {
        let (one, most) = (Micros::new(1), Micros::new(u64::MAX));
        assert_eq!((most + one, one - most), (most, Micros::ZERO));
        let (early, late) = (Timestamp::new(1), Timestamp::new(u64::MAX));
        assert_eq!((late + one, early - most), (late, Timestamp::new(0)));
        assert_eq!((late - early, early - late), (Micros::new(u64::MAX - 1), Micros::ZERO));
    }

    #[test]
    fn windows_start_at_multiples_of_the_period() {
        let start = |at| Timestamp::new(at).window_start(Micros::new(10)).get();
        assert_eq!([0, 9, 10, 19].map(start), [0, 0, 10, 10]);
    }

    #[test]
    fn whole_days_are_shown_as_such() {
        let text = |seconds: u64| Micros::new(seconds * 1_000_000).as_period();
        let texts = ["60s", "1 day", "86401s", "7 days", "31 days"];
        assert_eq!([60, 86_400, 86_401, 604_800, 2_678_400].map(text), texts);
    }
}
