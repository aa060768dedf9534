//! The tiers of a limit, and the numbers in its arguments.
//!
//! Floor 4.

use proc_macro2::{Ident, Span};
use ratelimit_core::{CalendarUnit, PolicyFault};
use syn::Expr;

use crate::{
    args::TierArgs,
    errors::Errors,
    grammar::Arg,
    value::{self, Kind, Value},
};

/// The default period in microseconds: 1 min.
const DEFAULT_PERIOD: u64 = 60_000_000;
/// The default threshold in units.
const DEFAULT_THRESHOLD: u64 = 3;

const NEEDS_CALENDAR: &str = "a period of the calendar needs `algorithm = calendar_window`; other windows \
    have a length, such as `\"1d\"`";

/// A tier and its position.
pub(crate) struct TierSpec {
    pub(crate) period: Value,
    pub(crate) threshold: Value,
    pub(crate) at: Ident,
}

/// Validates the form of `period`, `threshold` and `tier(..)`. Without any, the defaults are one
/// tier.
pub(crate) fn validate_tiers(
    is_calendar: bool,
    period: Option<Arg<Expr>>,
    threshold: Option<Arg<Expr>>,
    tiers: Vec<Arg<TierArgs>>,
    errors: &mut Errors,
) -> Vec<TierSpec> {
    if tiers.is_empty() {
        let period = match period {
            Some(period) => parse_period(is_calendar, period, errors),
            // An error by now, in `LimitSpec::validate`. A day breaks no further rule.
            None if is_calendar => Value::known(CalendarUnit::Day.nominal(), Kind::Time),
            None => Value::known(DEFAULT_PERIOD, Kind::Time),
        };
        let threshold = match threshold {
            Some(threshold) => parse_units(threshold, errors),
            None => Value::known(DEFAULT_THRESHOLD, Kind::Units),
        };
        return vec![TierSpec { period, threshold, at: Ident::new("tier", Span::call_site()) }];
    }
    for arg in [&period, &threshold].into_iter().flatten() {
        let name = &arg.name;
        errors.at(name, format!("`{name}` goes into a `tier(..)` when there are any"));
    }
    let mut parsed = Vec::new();
    for Arg { name: at, value: TierArgs { period, threshold } } in tiers {
        for (name, arg) in [("period", &period), ("threshold", &threshold)] {
            if arg.is_none() {
                let form = "`tier(period = .., threshold = ..)`";
                errors.at(&at, format!("this tier needs a `{name}`: {form}"));
            }
        }
        if let (Some(period), Some(threshold)) = (period, threshold) {
            let period = parse_period(is_calendar, period, errors);
            parsed.push(TierSpec { period, threshold: parse_units(threshold, errors), at });
        }
    }
    parsed
}

/// Parses a length of time. A value with a syntax error counts as dynamic, so that it breaks no
/// further rule.
pub(crate) fn parse_time(Arg { name, value: expr }: Arg<Expr>, errors: &mut Errors) -> Value {
    let value = errors.or(value::time(&name.to_string(), expr.clone()));
    value.unwrap_or_else(|| Value::dynamic(expr, Kind::Time))
}

/// Parses the lengths of blocks, each as [`parse_time`] does.
pub(crate) fn parse_lengths(Arg { name, value }: Arg<Expr>, errors: &mut Errors) -> Vec<Value> {
    let lengths = value::lengths(&name.to_string(), &value).into_iter();
    lengths.filter_map(|length| errors.or(length)).collect()
}

/// Parses a period: a unit of the calendar if the algorithm is a `calendar_window`, otherwise a
/// length of time.
fn parse_period(is_calendar: bool, period: Arg<Expr>, errors: &mut Errors) -> Value {
    let unit = value::calendar_unit(&period.value);
    if is_calendar {
        if unit.is_none() {
            errors.at(&period.value, PolicyFault::PeriodOffCalendar);
        }
        let number = unit.map(CalendarUnit::nominal);
        return Value { number, ..Value::dynamic(period.value, Kind::Time) };
    }
    if unit.is_some() {
        errors.at(&period.value, NEEDS_CALENDAR);
        return Value::dynamic(period.value, Kind::Time);
    }
    parse_time(period, errors)
}

/// Parses a number of units, as [`parse_time`] does a length of time.
pub(crate) fn parse_units(Arg { name, value: expr }: Arg<Expr>, errors: &mut Errors) -> Value {
    let value = errors.or(value::units(&name.to_string(), expr.clone()));
    // The rules have a maximum of each algorithm's thresholds. Other numbers of a dynamic or shared
    // limit are in none.
    if let Some(number) = value.as_ref().and_then(|it| it.number)
        && u32::try_from(number).is_err()
        && name != "threshold"
    {
        errors.at(&expr, format!("`{name}` must be at most {}, but is {number}", u32::MAX));
    }
    value.unwrap_or_else(|| Value::dynamic(expr, Kind::Units))
}

/// Parses a share in percent, as [`parse_time`] does a length of time.
pub(crate) fn parse_percent(Arg { name, value: expr }: Arg<Expr>, errors: &mut Errors) -> Value {
    let value = errors.or(value::percent(&name.to_string(), expr.clone()));
    value.unwrap_or_else(|| Value::dynamic(expr, Kind::Units))
}
