//! The valid limit: every compile-time rule about the arguments.
//!
//! Floor 5.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{ToTokens, quote};
use ratelimit_core::{
    Algorithm, PolicyFault,
    rules::{self, Argument, Draft, Setting, TierDraft},
};
use syn::{Expr, ExprLit, Lit, LitStr, Path, parse_quote};

use crate::{
    answer::Answer,
    args::{ARGUMENTS, Args},
    combinations,
    errors::Errors,
    settle::Settle,
    shared::SharedPolicy,
    store_error::StoreErrorAnswer,
    tiers::{TierSpec, parse_lengths, parse_percent, parse_time, parse_units, validate_tiers},
    value::{self, Value},
};

/// The default of `max_wait` in microseconds.
const DEFAULT_MAX_WAIT: u64 = 0;

const DYNAMIC_COST_OF_REJECTED: &str = "under `count_rejected` a refused call takes its `cost` too, so \
    that one request of many units could fill a whole window: write a number as `cost`, or remove \
    `count_rejected`";

/// The words of `quota_unit`, each with its variant of the runtime's `QuotaUnit`.
const QUOTA_UNITS: [(&str, &str); 5] = [
    ("requests", "Requests"),
    ("content_bytes", "ContentBytes"),
    ("tokens", "Tokens"),
    ("rows", "Rows"),
    ("units", "Other"),
];

/// A limit: the arguments, parsed and validated.
pub(crate) struct LimitSpec {
    pub(crate) algorithm: Algorithm,
    pub(crate) tiers: Vec<TierSpec>,
    pub(crate) burst: Option<Value>,
    pub(crate) cost: Option<Value>,
    pub(crate) max_wait: Option<Value>,
    pub(crate) on_store_error: Option<StoreErrorAnswer>,
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
    pub(crate) plan: Option<Expr>,
    pub(crate) concurrency: Option<Value>,
    pub(crate) concurrency_timeout: Option<Value>,
    pub(crate) settle: Option<Settle>,
    pub(crate) lease: Option<Value>,
    pub(crate) leave: Option<Value>,
    pub(crate) warn_at: Option<Value>,
    pub(crate) zone: Option<LitStr>,
    /// The lengths of blocks.
    pub(crate) block: Vec<Value>,
    /// The variant of the runtime's `QuotaUnit`.
    pub(crate) quota_unit: Option<&'static str>,
    pub(crate) krate: Path,
    /// The place of the attribute.
    pub(crate) at: Span,
}

