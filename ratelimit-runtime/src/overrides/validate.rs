//! Validation of overrides against the limits that the program has.

use std::time::Duration;

use super::{Fault, Layer, Override, OverrideError, callers::ALL_LIMITS};
use crate::{
    policy::{Policy, Tier},
    registry::{self, RegisteredPolicy},
};

/// A tier that breaks no rule, in place of one whose values are known only at run time.
const SOME_TIER: Tier = Tier::new(Duration::from_secs(60), 1);

/// Validates the override of one limit against all callsites of this name.
pub(super) fn named(name: &str, what: &Override) -> Result<(), OverrideError> {
    against(&registry::policies(), name, what)
}

/// Validates all overrides of a source.
pub(super) fn all(layer: &Layer) -> Result<(), OverrideError> {
    let registered = registry::policies();
    layer.of_limits().try_for_each(|(name, what)| against(&registered, name, what))?;
    layer.callers.iter().try_for_each(|(limit, _, what)| of_caller(&registered, limit, what))
}

/// Validates the override of one caller of a limit, or of all limits.
pub(super) fn of_caller(
    registered: &[RegisteredPolicy],
    limit: &str,
    what: &Override,
) -> Result<(), OverrideError> {
    let numbers = Override { deny: false, ..what.clone() };
    if what.deny && (numbers.has_numbers() || numbers.enforcement.is_some()) {
        return Err(OverrideError::of(limit, Fault::DenyAndOther));
    }
    if what.candidate.is_some() {
        return Err(OverrideError::of(limit, Fault::CandidateOfCaller));
    }
    fits(registered, limit, &numbers)
}

/// Validates the override of one limit against the registered policies of its name. Without any, it
/// is validated against a policy of one tier with any values.
pub(super) fn against(
    registered: &[RegisteredPolicy],
    name: &str,
    what: &Override,
) -> Result<(), OverrideError> {
    if name == ALL_LIMITS && !what.is_enforcement_only() {
        return Err(OverrideError::of(name, Fault::MoreThanEnforcement));
    }
    if what.deny {
        return Err(OverrideError::of(name, Fault::OfCallers));
    }
    if let Some(candidate) = &what.candidate {
        if !candidate.is_window_only() {
            return Err(OverrideError::of(name, Fault::CandidateAndOther));
        }
        fits(registered, name, candidate)?;
    }
    fits(registered, name, what)
}

/// Validates the numbers against the registered policies of this name.
fn fits(registered: &[RegisteredPolicy], name: &str, what: &Override) -> Result<(), OverrideError> {
    let is_named = |it: &&RegisteredPolicy| it.name() == name || it.declared().name() == name;
    let mut named = registered.iter().filter(is_named).peekable();
    let validated = match named.peek() {
        Some(_) => named.try_for_each(|limit| what.validate_registered(limit)),
        None => what.validate_standalone(),
    };
    validated.map_err(|fault| OverrideError::of(name, fault))
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
            Some(policy) => self.validate(policy, limit.cost().parse().ok()).map(drop),
            None => self.validate_dynamic(limit.declared()),
        }
    }

    /// Returns the policy after this override if it obeys all rules, also with calls of this cost.
    pub(super) fn validate(&self, declared: &Policy, cost: Option<u32>) -> Result<Policy, Fault> {
        let policy = self.apply(declared)?;
        match policy.validate_with(cost) {
            Err(invalid) if self.has_numbers() => Err(Fault::Policy(invalid.rule())),
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
            [_] => declared.with_tiers(&[SOME_TIER]),
            _ if self.period.is_some() || self.threshold.is_some() || !self.tiers.is_empty() => {
                *declared
            }
            [] => *declared,
            // The rest depends on the values of a call.
            _ => return Ok(()),
        };
        self.validate(&policy, None).map(drop)
    }
}
