//! The arguments of the attribute as written, with their spans. Only the grammar is checked here.

use proc_macro2::{Ident, Span, TokenStream, TokenTree};
use syn::{
    Expr, Path, Token,
    ext::IdentExt,
    parenthesized,
    parse::{Parse, ParseStream, Parser},
};

use crate::errors::Errors;

/// The arguments; `None` for each that is absent.
#[derive(Default)]
pub(crate) struct Args {
    /// The names of all arguments, in the order in which they are written.
    pub(crate) written: Vec<Ident>,
    pub(crate) period: Option<Arg<Expr>>,
    pub(crate) threshold: Option<Arg<Expr>>,
    pub(crate) tiers: Vec<TierArgs>,
    pub(crate) key: Option<Arg<Expr>>,
    pub(crate) name: Option<Arg<Expr>>,
    pub(crate) algorithm: Option<Arg<Expr>>,
    pub(crate) burst: Option<Arg<Expr>>,
    pub(crate) cost: Option<Arg<Expr>>,
    pub(crate) skip: Option<Arg<Expr>>,
    pub(crate) limiter: Option<Arg<Expr>>,
    pub(crate) on_store_error: Option<Arg<Expr>>,
    pub(crate) max_wait: Option<Arg<Expr>>,
    pub(crate) count_rejected: Option<Arg<()>>,
    pub(crate) dry_run: Option<Arg<()>>,
    pub(crate) fallible: Option<Arg<()>>,
    pub(crate) decision: Option<Arg<Expr>>,
    pub(crate) soft: Option<Arg<()>>,
    pub(crate) otherwise: Option<Arg<Expr>>,
    pub(crate) policy: Option<Arg<Expr>>,
    pub(crate) request_id: Option<Arg<Expr>>,
    pub(crate) concurrency: Option<Arg<Expr>>,
    pub(crate) concurrency_timeout: Option<Arg<Expr>>,
    pub(crate) settle: Option<Arg<Expr>>,
    pub(crate) lease: Option<Arg<Expr>>,
    pub(crate) krate: Option<Arg<Path>>,
}

/// An argument: its name, with the span, and its value.
pub(crate) struct Arg<T> {
    pub(crate) name: Ident,
    pub(crate) value: T,
}

/// `tier(period = .., threshold = ..)`.
pub(crate) struct TierArgs {
    pub(crate) keyword: Ident,
    pub(crate) period: Option<Arg<Expr>>,
    pub(crate) threshold: Option<Arg<Expr>>,
}

/// The names of all arguments.
const NAMES: [&str; 25] = [
    "period",
    "threshold",
    "tier",
    "key",
    "name",
    "algorithm",
    "burst",
    "cost",
    "skip",
    "limiter",
    "on_store_error",
    "max_wait",
    "count_rejected",
    "dry_run",
    "fallible",
    "decision",
    "soft",
    "otherwise",
    "policy",
    "request_id",
    "concurrency",
    "concurrency_timeout",
    "settle",
    "lease",
    "crate",
];

/// The names of the arguments of a tier.
const TIER_NAMES: [&str; 2] = ["period", "threshold"];

/// The names that other rate limiters use for these arguments.
const SYNONYMS: [(&str, &[&str]); 15] = [
    (
        "threshold",
        &[
            "limit",
            "rate",
            "max",
            "max_requests",
            "requests",
            "count",
            "quota",
            "permits",
            "rps",
            "calls",
        ],
    ),
    ("period", &["window", "per", "interval", "duration", "ttl", "seconds", "per_second"]),
    ("tier", &["tiers", "windows", "limits"]),
    ("key", &["by", "user", "caller", "identity", "identifier", "key_func"]),
    ("burst", &["capacity", "burst_size", "bucket_size"]),
    ("cost", &["weight", "tokens", "units", "amount"]),
    ("skip", &["unless", "exempt", "exempt_when", "skip_if"]),
    ("limiter", &["store", "backend"]),
    ("max_wait", &["timeout", "max_wait_ms", "wait"]),
    ("concurrency", &["max_concurrent", "max_concurrency", "in_flight", "semaphore"]),
    ("settle", &["actual", "actual_cost", "cost_after", "refund", "refund_if"]),
    ("lease", &["prefetch", "batch", "reserve_ahead", "local_cache"]),
    ("request_id", &["id", "idempotency_key", "dedup", "dedup_key"]),
    ("decision", &["bind", "quota_name", "outcome"]),
    ("otherwise", &["or_else", "fallback", "on_rejected", "on_limit", "or_return"]),
];

