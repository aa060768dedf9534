//! Durations as text: `"1h 30m"`.

const SECOND: u64 = 1_000_000;

/// The units, in microseconds.
const UNITS: [(&str, u64); 5] = [
    ("ms", 1_000),
    ("s", SECOND),
    ("m", 60 * SECOND),
    ("h", 60 * 60 * SECOND),
    ("d", 24 * 60 * 60 * SECOND),
];

/// Parses integers, each with its unit, and returns their sum in microseconds. Too large a sum
/// saturates.
///
/// # Errors
///
/// The end of a sentence that starts with the argument's name: "needs a unit after ..".
pub fn parse(text: &str) -> Result<u64, String> {
    const FORM: &str = "is written like `\"500ms\"`, `\"30s\"`, `\"5m\"`, `\"1h 30m\"` or `\"1d\"`";
    const NAMES: &str = "`ms`, `s`, `m`, `h` and `d`";
    let mut rest = text.trim();
    if rest.is_empty() {
        return Err(FORM.to_owned());
    }
    let mut total: u64 = 0;
    while !rest.is_empty() {
        let (number, after) = split_while(rest, |c| c.is_ascii_digit());
        let (unit, after) = split_while(after.trim_start(), char::is_alphabetic);
        if number.is_empty() {
            return Err(if rest.starts_with('-') {
                "cannot be negative".to_owned()
            } else {
                FORM.to_owned()
            });
        }
        let Some((_, micros)) = UNITS.iter().find(|(name, _)| *name == unit) else {
            return Err(match unit {
                "" if after.starts_with('.') => "has no fractions; use a smaller unit".to_owned(),
                "" => format!("needs a unit after `{number}`: {NAMES}"),
                unit => format!("has no unit `{unit}`; the units are {NAMES}"),
            });
        };
        // A number that overflows is beyond the maximum period anyway.
        let number: u64 = number.parse().unwrap_or(u64::MAX);
        total = total.saturating_add(number.saturating_mul(*micros));
        rest = after.trim_start();
    }
    Ok(total)
}

/// Returns whole seconds as such, and any other length of time in milliseconds.
#[must_use]
pub fn text(micros: u64) -> String {
    if micros.is_multiple_of(SECOND) {
        format!("{}s", micros / SECOND)
    } else {
        format!("{}ms", micros / 1_000)
    }
}

fn split_while(text: &str, belongs: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(|c| !belongs(c)).unwrap_or(text.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_parsed() {
        for (text, micros) in [
            ("500ms", 500_000),
            ("30s", 30 * SECOND),
            ("5m", 300 * SECOND),
            ("1h 30m", 5_400 * SECOND),
            ("1h30m", 5_400 * SECOND),
            (" 2 d ", 172_800 * SECOND),
            ("0s", 0),
            ("99999999999999999999999d", u64::MAX),
        ] {
            assert_eq!(parse(text), Ok(micros), "{text}");
        }
    }

    #[test]
    fn other_text_is_an_error_that_names_the_mistake() {
        for (text, part) in [
            ("", "is written like"),
            ("soon", "is written like"),
            ("30", "needs a unit after `30`"),
            ("1h 30", "needs a unit after `30`"),
            ("30 sec", "has no unit `sec`; the units are `ms`, `s`, `m`, `h` and `d`"),
            ("1.5s", "has no fractions"),
            ("-5s", "cannot be negative"),
            ("5s,", "is written like"),
            ("5µs", "has no unit `µs`"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
