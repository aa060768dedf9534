//! Validation of overrides against the limits that the program has.

use std::time::Duration;

use super::{
    Fault, Layer, Override, OverrideError,
    entry::SCALES,
    layer::{ALL_LIMITS, WrittenPlace},
    until,
};
use crate::{
    policy::{Policy, Tier},
    registry::{self, RegisteredPolicy},
};

/// A tier that breaks no rule, in place of one whose values are known only at run time.
const SOME_TIER: Tier = Tier::new(Duration::from_secs(60), 1);

/// Validates all overrides of a source.
pub(super) fn all(layer: &Layer) -> Result<(), OverrideError> {
    let registered = registry::policies();
    layer.iter().try_for_each(|(place, what)| against(&registered, place, what))
}

/// Validates the override of a limit, of all limits or of one caller against the registered
/// policies of the limit's name. Without any, it is validated against a policy of one tier with any
/// values.
pub(super) fn against(
    registered: &[RegisteredPolicy],
    place: &WrittenPlace,
    what: &Override,
) -> Result<(), OverrideError> {
    let limit = &*place.limit;
    if !what.windows.is_empty() {
        let is_part = |part: &Override| part.windows.is_empty();
        if *what != what.windows.clone().into() || !what.windows.iter().all(is_part) {
            let why = "`windows` exclude all other values, also windows of their own";
            return Err(OverrideError::of(limit, Fault::new(why)));
        }
        return what.windows.iter().try_for_each(|it| against(registered, place, it));
    }
    let scale = what.scale_in_thousandths;
    if let (Some(from), Some(until)) = (what.from, what.until)
        && until <= from
    {
        let (from, until) = (until::text(from), until::text(until));
        let why = format!("`until` is later than `from`, and {until} is not later than {from}");
        return Err(OverrideError::of(limit, Fault::new(why)));
    }
    if let Some(percent) = what.enforce.filter(|percent| !(1..=100).contains(percent)) {
        let why = format!("`enforce` must be a share of 1% to 100%, not {percent}%");
        return Err(OverrideError::of(limit, Fault::new(why)));
    }
    let is_of_limit = place.caller.is_none();
    let fault = match &what.candidate {
        _ if scale.is_some_and(|scale| !SCALES.contains(&scale)) => "`scale` must be 0.001 to 1000",
        _ if what.enforce.is_some() && what.enforcement.is_some() => {
            "`enforce` is an enforcement; give it or `enforcement`"
        }
        _ if is_of_limit && limit == ALL_LIMITS && !what.is_for_all_limits() => {
            "all limits together take only `on`, `dry_run`, `off`, `enforce`, `scale` and `on_store_error`"
        }
        _ if is_of_limit && what.deny => "`deny` is for single callers",
        _ if what.deny && !(Override { deny: false, ..what.clone() }).is_empty() => {
            "`deny` takes nothing but `from`, `until` and `by`"
        }
        _ if what.since.is_some() => "`since` is for candidates",
        Some(_) if !is_of_limit => "`candidate` is for limits",
        Some(candidate) if !candidate.is_window_only() => {
            "`candidate` takes nothing but `period`, `threshold`, `tiers` and `burst`"
        }
        Some(candidate) => {
            fits(registered, limit, candidate)?;
            return fits(registered, limit, what);
        }
        None => return fits(registered, limit, what),
    };
    Err(OverrideError::of(limit, Fault::new(fault)))
}

/// Validates the numbers against the registered policies of this name.
fn fits(registered: &[RegisteredPolicy], name: &str, what: &Override) -> Result<(), OverrideError> {
    let mut named = registered.iter().filter(|limit| limit.is_named(name)).peekable();
    let validated = match named.peek() {
        Some(_) => named.try_for_each(|limit| what.validate_registered(limit)),
        None => what.validate_standalone(),
    };
    validated.map_err(|fault| OverrideError::of(name, fault))?;
    misfit(name, what).map_or(Ok(()), Err)
}

/// Returns the fault of other periods for windows of the calendar that are checked by hand.
pub(super) fn misfit(name: &str, what: &Override) -> Option<OverrideError> {
    let mut periods = what.parts().iter().filter(|it| it.period.is_some() || !it.tiers.is_empty());
    // Most have none, and search no registry.
    let first = periods.next()?;
    let policy = registry::calendar_window_by_hand(name)?;
    let fault = [first].into_iter().chain(periods).find_map(|part| part.apply(&policy).err())?;
    Some(OverrideError::of(name, fault))
}

