//! The one path of a call: effective policy, validation, backend, telemetry, answer.
//!
//! [`Check::start`] is the only entry. [`Check::finish`] is the exit of every call that a store
//! decides, except for admissions on the straight path. [`wait`](super::wait) has the only loop.

use std::{borrow::Cow, pin::Pin};

use super::{
    Limiter,
    check::{Check, Options},
};
use crate::{
    caller::Caller,
    decision::{Answer, Decision, Receipt},
    error::{Exceeded, RateLimitError, Unavailable, UnavailableReason},
    memory::Taken,
    observe,
    overrides::Effective,
    policy::Policy,
    request::{DecidedBy, Detail, Op, Outcome, Request},
    telemetry::Timer,
};

/// An answer, or the future that brings it.
#[must_use]
pub enum Started<T> {
    /// The answer: calls are counted in memory.
    Ready(T),
    /// The future, on the heap: in place it would add some kilobytes to every future that contains
    /// it.
    Pending(Pin<Box<dyn Future<Output = T> + Send>>),
}

/// The part of an admission that the author of a check receives.
pub(crate) trait Admission: Sized + Send + 'static {
    /// The parts of the outcome that are read.
    const DETAIL: Detail;

    fn new(decision: impl FnOnce() -> Decision) -> Self;
}

/// An annotated function needs only the admission: its body runs.
impl Admission for () {
    const DETAIL: Detail = Detail::Admission;

    #[inline]
    fn new(_: impl FnOnce() -> Decision) -> Self {}
}

/// A check by hand returns the decision.
impl Admission for Decision {
    const DETAIL: Detail = Detail::Full;

    #[inline]
    fn new(decision: impl FnOnce() -> Decision) -> Self {
        decision()
    }
}

impl<'a> Check<'a> {
    /// Starts the check. In memory it is decided on return, unless it may wait.
    #[inline]
    pub(crate) fn start<A: Admission>(self) -> Started<Answer<A>> {
        let effective = self.effective();
        let timer = Timer::start(self.limiter.inner.is_instrumented);
        match self.take_known::<A>(&effective, timer) {
            Taken::Admitted => {
                self.record(timer, &effective, &Ok(Outcome::ADMISSION));
                // Nobody reads this decision: the closure never runs.
                Started::Ready(Ok(A::new(|| self.uncounted(&effective))))
            }
            Taken::Refused(outcome) => Started::Ready(self.finish(&effective, timer, Ok(outcome))),
            Taken::Skipped => self.start_any(&effective, timer),
        }
    }

    /// Takes the straight path, on which most calls are decided. It takes one unit in memory, under
    /// a policy that the compiler has validated and no override changes. Nothing but the admission
    /// is read.
    #[inline]
    fn take_known<A: Admission>(&self, effective: &Effective<'_>, timer: Timer) -> Taken {
        let is_straight = A::DETAIL == Detail::Admission
            && self.options.is_one_unit()
            && !effective.is_dry_run()
            && !effective.is_off()
            && std::ptr::eq(effective.policy(), self.policy)
            && !timer.is_running()
            && !observe::is_observed();
        if !is_straight {
            return Taken::Skipped;
        }
        self.limiter.inner.backend.take_known(self.policy, &self.caller)
    }

    /// Starts a check of any kind.
    #[inline(never)]
    fn start_any<A: Admission>(
        self,
        effective: &Effective<'_>,
        timer: Timer,
    ) -> Started<Answer<A>> {
        if let Some(answer) = self.answer_without_store(effective) {
            return Started::Ready(answer);
        }
        if !self.may_wait(effective)
            && let Some(outcome) = self.decide_now(effective)
        {
            return Started::Ready(self.finish(effective, timer, outcome));
        }
        Started::Pending(Box::pin(self.into_pending().run()))
    }

