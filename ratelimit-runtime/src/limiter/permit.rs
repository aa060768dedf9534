//! The permit of a call in flight: it is asked for with the decision, and free once it is dropped.

use std::sync::Arc;

use tokio::time::Instant;

use super::{Limiter, call::Call};
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
