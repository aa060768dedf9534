//! The permit of a call in flight: it is asked for with the decision, and free once it is dropped.

use std::sync::Arc;

use tokio::time::Instant;

use super::{Limiter, backend::Decided, call::Call};
use crate::{
    decision::Permit,
    error::Replied,
    key::{KeyRef, StoredCaller},
    overrides::Effective,
    policy::{Policy, PolicyName, StateKind},
    redis::OnLate,
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

impl Call<'_> {
    /// Returns the permit of a call, if memory has admitted it with one.
    #[inline]
    pub(super) fn permit_of(
        self,
        request: &Request<'_>,
        outcome: &Replied<Outcome>,
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

    /// Decides a request for which the deny cache has no refusal. The deadline runs from `asked`
    /// on.
    pub(super) async fn decide(
        self,
        effective: &Effective<'_>,
        request: Request<'_>,
        asked: Instant,
    ) -> Decided {
        let backend = &self.limiter.inner.backend;
        let on_store_error = self.on_store_error(request.policy);
        let give_back = |reply| self.give_back_late(effective, request, reply);
        let on_late: Option<OnLate<'_>> =
            if self.is_refused_late(effective, request) { Some(&give_back) } else { None };
        let decided = backend.decide(request, self.caller, asked, on_store_error, on_late);
        let mut decided = decided.await;
        let in_memory = || self.permit_of(&request, &decided.outcome);
        decided.permit = decided.permit.take().or_else(in_memory);
        decided
    }
}
