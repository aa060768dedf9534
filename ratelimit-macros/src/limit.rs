//! The valid limit: every compile-time rule about the arguments.
//!
//! Floor 5.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{ToTokens, quote};
use ratelimit_core::{
    Algorithm, PolicyFault,
    rules::{self, Argument, Burst, Draft, Setting, TierDraft},
};
use syn::{Expr, ExprLit, Lit, LitStr, Path, parse_quote};

use crate::{
    answer::Answer,
    args::{ARGUMENTS, Args, TierArgs},
    combinations,
    errors::Errors,
    grammar::Arg,
    settle::Settle,
    shared::SharedPolicy,
    value::{self, Kind, Value},
};

/// The default period in microseconds: 1 min.
const DEFAULT_PERIOD: u64 = 60_000_000;
/// The default threshold in units.
const DEFAULT_THRESHOLD: u64 = 3;
/// The default cost in units.
const DEFAULT_COST: u64 = 1;
/// The default of `max_wait` in microseconds.
const DEFAULT_MAX_WAIT: u64 = 0;

const DYNAMIC_COST_OF_REJECTED: &str = "under `count_rejected` a refused call takes its `cost` too, so \
    that one request of many units could fill a whole window: write a number as `cost`, or remove \
    `count_rejected`";

/// The words of `on_store_error`, each with its variant of the runtime's `OnStoreError`.
const ON_STORE_ERROR: [(&str, &str); 3] =
    [("local", "Local"), ("deny", "Deny"), ("allow", "Allow")];

/// A limit: the arguments, parsed and validated.
pub(crate) struct LimitSpec {
    pub(crate) algorithm: Algorithm,
    pub(crate) tiers: Vec<TierSpec>,
    pub(crate) burst: Option<Value>,
    pub(crate) cost: Option<Value>,
    pub(crate) max_wait: Option<Value>,
    /// The variant of the runtime's `OnStoreError`.
    pub(crate) on_store_error: Option<&'static str>,
    /// The flag, with its span.
    pub(crate) count_rejected: Option<Ident>,
    pub(crate) skip: Option<Expr>,
    /// The parts of the key; none for the ambient caller.
    pub(crate) key: Vec<Expr>,
    pub(crate) name: Option<LitStr>,
    pub(crate) limiter: Option<Expr>,
    pub(crate) dry_run: bool,
    /// The flag, with its span.
    pub(crate) fallible: Option<Ident>,
    pub(crate) answer: Answer,
    pub(crate) request_id: Option<Expr>,
    pub(crate) policy: Option<SharedPolicy>,
    pub(crate) concurrency: Option<Value>,
    pub(crate) concurrency_timeout: Option<Value>,
    pub(crate) settle: Option<Settle>,
    pub(crate) lease: Option<Value>,
    pub(crate) krate: Path,
    /// The place of the attribute.
    pub(crate) at: Span,
}

/// A tier and its position.
pub(crate) struct TierSpec {
    pub(crate) period: Value,
    pub(crate) threshold: Value,
    at: Ident,
}

impl LimitSpec {
    /// Validates all arguments, and adds every error.
    pub(crate) fn validate(mut args: Args, at: Span, errors: &mut Errors) -> Self {
        combinations::validate(&args.written, errors);
        let answer = Answer::validate(&mut args, errors);
        let algorithm = args.algorithm.and_then(|algorithm| {
            let words: Vec<_> = Algorithm::ALL.iter().map(|it| (it.as_str(), *it)).collect();
            errors.or(value::word("algorithm", &algorithm.value, &words))
        });
        let policy = args.policy.and_then(|policy| SharedPolicy::new(&policy.value, errors));
        let has_window = args.concurrency.is_none()
            || args.period.is_some()
            || args.threshold.is_some()
            || !args.tiers.is_empty();
        let mut spec = Self {
            algorithm: algorithm.unwrap_or(Algorithm::SlidingWindow),
            tiers: if has_window {
                validate_tiers(args.period, args.threshold, args.tiers, errors)
            } else {
                Vec::new()
            },
            burst: args.burst.map(|burst| parse_units(burst, errors)),
            cost: args.cost.map(|cost| parse_units(cost, errors)),
            on_store_error: args.on_store_error.and_then(|arg| {
                errors.or(value::word("on_store_error", &arg.value, &ON_STORE_ERROR))
            }),
            max_wait: args.max_wait.map(|max_wait| parse_time(max_wait, errors)),
            count_rejected: args.count_rejected,
            skip: args.skip.map(|skip| skip.value),
            key: args.key.map_or_else(Vec::new, |key| parse_key(key.value, errors)),
            name: args.name.and_then(|name| validate_name(&name.value, errors)),
            limiter: args.limiter.map(|limiter| limiter.value),
            dry_run: args.dry_run.is_some(),
            fallible: args.fallible,
            answer,
            request_id: args.request_id.map(|id| id.value),
            policy,
            concurrency: args.concurrency.map(|calls| parse_units(calls, errors)),
            concurrency_timeout: args.concurrency_timeout.map(|time| parse_time(time, errors)),
            settle: args.settle.and_then(|it| errors.or(Settle::new(&it.value))),
            lease: args.lease.map(|lease| parse_time(lease, errors)),
            krate: args
                .krate
                .map_or_else(|| parse_quote!(::ratelimit_runtime), |krate| krate.value),
            at,
        };
        spec.apply_rules(&args.written, errors);
        spec.apply_rules_of_calls(&args.written, errors);
        spec
    }

