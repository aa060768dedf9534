//! The course of a call, annotated or by hand: what holds for it, whether that obeys the rules, what
//! the store says, and what comes of it.

use std::borrow::Cow;

use super::{Limiter, Terms};
use crate::{
    caller::Caller,
    decision::{self, Decision, Receipt},
    error::{RateLimitError, Unavailable, UnavailableReason},
    key::KeyRef,
    memory::MemoryStore,
    observe,
    overrides::{Effective, Enforcement},
    policy::Policy,
    request::{DecidedBy, Op, Outcome, Request},
    telemetry::Timer,
};

/// What a call asks, as it is written.
#[derive(Clone, Copy)]
pub(crate) struct Asked<'a> {
    pub(crate) policy: &'a Policy,
    pub(crate) cost: u32,
    pub(crate) id: Option<u64>,
    /// The enforcement as written, before overrides.
    pub(crate) declared: Enforcement,
    /// Nobody but observers gets the decision.
    pub(crate) is_annotated: bool,
    /// Observers take the answer for this caller's; for that of the call's own if none.
    pub(crate) observed_as: Option<&'a Caller>,
}

/// What a call gets.
pub(crate) type Answer = Result<Decision, RateLimitError>;

/// A call under what holds for it.
#[derive(Clone, Copy)]
pub(crate) struct Course<'a> {
    pub(crate) limiter: &'a Limiter,
    pub(crate) request: Request<'a>,
    pub(crate) enforcement: Enforcement,
    pub(crate) is_annotated: bool,
    observed_as: Option<&'a Caller>,
}

impl Limiter {
    /// Returns the effective policy of a call. Overrides are applied before validation, so that one
    /// can repair an invalid policy.
    #[inline]
    pub(crate) fn effective<'a>(&self, asked: &Asked<'a>) -> Effective<'a> {
        self.overrides().effective(asked.policy, asked.declared)
    }

    /// Returns the call under its effective policy.
    #[inline]
    pub(crate) fn course<'a>(
        &'a self,
        asked: Asked<'a>,
        effective: &'a Effective<'_>,
    ) -> Course<'a> {
        let Asked { cost, id, is_annotated, observed_as, .. } = asked;
        let (policy, written) = (effective.policy(), effective.written);
        let enforcement = effective.enforcement;
        // A call of nothing takes nothing.
        let op = if cost > 0 { Op::Take } else { Op::Peek };
        let request = Request { policy, written, op, cost, id };
        Course { limiter: self, request, enforcement, is_annotated, observed_as }
    }
}

