//! The one path of a call: effective policy, validation, backend, telemetry, answer.
//!
//! [`Call::start`] is the only entry. [`Call::finish`] is the exit of every call that a store
//! decides, except on the straight path where nobody else reads it. Calls that may wait are decided in
//! [`wait`](super::wait).

use std::{pin::Pin, sync::Arc, time::Duration};

use super::{
    Limiter,
    admission::Admission,
    check::{Call, Options},
    permit::Decided,
};
use crate::{
    caller::Caller,
    decision::{Answer, Decision, Permit},
    error::{Busy, Exceeded, RateLimitError, Unavailable, UnavailableReason},
    key::KeyRef,
    observe::{self, Observed},
    overrides::Effective,
    policy::Policy,
    request::{DecidedBy, Op, Outcome, Request},
    telemetry::Recorder,
    time::Micros,
};

/// An answer, or the future that brings it.
#[must_use]
pub enum Started<T> {
    /// The answer: the call was decided in memory, or by the deny cache.
    Ready(T),
    /// The future, on the heap: in place it would add some kilobytes to every future that contains
    /// it.
    Pending(Pin<Box<dyn Future<Output = T> + Send>>),
}

impl<'a> Call<'a> {
    /// Starts the check. On return it is decided, unless Redis decides it or it may wait.
    #[inline]
    pub(crate) fn start<A: Admission>(&self) -> Started<Answer<A>> {
        self.start_as(Started::Ready, |is_straight| self.start_further(is_straight))
    }

    /// Starts a check of any kind.
    #[cold]
    #[inline(never)]
    pub(super) fn start_any<A: Admission>(&self) -> Started<Answer<A>> {
        let recorder = Recorder::new(self.limiter.inner.is_instrumented, self.counters);
        let effective = self.effective();
        if let Some(answer) = self.answer_without_store(&effective, || None) {
            return Started::Ready(answer);
        }
        if !self.may_wait(&effective)
            && let Some(decided) = self.decide_now(&effective)
        {
            return Started::Ready(self.finish(&effective, recorder, decided));
        }
        let pending = self.to_pending();
        Started::Pending(if self.options.max_wait.is_zero() {
            Box::pin(pending.run())
        } else {
            Box::pin(pending.wait())
        })
    }

