//! The candidate of a limit decides each of its calls as well, below the pipeline: it refuses nothing.

use std::sync::Arc;

use tokio::time::Instant;

use super::{
    call::Call,
    wrapped::{CandidateCharge, Wrapped},
};
use crate::{
    decision::Permit,
    error::{RateLimitError, UnavailableReason},
    overrides::{Candidate, Effective},
    policy::Policy,
    redis,
    request::{Outcome, Request},
    telemetry,
};

/// A call that the limit has decided and the candidate is to decide.
struct Trial {
    candidate: Arc<Candidate>,
    is_admitted: bool,
    charge: Arc<CandidateCharge>,
}

impl Call<'_> {
    /// Decides a call by the candidate, after a store by the limit. Returns its permit, with the charge of the
    /// candidate if the decision `is_read`: a settle then changes both.
    #[cold]
    pub(super) fn try_after(
        self,
        effective: &Effective<'_>,
        outcome: &Result<Outcome, UnavailableReason>,
        permit: Option<Arc<dyn Permit>>,
        is_read: bool,
    ) -> Option<Arc<dyn Permit>> {
        let counted = outcome.ok().filter(|it| it.decided_by.counts() && !it.is_busy());
        let charge = counted.and_then(|outcome| self.try_candidate(effective, outcome.admitted));
        Wrapped::with_candidate(permit, charge.filter(|_| is_read))
    }

    /// Decides the call by the candidate of its limit, if there is one. On Redis, a task does it.
    pub(super) fn try_candidate(
        self,
        effective: &Effective<'_>,
        is_admitted: bool,
    ) -> Option<Arc<CandidateCharge>> {
        let (policy, candidate) = effective.candidate()?;
        let charge = Arc::default();
        let trial =
            Trial { candidate: Arc::clone(candidate), is_admitted, charge: Arc::clone(&charge) };
        self.decide_by_candidate(policy, trial);
        Some(charge)
    }

    #[cold]
    fn decide_by_candidate(self, policy: &Policy, trial: Trial) {
        let options = *self.options;
        if self.is_peek() || options.cost == 0 {
            return;
        }
        if let Err(fault) = policy.validate_call(options.cost, options.leave) {
            if matches!(fault.into(), RateLimitError::TooLarge(_)) {
                self.record_trial(&trial, false);
            }
            return;
        }
        let policy = if options.leave == 0 { *policy } else { policy.leaving(options.leave) };
        let (backend, on_store_error) = (&self.limiter.inner.backend, options.on_store_error);
        let request = self.request_of_candidate(&policy);
        if let Some(decided) = backend.decide_now(request, self.caller, on_store_error) {
            return self.end_trial(&trial, request, decided);
        }
        let (limiter, owned) = (self.limiter.clone(), self.owned());
        redis::start(async move {
            let call = owned.of(&limiter);
            let request = call.request_of_candidate(&policy);
            let backend = &call.limiter.inner.backend;
            let decided = backend.decide(request, call.caller, Instant::now(), on_store_error);
            call.end_trial(&trial, request, decided.await.outcome);
        });
    }

    fn request_of_candidate<'r>(self, policy: &'r Policy) -> Request<'r>
    where
        Self: 'r,
    {
        Request { written: policy, ..self.request_under(policy) }
    }

    fn end_trial(
        self,
        trial: &Trial,
        request: Request<'_>,
        decided: Result<Outcome, UnavailableReason>,
    ) {
        let Ok(outcome) = decided else { return };
        if !outcome.decided_by.counts() {
            return;
        }
        self.record_trial(trial, outcome.admitted);
        if outcome.admitted {
            trial.charge.change(|state| state.charged = Some(self.counted(request, outcome)));
        }
    }

    /// Records the answer of the candidate beside that of the limit.
    fn record_trial(self, trial: &Trial, would_admit: bool) {
        trial.candidate.count(self.caller, trial.is_admitted, would_admit);
        if self.limiter.is_instrumented() {
            let digest = || self.caller_digest();
            telemetry::candidate_decided(self.policy, trial.is_admitted, would_admit, digest);
        }
    }
}
