//! The permit of a call in flight: it is asked for with the decision, and free once it is dropped.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use super::{Limiter, backend::Decided, call::Call};
use crate::{
    decision::Permit,
    error::UnavailableReason,
    key::{KeyRef, StoredCaller},
    policy::{Policy, PolicyName, StateKind},
    request::{Outcome, Request},
    telemetry::CountedPermit,
};

/// A permit of a limiter in memory.
struct InMemory {
    limiter: Limiter,
    state: StateKind,
    name: PolicyName,
    caller: StoredCaller,
    _counted: Option<CountedPermit>,
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
            if !self.limiter.inner.queues.is_empty() {
                self.limiter.permit_is_free(key);
            }
        }
    }
}

impl<'a> Call<'a> {
    /// Returns the permit of a call, if memory has admitted it with one.
    #[inline]
    pub(super) fn permit_of(
        self,
        request: &Request<'_>,
        outcome: &Result<Outcome, UnavailableReason>,
    ) -> Option<Arc<dyn Permit>> {
        let is_counted = |it: &Outcome| it.admitted && it.decided_by.counts();
        let has_permit = request.takes_permit() && outcome.as_ref().is_ok_and(is_counted);
        has_permit.then(|| self.permit_in_memory(request.policy))
    }

    /// Returns a permit that memory counts.
    pub(super) fn permit_in_memory(self, policy: &Policy) -> Arc<dyn Permit> {
        let KeyRef { state, name, caller } = KeyRef::new(policy, self.caller.parts());
        let (limiter, caller) = (self.limiter.clone(), StoredCaller::new(caller));
        let counted = self.counters.map(CountedPermit::new);
        Arc::new(InMemory { limiter, state, name, caller, _counted: counted })
    }

    /// Decides a request for which the deny cache has no refusal: see [`Backend::decide`](super::backend::Backend::decide).
    pub(super) async fn decide(
        self,
        request: Request<'a>,
        asked: Instant,
        patience: Duration,
    ) -> Decided {
        let backend = &self.limiter.inner.backend;
        let on_store_error = self.on_store_error(request.policy);
        let mut decided =
            backend.decide(request, self.caller, asked, on_store_error, patience).await;
        let in_memory = || self.permit_of(&request, &decided.outcome);
        decided.permit = decided.permit.take().or_else(in_memory);
        decided
    }
}