impl Args {
    /// Parses every argument; those with a syntax error are added to `errors`.
    pub(crate) fn parse(tokens: TokenStream, errors: &mut Errors) -> Self {
        let mut args = Self::default();
        let all = |input: ParseStream<'_>| {
            each_argument(input, errors, |name, input, errors| args.take(name, input, errors))
        };
        if let Err(error) = all.parse2(tokens) {
            errors.push(error);
        }
        args
    }

    /// Parses one argument after its name.
    fn take(
        &mut self,
        name: Ident,
        input: ParseStream<'_>,
        errors: &mut Errors,
    ) -> syn::Result<()> {
        self.written.push(name.clone());
        match name.to_string().as_str() {
            "period" => assign(&mut self.period, name, input, errors),
            "threshold" => assign(&mut self.threshold, name, input, errors),
            "tier" => {
                self.tiers.push(TierArgs::parse(name, input, errors)?);
                Ok(())
            }
            "key" => assign(&mut self.key, name, input, errors),
            "name" => assign(&mut self.name, name, input, errors),
            "algorithm" => assign(&mut self.algorithm, name, input, errors),
            "burst" => assign(&mut self.burst, name, input, errors),
            "cost" => assign(&mut self.cost, name, input, errors),
            "skip" => assign(&mut self.skip, name, input, errors),
            "limiter" => assign(&mut self.limiter, name, input, errors),
            "on_store_error" => assign(&mut self.on_store_error, name, input, errors),
            "max_wait" => assign(&mut self.max_wait, name, input, errors),
            "count_rejected" => flag(&mut self.count_rejected, name, input, errors),
            "dry_run" => flag(&mut self.dry_run, name, input, errors),
            "fallible" => flag(&mut self.fallible, name, input, errors),
            "decision" => assign(&mut self.decision, name, input, errors),
            "soft" => flag(&mut self.soft, name, input, errors),
            "otherwise" => assign(&mut self.otherwise, name, input, errors),
            "policy" => assign(&mut self.policy, name, input, errors),
            "request_id" => assign(&mut self.request_id, name, input, errors),
            "concurrency" => assign(&mut self.concurrency, name, input, errors),
            "concurrency_timeout" => assign(&mut self.concurrency_timeout, name, input, errors),
            "settle" => assign(&mut self.settle, name, input, errors),
            "lease" => assign(&mut self.lease, name, input, errors),
            "crate" => assign(&mut self.krate, name, input, errors),
            unknown => Err(unknown_name(unknown, name.span(), &NAMES)),
        }
    }
}

impl TierArgs {
    fn parse(keyword: Ident, input: ParseStream<'_>, errors: &mut Errors) -> syn::Result<Self> {
        if !input.peek(syn::token::Paren) {
            let message = "`tier` is written `tier(period = .., threshold = ..)`";
            return Err(syn::Error::new(keyword.span(), message));
        }
        let content;
        parenthesized!(content in input);
        let mut tier = Self { keyword, period: None, threshold: None };
        each_argument(&content, errors, |name, input, errors| match name.to_string().as_str() {
            "period" => assign(&mut tier.period, name, input, errors),
            "threshold" => assign(&mut tier.threshold, name, input, errors),
            unknown => Err(unknown_name(unknown, name.span(), &TIER_NAMES)),
        })?;
        Ok(tier)
    }
}

