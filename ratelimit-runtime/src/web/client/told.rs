//! The wait that a remote service asks for in its answer.

use std::time::{Duration, SystemTime};

use crate::time::days_since_1970;

/// The header fields with the units that are left, and those with the time until there are more.
const COMMON: [(&str, &str); 9] = [
    ("x-ratelimit-remaining", "x-ratelimit-reset"),
    ("x-ratelimit-remaining-requests", "x-ratelimit-reset-requests"),
    ("x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens"),
    ("x-rate-limit-remaining", "x-rate-limit-reset"),
    ("ratelimit-remaining", "ratelimit-reset"),
    ("anthropic-ratelimit-requests-remaining", "anthropic-ratelimit-requests-reset"),
    ("anthropic-ratelimit-tokens-remaining", "anthropic-ratelimit-tokens-reset"),
    ("anthropic-ratelimit-input-tokens-remaining", "anthropic-ratelimit-input-tokens-reset"),
    ("anthropic-ratelimit-output-tokens-remaining", "anthropic-ratelimit-output-tokens-reset"),
];

/// From this number on, a reset is a time in seconds since 1970, and from the next one on in
/// milliseconds.
const EPOCHS: [f64; 2] = [1e9, 1e12];

/// Returns the time for which a remote service asks for no further call, if its answer does.
/// `fields` returns the values of the header fields of a name: several of `RateLimit` are one list,
/// and of another the first one counts.
///
/// The answers 429 and 503 are read for `retry-after-ms` and `Retry-After`. Without those, any
/// answer is read for fields by which nothing is left: `RateLimit`, and the common ones. Of
/// several, the longest wait counts.
pub(crate) fn told_wait<'a, V: Iterator<Item = &'a str>>(
    status: u16,
    fields: impl Fn(&'static str) -> V,
    now: SystemTime,
) -> Option<Duration> {
    let header = |name| fields(name).next();
    // Dates are by the clock of the remote service.
    let now = header("date").and_then(date).or_else(|| since_1970(now)).unwrap_or_default();
    let retry = || {
        let millis = header("retry-after-ms").and_then(number).map(|millis| millis / 1e3);
        millis.or_else(|| {
            let after = header("retry-after")?;
            number(after).or_else(|| date(after).map(|date| date - now))
        })
    };
    let limits = fields("ratelimit").flat_map(|field| parts(field, ',')).filter_map(none_left);
    let common = COMMON.iter().filter_map(|(remaining, reset)| {
        let is_none_left = header(remaining).and_then(number) == Some(0.0);
        header(reset).filter(|_| is_none_left).and_then(|reset| until(reset, now))
    });
    let wait = if matches!(status, 429 | 503) { retry() } else { None };
    let wait = wait.or_else(|| limits.chain(common).reduce(f64::max))?;
    Duration::try_from_secs_f64(wait).ok().filter(|wait| !wait.is_zero())
}

/// Returns a number of at most 15 digits before the point.
fn number(text: &str) -> Option<f64> {
    let is_digit = |it: char| it.is_ascii_digit() || it == '.';
    let text = text.trim();
    text.parse().ok().filter(|number| text.chars().all(is_digit) && *number < 1e15)
}

/// Returns the seconds until a reset: a number of them, a time since 1970, spans such as `1m30.5s`,
/// or a time in UTC.
fn until(reset: &str, now: f64) -> Option<f64> {
    match number(reset) {
        Some(millis) if millis >= EPOCHS[1] => Some(millis / 1e3 - now),
        Some(seconds) if seconds >= EPOCHS[0] => Some(seconds - now),
        Some(seconds) => Some(seconds),
        None => spans(reset.trim()).or_else(|| utc(reset.trim()).map(|time| time - now)),
    }
}

fn spans(mut text: &str) -> Option<f64> {
    let mut sum = 0.0;
    while !text.is_empty() {
        let unit = text.find(|it: char| it.is_ascii_alphabetic())?;
        let (amount, rest) = text.split_at(unit);
        let end = rest.find(|it: char| !it.is_ascii_alphabetic()).unwrap_or(rest.len());
        let (unit, rest) = rest.split_at(end);
        let seconds = match unit {
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3_600.0,
            "d" => 86_400.0,
            _ => return None,
        };
        (sum, text) = (sum + number(amount)? * seconds, rest);
    }
    Some(sum).filter(|sum| *sum > 0.0)
}

/// Returns the `t` of an item of `RateLimit` whose `r` is 0, as in `"default";r=0;t=30`.
fn none_left(item: &str) -> Option<f64> {
    let parameter = |name: &str| {
        let mut all = parts(item, ';').filter_map(|it| it.trim().split_once('='));
        all.find(|(own, _)| *own == name).and_then(|(_, value)| number(value))
    };
    parameter("t").filter(|_| parameter("r") == Some(0.0))
}

/// Returns the parts of a text between separators outside of quotes.
fn parts(text: &str, separator: char) -> impl Iterator<Item = &str> {
    let (mut is_quoted, mut is_escaped) = (false, false);
    text.split(move |it| {
        is_quoted ^= it == '"' && !is_escaped;
        is_escaped = is_quoted && it == '\\' && !is_escaped;
        it == separator && !is_quoted
    })
}

/// Returns the seconds from 1970 to a date such as `Sun, 06 Nov 1994 08:49:37 GMT`.
fn date(text: &str) -> Option<f64> {
    since_1970(httpdate::parse_http_date(text.trim()).ok()?)
}

/// Returns the seconds from 1970 to a time in UTC such as `1994-11-06T08:49:37Z` (RFC 3339).
fn utc(text: &str) -> Option<f64> {
    let (date, time) = text.strip_suffix('Z')?.split_once('T')?;
    let date: Vec<u64> = date.split('-').map(|it| it.parse().ok()).collect::<Option<_>>()?;
    let time: Vec<f64> = time.split(':').map(number).collect::<Option<_>>()?;
    let [year, month, day] = date[..] else { return None };
    let [hour, minute, second] = time[..] else { return None };
    let is_date = year < 10_000 && (1..=12).contains(&month) && (1..=31).contains(&day);
    // A leap second is the last one of its minute.
    if !is_date || hour >= 24.0 || minute >= 60.0 || second >= 61.0 {
        return None;
    }
    let days = u32::try_from(days_since_1970(year, month, day)).ok()?;
    Some(f64::from(days) * 86_400.0 + hour * 3_600.0 + minute * 60.0 + second)
}

fn since_1970(time: SystemTime) -> Option<f64> {
    time.duration_since(SystemTime::UNIX_EPOCH).ok().map(|since| since.as_secs_f64())
}

#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz {
    use super::*;

    /// Header fields, a line each, of a service that answers 429.
    pub(crate) fn assert_property(text: &str) {
        let fields = || text.lines().filter_map(|line| line.split_once(':'));
        let values = |name: &'static str| {
            let is_it = move |own: &str| own.eq_ignore_ascii_case(name);
            fields().filter(move |(own, _)| is_it(own)).map(|(_, value)| value.trim())
        };
        let header = |name| values(name).next();
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
        let wait = |status| told_wait(status, values, now);
        assert!(wait(429).is_none_or(|wait| !wait.is_zero()));
        assert_eq!(wait(429), wait(503));
        // Another answer is not read for a time to retry.
        let is_read = |name: &str| name.to_ascii_lowercase().starts_with("retry-after");
        if !fields().any(|(name, _)| is_read(name)) {
            assert_eq!(wait(200), wait(429));
        }
        let digits = header("retry-after").filter(|it| it.bytes().all(|it| it.is_ascii_digit()));
        if let Some(seconds) = digits.and_then(|it| it.parse::<u32>().ok())
            && header("retry-after-ms").is_none()
        {
            assert_eq!(wait(429).unwrap_or_default().as_secs(), u64::from(seconds));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The day of the example in RFC 9110.
    const NOW: u64 = 784_111_777;

    fn told(status: u16, fields: &[(&str, &str)]) -> Option<f64> {
        let values = |name| fields.iter().filter(move |it| it.0 == name).map(|it| it.1);
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(NOW);
        told_wait(status, values, now).map(|wait| wait.as_secs_f64())
    }

    #[test]
    fn the_time_to_retry_is_read_from_refusals_alone() {
        for (status, wait) in [(429, Some(30.0)), (503, Some(30.0)), (200, None), (404, None)] {
            assert_eq!(told(status, &[("retry-after", "30")]), wait, "{status}");
        }
        let later = "Sun, 06 Nov 1994 08:50:00 GMT";
        assert_eq!(told(429, &[("retry-after", later)]), Some(23.0));
        // The clock of the remote service is ahead.
        let fields = [("retry-after", later), ("date", "Sun, 06 Nov 1994 08:49:58 GMT")];
        assert_eq!(told(429, &fields), Some(2.0));
        let fields = [("retry-after", "2"), ("retry-after-ms", "1500")];
        assert_eq!(told(429, &fields), Some(1.5));
    }

    #[test]
    fn nothing_left_is_read_in_the_common_forms() {
        let now = NOW.to_string();
        for (fields, wait) in [
            (&[("ratelimit", "\"default\";r=0;t=30")][..], 30.0),
            (&[("ratelimit", "\"a,;r=0;t=9\";r=5;t=90, \"b\";r=0;t=7, \"c\";t=8;r=0")], 8.0),
            (&[("ratelimit", "\"a\";r=1;t=90"), ("ratelimit", "\"b\";r=0;t=8")], 8.0),
            (&[("ratelimit", r#""6\" by 9\\";r=0;t=7, "b";r=0;t=8"#)], 8.0),
            (&[("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "12")], 12.0),
            (&[("ratelimit-remaining", "0"), ("ratelimit-reset", "12")], 12.0),
            (
                &[
                    ("anthropic-ratelimit-input-tokens-remaining", "0"),
                    ("anthropic-ratelimit-input-tokens-reset", "1994-11-06T08:50:00.5Z"),
                    ("anthropic-ratelimit-requests-remaining", "49"),
                    ("anthropic-ratelimit-requests-reset", "1994-11-06T09:50:00Z"),
                ],
                23.5,
            ),
            (
                &[("x-ratelimit-remaining-tokens", "0"), ("x-ratelimit-reset-tokens", "1m2.5s")],
                62.5,
            ),
            (
                &[
                    ("x-ratelimit-remaining", "0"),
                    ("x-ratelimit-reset", "1700000010"),
                    ("date", "Tue, 14 Nov 2023 22:13:20 GMT"),
                ],
                10.0,
            ),
        ] {
            assert_eq!(told(429, fields), Some(wait), "{fields:?} at {now}");
            assert_eq!(told(200, fields), Some(wait), "{fields:?} at {now}");
        }
    }

    #[test]
    fn unknown_forms_and_times_that_have_come_ask_for_nothing() {
        for fields in [
            &[][..],
            &[("retry-after", "soon")],
            &[("retry-after", "-5")],
            &[("retry-after", "1e9")],
            &[("retry-after", "0")],
            &[("retry-after", "inf")],
            &[("retry-after", "Sun, 06 Nov 1994 08:49:37 GMT")],
            &[("retry-after", "Sun, 06 Nov 1994 08:49:99 GMT")],
            &[("retry-after", "Sun, 06 Nob 1994 09:49:37 GMT")],
            &[("ratelimit", "\"default\";r=1;t=30")],
            &[("ratelimit", "\"r=0;t=30")],
            &[("x-ratelimit-remaining", "1"), ("x-ratelimit-reset", "12")],
            &[("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "1x")],
            &[("x-ratelimit-remaining", "0")],
            &[("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "1994-11-06T08:49:37Z")],
            &[("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "1994-13-06T08:50:37Z")],
            &[("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "1994-11-00T08:50:37Z")],
            &[("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "1994-11-06T08:50Z")],
            &[("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "1994-11-06T08:50:37")],
        ] {
            assert_eq!(told(429, fields), None, "{fields:?}");
        }
    }
}