    /// Returns the text by which two limits of one function differ, if one is written.
    pub(crate) fn counted_as(&self) -> Option<String> {
        match &self.policy {
            Some(policy) => Some(policy.text()),
            None => self.name.as_ref().map(|name| format!("name {}", name.value())),
        }
    }

    /// Returns the name as a constant expression; empty if none is written.
    pub(crate) fn name_tokens(&self) -> TokenStream {
        match (&self.policy, &self.name) {
            (Some(policy), _) => policy.name_tokens(),
            (None, Some(name)) => name.to_token_stream(),
            (None, None) => quote!(""),
        }
    }

    /// Returns `true` if an admitted call may hold a permit.
    pub(crate) fn holds_permit(&self) -> bool {
        self.concurrency.is_some() || self.policy.is_some()
    }

    /// Returns `true` if the decision is kept until the body has ended.
    pub(crate) fn keeps_decision(&self) -> bool {
        self.answer.decision.is_some() || self.settle.is_some()
    }

    /// Returns `true` if a log keeps one entry for each call: for calls of several units, that may wait
    /// or that are settled, and for leases.
    pub(crate) fn is_weighted(&self) -> bool {
        self.algorithm == Algorithm::SlidingWindow
            && !self.tiers.is_empty()
            && (differs(self.cost.as_ref(), DEFAULT_COST)
                || differs(self.max_wait.as_ref(), DEFAULT_MAX_WAIT)
                || self.settle.is_some()
                || self.lease.is_some())
    }

    /// Returns `true` if the policy is known at compile time.
    pub(crate) fn is_literal(&self) -> bool {
        let tiers = self.tiers.iter().flat_map(|tier| [&tier.period, &tier.threshold]);
        let others = self.concurrency.iter().chain(&self.concurrency_timeout).chain(&self.lease);
        tiers.chain(&self.burst).chain(others).all(|value| value.number.is_some())
    }

    /// Applies the rules about a policy and the calls under it. A shared policy is checked where it is
    /// known.
    fn apply_rules_of_calls(&mut self, written: &[Ident], errors: &mut Errors) {
        let cost = self.cost.as_ref();
        if let Some(policy) = &mut self.policy {
            let takes_costs = match cost {
                Some(cost) if cost.is_dynamic() => "takes_dynamic_costs",
                _ if differs(cost, DEFAULT_COST) => "takes_costs",
                _ => "takes_cost_of_one",
            };
            policy.check(takes_costs, "cost", written);
            policy.check("takes_settles", "settle", written);
            policy.check("takes_request_ids", "request_id", written);
            if differs(self.max_wait.as_ref(), DEFAULT_MAX_WAIT) {
                policy.check("takes_waits", "max_wait", written);
            }
            return;
        }
        if cost.is_some_and(Value::is_dynamic)
            && let Some(second) = combinations::second(written, "count_rejected", "cost")
        {
            errors.at(second, DYNAMIC_COST_OF_REJECTED);
        }
        let waits = differs(self.max_wait.as_ref(), DEFAULT_MAX_WAIT);
        // Those of the policy itself are among its violations.
        let of_calls = ARGUMENTS.iter().filter(|it| it.of_store && !it.of_policy);
        for argument in of_calls.map(|it| it.name) {
            if (argument != "max_wait" || waits)
                && let Some(second) = combinations::second(written, "lease", argument)
            {
                errors.at(second, rules::needs_the_store(argument));
            }
        }
        if self.request_id.is_some()
            && let Some(fault) =
                rules::request_id_violation(self.algorithm, self.count_rejected.is_some())
        {
            let is_log = self.algorithm == Algorithm::SlidingWindow;
            let other = if is_log { "count_rejected" } else { "algorithm" };
            errors.at(combinations::second(written, "request_id", other), fault);
        }
    }

