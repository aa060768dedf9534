//! Windows of the calendar, in microseconds since the UNIX epoch.
//!
//! Floor 1: pure. It is the one place that knows the feature `calendar` and its crates.

#[cfg(feature = "calendar")]
pub(crate) mod database;

use std::{
    num::NonZeroU16,
    time::{Duration, SystemTime},
};

use parking_lot::Mutex;
use ratelimit_core::CalendarUnit;

/// Four boundaries around a time: the starts of the previous window, of the present one and of the
/// next, and the end of that.
pub(crate) type Windows = [u64; 4];

/// A time zone, by its number in this process: a charge carries two bytes instead of a text, with
/// which a call that returns its decision takes up to 6 % more instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Zone(NonZeroU16);

/// The zones that have been charged under. A program has few.
static ZONES: Mutex<Vec<&'static str>> = Mutex::new(Vec::new());

impl Zone {
    /// Returns `None` after 65 535 zones, of which the database has fewer than 1 000.
    #[cold]
    pub(crate) fn new(name: &'static str) -> Option<Self> {
        let mut zones = ZONES.lock();
        let index = zones.iter().position(|it| *it == name).unwrap_or_else(|| {
            zones.push(name);
            zones.len() - 1
        });
        NonZeroU16::new(u16::try_from(index + 1).ok()?).map(Self)
    }

    pub(crate) fn name(self) -> &'static str {
        ZONES.lock()[usize::from(self.0.get()) - 1]
    }
}

/// Returns the system's time.
pub(crate) fn now() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

/// Returns the windows around a time in a zone, UTC by default. `None` if the zone is in no
/// database.
#[cfg(feature = "calendar")]
pub(crate) fn windows(unit: CalendarUnit, zone: Option<&'static str>, now: u64) -> Option<Windows> {
    /// The windows that were asked for last, one of each unit and zone: a program has few.
    static KNOWN: Mutex<Vec<(CalendarUnit, Option<&str>, Windows)>> = Mutex::new(Vec::new());

    let mut known = KNOWN.lock();
    let place = known.iter().position(|it| (it.0, it.1) == (unit, zone));
    if let Some(at) = place
        && let (_, _, windows @ [_, start, end, _]) = known[at]
        && (start..end).contains(&now)
    {
        return Some(windows);
    }
    let windows = of_database::windows(unit, zone, now)?;
    match place {
        Some(at) => known[at].2 = windows,
        None => known.push((unit, zone, windows)),
    }
    Some(windows)
}

/// Without the feature, no zone is known.
#[cfg(not(feature = "calendar"))]
pub(crate) fn windows(_: CalendarUnit, _: Option<&'static str>, _: u64) -> Option<Windows> {
    None
}

/// Reads a time such as `2026-03-29T00:59:00Z`.
#[cfg(all(feature = "testing", feature = "calendar"))]
pub(crate) fn parse(time: &str) -> Option<u64> {
    time.parse::<jiff::Timestamp>().ok()?.as_microsecond().try_into().ok()
}

#[cfg(feature = "calendar")]
mod of_database {
    use jiff::{Timestamp, ToSpan, civil::Date, tz::TimeZone};
    use ratelimit_core::CalendarUnit;

    use super::{Windows, database};

    pub(super) fn windows(unit: CalendarUnit, zone: Option<&str>, now: u64) -> Option<Windows> {
        let zone = zone.map_or(Some(TimeZone::UTC), database::zone)?;
        let today = Timestamp::from_microsecond(now.try_into().ok()?).ok()?;
        let today = today.to_zoned_datetime(zone.clone()).date();
        let first = match unit {
            CalendarUnit::Week => {
                today.checked_sub(today.weekday().to_monday_zero_offset().days()).ok()?
            }
            CalendarUnit::Month => today.first_of_month(),
            _ => today,
        };
        let start = start_of(first, &zone)?;
        let (next, end) = beside(unit, first, start, 1, &zone)?;
        let (_, end_of_next) = beside(unit, next, end, 1, &zone)?;
        let (_, start_of_previous) = beside(unit, first, start, -1, &zone)?;
        Some([start_of_previous, start, end, end_of_next])
    }

    /// Returns the window after or before another one. A zone that crosses the date line leaves out
    /// a day, which starts when the next one does.
    fn beside(
        unit: CalendarUnit,
        mut first: Date,
        start: u64,
        step: i64,
        zone: &TimeZone,
    ) -> Option<(Date, u64)> {
        loop {
            first = first
                .checked_add(match unit {
                    CalendarUnit::Week => step.weeks(),
                    CalendarUnit::Month => step.months(),
                    _ => step.days(),
                })
                .ok()?;
            let other = start_of(first, zone)?;
            if other != start {
                return Some((first, other));
            }
        }
    }

    /// Returns the first microsecond of a date.
    fn start_of(date: Date, zone: &TimeZone) -> Option<u64> {
        let start = date.to_zoned_datetime(zone.clone()).ok()?.start_of_day().ok()?;
        start.timestamp().as_microsecond().try_into().ok()
    }
}
