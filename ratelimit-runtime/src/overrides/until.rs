//! Times in documents of overrides, as in RFC 3339.

use std::time::{Duration, SystemTime};

use toml::value::{Date, Datetime, Offset, Time};

use crate::time::days_since_1970;

const DAY: u64 = 24 * 60 * 60;

/// The last second of the year 9999, which four digits can write.
const LAST: u64 = 253_402_300_799;

/// Returns the time of a date and a time with an offset from UTC.
pub(super) fn time(written: &Datetime) -> Result<SystemTime, &'static str> {
    let Datetime { date: Some(date), time: Some(time), offset: Some(offset) } = written else {
        return Err("needs a date, a time and `Z` or an offset, such as 2026-11-27T18:00:00Z");
    };
    let minutes_ahead = match offset {
        Offset::Z => 0,
        Offset::Custom { minutes } => i64::from(*minutes),
    };
    let of_day = u64::from(time.hour) * 3_600 + u64::from(time.minute) * 60;
    let seconds = days(*date) * DAY + of_day + u64::from(time.second.unwrap_or(0));
    // Before 1970 any time has come.
    let seconds = seconds.saturating_add_signed(-60 * minutes_ahead);
    Ok(SystemTime::UNIX_EPOCH + Duration::new(seconds, time.nanosecond.unwrap_or(0)))
}

/// Returns the text of a time.
pub(super) fn text(time: SystemTime) -> String {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let seconds = since.as_secs().min(LAST);
    let (minutes, nanos) = (seconds % DAY / 60, since.subsec_nanos());
    let small = |number: u64| u8::try_from(number).unwrap_or_default();
    let time = Time {
        hour: small(minutes / 60),
        minute: small(minutes % 60),
        second: Some(small(seconds % 60)),
        nanosecond: (nanos > 0).then_some(nanos),
    };
    let date = Some(date(seconds / DAY));
    Datetime { date, time: Some(time), offset: Some(Offset::Z) }.to_string()
}

/// Returns the days from 1970 to a date; 0 before 1970.
fn days(date: Date) -> u64 {
    days_since_1970(date.year.into(), date.month.into(), date.day.into())
}

/// Returns the date so many days after the start of 1970.
fn date(after: u64) -> Date {
    let mut year = 1970 + after / 366;
    let start =
        |year: u64| days(Date { year: u16::try_from(year).unwrap_or(9_999), month: 1, day: 1 });
    while start(year + 1) <= after {
        year += 1;
    }
    let year = u16::try_from(year).unwrap_or(9_999);
    let of = |month| days(Date { year, month, day: 1 });
    let month = (1..=12).rev().find(|month| of(*month) <= after).unwrap_or(1);
    Date { year, month, day: u8::try_from(after - of(month) + 1).unwrap_or(1) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_day_of_a_thousand_years_is_the_one_after_the_last() {
        let mut before = date(0);
        assert_eq!((before.year, before.month, before.day), (1970, 1, 1));
        for after in 1..400_000 {
            let date = date(after);
            assert_eq!(days(date), after);
            let is_next_day = date.day == before.day + 1 && date.month == before.month;
            let is_next_month = date.day == 1
                && before.day >= 28
                && (date.month == before.month + 1 && date.year == before.year
                    || (date.month, before.month) == (1, 12) && date.year == before.year + 1);
            assert!(is_next_day || is_next_month, "{before} {date}");
            before = date;
        }
    }

    #[test]
    fn a_time_is_that_of_its_text() {
        // date -u -d 2026-11-27T18:00:00Z +%s
        let friday = SystemTime::UNIX_EPOCH + Duration::from_secs(1_795_802_400);
        for written in
            ["2026-11-27T18:00:00Z", "2026-11-27 19:30:00+01:30", "2026-11-27T12:59:60.0-05:00"]
        {
            assert_eq!(time(&written.parse().unwrap()), Ok(friday), "{written}");
        }
        assert_eq!(text(friday), "2026-11-27T18:00:00Z");
        let odd = friday + Duration::from_nanos(1_000_500);
        assert_eq!(time(&text(odd).parse().unwrap()), Ok(odd));
        assert_eq!(text(SystemTime::UNIX_EPOCH - Duration::from_secs(5)), "1970-01-01T00:00:00Z");
        assert_eq!(text(friday + Duration::from_secs(1 << 40)), "9999-12-31T23:59:59Z");
        for written in ["2026-11-27T18:00:00", "2026-11-27", "18:00:00"] {
            assert!(time(&written.parse().unwrap()).is_err(), "{written}");
        }
    }
}
