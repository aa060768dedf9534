//! Values: literals, which are parsed and validated at their position, and dynamic expressions,
//! which the compiler's types and the runtime check.
//!
//! Floor 2.

use proc_macro2::{Literal, TokenStream};
use quote::{ToTokens, quote};
use ratelimit_core::{CalendarUnit, period};
use syn::{Expr, ExprLit, ExprUnary, Lit, LitInt, LitStr, UnOp};

use crate::names::{list, nearest};

/// A number of the attribute: literal or dynamic.
pub(crate) struct Value {
    /// As written.
    pub(crate) expr: Expr,
    /// The number of a literal, in microseconds for a length of time; `None` if dynamic.
    pub(crate) number: Option<u64>,
    pub(crate) kind: Kind,
}

/// Errors at a value mark it as it is written.
impl ToTokens for Value {
    fn to_tokens(&self, tokens: &mut TokenStream) {
        self.expr.to_tokens(tokens);
    }
}

#[derive(Clone, Copy)]
pub(crate) enum Kind {
    Time,
    Units,
}

impl Value {
    /// Returns a number that is not written, such as a default.
    pub(crate) fn known(number: u64, kind: Kind) -> Self {
        let expr = syn::parse_quote!(#number);
        Self { expr, number: Some(number), kind }
    }

    /// Returns an expression that is evaluated at run time.
    pub(crate) fn dynamic(expr: Expr, kind: Kind) -> Self {
        Self { expr, number: None, kind }
    }

    /// Returns `true` if it is no literal, not even a wrong one.
    pub(crate) fn is_dynamic(&self) -> bool {
        self.number.is_none() && literal(&self.expr).is_none()
    }

    /// Returns the tokens of the number for the runtime; 0 for a dynamic value.
    pub(crate) fn literal(&self, private: &TokenStream) -> TokenStream {
        let number = Literal::u64_unsuffixed(self.number.unwrap_or(0));
        match self.kind {
            Kind::Time => quote!(#private::micros(#number)),
            Kind::Units => number.into_token_stream(),
        }
    }
}

/// The microseconds of one second.
const SECOND: u64 = 1_000_000;

/// Parses a length of time: a whole number of seconds, a string with units, or an expression.
pub(crate) fn time(name: &str, expr: Expr) -> syn::Result<Value> {
    let number = match literal(&expr) {
        None => None,
        // The rules refuse a time as long as the largest number.
        Some(Written::Integer(seconds)) => Some(integer(name, seconds)?.saturating_mul(SECOND)),
        Some(Written::Other(Lit::Str(text))) => Some(
            period::parse(&text.value())
                .map_err(|why| syn::Error::new_spanned(text, format!("`{name}` {why}")))?,
        ),
        Some(Written::Other(Lit::Float(seconds))) => {
            // For the advice alone: beyond these bounds it has an example instead.
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

/// Parses the lengths of blocks: one length of time, or an array of them, all literals.
pub(crate) fn lengths(name: &str, expr: &Expr) -> Vec<syn::Result<Value>> {
    let form = |at: &Expr| {
        let message = format!(
            "`{name}` is a length of time such as `\"10m\"`, or an array such as `[\"2m\", \"10m\"]`; all \
             are literals"
        );
        Err(syn::Error::new_spanned(at, message))
    };
    let of_one = |expr: &Expr| match literal(expr) {
        None => form(expr),
        Some(_) => time(name, expr.clone()),
    };
    match ungrouped(expr) {
        Expr::Array(array) if array.elems.is_empty() => vec![form(expr)],
        Expr::Array(array) => array.elems.iter().map(of_one).collect(),
        _ => vec![of_one(expr)],
    }
}

/// Parses a number of units: an integer literal or an expression.
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

/// Parses a share: a string of percent, an integer literal or an expression. The string is what
/// documents of overrides take: digits without a zero before them, and `%`.
pub(crate) fn percent(name: &str, expr: Expr) -> syn::Result<Value> {
    let wrong = |at: &Lit| {
        let message = format!(
            "`{name}` is a string such as `\"20%\"`, or an expression of an unsigned integer: percent"
        );
        syn::Error::new_spanned(at, message)
    };
    match literal(&expr) {
        Some(Written::Other(lit)) => {
            let Lit::Str(text) = lit else { return Err(wrong(lit)) };
            let text = text.value();
            let number =
                text.strip_suffix('%').and_then(|number| number.trim().parse::<u64>().ok());
            let written = format!("{}%", number.ok_or_else(|| wrong(lit))?);
            if written != text {
                let message = format!("`{name}` is written `{written:?}`");
                return Err(syn::Error::new_spanned(lit, message));
            }
            Ok(Value { expr, number, kind: Kind::Units })
        }
        _ => units(name, expr),
    }
}

/// Returns the unit of the calendar that a string literal names.
pub(crate) fn calendar_unit(expr: &Expr) -> Option<CalendarUnit> {
    let Written::Other(Lit::Str(text)) = literal(expr)? else { return None };
    let text = text.value();
    CalendarUnit::ALL.iter().copied().find(|unit| unit.as_str() == text)
}

/// Parses a string literal that is a name of a time zone.
pub(crate) fn zone(expr: &Expr) -> syn::Result<LitStr> {
    match literal(expr) {
        Some(Written::Other(Lit::Str(text))) if !text.value().is_empty() => Ok(text.clone()),
        _ => {
            let message = "`zone` is a string literal such as `\"Europe/Berlin\"`";
            Err(syn::Error::new_spanned(expr, message))
        }
    }
}

/// Parses one of a closed set of words.
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
    let names = || words.iter().map(|(word, _)| *word);
    let meant = match nearest(&written, names()) {
        Some(word) => format!("did you mean `{word}`?"),
        None => format!("it is one of {}", list(names())),
    };
    Err(syn::Error::new_spanned(expr, format!("unknown `{name}` `{written}`; {meant}")))
}

/// A literal as written.
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

/// Returns `true` for an expression that has the same value at each call.
pub(crate) fn is_literal(expr: &Expr) -> bool {
    literal(expr).is_some()
}

/// Returns the expression inside parentheses, and inside the invisible group of a macro's
/// parameter.
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
