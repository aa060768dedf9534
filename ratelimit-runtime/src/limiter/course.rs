//! The course of a call, annotated or by hand: what holds for it, whether that obeys the rules, what
//! the store says, and what comes of it.

use std::borrow::Cow;

use super::{Limiter, Terms};
use crate::{
    caller::Caller,
    decision::{self, Charge, Decision},
    error::{InvalidPolicy, RateLimitError, Unavailable, UnavailableReason},
    key::Subject,
    observe,
    overrides::{Enforcement, Steered},
    policy::Policy,
    report::Begun,
    rules::{Algorithm, PolicyFault},
    store::{Outcome, Request, memory::MemoryStore},
};

/// What a call asks, as it is written.
#[derive(Clone, Copy)]
pub(crate) struct Asked<'a> {
    pub(crate) policy: &'a Policy,
    pub(crate) cost: u32,
    pub(crate) id: Option<u64>,
    pub(crate) dry_run: bool,
    /// Observers are told the answer, and nobody else gets the decision.
    pub(crate) is_annotated: bool,
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
}

impl Limiter {
    /// Has overrides speak before anything is judged, so that they reach a limit that breaks a
    /// rule. `steered` is the room for what they make of the policy.
    #[inline]
    pub(crate) fn course<'a>(
        &'a self,
        asked: Asked<'a>,
        steered: &'a mut Option<Steered>,
    ) -> Course<'a> {
        let Asked { policy, cost, id, dry_run, is_annotated } = asked;
        let (policy, enforcement) = match self.overrides().steer(policy, cost, dry_run) {
            // A large value, which is not moved while nothing is overridden.
            Some(found) => {
                let Steered { policy, enforcement } = steered.insert(found);
                (&*policy, *enforcement)
            }
            None if dry_run => (policy, Enforcement::DryRun),
            None => (policy, Enforcement::On),
        };
        let request = Request { policy, cost, record: true, id };
        Course { limiter: self, request, enforcement, is_annotated }
    }
}

impl<'a> Course<'a> {
    pub(crate) fn policy(&self) -> &'a Policy {
        self.request.policy
    }

    /// What the call gets without being decided: its limit is off, or breaks a rule. None is broken
    /// of a policy and a cost that the compiler has judged.
    #[inline]
    pub(crate) fn undecided(&self, is_judged: bool) -> Option<Answer> {
        if self.enforcement == Enforcement::Off {
            return Some(Ok(self.unlimited()));
        }
        if is_judged {
            return None;
        }
        self.judge().err().map(|invalid| self.refuse(invalid.into(), None))
    }

    fn judge(&self) -> Result<(), InvalidPolicy> {
        let Request { policy, cost, id, .. } = self.request;
        policy.validate_with(Some(cost))?;
        let fault = match policy.algorithm() {
            _ if id.is_none() => return Ok(()),
            Algorithm::SlidingWindow if !policy.counts_rejected() => return Ok(()),
            Algorithm::SlidingWindow => PolicyFault::RequestIdWithCountRejected,
            algorithm => PolicyFault::RequestIdWithoutLog { algorithm },
        };
        Err(InvalidPolicy::new(policy.name(), fault))
    }

    fn unlimited(&self) -> Decision {
        decision::passed(self.policy(), &Outcome::unlimited(self.request))
    }

    fn is_rehearsed(&self) -> bool {
        self.enforcement == Enforcement::DryRun
    }

    /// The store that answers at once, if the call need not wait.
    #[inline]
    pub(crate) fn memory(&self, terms: Terms) -> Option<&'a MemoryStore> {
        self.limiter.memory().filter(|_| terms.rehearsed(self.is_rehearsed()).max_wait.is_zero())
    }

    /// Decides an annotated call at once.
    #[inline]
    pub(crate) fn decide_in(
        &self,
        store: &MemoryStore,
        caller: &Caller,
    ) -> Result<(), RateLimitError> {
        let begun = Begun::now();
        let subject = Subject::new(self.policy(), caller.parts());
        let is_observed = observe::is_observed();
        let outcome = if begun.is_seen() || is_observed {
            store.decide(subject, self.request)
        } else {
            store.decide_unseen(subject, self.request)
        };
        self.report(begun, caller, &outcome);
        // Of an admitted call that no one looks at, nothing has to be made.
        if matches!(&outcome, Ok(outcome) if outcome.admitted) && !is_observed {
            return Ok(());
        }
        self.conclude(Cow::Borrowed(caller), outcome).map(drop)
    }

    /// Decides the call.
    pub(crate) async fn decide(&self, caller: Cow<'_, Caller>, terms: Terms) -> Answer {
        let begun = Begun::now();
        let terms = terms.rehearsed(self.is_rehearsed());
        let outcome = self.limiter.decide_on(&caller, self.request, terms).await;
        self.report(begun, &caller, &outcome);
        self.conclude(caller, outcome)
    }

    #[inline]
    fn report(&self, begun: Begun, caller: &Caller, outcome: &Result<Outcome, UnavailableReason>) {
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
            Ok(outcome) if outcome.admitted => {
                let decision = decision::passed(policy, &outcome);
                if !self.is_looked_at() {
                    return Ok(decision);
                }
                let charge = Charge::new(caller.into_owned(), self.request, &outcome);
                let decision = decision.with_charge(charge);
                if self.is_annotated {
                    observe::record(|| Ok(decision.clone()));
                }
                Ok(decision)
            }
            Ok(outcome) => self.refuse(decision::exceeded(policy, &outcome).into(), Some(outcome)),
            Err(reason) => self.refuse(Unavailable::new(policy.name(), reason).into(), None),
        }
    }

    /// Refuses the call, unless it is only rehearsed: then it passes, with what the store said.
    fn refuse(&self, error: RateLimitError, outcome: Option<Outcome>) -> Answer {
        if self.is_annotated {
            observe::record(|| Err(error.clone()));
        }
        if !self.is_rehearsed() {
            return Err(error);
        }
        tracing::info!(%error, "dry run: this call would have been refused");
        Ok(match outcome {
            Some(outcome) => decision::passed(self.policy(), &outcome),
            None => self.unlimited(),
        })
    }

    fn is_looked_at(&self) -> bool {
        !self.is_annotated || observe::is_observed()
    }
}