impl LimitSpec {
    /// Validates all arguments, and adds every error.
    pub(crate) fn validate(mut args: Args, at: Span, errors: &mut Errors) -> Self {
        combinations::validate(&args.written, errors);
        let answer = Answer::validate(&mut args, errors);
        let algorithm = args.algorithm.and_then(|algorithm| {
            // `ALL` lacks the algorithm whose periods are units of the calendar.
            let all = Algorithm::ALL.iter().chain([&Algorithm::CalendarWindow]);
            let words: Vec<_> = all.map(|it| (it.as_str(), *it)).collect();
            errors.or(value::word("algorithm", &algorithm.value, &words))
        });
        let plan = args.plan.map(|plan| plan.value);
        let policy =
            args.policy.and_then(|it| SharedPolicy::new(&it.value, plan.is_some(), errors));
        let is_window = args.period.is_some() || args.threshold.is_some() || !args.tiers.is_empty();
        // Without `concurrency` the defaults are a window, beside it there are none.
        let has_window = args.concurrency.is_none() || is_window;
        let algorithm = algorithm.unwrap_or(Algorithm::SlidingWindow);
        let is_calendar = algorithm == Algorithm::CalendarWindow;
        // The default of one minute is no unit of the calendar.
        if is_calendar && args.period.is_none() && args.tiers.is_empty() {
            let at = args.written.iter().find(|name| *name == "algorithm");
            errors.at(at, PolicyFault::PeriodOffCalendar);
        }
        let mut spec = Self {
            algorithm,
            tiers: if has_window {
                validate_tiers(is_calendar, args.period, args.threshold, args.tiers, errors)
            } else {
                Vec::new()
            },
            burst: args.burst.map(|burst| parse_units(burst, errors)),
            cost: args.cost.map(|cost| parse_units(cost, errors)),
            on_store_error: args
                .on_store_error
                .and_then(|arg| errors.or(StoreErrorAnswer::new(&arg.value))),
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
            plan,
            concurrency: args.concurrency.map(|calls| parse_units(calls, errors)),
            concurrency_timeout: args.concurrency_timeout.map(|time| parse_time(time, errors)),
            settle: args.settle.and_then(|it| errors.or(Settle::new(&it.value))),
            lease: args.lease.map(|lease| parse_time(lease, errors)),
            leave: args.leave.map(|leave| parse_percent(leave, errors)),
            warn_at: args.warn_at.map(|mark| parse_percent(mark, errors)),
            zone: args.zone.and_then(|zone| errors.or(value::zone(&zone.value))),
            block: args.block.map_or_else(Vec::new, |block| parse_lengths(block, errors)),
            quota_unit: args
                .quota_unit
                .and_then(|unit| errors.or(value::word("quota_unit", &unit.value, &QUOTA_UNITS))),
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

    /// Returns `true` if calls wait. A `max_wait` of 0 waits for nothing.
    pub(crate) fn waits(&self) -> bool {
        differs(self.max_wait.as_ref(), DEFAULT_MAX_WAIT)
    }

    /// Returns `true` if the policy is known at compile time.
    pub(crate) fn is_literal(&self) -> bool {
        self.numbers().all(|value| value.number.is_some())
    }

    /// Returns the numbers of the policy.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = &Value> {
        let tiers = self.tiers.iter().flat_map(|tier| [&tier.period, &tier.threshold]);
        let permits = self.concurrency.iter().chain(&self.concurrency_timeout);
        tiers.chain(&self.burst).chain(permits).chain(&self.lease)
    }

    /// Applies the rules about a policy and the calls under it. A shared policy is checked where it
    /// is known.
    fn apply_rules_of_calls(&mut self, written: &[Ident], errors: &mut Errors) {
        let waits = self.waits();
        if let Some(mark) = &self.warn_at {
            let of_mark = mark.number.and_then(rules::mark_fault);
            // Without a window `combinations` has the error already.
            let of_tiers = rules::warning_violation(self.tiers.len().max(1));
            of_tiers.or(of_mark).into_iter().for_each(|fault| errors.at(mark, fault));
        }
        if self.algorithm == Algorithm::CalendarWindow
            && waits
            && let Some(second) = combinations::second(written, "algorithm", "max_wait")
        {
            errors.at(second, PolicyFault::CalendarWith { argument: "max_wait" });
        }
        let cost = self.cost.as_ref();
        // Only the compiler knows the policy: each check becomes a constant that it evaluates.
        if let Some(policy) = &mut self.policy {
            // A policy with `count_rejected` takes a literal, and no dynamic cost.
            let takes_costs = match cost {
                Some(cost) if cost.is_dynamic() => "takes_dynamic_costs",
                _ => "takes_costs",
            };
            policy.check(takes_costs, "cost", written);
            policy.check("takes_settles", "settle", written);
            policy.check("takes_request_ids", "request_id", written);
            if waits {
                policy.check("takes_waits", "max_wait", written);
            }
            policy.check("takes_leaves", "leave", written);
            policy.check("takes_warnings", "warn_at", written);
            // What follows reads parts of a policy, none of which stands beside `policy`.
            return;
        }
        if cost.is_some_and(Value::is_dynamic)
            && let Some(second) = combinations::second(written, "count_rejected", "cost")
        {
            errors.at(second, DYNAMIC_COST_OF_REJECTED);
        }
        // Those of the policy itself are among its violations.
        let of_calls = ARGUMENTS.iter().filter(|it| it.of_store && !it.of_policy);
        for argument in of_calls.map(|it| it.name) {
            if (argument != "max_wait" || waits)
                && let Some(second) = combinations::second(written, "lease", argument)
            {
                errors.at(second, PolicyFault::LeaseWith { argument });
            }
        }
        if self.request_id.is_some()
            && let Some(fault) =
                rules::request_id_violation(self.algorithm, self.count_rejected.is_some())
        {
            // A log has request ids unless it counts refusals. Other algorithms have none at all.
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
                errors.at(cost, PolicyFault::CostZero);
            }
            if let Some(leave) = &self.leave
                && let Some(fault) = leave.number.and_then(rules::share_fault)
            {
                errors.at(leave, fault);
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
            burst: setting(&self.burst),
            cost: self.cost.as_ref().and_then(known),
            count_rejected: self.count_rejected.is_some(),
            concurrency: setting(&self.concurrency),
            concurrency_timeout: setting(&self.concurrency_timeout),
            lease: setting(&self.lease),
            leave: self.leave.as_ref().and_then(known),
            zone: self.zone.is_some(),
            block: &self.block.iter().map(known).collect::<Vec<_>>(),
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
            if let PolicyFault::CalendarWith { argument } = fault
                && let Some(second) = combinations::second(written, "algorithm", argument)
                // The second tier has a place of its own, which is found below.
                && argument != "tier"
            {
                errors.at(second, fault);
                continue;
            }
            let at: &dyn ToTokens = match argument {
                Argument::Period(tier) => &self.tiers[tier].period,
                Argument::Threshold(tier) => &self.tiers[tier].threshold,
                Argument::Tier(tier) => &self.tiers[tier].at,
                Argument::Burst => &self.burst,
                Argument::Cost => &self.cost,
                Argument::CountRejected => &self.count_rejected,
                Argument::Concurrency => &self.concurrency,
                Argument::ConcurrencyTimeout => &self.concurrency_timeout,
                Argument::Lease => &self.lease,
                Argument::Zone => &self.zone,
                Argument::Block(index) => &self.block[index],
                Argument::Leave => &self.leave,
            };
            errors.at(at, fault);
        }
    }
}

/// Returns `true` if a value is written, and is not a literal of its default.
fn differs(value: Option<&Value>, default: u64) -> bool {
    value.is_some_and(|value| value.number != Some(default))
}

/// Parses the parts of a key: the elements of a tuple literal, or one expression.
fn parse_key(key: Expr, errors: &mut Errors) -> Vec<Expr> {
    let parts = match value::ungrouped(&key) {
        Expr::Tuple(tuple) if tuple.elems.is_empty() => {
            errors.at(tuple, "`key` must have at least one part, such as `key = user_id`");
            Vec::new()
        }
        Expr::Tuple(tuple) => tuple.elems.iter().cloned().collect(),
        _ => vec![key],
    };
    for part in &parts {
        match value::ungrouped(part) {
            Expr::Closure(_) => errors.at(
                part,
                "`key` is an expression over the parameters, such as `key = user.id`, and no closure",
            ),
            // As in `format!`; it would be one key for all calls.
            Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) if text.value().contains('{') => {
                errors.at(
                    part,
                    "no parameter is put into a string of `key`: write `key = user`, or a tuple such \
                     as `key = (\"user\", user)`",
                );
            }
            _ => {}
        }
    }
    parts
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