    /// Applies overrides before validation, so that an override can repair an invalid policy.
    #[inline]
    pub(super) fn effective(&self) -> Effective<'a> {
        self.limiter.overrides().effective(self.policy, self.options.declared)
    }

    /// Returns `true` if a refusal may be followed by a wait. A dry run refuses nothing.
    #[inline]
    pub(super) fn may_wait(&self, effective: &Effective<'_>) -> bool {
        !self.options.max_wait.is_zero() && !self.is_peek() && !effective.is_dry_run()
    }

    pub(super) fn is_peek(&self) -> bool {
        self.options.op == Op::Peek
    }

    /// The store's part of the check.
    #[inline]
    pub(super) fn request<'r>(&'r self, effective: &'r Effective<'_>) -> Request<'r> {
        let Options { cost, id, op, .. } = self.options;
        // A call of 0 units takes nothing.
        let op = if cost == 0 { Op::Peek } else { op };
        Request { policy: effective.policy(), written: self.policy, op, cost, id }
    }

    /// Returns the answer of a call that no store decides: enforcement is off, a rule is broken, or
    /// the limit can never admit the call.
    #[inline]
    pub(super) fn answer_without_store<A: Admission>(
        &self,
        effective: &Effective<'_>,
    ) -> Option<Answer<A>> {
        if effective.is_off() && !self.is_peek() {
            return Some(Ok(A::new(|| self.uncounted(effective))));
        }
        // Overrides are validated when they are set.
        if self.options.is_validated {
            return None;
        }
        let error = self.validate(effective.policy()).err()?;
        Some(self.reject(effective, error))
    }

    /// Validates the policy and the call.
    fn validate(&self, policy: &Policy) -> Result<(), RateLimitError> {
        if self.options.id.is_some() {
            policy.validate_request_id()?;
        }
        Ok(policy.validate_call(self.options.cost)?)
    }

    /// Answers a call that breaks a rule or can never be admitted.
    #[cold]
    fn reject<A: Admission>(&self, effective: &Effective<'_>, error: RateLimitError) -> Answer<A> {
        let timer = Timer::start(self.limiter.inner.is_instrumented);
        // A limit of 0 units admits a call of 0 units.
        if self.options.cost == 0 && matches!(error, RateLimitError::TooLarge(_)) {
            let outcome = Outcome::unlimited(self.request(effective));
            let outcome = Outcome { decided_by: DecidedBy::Limiter, ..outcome };
            self.record(timer, effective, &Ok(outcome));
            let decision = self.uncounted(effective);
            if !self.is_peek() {
                observe::record(|| (None, Ok(decision.clone())));
            }
            return Ok(A::new(|| decision));
        }
        if self.is_peek() {
            return Err(error);
        }
        let is_dry_run = effective.is_dry_run();
        timer.record_rejection(effective.policy(), is_dry_run, &error, || self.caller_digest());
        if let RateLimitError::InvalidPolicy(invalid) = &error {
            self.limiter.inner.notices.invalid_policy(invalid);
        }
        self.enforce(effective, None, error, false)
    }

    /// Decides the call in memory.
    fn decide_now(&self, effective: &Effective<'_>) -> Option<Result<Outcome, UnavailableReason>> {
        let request = self.request(effective);
        self.limiter.inner.backend.decide_now(request, &self.caller, self.options)
    }

    /// Records the outcome and builds the answer. Every check that a store decides ends here,
    /// except for admissions on the straight path.
    #[inline]
    pub(super) fn finish<A: Admission>(
        &self,
        effective: &Effective<'_>,
        timer: Timer,
        outcome: Result<Outcome, UnavailableReason>,
    ) -> Answer<A> {
        self.record(timer, effective, &outcome);
        match outcome {
            Ok(outcome) if outcome.admitted => Ok(self.admit(effective, &outcome)),
            Ok(outcome) => {
                let error = Exceeded::new(effective.policy(), &outcome).into();
                self.enforce(effective, Some(&outcome), error, true)
            }
            Err(reason) => {
                let error = Unavailable::new(effective.policy().name(), reason).into();
                self.enforce(effective, None, error, false)
            }
        }
    }

    #[inline]
    fn admit<A: Admission>(&self, effective: &Effective<'_>, outcome: &Outcome) -> A {
        let decision = || {
            let decision = Decision::new(effective.policy(), outcome);
            let request = self.request(effective);
            if request.op == Op::Peek || !outcome.decided_by.counts() {
                return decision;
            }
            let caller = self.caller.clone().into_owned();
            decision.with_receipt(Receipt::new(caller, request, outcome))
        };
        if observe::is_observed() && !self.is_peek() {
            let decision = decision();
            observe::record(|| (Some(self.observed_caller()), Ok(decision.clone())));
            return A::new(|| decision);
        }
        A::new(decision)
    }

    /// Refuses the call; in a dry run it passes. `is_of_quota` is `true` if the error is about the
    /// caller's quota.
    #[cold]
    fn enforce<A: Admission>(
        &self,
        effective: &Effective<'_>,
        outcome: Option<&Outcome>,
        error: RateLimitError,
        is_of_quota: bool,
    ) -> Answer<A> {
        if self.is_peek() {
            return Err(error);
        }
        observe::record(|| (is_of_quota.then(|| self.observed_caller()), Err(error.clone())));
        if !effective.is_dry_run() {
            return Err(error);
        }
        self.limiter.inner.notices.would_have_refused(effective.policy().name(), &error);
        Ok(A::new(|| {
            let decision = match outcome {
                Some(outcome) => Decision::new(effective.policy(), outcome),
                None => self.uncounted(effective),
            };
            decision.of_dry_run()
        }))
    }

    /// Returns the decision of a call that passes without being counted.
    fn uncounted(&self, effective: &Effective<'_>) -> Decision {
        Decision::new(effective.policy(), &Outcome::unlimited(self.request(effective)))
    }

    /// Records the outcome. A peek is not a call of the limit.
    #[inline]
    fn record(
        &self,
        timer: Timer,
        effective: &Effective<'_>,
        outcome: &Result<Outcome, UnavailableReason>,
    ) {
        if !self.is_peek() {
            let (policy, is_dry_run) = (effective.policy(), effective.is_dry_run());
            timer.record(policy, is_dry_run, outcome, || self.caller_digest());
        }
    }

    fn observed_caller(&self) -> Caller {
        self.observed_as.as_ref().unwrap_or(&self.caller).clone().into_owned()
    }

    fn caller_digest(&self) -> Option<String> {
        self.limiter.caller_digest(&self.caller)
    }

    fn into_pending(self) -> PendingCheck {
        let Self { limiter, policy, caller, observed_as, options } = self;
        PendingCheck {
            limiter: limiter.clone(),
            policy: *policy,
            caller: caller.into_owned(),
            observed_as: observed_as.map(Cow::into_owned),
            options,
        }
    }
}

/// A check that outlives the expression which made it.
pub(super) struct PendingCheck {
    limiter: Limiter,
    policy: Policy,
    caller: Caller,
    observed_as: Option<Caller>,
    options: Options,
}

impl PendingCheck {
    pub(super) fn as_check(&self) -> Check<'_> {
        Check {
            limiter: &self.limiter,
            policy: &self.policy,
            caller: Cow::Borrowed(&self.caller),
            observed_as: self.observed_as.as_ref().map(Cow::Borrowed),
            options: self.options,
        }
    }
}