    /// Applies overrides before validation, so that an override can repair an invalid policy.
    #[inline]
    pub(super) fn effective(self) -> Effective<'a> {
        self.limiter.overrides().effective(self.policy, self.options.declared)
    }

    /// Returns `true` if a refusal may be followed by a wait. A dry run refuses nothing.
    #[inline]
    pub(super) fn may_wait(self, effective: &Effective<'_>) -> bool {
        let Options { max_wait, cost, .. } = *self.options;
        !max_wait.is_zero() && cost > 0 && !self.is_peek() && !effective.is_dry_run()
    }

    pub(super) fn is_peek(self) -> bool {
        self.options.op == Op::Peek
    }

    /// The store's part of the check.
    #[inline]
    pub(super) fn request<'r>(self, effective: &'r Effective<'_>) -> Request<'r>
    where
        'a: 'r,
    {
        self.request_of(effective.policy())
    }

    #[inline]
    pub(super) fn request_of<'r>(self, policy: &'r Policy) -> Request<'r>
    where
        'a: 'r,
    {
        let Options { cost, id, op, .. } = *self.options;
        // A call of 0 units takes nothing.
        let op = if cost == 0 { Op::Peek } else { op };
        let request = Request::new(policy, op, cost);
        Request { written: self.policy, id, ..request }
    }

    /// Returns the answer of a call that no store decides: enforcement is off, a rule is broken, or
    /// the limit can never admit the call. `waited` returns how long the call has waited, if it has.
    #[inline]
    pub(super) fn answer_without_store<A: Admission>(
        self,
        effective: &Effective<'_>,
        waited: impl FnOnce() -> Option<Arc<dyn Permit>>,
    ) -> Option<Answer<A>> {
        if effective.is_off() && !self.is_peek() {
            return Some(Ok(A::new(waited(), || self.uncounted(effective))));
        }
        // Overrides are validated when they are set.
        if self.options.is_validated {
            return None;
        }
        let error = self.validate(effective.policy()).err()?;
        Some(self.reject(effective, error, waited()))
    }

    /// Validates the policy and the call.
    pub(super) fn validate(self, policy: &Policy) -> Result<(), RateLimitError> {
        if self.options.id.is_some() {
            self.policy.validate_store_argument("request_id")?;
            policy.validate_request_id()?;
        }
        if !self.options.max_wait.is_zero() {
            self.policy.validate_store_argument("max_wait")?;
            policy.validate_wait()?;
        }
        Ok(policy.validate_call(self.options.cost)?)
    }

    /// Answers a call that breaks a rule or can never be admitted.
    #[cold]
    fn reject<A: Admission>(
        self,
        effective: &Effective<'_>,
        error: RateLimitError,
        waited: Option<Arc<dyn Permit>>,
    ) -> Answer<A> {
        let recorder = Recorder::new(self.limiter.inner.is_instrumented, self.counters);
        // A limit of 0 units admits a call of 0 units.
        if self.options.cost == 0 && matches!(error, RateLimitError::TooLarge(_)) {
            let outcome = Outcome::unlimited(self.request(effective));
            let outcome = Outcome { decided_by: DecidedBy::Limiter, ..outcome };
            self.record(recorder, effective, Ok(outcome), None);
            let decision = self.uncounted(effective);
            if !self.is_peek() {
                observe::record(|| Observed::admitted(None, decision.clone()));
            }
            return Ok(A::new(None, || decision));
        }
        if self.is_peek() {
            return Err(error);
        }
        let is_dry_run = effective.is_dry_run();
        recorder.record_rejection(effective.policy(), is_dry_run, &error, || self.caller_digest());
        if let RateLimitError::InvalidPolicy(invalid) = &error {
            self.limiter.inner.notices.invalid_policy(invalid);
        }
        self.enforce(effective, None, error, waited)
    }

    /// Returns the wait of a refusal that a store has told before, if it is too long for the call.
    pub(super) fn known_refusal(self, effective: &Effective<'_>) -> Option<Micros> {
        let (request, max_wait) = (self.request(effective), self.options.max_wait);
        self.limiter.inner.backend.known_refusal(request, self.caller, max_wait)
    }

    /// Decides the call without an await, if memory or the deny cache can.
    fn decide_now(self, effective: &Effective<'_>) -> Option<Decided> {
        let request = self.request(effective);
        if request.takes_permit() && self.limiter.inner.lines.has_queue(self.key(request.policy)) {
            // The next free permit is that of a call that waits for one.
            return Some(Ok(Outcome::busy()).into());
        }
        let outcome = self.limiter.inner.backend.decide_now(
            request,
            self.caller,
            self.options.on_store_error,
        )?;
        Some(self.in_memory(request, outcome))
    }

    /// Records the outcome and builds the answer. Every check that a store decides ends here, except
    /// on the straight path where nobody else reads it.
    #[inline]
    pub(super) fn finish<A: Admission>(
        self,
        effective: &Effective<'_>,
        recorder: Recorder<'_>,
        decided: Decided,
    ) -> Answer<A> {
        let Decided { outcome, permit } = decided;
        self.record(recorder, effective, outcome, permit.as_ref());
        match outcome {
            Ok(outcome) if outcome.admitted => Ok(self.admit(effective, outcome, permit)),
            Ok(outcome) => {
                let error = if outcome.is_busy {
                    Busy::new(effective.policy()).into()
                } else {
                    Exceeded::new(effective.policy(), outcome).into()
                };
                self.enforce(effective, Some(outcome), error, permit)
            }
            Err(reason) => {
                let error = Unavailable::new(effective.policy().name(), reason).into();
                self.enforce(effective, None, error, permit)
            }
        }
    }

    #[inline]
    fn admit<A: Admission>(
        self,
        effective: &Effective<'_>,
        outcome: Outcome,
        permit: Option<Arc<dyn Permit>>,
    ) -> A {
        if observe::is_observed() && !self.is_peek() {
            return self.admit_observed(effective, outcome, permit);
        }
        A::new(permit, || self.decision(effective, outcome))
    }

    #[inline(never)]
    pub(super) fn admit_observed<A: Admission>(
        self,
        effective: &Effective<'_>,
        outcome: Outcome,
        permit: Option<Arc<dyn Permit>>,
    ) -> A {
        let decision = self.decision(effective, outcome);
        // The observers' copy holds no permit.
        observe::record(|| {
            let copy = decision.clone();
            let copy = match permit.as_ref().and_then(|permit| permit.wait_alone()) {
                Some(waited) => copy.with_permit(waited),
                None => copy,
            };
            Observed::admitted(self.observed_caller(effective), copy)
        });
        A::new(permit, || decision)
    }

    /// Returns the decision of an admitted call, with a receipt if a store counted it.
    #[inline]
    fn decision(self, effective: &Effective<'_>, outcome: Outcome) -> Decision {
        let request = self.request(effective);
        let has_window = !effective.policy().tiers().is_empty();
        if request.op == Op::Take && outcome.decided_by.counts() && has_window {
            self.counted(request, outcome)
        } else {
            Decision::new(effective.policy(), outcome)
        }
    }

    #[inline]
    pub(super) fn counted(self, request: Request<'_>, outcome: Outcome) -> Decision {
        Decision::counted(self.limiter.inner.id, self.caller, request, outcome)
    }

    /// Refuses the call; in a dry run it passes. With an outcome the error is about the caller's quota.
    #[cold]
    fn enforce<A: Admission>(
        self,
        effective: &Effective<'_>,
        outcome: Option<Outcome>,
        error: RateLimitError,
        waited: Option<Arc<dyn Permit>>,
    ) -> Answer<A> {
        if self.is_peek() {
            return Err(error);
        }
        let is_dry_run = effective.is_dry_run();
        observe::record(|| {
            let caller = outcome.and_then(|_| self.observed_caller(effective));
            Observed { caller, answer: Err(error.clone()), is_dry_run }
        });
        if !is_dry_run {
            return Err(error);
        }
        self.limiter.inner.notices.would_have_refused(effective.policy().name(), &error);
        Ok(A::new(waited, || {
            let decision = match outcome {
                Some(outcome) => Decision::new(effective.policy(), outcome),
                None => self.uncounted(effective),
            };
            decision.of_dry_run()
        }))
    }

    /// Returns the decision of a call that passes without being counted.
    fn uncounted(self, effective: &Effective<'_>) -> Decision {
        Decision::new(effective.policy(), Outcome::unlimited(self.request(effective)))
    }

    /// Records the outcome. A peek is not a call of the limit.
    #[inline]
    fn record(
        self,
        recorder: Recorder<'_>,
        effective: &Effective<'_>,
        outcome: Result<Outcome, UnavailableReason>,
        permit: Option<&Arc<dyn Permit>>,
    ) {
        if !self.is_peek() {
            let (policy, is_dry_run) = (effective.policy(), effective.is_dry_run());
            let waited = || permit.map_or(Duration::ZERO, |permit| permit.waited());
            recorder.record(policy, is_dry_run, outcome, || self.caller_digest(), waited);
        }
    }

    fn key(self, policy: &Policy) -> KeyRef<'a> {
        KeyRef::new(policy, self.caller.parts())
    }

    /// Returns the caller to whom the numbers of the call are shown. A dry run shows them to none: a
    /// client that heeds them would hold calls back.
    fn observed_caller(self, effective: &Effective<'_>) -> Option<Caller> {
        (!effective.is_dry_run()).then(|| self.observed_as.unwrap_or(self.caller).clone())
    }

    pub(super) fn caller_digest(self) -> Option<String> {
        self.limiter.caller_digest(self.caller)
    }

    fn to_pending(self) -> PendingCall {
        self.limiter.inner.notices.lease_of_few_units(self.policy);
        PendingCall {
            limiter: self.limiter.clone(),
            policy: *self.policy,
            caller: self.caller.clone(),
            observed_as: self.observed_as.cloned(),
            options: *self.options,
        }
    }
}

/// A call that outlives the expression which made it.
pub(super) struct PendingCall {
    limiter: Limiter,
    policy: Policy,
    caller: Caller,
    observed_as: Option<Caller>,
    options: Options,
}

impl PendingCall {
    /// Decides a call that does not wait. The deny cache was asked at its start.
    async fn run<A: Admission>(self) -> Answer<A> {
        let call = self.as_call();
        let recorder = Recorder::new(call.limiter.inner.is_instrumented, call.counters);
        let effective = call.effective();
        if let Some(answer) = call.answer_without_store(&effective, || None) {
            return answer;
        }
        let decided = call.decide(call.request(&effective)).await;
        call.finish(&effective, recorder, decided)
    }

    pub(super) fn as_call(&self) -> Call<'_> {
        let Self { limiter, policy, caller, observed_as, options } = self;
        let observed_as = observed_as.as_ref();
        Call { limiter, policy, caller, observed_as, counters: None, options }
    }
}