    /// Applies the rules that the runtime applies to dynamic values.
    fn apply_rules(&self, written: &[Ident], errors: &mut Errors) {
        if self.policy.is_some() {
            // The numbers of a shared policy are written elsewhere.
            if let Some(cost) = self.cost.as_ref().filter(|cost| cost.number == Some(0)) {
                errors.at(&cost.expr, PolicyFault::CostZero);
            }
            return;
        }
        let tier_draft = |tier: &TierSpec| TierDraft {
            period: tier.period.number,
            threshold: tier.threshold.number,
        };
        let tiers: Vec<_> = self.tiers.iter().map(tier_draft).collect();
        let known = |value: &Value| value.number;
        let setting = |value: &Option<Value>| {
            value.as_ref().map_or(Setting::Default, |value| Setting::Explicit(value.number))
        };
        let draft = Draft {
            algorithm: self.algorithm,
            tiers: &tiers,
            burst: self.burst.as_ref().map_or(Burst::Threshold, |it| Burst::Explicit(it.number)),
            cost: self.cost.as_ref().and_then(known),
            count_rejected: self.count_rejected.is_some(),
            weighted: self.is_weighted(),
            concurrency: setting(&self.concurrency),
            concurrency_timeout: setting(&self.concurrency_timeout),
            lease: setting(&self.lease),
        };
        for (argument, fault) in rules::violations(&draft) {
            // Combinations are errors of their own, at the second argument.
            if matches!(
                fault,
                PolicyFault::NothingToCount { .. }
                    | PolicyFault::ConcurrencyTimeoutWithoutConcurrency
            ) {
                continue;
            }
            if let PolicyFault::LeaseWith { argument, .. } = fault {
                errors.at(combinations::second(written, "lease", argument), fault);
                continue;
            }
            match argument {
                Argument::Period(tier) => errors.at(&self.tiers[tier].period.expr, fault),
                Argument::Threshold(tier) => errors.at(&self.tiers[tier].threshold.expr, fault),
                Argument::Tier(tier) => errors.at(&self.tiers[tier].at, fault),
                Argument::Burst => errors.at(self.burst.as_ref().map(|burst| &burst.expr), fault),
                Argument::Cost => errors.at(self.cost.as_ref().map(|cost| &cost.expr), fault),
                Argument::CountRejected | Argument::Weighted => {
                    errors.at(&self.count_rejected, fault);
                }
                Argument::Concurrency => {
                    errors.at(self.concurrency.as_ref().map(|it| &it.expr), fault);
                }
                Argument::ConcurrencyTimeout => {
                    errors.at(self.concurrency_timeout.as_ref().map(|it| &it.expr), fault);
                }
                Argument::Lease => errors.at(self.lease.as_ref().map(|it| &it.expr), fault),
            }
        }
    }
}

/// Returns `true` if a value is written, and is not a literal of its default.
fn differs(value: Option<&Value>, default: u64) -> bool {
    value.is_some_and(|value| value.number != Some(default))
}

/// Validates the form of `period`, `threshold` and `tier(..)`. Without any, the defaults are one tier.
fn validate_tiers(
    period: Option<Arg<Expr>>,
    threshold: Option<Arg<Expr>>,
    tiers: Vec<Arg<TierArgs>>,
    errors: &mut Errors,
) -> Vec<TierSpec> {
    if tiers.is_empty() {
        let period = match period {
            Some(period) => parse_time(period, errors),
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
            let period = parse_time(period, errors);
            parsed.push(TierSpec { period, threshold: parse_units(threshold, errors), at });
        }
    }
    parsed
}

/// Parses a length of time. A value with a syntax error counts as dynamic, so that it breaks no further
/// rule.
fn parse_time(Arg { name, value: expr }: Arg<Expr>, errors: &mut Errors) -> Value {
    let value = errors.or(value::time(&name.to_string(), expr.clone()));
    value.unwrap_or_else(|| Value::dynamic(expr, Kind::Time))
}

/// Parses a number of units, as [`parse_time`] does a length of time.
fn parse_units(Arg { name, value: expr }: Arg<Expr>, errors: &mut Errors) -> Value {
    let value = errors.or(value::units(&name.to_string(), expr.clone()));
    value.unwrap_or_else(|| Value::dynamic(expr, Kind::Units))
}

/// Parses the parts of a key: the elements of a tuple literal, or one expression.
fn parse_key(key: Expr, errors: &mut Errors) -> Vec<Expr> {
    match value::ungrouped(&key) {
        Expr::Tuple(tuple) if tuple.elems.is_empty() => {
            errors.at(tuple, "`key` must have at least one part, such as `key = user_id`");
            Vec::new()
        }
        Expr::Tuple(tuple) => tuple.elems.iter().cloned().collect(),
        _ => vec![key],
    }
}

/// Returns the name if it is a string literal that is not empty.
pub(crate) fn validate_name(name: &Expr, errors: &mut Errors) -> Option<LitStr> {
    match value::ungrouped(name) {
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) if !text.value().is_empty() => {
            return Some(text.clone());
        }
        Expr::Lit(ExprLit { lit: Lit::Str(_), .. }) => {
            errors.at(name, "`name` must not be empty; leave it out for the function's path");
        }
        _ => errors.at(name, "`name` is a string literal such as `\"send-mail\"`"),
    }
    None
}
