//! A text with units is a duration or an error, and durations add up.

use proc_macro2::Span;
use syn::{Expr, ExprLit, Lit, LitStr};

use crate::value;

/// The input is the whole text, and each of its parts between `|`.
pub(crate) fn holds(text: &str) {
    let read_all = read(text);
    if let Some(micros) = read_all {
        // White space has no meaning, and a number is its milliseconds.
        let bare: String = text.split_whitespace().collect();
        assert_eq!(read(&bare), read_all, "{bare}");
        if micros < u64::MAX {
            assert_eq!(micros % 1_000, 0);
            assert_eq!(read(&format!("{}ms", micros / 1_000)), read_all);
        }
    }
    if let Some((first, second)) = text.split_once('|')
        && let (Some(one), Some(other)) = (read(first), read(second))
    {
        assert_eq!(read(&format!("{first}{second}")), Some(one.saturating_add(other)));
        assert_eq!(read(&format!("{second} {first}")), Some(one.saturating_add(other)));
    }
}

/// Returns microseconds. An error names its argument.
fn read(text: &str) -> Option<u64> {
    let lit = Lit::Str(LitStr::new(text, Span::call_site()));
    match value::time("max_wait", Expr::Lit(ExprLit { attrs: Vec::new(), lit })) {
        Ok(value) => Some(value.number.expect("a literal's number is known")),
        Err(error) => {
            let message = error.to_string();
            assert!(message.starts_with("`max_wait` "), "{message}");
            None
        }
    }
}
