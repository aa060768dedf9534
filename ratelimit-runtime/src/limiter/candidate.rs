//! The candidate of a limit decides its calls as well, below the pipeline: it refuses nothing.

use std::sync::Arc;

use tokio::time::Instant;

use super::call::Call;
use crate::{
    background,
    caller::Caller,
    decision::{CandidateCharge, Decision},
    error::Replied,
    overrides::{Candidate, Effective},
    policy::Policy,
    request::{Op, Outcome, Request},
    telemetry,
};

/// A call that the limit has decided and the candidate is to decide.
struct Trial {
    candidate: Arc<Candidate>,
    is_admitted: bool,
    charge: Arc<CandidateCharge>,
}

impl Trial {
    fn new(candidate: &Arc<Candidate>, is_admitted: bool) -> Self {
        Self { candidate: Arc::clone(candidate), is_admitted, charge: Arc::default() }
    }
}

/// Returns `true` if the limit does not decide by its numbers.
fn is_refused_otherwise(outcome: Replied<Outcome>) -> bool {
    !outcome.is_ok_and(|outcome| !outcome.is_refused_otherwise())
}

impl Call<'_> {
    /// Decides a call by the candidate, after a store by the limit. Returns the charge of the
    /// candidate if the decision `is_read`: a settle then changes both.
    #[cold]
    pub(super) fn try_after(
        self,
        effective: &Effective<'_>,
        outcome: &Replied<Outcome>,
        is_read: bool,
    ) -> Option<Arc<CandidateCharge>> {
        let (policy, candidate) = effective.candidate()?;
        if is_refused_otherwise(*outcome) {
            self.refuse_otherwise(candidate);
            return None;
        }
        let outcome = outcome.ok().filter(|outcome| outcome.decided_by.counts())?;
        let trial = Trial::new(candidate, outcome.admitted);
        let charge = Arc::clone(&trial.charge);
        self.decide_by_candidate(policy, None, trial);
        is_read.then_some(charge)
    }

    /// Decides a call by the candidate that is too large for the limit, if it has one. The limit is
    /// asked whether it would also refuse one unit, for another reason than its numbers.
    #[cold]
    pub(super) fn try_too_large(self, effective: &Effective<'_>) {
        if let Some((policy, candidate)) = effective.candidate() {
            let trial = Trial::new(candidate, false);
            self.decide_by_candidate(policy, Some(*effective.policy()), trial);
        }
    }

    /// Returns `true` if the call takes units, as those that are tried do.
    fn is_tried(self) -> bool {
        !self.is_peek() && self.options.cost > 0
    }

    /// Counts a call that the limit refuses for another reason than its numbers.
    fn refuse_otherwise(self, candidate: &Candidate) {
        if self.is_tried() {
            candidate.count_refused_otherwise();
        }
    }

    /// Decides the call by the candidate, after a look at the limit if one is given. On Redis, a
    /// task does it.
    fn decide_by_candidate(self, policy: &Policy, look: Option<Policy>, trial: Trial) {
        let options = *self.options;
        if !self.is_tried() {
            return;
        }
        match policy.validate_call(options.cost, options.leave) {
            Ok(Ok(())) => {}
            // Too large for the candidate is a refusal. A broken rule is no answer to the call.
            Ok(Err(_)) => return self.record_trial(&trial, false),
            Err(_) => return,
        }
        let policy = if options.leave == 0 { *policy } else { policy.leaving(options.leave) };
        let (backend, on_store_error) = (&self.limiter.inner.backend, self.on_store_error(&policy));
        let (request, caller) =
            (self.request_of_candidate(&policy), trial.candidate.caller(self.caller));
        // Memory decides at once, and the deny cache if it has the refusal of the candidate.
        let looked = look.as_ref().map(|limit| {
            let look = Request::new(limit, Op::Peek, 1);
            backend.decide_now(look, self.caller, on_store_error)
        });
        if let Some(Some(looked)) = looked
            && is_refused_otherwise(looked)
        {
            return self.refuse_otherwise(&trial.candidate);
        }
        if looked.is_none_or(|looked| looked.is_some())
            && let Some(decided) = backend.decide_now(request, &caller, on_store_error)
        {
            return self.end_trial(&trial, &caller, request, decided);
        }
        // The task outlives the call, which waits for no candidate.
        let (limiter, owned) = (self.limiter.clone(), self.owned());
        background::start(async move {
            let (call, backend) = (owned.of(&limiter), &limiter.inner.backend);
            let decide = |request, caller| {
                backend.decide(request, caller, Instant::now(), on_store_error, None)
            };
            if let Some(limit) = &look {
                let looked = decide(Request::new(limit, Op::Peek, 1), call.caller).await.outcome;
                if is_refused_otherwise(looked) {
                    return call.refuse_otherwise(&trial.candidate);
                }
            }
            let request = call.request_of_candidate(&policy);
            let decided = decide(request, &caller).await.outcome;
            call.end_trial(&trial, &caller, request, decided);
        });
    }

    fn request_of_candidate<'r>(self, policy: &'r Policy) -> Request<'r>
    where
        Self: 'r,
    {
        // The candidate counts for itself: it keeps no units for the declared policy.
        Request { written: policy, ..self.request_under(policy) }
    }

    fn end_trial(
        self,
        trial: &Trial,
        caller: &Caller,
        request: Request<'_>,
        decided: Replied<Outcome>,
    ) {
        let Ok(outcome) = decided else { return };
        // An answer that nobody has counted does not compare with the candidate's.
        if !outcome.decided_by.counts() {
            return;
        }
        self.record_trial(trial, outcome.admitted);
        if outcome.admitted {
            let charged = Decision::counted(self.limiter.inner.id, caller, request, outcome);
            // A settle of the call then settles this charge as well.
            trial.charge.change(|state| state.charged = Some(charged));
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
