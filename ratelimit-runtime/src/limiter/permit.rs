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
pub(crate) struct InMemory {
    limiter: Limiter,
    state: StateKind,
    name: PolicyName,
    caller: StoredCaller,
    _counted: Option<CountedPermit>,
}

impl Permit for InMemory {}

impl Drop for InMemory {
    fn drop(&mut self) {
        let Some(store) = self.limiter.inner.backend.memory() else { return };
        let key = KeyRef { state: self.state, name: self.name, caller: self.caller.bytes() };
        store.release(key);
        if !self.limiter.inner.queues.is_empty() {
            self.limiter.permit_is_free(key);
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
        has_permit.then(|| Arc::new(self.permit_in_memory(request.policy)) as _)
    }

    /// Returns a permit that memory counts.
    pub(super) fn permit_in_memory(self, policy: &Policy) -> InMemory {
        let KeyRef { state, name, caller } = KeyRef::new(policy, self.caller.parts());
        let (limiter, caller) = (self.limiter.clone(), StoredCaller::new(caller));
        InMemory { limiter, state, name, caller, _counted: self.counters.map(CountedPermit::new) }
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
        let on_late = self.is_refused_late(effective, request).then_some(&give_back as OnLate<'_>);
        let Decided { outcome, permit } =
            backend.decide(request, self.caller, asked, on_store_error, on_late).await;
        Decided { outcome, permit: permit.or_else(|| self.permit_of(&request, &outcome)) }
    }
}