impl<'a> Course<'a> {
    pub(crate) fn policy(&self) -> &'a Policy {
        self.request.policy
    }

    /// Returns the answer of a call that no store has to decide: its limit is off, breaks a rule, or
    /// never admits it. None of this is true of a policy and a cost that the compiler has judged.
    #[inline]
    pub(crate) fn undecided(
        &self,
        is_judged: bool,
        pseudonym: impl FnOnce() -> Option<String>,
    ) -> Option<Answer> {
        if self.enforcement == Enforcement::Off {
            return Some(Ok(self.unlimited()));
        }
        if is_judged {
            return None;
        }
        let Err(error) = judge(self.request) else { return None };
        let begun = Timer::now();
        if self.request.cost == 0 && matches!(error, RateLimitError::TooLarge(_)) {
            // Nothing fits a limit of 0 but nothing.
            let outcome =
                Outcome { decided_by: DecidedBy::Limiter, ..Outcome::unlimited(self.request) };
            begun.decided(self.policy(), &Ok(outcome), self.is_rehearsed(), pseudonym);
            return Some(Ok(self.pass(&outcome, None)));
        }
        begun.turned_away(self.policy(), &error, self.is_rehearsed(), pseudonym);
        if let RateLimitError::InvalidPolicy(invalid) = &error {
            self.limiter.inner.notices.invalid_policy(invalid);
        }
        Some(self.refuse(None, error, None))
    }

    fn unlimited(&self) -> Decision {
        decision::passed(self.policy(), &Outcome::unlimited(self.request))
    }

    pub(crate) fn is_rehearsed(&self) -> bool {
        self.enforcement == Enforcement::DryRun
    }

    /// The store that answers at once, if the call does not wait: a dry run does not.
    #[inline]
    pub(crate) fn memory(&self, terms: Terms) -> Option<&'a MemoryStore> {
        self.limiter.memory().filter(|_| terms.max_wait.is_zero() || self.is_rehearsed())
    }

    /// Decides an annotated call at once.
    #[inline]
    pub(crate) fn decide_in(
        &self,
        store: &MemoryStore,
        caller: &Caller,
        terms: Terms,
    ) -> Result<(), RateLimitError> {
        let begun = Timer::now();
        let subject = KeyRef::new(self.policy(), caller.parts());
        let is_observed = observe::is_observed();
        let mut outcome = if begun.is_seen() || is_observed {
            store.decide(subject, self.request)
        } else {
            store.decide_unseen(subject, self.request)
        };
        if let Err(reason) = outcome {
            outcome = self.limiter.without_room(self.request, terms.on_store_error, reason);
        }
        self.report(begun, caller, &outcome);
        // Of an admitted call that no one looks at, nothing has to be made.
        if matches!(&outcome, Ok(outcome) if outcome.admitted) && !is_observed {
            return Ok(());
        }
        self.conclude(Cow::Borrowed(caller), outcome).map(drop)
    }

    /// Reports the store's answer, and makes the call's of it.
    pub(super) fn finish(
        &self,
        begun: Timer,
        caller: Cow<'_, Caller>,
        outcome: Result<Outcome, UnavailableReason>,
    ) -> Answer {
        self.report(begun, &caller, &outcome);
        self.conclude(caller, outcome)
    }

    #[inline]
    fn report(&self, begun: Timer, caller: &Caller, outcome: &Result<Outcome, UnavailableReason>) {
        let pseudonym = || self.limiter.pseudonym(caller);
        begun.decided(self.policy(), outcome, self.is_rehearsed(), pseudonym);
    }

    /// What is made of the store's answer, and of an admitted call what gives it back, for those
    /// who can.
    fn conclude(
        &self,
        caller: Cow<'_, Caller>,
        outcome: Result<Outcome, UnavailableReason>,
    ) -> Answer {
        let policy = self.policy();
        match outcome {
            Ok(outcome) if outcome.admitted => Ok(self.pass(&outcome, Some(caller))),
            Ok(outcome) => {
                let error = decision::exceeded(policy, &outcome).into();
                self.refuse(Some(&caller), error, Some(outcome))
            }
            Err(reason) => self.refuse(None, Unavailable::new(policy.name(), reason).into(), None),
        }
    }

    /// Makes the decision of an admitted call, with what gives it back if it took something.
    fn pass(&self, outcome: &Outcome, caller: Option<Cow<'_, Caller>>) -> Decision {
        let mut decision = decision::passed(self.policy(), outcome);
        if !self.is_looked_at() {
            return decision;
        }
        let is_observed = observe::is_observed();
        let observed_as = caller.as_deref().filter(|_| is_observed).map(|it| self.observed_as(it));
        if let Some(caller) = caller.filter(|_| self.request.op == Op::Take) {
            let charge = Receipt::new(caller.into_owned(), self.request, outcome);
            decision = decision.with_charge(charge);
        }
        observe::record(|| (observed_as, Ok(decision.clone())));
        decision
    }

    /// Refuses the call, unless it is only rehearsed: then it passes, with what the store said. The
    /// error is about the quota of `caller`, if any.
    fn refuse(
        &self,
        caller: Option<&Caller>,
        error: RateLimitError,
        outcome: Option<Outcome>,
    ) -> Answer {
        observe::record(|| (caller.map(|caller| self.observed_as(caller)), Err(error.clone())));
        if !self.is_rehearsed() {
            return Err(error);
        }
        self.limiter.inner.notices.would_have_refused(self.policy().name(), &error);
        Ok(match outcome {
            Some(outcome) => decision::passed(self.policy(), &outcome),
            None => self.unlimited(),
        })
    }

    fn observed_as(&self, caller: &Caller) -> Caller {
        self.observed_as.unwrap_or(caller).clone()
    }

    fn is_looked_at(&self) -> bool {
        !self.is_annotated || observe::is_observed()
    }
}

/// Checks the rules of the policy and of the call, and that the policy allows the call.
pub(super) fn judge(request: Request<'_>) -> Result<(), RateLimitError> {
    let Request { policy, cost, id, .. } = request;
    if id.is_some() {
        policy.validate_request_id()?;
    }
    Ok(policy.validate_call(cost)?)
}
