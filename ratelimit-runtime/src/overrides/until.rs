//! Times in documents of overrides, as in RFC 3339.

#[cfg(feature = "overrides")]
use std::time::Duration;
use std::time::SystemTime;

#[cfg(feature = "overrides")]
use toml::value::{Datetime, Offset};

use crate::time::days_since_1970;

const DAY: u64 = 24 * 60 * 60;

/// The last second of the year 9999, which four digits can write.
const LAST: u64 = 253_402_300_799;

/// Returns the time of a date and a time with an offset from UTC.
#[cfg(feature = "overrides")]
pub(super) fn time(written: &Datetime) -> Result<SystemTime, &'static str> {
    let Datetime { date: Some(date), time: Some(time), offset: Some(offset) } = written else {
        return Err("needs a date, a time and `Z` or an offset, such as 2026-11-27T18:00:00Z");
    };
    let minutes_ahead = match offset {
        Offset::Z => 0,
        Offset::Custom { minutes } => i64::from(*minutes),
    };
    let of_day = u64::from(time.hour) * 3_600 + u64::from(time.minute) * 60;
    let days = days_since_1970(date.year.into(), date.month.into(), date.day.into());
    let seconds = days * DAY + of_day + u64::from(time.second.unwrap_or(0));
    // Before 1970 any time has come.
    let seconds = seconds.saturating_add_signed(-60 * minutes_ahead);
    Ok(SystemTime::UNIX_EPOCH + Duration::new(seconds, time.nanosecond.unwrap_or(0)))
}

/// Returns the text of a time.
pub(super) fn text(time: SystemTime) -> String {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let seconds = since.as_secs().min(LAST);
    let [year, month, day] = date(seconds / DAY);
    let [hour, minute, second] = [seconds / 3_600 % 24, seconds / 60 % 60, seconds % 60];
    let fraction = format!(".{:09}", since.subsec_nanos());
    // A whole second has neither zeros nor the point before them.
    let fraction = fraction.trim_end_matches('0').trim_end_matches('.');
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}{fraction}Z")
}

/// Returns the year, the month and the day that is so many days after the start of 1970.
fn date(after: u64) -> [u64; 3] {
    // No year is longer, so that this one has begun. It is too early by a day in most years.
    let mut year = 1970 + after / 366;
    while days_since_1970(year + 1, 1, 1) <= after {
        year += 1;
    }
    let start = |month| days_since_1970(year, month, 1);
    let month = (1..=12).rev().find(|month| start(*month) <= after).unwrap_or(1);
    [year, month, after - start(month) + 1]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_day_of_a_thousand_years_is_the_one_after_the_last() {
        let mut before = date(0);
        assert_eq!(before, [1970, 1, 1]);
        for after in 1..400_000 {
            let now = date(after);
            let [year, month, day] = now;
            assert_eq!(days_since_1970(year, month, day), after);
            let [last_year, last_month, last_day] = before;
            let is_next_day = now == [last_year, last_month, last_day + 1];
            let ends_month = last_day >= 28;
            let is_next_month = ends_month && now == [last_year, last_month + 1, 1];
            let is_next_year = before == [year - 1, 12, 31] && [month, day] == [1, 1];
            assert!(is_next_day || is_next_month || is_next_year, "{before:?} {now:?}");
            before = now;
        }
    }

    #[cfg(feature = "overrides")]
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
