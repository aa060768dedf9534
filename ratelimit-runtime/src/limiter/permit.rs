//! The permit of a call in flight: it is asked for with the decision, and free once it is dropped.

use std::{future::ready, pin::Pin, sync::Arc, time::Duration};

use tokio::time::Instant;

use super::{Limiter, call::Call, candidate::CandidateCharge};
use crate::{
    decision::Permit,
    error::UnavailableReason,
    key::{KeyRef, StoredCaller},
    policy::{PolicyName, StateKind},
    request::{Outcome, Request},
    telemetry::CountedPermit,
};

/// The answer of a store, and the permit that an admitted call holds under a policy with `concurrency`.
pub(super) struct Decided {
    pub(super) outcome: Result<Outcome, UnavailableReason>,
    pub(super) permit: Option<Arc<dyn Permit>>,
}

impl From<Result<Outcome, UnavailableReason>> for Decided {
    fn from(outcome: Result<Outcome, UnavailableReason>) -> Self {
        Self { outcome, permit: None }
    }
}

impl Decided {
    /// Returns `true` if a store has refused the call.
    pub(super) fn is_refused(&self) -> bool {
        self.outcome.is_ok_and(|outcome| !outcome.admitted)
    }
}

/// A permit of a limiter in memory.
pub(crate) struct InMemory {
    limiter: Limiter,
    state: StateKind,
    name: PolicyName,
    caller: StoredCaller,
    _counted: Option<CountedPermit>,
}

impl InMemory {
    /// Returns the permit as clones of a decision share it.
    pub(crate) fn shared(self) -> Arc<dyn Permit> {
        Arc::new(self)
    }
}

impl Permit for InMemory {
    fn is_held(&self) -> bool {
        true
    }
}

impl Drop for InMemory {
    fn drop(&mut self) {
        if let Some(store) = self.limiter.inner.backend.memory() {
            let Self { state, name, .. } = *self;
            let key = KeyRef { state, name, caller: self.caller.bytes() };
            store.release(key);
            if !self.limiter.inner.lines.is_empty() {
                self.limiter.permit_is_free(key);
            }
        }
    }
}

/// The permit of a call around its own, if it has one: with the time waited, and the charge of a candidate.
pub(super) struct Wrapped {
    permit: Option<Arc<dyn Permit>>,
    waited: Duration,
    candidate: Option<Arc<CandidateCharge>>,
}

impl Wrapped {
    pub(super) fn around(
        permit: Option<Arc<dyn Permit>>,
        waited: Duration,
        candidate: Option<Arc<CandidateCharge>>,
    ) -> Arc<dyn Permit> {
        Arc::new(Self { permit, waited, candidate })
    }

    /// Returns a permit with the charge of a candidate, if there is one.
    pub(super) fn with_candidate(
        permit: Option<Arc<dyn Permit>>,
        candidate: Option<Arc<CandidateCharge>>,
    ) -> Option<Arc<dyn Permit>> {
        if candidate.is_none() {
            return permit;
        }
        let waited = permit.as_ref().map_or(Duration::ZERO, |permit| permit.waited());
        Some(Self::around(permit, waited, candidate))
    }
}

impl Permit for Wrapped {
    fn is_held(&self) -> bool {
        self.permit.as_ref().is_some_and(|permit| permit.is_held())
    }

    fn give_back(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        match &self.permit {
            Some(permit) => permit.give_back(),
            None => Box::pin(ready(())),
        }
    }

    fn settle(&self, to: u32) {
        if let Some(candidate) = &self.candidate {
            candidate.settle(to);
        }
    }

    fn waited(&self) -> Duration {
        self.waited
    }

    fn wait_alone(&self) -> Option<Arc<dyn Permit>> {
        (!self.waited.is_zero()).then(|| Self::around(None, self.waited, None))
    }
}

impl<'a> Call<'a> {
    /// Returns the permit of a call that memory has admitted.
    #[inline]
    pub(super) fn permit_in_memory(
        self,
        request: &Request<'_>,
        outcome: &Result<Outcome, UnavailableReason>,
    ) -> Option<InMemory> {
        let is_counted = |it: &Outcome| it.admitted && it.decided_by.counts();
        if !request.takes_permit() || !outcome.as_ref().is_ok_and(is_counted) {
            return None;
        }
        let KeyRef { state, name, caller } = KeyRef::new(request.policy, self.caller.parts());
        let (limiter, caller) = (self.limiter.clone(), StoredCaller::new(caller));
        let counted = self.counters.map(CountedPermit::new);
        Some(InMemory { limiter, state, name, caller, _counted: counted })
    }

    /// Decides a request for which the deny cache has no refusal. The deadline runs from `asked` on.
    pub(super) async fn decide(self, request: Request<'a>, asked: Instant) -> Decided {
        let backend = &self.limiter.inner.backend;
        let on_store_error = self.options.on_store_error;
        let (outcome, permit) = backend.decide(request, self.caller, asked, on_store_error).await;
        let permit = permit.or_else(|| Some(self.permit_in_memory(&request, &outcome)?.shared()));
        Decided { outcome, permit }
    }
}