/// Parses arguments separated by commas, and continues after one with an error.
fn each_argument(
    input: ParseStream<'_>,
    errors: &mut Errors,
    mut take: impl FnMut(Ident, ParseStream<'_>, &mut Errors) -> syn::Result<()>,
) -> syn::Result<()> {
    while !input.is_empty() {
        let parsed = input
            .call(Ident::parse_any)
            .map_err(|error| {
                let message = "expected an argument such as `period = 30`";
                syn::Error::new(error.span(), message)
            })
            .and_then(|name| take(name, input, errors))
            .and_then(|()| {
                if input.is_empty() || input.peek(Token![,]) {
                    return Ok(());
                }
                Err(input.error("expected a `,` before the next argument"))
            });
        if let Err(error) = parsed {
            errors.push(error);
            while !input.is_empty() && !input.peek(Token![,]) {
                input.parse::<TokenTree>()?;
            }
        }
        input.parse::<Option<Token![,]>>()?;
    }
    Ok(())
}

/// Parses `= value` into the field.
fn assign<T: Parse>(
    field: &mut Option<Arg<T>>,
    name: Ident,
    input: ParseStream<'_>,
    errors: &mut Errors,
) -> syn::Result<()> {
    let needs_a_value =
        || syn::Error::new(name.span(), format!("`{name}` needs a value: `{name} = ..`"));
    if !input.peek(Token![=]) {
        return Err(needs_a_value());
    }
    input.parse::<Token![=]>()?;
    if input.is_empty() || input.peek(Token![,]) {
        return Err(needs_a_value());
    }
    let value = input.parse()?;
    fill(field, Arg { name, value }, errors);
    Ok(())
}

/// Parses an argument without a value.
fn flag(
    field: &mut Option<Arg<()>>,
    name: Ident,
    input: ParseStream<'_>,
    errors: &mut Errors,
) -> syn::Result<()> {
    if input.peek(Token![=]) {
        let message = format!("`{name}` takes no value: write `{name}`, or leave it out");
        return Err(syn::Error::new(name.span(), message));
    }
    fill(field, Arg { name, value: () }, errors);
    Ok(())
}

/// Sets the argument; a second one is an error.
fn fill<T>(field: &mut Option<Arg<T>>, arg: Arg<T>, errors: &mut Errors) {
    if field.is_some() {
        let name = &arg.name;
        errors.at(name, format!("`{name}` is given twice; keep one of them"));
    } else {
        *field = Some(arg);
    }
}

fn unknown_name(unknown: &str, span: Span, names: &[&str]) -> syn::Error {
    let synonym = SYNONYMS.iter().find(|(_, others)| others.contains(&unknown));
    let message = match synonym.map(|(name, _)| *name).filter(|name| names.contains(name)) {
        Some(name) => format!("unknown argument `{unknown}`; here it is called `{name}`"),
        None => match nearest(unknown, names) {
            Some(name) => format!("unknown argument `{unknown}`; did you mean `{name}`?"),
            None => format!("unknown argument `{unknown}`; the arguments are {}", list(names)),
        },
    };
    syn::Error::new(span, message)
}

/// Returns the most similar name, if one is similar enough.
pub(crate) fn nearest<'a>(written: &str, names: &[&'a str]) -> Option<&'a str> {
    let distance = |name: &&&str| strsim::damerau_levenshtein(written, name);
    let closest = names.iter().min_by_key(distance)?;
    (distance(&closest) <= 1 + closest.len() / 4).then_some(closest)
}

/// Formats the names for a message, each in backticks.
pub(crate) fn list(names: &[&str]) -> String {
    let quoted: Vec<_> = names.iter().map(|name| format!("`{name}`")).collect();
    match quoted.split_last() {
        Some((last, others)) if !others.is_empty() => format!("{} and {last}", others.join(", ")),
        _ => quoted.concat(),
    }
}
