//! The one path of a call: effective policy, validation, backend, telemetry, answer.
//!
//! [`Call::start`](super::start) is the entry, also of calls that are [decided
//! together](super::all) and not plain. [`Call::finish`] is the exit of every call that a store
//! decides, except of plain ones that nobody else reads. Calls that may wait are decided in
//! [`wait`](super::wait).

use std::{sync::Arc, time::Duration};

use super::{
    admission::{Admission, CallPermit, Deferred},
    call::Call,
    owned_call::Options,
};
use crate::{
    caller::{self, Caller},
    decision::{Answer, CallEnd, Decision, Permit},
    error::{Busy, Exceeded, RateLimitError, Replied, Unavailable},
    key::KeyRef,
    observe::{self, Observed},
    overrides::{Effective, place_in_share},
    policy::Policy,
    request::{DecidedBy, OnStoreError, Op, Outcome, Request},
    telemetry::Recorder,
    time::Micros,
};

impl<'a> Call<'a> {
    /// Applies overrides before validation, so that an override can repair an invalid policy.
    #[inline]
    pub(super) fn effective(self) -> Effective<'a> {
        let Self { limiter, policy, caller, options, .. } = self;
        let effective = limiter.overrides().effective(policy, caller, options.declared);
        if options.leave == 0 { effective } else { effective.leaving(options.leave) }
    }

    /// Returns `true` if a refusal may be followed by a wait. A dry run refuses nothing, nor does a
    /// limit that is off.
    #[inline]
    pub(super) fn may_wait(self, effective: &Effective<'_>) -> bool {
        let Options { max_wait, cost, .. } = *self.options;
        let refuses = !effective.is_dry_run() && !effective.is_off();
        // A call of 0 units and a peek take nothing, so that they need no turn.
        !max_wait.is_zero() && cost > 0 && !self.is_peek() && refuses
    }

    /// The store's part of the check.
    #[inline]
    pub(super) fn request<'r>(self, effective: &'r Effective<'_>) -> Request<'r>
    where
        'a: 'r,
    {
        self.request_under(effective.policy())
    }

    /// Returns the answer of a call that no store decides: its caller is shut out, enforcement is
    /// off, a rule is broken, or the limit can never admit the call. `end` ends the wait of one
    /// that has waited.
    #[inline]
    pub(super) fn answer_without_store<A: Admission>(
        self,
        effective: &Effective<'_>,
        recorder: Recorder,
        end: impl FnOnce() -> CallEnd,
    ) -> Option<Answer<A>> {
        if let Some(error) = effective.answer() {
            return Some(self.reject(effective, recorder, error.clone(), end()));
        }
        // A peek reads the numbers of the store, which are there while the limit is off, too.
        if effective.is_off() && !self.is_peek() {
            // Not in the closure, which only a read decision needs: `end` ends the metric, too.
            let end = end();
            return Some(Ok(A::new(None, || self.uncounted(effective).ended(end))));
        }
        #[cfg(feature = "testing")]
        if let Some(outcome) = super::isolated::planned_outcome(self) {
            return Some(self.finish(effective, recorder, &outcome, None, end()));
        }
        // Overrides are validated when they are set. No compiler knows the zones.
        if self.options.is_validated && !self.policy.is_calendar() {
            return None;
        }
        let error = self.validate(effective.whole()).err()?;
        Some(self.reject(effective, recorder, error, end()))
    }

    /// Validates the whole policy and the call.
    pub(super) fn validate(self, policy: &Policy) -> Result<(), RateLimitError> {
        if self.options.id.is_some() {
            self.policy.validate_store_argument("request_id")?;
            policy.validate_request_id()?;
        }
        if !self.options.max_wait.is_zero() {
            self.policy.validate_store_argument("max_wait")?;
            policy.validate_wait()?;
        }
        if self.options.leave > 0 {
            self.policy.validate_store_argument("leave")?;
            policy.validate_leave(!self.options.max_wait.is_zero())?;
        }
        if self.options.warn_at > 0 {
            // An override with several tiers breaks no call: the tier of its numbers is warned of.
            let warning = |policy: &Policy| policy.validate_warning(self.options.warn_at);
            warning(policy).or_else(|_| warning(self.policy))?;
        }
        // An invalid policy, or a cost that is too large.
        Ok(policy.validate_call(self.options.cost, self.options.leave)??)
    }

    /// Answers a call that breaks a rule, whose caller is shut out, or that can never be admitted.
    #[cold]
    pub(super) fn reject<A: Admission>(
        self,
        effective: &Effective<'_>,
        recorder: Recorder,
        error: RateLimitError,
        end: CallEnd,
    ) -> Answer<A> {
        // A limit of 0 units admits a call of 0 units.
        if self.options.cost == 0 && matches!(error, RateLimitError::TooLarge(_)) {
            let outcome = Outcome::unlimited(self.request(effective));
            let outcome = Outcome { decided_by: DecidedBy::Limiter, ..outcome };
            self.record(recorder, effective, &Ok(outcome), Duration::ZERO);
            let decision = self.uncounted(effective);
            if !self.is_peek() {
                observe::record(|| Observed::admitted(None, decision.clone()));
            }
            return Ok(A::new(None, || decision));
        }
        let is_dry_run = effective.is_dry_run();
        // Enforcement does not change the answer to a peek.
        let is_refused = !is_dry_run || self.is_peek();
        // Another budget may be large enough. None pays for a caller who is shut out.
        if A::DEFERS && is_refused && matches!(error, RateLimitError::TooLarge(_)) {
            return Ok(A::deferred(Deferred { recorder, refusal: Err(error) }));
        }
        if self.is_peek() {
            return Err(error);
        }
        let (policy, units) = (effective.whole(), self.options.cost);
        recorder.record_rejection(policy, units, is_dry_run, &error, || self.caller_digest());
        match &error {
            RateLimitError::InvalidPolicy(it) => self.limiter.inner.notices.invalid_policy(it),
            RateLimitError::TooLarge(_) => self.try_too_large(effective),
            _ => {}
        }
        self.enforce(effective, None, error, end)
    }

    /// Decides the call without an await, if memory or the deny cache can.
    #[inline(always)]
    pub(super) fn decide_now(self, request: &Request<'_>) -> Option<Replied<Outcome>> {
        let Self { limiter, caller, .. } = self;
        if request.takes_permit()
            && !limiter.inner.queues.is_empty()
            && limiter.inner.queues.has_queue(KeyRef::new(request.policy, caller.parts()))
        {
            // The next free permit is that of a call that waits for one.
            return Some(Ok(Outcome::busy()));
        }
        let on_store_error = self.on_store_error(request.policy);
        limiter.inner.backend.decide_now(*request, caller, on_store_error)
    }

    /// Records the outcome and builds the answer. Every check that a store decides ends here,
    /// except a plain one that nobody else reads.
    #[inline]
    pub(super) fn finish<A: Admission>(
        self,
        effective: &Effective<'_>,
        recorder: Recorder,
        outcome: &Replied<Outcome>,
        permit: Option<Arc<dyn Permit>>,
        mut end: CallEnd,
    ) -> Answer<A> {
        if A::DEFERS
            && let Ok(refused) = outcome
            && !refused.admitted
            // In a dry run this limit lets the call pass, so that no other budget is asked.
            && (!effective.is_dry_run() || self.is_peek())
        {
            return Ok(A::deferred(Deferred { recorder, refusal: Ok(*refused) }));
        }
        // What this process has decided alone is shown with the numbers by which it was decided.
        let alone = match outcome {
            Ok(outcome) => self.alone(effective, outcome.decided_by),
            Err(_) => None,
        };
        let effective = alone.as_ref().unwrap_or(effective);
        self.record(recorder, effective, outcome, end.waited);
        if effective.candidate().is_some() {
            end.candidate = self.try_after(effective, outcome, A::READS);
        }
        let (outcome, error) = match outcome {
            Ok(outcome) if outcome.admitted => {
                // A joint call may still be given back. `JointCall` warns once all are admitted.
                if self.options.warn_at > 0 && !self.options.kind.is_joint() {
                    self.warn(effective, outcome);
                }
                return Ok(self.admit(effective, outcome, permit, end));
            }
            Ok(outcome) if outcome.is_busy() => {
                let wait = self.limiter.inner.busy_wait;
                (Some(outcome), Busy::new(effective.policy(), wait, self.is_shared()).into())
            }
            Ok(outcome) => {
                let error = Exceeded::new(effective.policy(), *outcome, self.is_shared());
                (Some(outcome), error.into())
            }
            Err(reason) => (None, Unavailable::new(effective.policy().name(), *reason).into()),
        };
        self.enforce(effective, outcome, error, end)
    }

    /// Returns the share of the policy under which this process has decided alone, if it was one,
    /// and records it.
    #[inline]
    pub(super) fn alone<'e>(
        self,
        effective: &Effective<'e>,
        decided_by: DecidedBy,
    ) -> Option<Effective<'e>> {
        if decided_by == DecidedBy::Fallback { self.share_alone(effective) } else { None }
    }

    #[cold]
    fn share_alone<'e>(self, effective: &Effective<'e>) -> Option<Effective<'e>> {
        let of_call = self.on_store_error(effective.policy());
        let (share, alone) = match self.limiter.inner.backend.on_store_error(of_call) {
            OnStoreError::LocalShare(share) => (share.percent(), Some(effective.shared_out(share))),
            // Under `local` the process decides by the whole limit.
            _ => (100, None),
        };
        if let Some(counters) = self.counters {
            counters.record_local_share(share);
        }
        alone
    }

    #[inline]
    fn admit<A: Admission>(
        self,
        effective: &Effective<'_>,
        outcome: &Outcome,
        permit: Option<Arc<dyn Permit>>,
        end: CallEnd,
    ) -> A {
        if observe::is_observed() && !self.is_peek() {
            return self.admit_observed(effective, outcome, permit, end);
        }
        A::new(permit.map(CallPermit::Shared), || self.decision(effective, outcome).ended(end))
    }

    #[inline(never)]
    fn admit_observed<A: Admission>(
        self,
        effective: &Effective<'_>,
        outcome: &Outcome,
        permit: Option<Arc<dyn Permit>>,
        end: CallEnd,
    ) -> A {
        let decision = self.decision(effective, outcome).ended(end);
        observe::record(|| {
            Observed::admitted(self.observed_caller(effective), decision.observed())
        });
        if let Some(permit) = &permit
            // A check keeps its permit in the decision. A function's permit ends with the response.
            && self.options.kind.is_function()
            && effective.policy().get_concurrency().is_some()
        {
            observe::keep_for_response(permit);
        }
        A::new(permit.map(CallPermit::Shared), || decision)
    }

    /// Returns the decision of an admitted call, with a receipt if a store counted it.
    #[inline]
    fn decision(self, effective: &Effective<'_>, outcome: &Outcome) -> Decision {
        let request = self.request(effective);
        let has_window = !effective.policy().tiers().is_empty();
        // A receipt is for settles and refunds: without a window nothing was charged.
        if request.op == Op::Take && outcome.decided_by.counts() && has_window {
            self.counted(request, *outcome)
        } else {
            Decision::new(effective.policy(), *outcome)
        }
    }

    /// Refuses the call; in a dry run it passes. With an outcome the error is about the caller's
    /// quota.
    #[cold]
    fn enforce<A: Admission>(
        self,
        effective: &Effective<'_>,
        outcome: Option<&Outcome>,
        mut error: RateLimitError,
        end: CallEnd,
    ) -> Answer<A> {
        // Not recorded: a peek is no call of the limit.
        if self.is_peek() {
            return Err(error);
        }
        let is_dry_run = effective.is_dry_run();
        // Before a layer receives the error, so that it and the caller see the same wait.
        if !is_dry_run && let RateLimitError::Exceeded(exceeded) = &mut error {
            self.tell_turn(exceeded);
        }
        observe::record(|| {
            let caller = outcome.and_then(|_| self.observed_caller(effective));
            Observed { caller, answer: Err(error.clone()), is_dry_run }
        });
        // An outage and a broken rule say nothing about the caller.
        let is_decided =
            !matches!(error, RateLimitError::Unavailable(_) | RateLimitError::InvalidPolicy(_));
        if !is_dry_run {
            if is_decided {
                self.count_refused(self.limiter.inner.backend.uptime());
            }
            return Err(error);
        }
        if let Some(counters) = self.counters.filter(|_| is_decided) {
            counters.count_left_out(place_in_share(self.caller));
        }
        let policy = effective.policy().shown_name().text();
        self.limiter.inner.notices.would_have_refused(policy, &error);
        Ok(A::new(None, || {
            let decision = match outcome {
                Some(outcome) => Decision::new(effective.policy(), *outcome),
                None => self.uncounted(effective),
            };
            decision.of_dry_run().ended(end)
        }))
    }

    /// Returns `true` if several clients share the limit: its key is a literal, it counts all calls
    /// without a caller together, or the request's caller is not in its key.
    #[inline(always)]
    pub(super) fn is_shared(self) -> bool {
        self.options.is_shared || !caller::is_of_current(self.caller)
    }

    /// Tells a refused client of a shared limit a wait after those of the others. Only layers
    /// answer clients.
    fn tell_turn(self, error: &mut Exceeded) {
        if error.is_shared() && observe::is_observed() {
            // All clients without a caller of their own look alike: none gets its turn again.
            let client = caller::current().filter(|it| !it.is_shared());
            let limit = (error.policy(), self.caller);
            let wait = self.limiter.inner.spread.turn(limit, client, error, self.options.cost);
            error.tell(wait);
        }
    }

    /// Counts a refused call for its caller.
    #[inline(always)]
    pub(super) fn count_refused(self, now: Micros) {
        if let Some(counters) = self.counters {
            counters.of_thread().refused.count(now, self.caller.parts().into());
        }
    }

    /// Returns the decision of a call that passes without being counted.
    fn uncounted(self, effective: &Effective<'_>) -> Decision {
        Decision::new(effective.policy(), Outcome::unlimited(self.request(effective)))
    }

    /// Records the outcome. A peek is not a call of the limit.
    #[inline(always)]
    fn record(
        self,
        recorder: Recorder,
        effective: &Effective<'_>,
        outcome: &Replied<Outcome>,
        waited: Duration,
    ) {
        if !self.is_peek() {
            let (policy, is_dry_run) = (effective.whole(), effective.is_dry_run());
            let (units, digest) = (self.options.cost, || self.caller_digest());
            // The store's numbers are without the share that the call leaves. Metrics have it.
            let changed = effective.changed.is_some().then(|| {
                outcome.map(|mut outcome| {
                    effective.add_share(&mut outcome);
                    outcome
                })
            });
            let outcome = changed.as_ref().unwrap_or(outcome);
            recorder.record(policy, units, is_dry_run, outcome, digest, waited);
        }
    }

    /// Returns the caller to whom the numbers of the call are shown. A dry run shows them to none:
    /// a client that heeds them would hold calls back.
    fn observed_caller(self, effective: &Effective<'_>) -> Option<Caller> {
        (!effective.is_dry_run()).then(|| self.observed_as.unwrap_or(self.caller).clone())
    }
}