/// Returns the limits that the factor of all limits would make invalid, each once, with the rule.
/// Those with a factor of their own are none of them.
pub(super) fn unscalable(scale: u32, has_own_scale: impl Fn(&str) -> bool) -> Vec<OverrideError> {
    let scale = Override { scale_in_thousandths: Some(scale), ..Override::new() };
    let mut registered = registry::policies();
    registered.retain(|it| !has_own_scale(it.name()) && !has_own_scale(it.declared().name()));
    registered.dedup_by(|one, other| one.name() == other.name());
    let fault = |limit: &RegisteredPolicy| {
        let fault = scale.validate_registered(limit).err()?;
        let why = format!("the `scale` of all limits does not fit: {fault}");
        Some(OverrideError::of(limit.name(), Fault::new(why)))
    };
    registered.iter().filter_map(fault).collect()
}

/// Returns the number of a literal such as `1_000` or `5u32`; none of an expression.
fn literal(written: &str) -> Option<u32> {
    let digits = written.replace('_', "");
    let end = digits.find(['u', 'i']).unwrap_or(digits.len());
    digits[..end].parse().ok()
}

impl Override {
    /// Returns the policy that this override would make of the declared one.
    ///
    /// ```
    /// use std::time::Duration;
    /// use ratelimit_runtime::{Override, Policy};
    ///
    /// const MAIL: Policy = Policy::sliding_window("mail", Duration::from_secs(60), 2);
    ///
    /// let preview = Override::new().threshold(5).preview(&MAIL).unwrap();
    /// assert_eq!(preview.tiers()[0].threshold(), 5);
    /// assert!(Override::new().burst(5).preview(&MAIL).is_err());
    /// ```
    ///
    /// # Errors
    ///
    /// [`OverrideError`] if that policy would break a rule.
    pub fn preview(&self, declared: &Policy) -> Result<Policy, OverrideError> {
        self.validate(declared, None).map_err(|fault| OverrideError::of(declared.name(), fault))
    }

    /// Validates the override against a registered policy, as far as its values are known.
    fn validate_registered(&self, limit: &RegisteredPolicy) -> Result<(), Fault> {
        match limit.policy() {
            Some(policy) => self.validate(policy, literal(limit.cost())).map(drop),
            None => self.validate_dynamic(limit.declared()),
        }
    }

    /// Returns the policy after this override if it obeys all rules, also with calls of this cost.
    pub(super) fn validate(&self, declared: &Policy, cost: Option<u32>) -> Result<Policy, Fault> {
        let policy = self.apply(declared)?;
        match policy.validate_with(cost) {
            // A policy that is invalid as declared is no fault of an override that leaves its
            // numbers.
            Err(invalid) if self.has_numbers() || self.scale_in_thousandths.is_some() => {
                Err(invalid.rule().into())
            }
            _ => Ok(policy),
        }
    }

    /// Validates the override against a policy of one tier with any values.
    pub(super) fn validate_standalone(&self) -> Result<(), Fault> {
        let (period, threshold) = (SOME_TIER.period(), SOME_TIER.threshold());
        let declared = match self.burst {
            Some(_) => Policy::token_bucket("", period, threshold),
            None => Policy::sliding_counter("", period, threshold),
        };
        self.validate_dynamic(&self.concurrency.map_or(declared, |_| declared.concurrency(1)))
    }

    /// Validates the override against a policy whose values are known only at run time.
    pub(super) fn validate_dynamic(&self, declared: &Policy) -> Result<(), Fault> {
        let policy = match declared.tiers() {
            [tier] if declared.is_calendar() => {
                declared.with_tiers(&[Tier::new(tier.period(), SOME_TIER.threshold())])
            }
            // The numbers are unknown here: any valid ones stand for them.
            [_] => declared.with_tiers(&[SOME_TIER]),
            _ if self.period.is_some() || self.threshold.is_some() || !self.tiers.is_empty() => {
                *declared
            }
            [] => *declared,
            // The rest depends on the values of a call.
            _ => return Ok(()),
        };
        self.validate(&policy.with_known_numbers(), None).map(drop)
    }
}
