//! Text of operators on one line, for messages in logs.

use std::fmt::{self, Write};

/// A text that is displayed on one line. Characters that start a line, move the cursor or change
/// the direction of writing are escaped.
pub(crate) struct OneLine<T>(pub(crate) T);

impl<T: fmt::Display> fmt::Display for OneLine<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(Escaping(f), "{}", self.0)
    }
}

/// A writer that escapes.
struct Escaping<'a, 'f>(&'a mut fmt::Formatter<'f>);

impl Write for Escaping<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        text.chars().try_for_each(|it| match it {
            '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
                write!(self.0, "{}", it.escape_default())
            }
            _ if it.is_control() => write!(self.0, "{}", it.escape_default()),
            _ => self.0.write_char(it),
        })
    }
}
