//! What is valid: every compile-time rule about the arguments.

use syn::{Expr, ExprLit, ExprTuple, ExprUnary, Lit, LitStr, Path, UnOp, parse_quote};

use crate::{args::Args, errors::Errors};

const DEFAULT_PERIOD_SECONDS: u64 = 60;
const DEFAULT_THRESHOLD: u32 = 3;

const SECOND: u64 = 1_000_000;
const MAX_PERIOD_SECONDS: u64 = 366 * 24 * 60 * 60;
const MAX_LOG: u32 = 100_000;

/// The arguments, judged.
pub(crate) struct Policy {
    pub(crate) period_micros: u64,
    pub(crate) threshold: u32,
    /// The parts of the key; none for the ambient caller.
    pub(crate) key: Vec<Expr>,
    pub(crate) name: Option<LitStr>,
    pub(crate) limiter: Option<Expr>,
    pub(crate) krate: Path,
}

impl Policy {
    pub(crate) fn judge(args: Args, errors: &mut Errors) -> Self {
        Self {
            period_micros: args
                .period
                .map_or(DEFAULT_PERIOD_SECONDS * SECOND, |period| judge_period(&period, errors)),
            threshold: args
                .threshold
                .map_or(DEFAULT_THRESHOLD, |threshold| judge_threshold(&threshold, errors)),
            key: args.key.map_or_else(Vec::new, |key| judge_key(key, errors)),
            name: args.name.and_then(|name| judge_name(&name, errors)),
            limiter: args.limiter,
            krate: args.krate.unwrap_or_else(|| parse_quote!(::ratelimit_runtime)),
        }
    }
}

fn judge_period(period: &Expr, errors: &mut Errors) -> u64 {
    match integer(period) {
        Ok(0) => errors.at(period, "`period` must be at least 1 second"),
        Ok(seconds @ 1..=MAX_PERIOD_SECONDS) => return seconds * SECOND,
        Ok(_) => errors
            .at(period, format!("`period` must be at most 366 days, {MAX_PERIOD_SECONDS} seconds")),
        Err(why) => errors.at(
            period,
            format!("`period` must be a whole number of seconds such as `30`; this is {why}"),
        ),
    }
    DEFAULT_PERIOD_SECONDS * SECOND
}

fn judge_threshold(threshold: &Expr, errors: &mut Errors) -> u32 {
    match integer(threshold).map(u32::try_from) {
        Ok(Ok(0)) => errors.at(threshold, "`threshold` must be at least 1"),
        Ok(Ok(threshold @ 1..=MAX_LOG)) => return threshold,
        Ok(_) => errors.at(
            threshold,
            format!(
                "`threshold` must be at most {MAX_LOG}: every admitted call is kept for a period"
            ),
        ),
        Err(why) => errors.at(
            threshold,
            format!("`threshold` must be a whole number of calls such as `5`; this is {why}"),
        ),
    }
    DEFAULT_THRESHOLD
}

/// A tuple, as written, makes several parts; anything else is one.
fn judge_key(key: Expr, errors: &mut Errors) -> Vec<Expr> {
    match key {
        Expr::Tuple(tuple) if tuple.elems.is_empty() => {
            errors.at(tuple, "`key` must have at least one part, such as `key = user_id`");
            Vec::new()
        }
        Expr::Tuple(ExprTuple { elems, .. }) => elems.into_iter().collect(),
        part => vec![part],
    }
}

fn judge_name(name: &Expr, errors: &mut Errors) -> Option<LitStr> {
    match name {
        Expr::Lit(ExprLit { lit: Lit::Str(name), .. }) if !name.value().is_empty() => {
            return Some(name.clone());
        }
        Expr::Lit(ExprLit { lit: Lit::Str(_), .. }) => errors.at(name, "`name` must not be empty"),
        _ => errors.at(name, "`name` must be a string literal such as `\"send-mail\"`"),
    }
    None
}

/// The value of an integer literal, or what the expression is instead.
fn integer(expr: &Expr) -> Result<u64, &'static str> {
    match expr {
        Expr::Lit(ExprLit { lit: Lit::Int(int), .. }) if int.suffix().is_empty() => {
            int.base10_parse().map_err(|_| "too large a number")
        }
        Expr::Lit(ExprLit { lit: Lit::Int(_), .. }) => Err("a number with a suffix"),
        Expr::Lit(ExprLit { lit: Lit::Float(_), .. }) => Err("a fraction"),
        Expr::Lit(ExprLit { lit: Lit::Str(_), .. }) => Err("a string"),
        Expr::Unary(ExprUnary { op: UnOp::Neg(_), .. }) => Err("negative"),
        _ => Err("no literal"),
    }
}
