//! Values: a literal is read now, so that it can be judged where it stands; any other expression is
//! left to the compiler's types and to run time.

use proc_macro2::{Literal, TokenStream};
use quote::{ToTokens, quote};
use syn::{Expr, ExprLit, ExprUnary, Lit, LitInt, UnOp};

use crate::args::{list, nearest};

/// A number, as far as it is known.
pub(crate) struct Value {
    /// As written.
    pub(crate) expr: Expr,
    /// The literal's number; microseconds for a length of time.
    pub(crate) number: Option<u64>,
    kind: Kind,
}

#[derive(Clone, Copy)]
pub(crate) enum Kind {
    Time,
    Units,
}

impl Value {
    /// A number of our own.
    pub(crate) fn known(number: u64, kind: Kind) -> Self {
        let expr = syn::parse_quote!(#number);
        Self { expr, number: Some(number), kind }
    }

    /// An expression that is left to run time.
    pub(crate) fn late(expr: Expr, kind: Kind) -> Self {
        Self { expr, number: None, kind }
    }

    /// The number as the runtime takes it; what is only known at run time is 0 until then.
    pub(crate) fn literal(&self, private: &TokenStream) -> TokenStream {
        let number = Literal::u64_unsuffixed(self.number.unwrap_or(0));
        match self.kind {
            Kind::Time => quote!(#private::micros(#number)),
            Kind::Units => number.into_token_stream(),
        }
    }
}

const SECOND: u64 = 1_000_000;

/// The units of a period, in microseconds.
const UNITS: [(&str, u64); 5] = [
    ("ms", 1_000),
    ("s", SECOND),
    ("m", 60 * SECOND),
    ("h", 60 * 60 * SECOND),
    ("d", 24 * 60 * 60 * SECOND),
];

/// Reads a length of time: a whole number of seconds, a string with units, or an expression.
pub(crate) fn time(name: &str, expr: Expr) -> syn::Result<Value> {
    let number = match literal(&expr) {
        None => None,
        Some(Written::Integer(seconds)) => Some(integer(name, seconds)?.saturating_mul(SECOND)),
        Some(Written::Other(Lit::Str(text))) => Some(
            read_units(&text.value())
                .map_err(|why| syn::Error::new_spanned(text, format!("`{name}` {why}")))?,
        ),
        Some(Written::Other(Lit::Float(seconds))) => {
            let millis = seconds.base10_parse::<f64>().ok().filter(|it| (0.001..1e6).contains(it));
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "in range")]
            let instead = millis.map_or(1_500, |seconds| (seconds * 1_000.0).ceil() as u64);
            let message = format!("`{name}` is a whole number of seconds; write `\"{instead}ms\"`");
            return Err(syn::Error::new_spanned(seconds, message));
        }
        Some(Written::Negative) => return Err(negative(name, &expr)),
        Some(Written::Other(other)) => {
            let message = format!(
                "`{name}` is a whole number of seconds, a string such as `\"500ms\"`, or an \
                 expression of type `Duration`"
            );
            return Err(syn::Error::new_spanned(other, message));
        }
    };
    Ok(Value { expr, number, kind: Kind::Time })
}

/// Reads a number of units: an integer literal or an expression.
pub(crate) fn units(name: &str, expr: Expr) -> syn::Result<Value> {
    let number = match literal(&expr) {
        None => None,
        Some(Written::Integer(units)) => Some(integer(name, units)?),
        Some(Written::Negative) => return Err(negative(name, &expr)),
        Some(Written::Other(other)) => {
            let message =
                format!("`{name}` is a whole number such as `5`, or an expression of type `u32`");
            return Err(syn::Error::new_spanned(other, message));
        }
    };
    Ok(Value { expr, number, kind: Kind::Units })
}

/// Reads one of a closed set of words.
pub(crate) fn word<T: Copy>(name: &str, expr: &Expr, words: &[(&str, T)]) -> syn::Result<T> {
    let written = match ungrouped(expr) {
        Expr::Path(path) => path.path.get_ident().map(ToString::to_string),
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => {
            let message = format!("write `{name} = {}`, without quotes", text.value());
            return Err(syn::Error::new_spanned(expr, message));
        }
        _ => None,
    };
    let written = written.unwrap_or_else(|| expr.to_token_stream().to_string());
    if let Some((_, value)) = words.iter().find(|(word, _)| *word == written) {
        return Ok(*value);
    }
    let names: Vec<_> = words.iter().map(|(word, _)| *word).collect();
    let meant = match nearest(&written, &names) {
        Some(word) => format!("did you mean `{word}`?"),
        None => format!("it is one of {}", list(&names)),
    };
    Err(syn::Error::new_spanned(expr, format!("unknown `{name}` `{written}`; {meant}")))
}

enum Written<'a> {
    Integer(&'a LitInt),
    /// An integer with a minus sign.
    Negative,
    Other(&'a Lit),
}

fn literal(expr: &Expr) -> Option<Written<'_>> {
    match ungrouped(expr) {
        Expr::Lit(ExprLit { lit: Lit::Int(int), .. }) => Some(Written::Integer(int)),
        Expr::Lit(ExprLit { lit, .. }) => Some(Written::Other(lit)),
        Expr::Unary(ExprUnary { op: UnOp::Neg(_), expr, .. }) => {
            literal(expr).map(|_| Written::Negative)
        }
        _ => None,
    }
}

/// The expression inside parentheses, and inside what a macro put around its parameter.
pub(crate) fn ungrouped(expr: &Expr) -> &Expr {
    match expr {
        Expr::Group(group) => ungrouped(&group.expr),
        Expr::Paren(paren) => ungrouped(&paren.expr),
        other => other,
    }
}

fn integer(name: &str, literal: &LitInt) -> syn::Result<u64> {
    const INTEGERS: [&str; 13] = [
        "", "u8", "u16", "u32", "u64", "u128", "usize", "i8", "i16", "i32", "i64", "i128", "isize",
    ];
    if !INTEGERS.contains(&literal.suffix()) {
        let message = format!("`{name}` is a whole number such as `{}`", literal.base10_digits());
        return Err(syn::Error::new_spanned(literal, message));
    }
    literal.base10_digits().parse().map_err(|_| {
        syn::Error::new_spanned(literal, format!("`{name}` is far too large a number"))
    })
}

fn negative(name: &str, expr: &Expr) -> syn::Error {
    syn::Error::new_spanned(expr, format!("`{name}` cannot be negative"))
}

/// Reads `"1h 30m"`: whole numbers, each with its unit.
fn read_units(text: &str) -> Result<u64, String> {
    const FORM: &str = "is written like `\"500ms\"`, `\"30s\"`, `\"5m\"`, `\"1h 30m\"` or `\"1d\"`";
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
            let names: Vec<_> = UNITS.iter().map(|(name, _)| *name).collect();
            return Err(match unit {
                "" if after.starts_with('.') => "has no fractions; use a smaller unit".to_owned(),
                "" => format!("needs a unit after `{number}`: {}", list(&names)),
                unit => format!("has no unit `{unit}`; the units are {}", list(&names)),
            });
        };
        // What does not fit is beyond the longest period, and stays so.
        let number: u64 = number.parse().unwrap_or(u64::MAX);
        total = total.saturating_add(number.saturating_mul(*micros));
        rest = after.trim_start();
    }
    Ok(total)
}

fn split_while(text: &str, belongs: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(|c| !belongs(c)).unwrap_or(text.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_time_are_read() {
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
            assert_eq!(read_units(text), Ok(micros), "{text}");
        }
    }

    #[test]
    fn what_is_no_length_of_time_is_told() {
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
            let error = read_units(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
