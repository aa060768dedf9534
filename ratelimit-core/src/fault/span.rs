//! A length of time in a message.

use std::fmt;

/// A duration in the largest unit of which it is a multiple.
pub(super) struct Span(pub(super) u64);

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SECOND: u64 = 1_000_000;
        let units = [
            (24 * 60 * 60 * SECOND, "d"),
            (60 * 60 * SECOND, "h"),
            (60 * SECOND, "min"),
            (SECOND, "s"),
            (1_000, "ms"),
        ];
        let Self(micros) = *self;
        if micros == 0 {
            return f.write_str("0");
        }
        let whole = units.into_iter().find(|(unit, _)| micros.is_multiple_of(*unit));
        let (unit, name) = whole.unwrap_or((1, "µs"));
        write!(f, "{} {name}", micros / unit)
    }
}
