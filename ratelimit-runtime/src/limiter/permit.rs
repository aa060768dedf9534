//! The permit of a call in flight: it is asked for with the decision, and free once it is dropped.

use std::{pin::Pin, sync::Arc};

use tokio::time::Instant;

use super::{Limiter, check::Call};
use crate::{
    caller::Caller,
    decision::Permit,
    error::UnavailableReason,
    key::{Key, KeyRef},
    policy::{PolicyName, StateKind},
    redis::HeldPermit,
    request::{DecidedBy, Outcome, PermitRequest, Request},
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
struct InMemory {
    limiter: Limiter,
    state: StateKind,
    name: PolicyName,
    caller: Caller,
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
            let key = KeyRef { state, name, caller: self.caller.parts().into() };
            store.release(key);
            self.limiter.inner.lines.permit_is_free(key);
        }
    }
}

/// A permit of a limiter on Redis. The fallback may have granted it.
struct OnRedis {
    limiter: Limiter,
    permit: Arc<HeldPermit>,
}

impl Permit for OnRedis {
    fn is_held(&self) -> bool {
        self.permit.is_held()
    }

    fn give_back(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async {
            if let Some(redis) = self.limiter.inner.backend.redis() {
                redis.give_back(&self.permit).await;
            }
        })
    }
}

impl Drop for OnRedis {
    fn drop(&mut self) {
        if let Some(redis) = self.limiter.inner.backend.redis() {
            redis.free(&self.permit);
        }
    }
}

/// A permit that a call asks Redis for. Dropped without an answer, it is released by its id: the
/// command may be executed although nobody waits for its reply.
struct PendingPermit<'a> {
    limiter: &'a Limiter,
    request: Request<'a>,
    key: Key,
    /// The time before the first command: the permit's timeout is counted from here.
    asked: Instant,
    permit: PermitRequest,
}

impl<'a> PendingPermit<'a> {
    /// Asks for a permit if the request needs one of Redis.
    fn new(call: Call<'a>, request: Request<'a>) -> Option<Self> {
        let Call { limiter, caller, .. } = call;
        let backend = &limiter.inner.backend;
        request.policy.max_in_flight().and(backend.redis())?;
        let key = KeyRef::new(request.policy, caller.parts());
        let key = Key::compose(backend.prefix(), key);
        let permit = backend.redis()?.ask_for_permit(&key, request.max_wait);
        Some(Self { limiter, request, key, asked: Instant::now(), permit })
    }

    /// Returns the permit of an admitted call.
    fn answered(mut self, outcome: Result<Outcome, UnavailableReason>) -> Option<Arc<dyn Permit>> {
        let redis = self.limiter.inner.backend.redis()?;
        let outcome = outcome.ok()?;
        if outcome.decided_by == DecidedBy::Store && !outcome.admitted {
            self.permit.is_sent = false;
        }
        if !outcome.admitted || !outcome.decided_by.counts() || !self.request.takes_permit() {
            return None;
        }
        self.permit.is_sent = false;
        let Self { request, key, asked, .. } = &self;
        let permit =
            redis.hold(key.clone(), self.permit.id, request.policy, *asked, outcome.decided_by);
        Some(Arc::new(OnRedis { limiter: self.limiter.clone(), permit }))
    }
}

impl Drop for PendingPermit<'_> {
    fn drop(&mut self) {
        if self.permit.is_sent
            && self.request.takes_permit()
            && let Some(redis) = self.limiter.inner.backend.redis()
        {
            let timeout = self.request.policy.permit_timeout().into();
            redis.release(self.key.clone(), self.permit.id, timeout);
        }
    }
}

impl<'a> Call<'a> {
    /// Adds the permit to the outcome of a call that memory has admitted.
    pub(super) fn in_memory(
        self,
        request: Request<'_>,
        outcome: Result<Outcome, UnavailableReason>,
    ) -> Decided {
        let is_counted = |it: &Outcome| it.admitted && it.decided_by.counts();
        if !request.takes_permit() || !outcome.as_ref().is_ok_and(is_counted) {
            return outcome.into();
        }
        let (state, name) = (request.policy.state(), request.policy.full_name());
        let (limiter, caller) = (self.limiter.clone(), self.caller.clone());
        let permit = InMemory { limiter, state, name, caller };
        Decided { outcome, permit: Some(Arc::new(permit)) }
    }

    /// Decides a request for which the deny cache has no refusal.
    pub(super) async fn decide(self, request: Request<'a>) -> Decided {
        let backend = &self.limiter.inner.backend;
        let mut pending = PendingPermit::new(self, request);
        let permit = pending.as_mut().map(|pending| &mut pending.permit);
        let outcome =
            backend.decide(request, self.caller, self.options.on_store_error, permit).await;
        match pending {
            Some(pending) => Decided { outcome, permit: pending.answered(outcome) },
            None => self.in_memory(request, outcome),
        }
    }
}
