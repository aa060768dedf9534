//! The backend of a limiter: the one place that distinguishes memory and Redis.

use std::{sync::Arc, time::Duration};

use crate::{
    algorithms::{Detail, Straight},
    caller::Caller,
    error::UnavailableReason,
    key::{Key, KeyRef},
    memory::MemoryStore,
    policy::Policy,
    redis::RedisBackend,
    request::{DecidedBy, OnStoreError, Outcome, PermitRequest, Request, Settle},
    time::Micros,
};

/// The store of a limiter, and the answer to calls that it cannot decide.
pub(crate) struct Backend {
    store: Store,
    /// The start of every key on Redis.
    prefix: Box<str>,
    on_store_error: OnStoreError,
}

pub(super) enum Store {
    Memory(MemoryStore),
    Redis(Arc<RedisBackend>),
}

impl Backend {
    pub(super) fn new(store: Store, prefix: Box<str>, on_store_error: OnStoreError) -> Self {
        Self { store, prefix, on_store_error }
    }

    pub(crate) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The name of the backend in logs and on pages.
    pub(crate) fn name(&self) -> &'static str {
        match self.store {
            Store::Memory(_) => "memory",
            Store::Redis(_) => "redis",
        }
    }

    /// Redis, if calls are counted there.
    pub(crate) fn redis(&self) -> Option<&Arc<RedisBackend>> {
        match &self.store {
            Store::Memory(_) => None,
            Store::Redis(redis) => Some(redis),
        }
    }

    /// The memory store, if calls are counted there.
    pub(super) fn memory(&self) -> Option<&MemoryStore> {
        match &self.store {
            Store::Memory(store) => Some(store),
            Store::Redis(_) => None,
        }
    }

    /// Takes one unit by the straight path, or refuses it, if calls are counted in memory.
    #[expect(clippy::inline_always, reason = "so that the outcome stays in registers")]
    #[inline(always)]
    pub(super) fn take_known<D: Detail>(&self, policy: &Policy, caller: &Caller) -> Straight<D> {
        match &self.store {
            Store::Memory(store) => store.take_known(KeyRef::new(policy, caller.parts()), policy),
            Store::Redis(_) => Straight::Skipped,
        }
    }

    /// Takes one unit by the straight path, or refuses it, if calls are counted on Redis. Returns also
    /// the part that decides: units on lease, or the deny cache.
    #[inline]
    pub(super) fn take_ahead<D: Detail>(
        &self,
        policy: &Policy,
        caller: &Caller,
    ) -> (Straight<D>, DecidedBy) {
        match self.redis() {
            None => (Straight::Skipped, DecidedBy::Store),
            Some(redis) => redis.take_ahead(KeyRef::new(policy, caller.parts()), policy),
        }
    }

    /// Decides a call without an await, if calls are counted in memory, units are on lease or the deny
    /// cache has its refusal. The call must not be one that may wait.
    #[inline]
    pub(super) fn decide_now(
        &self,
        request: Request<'_>,
        caller: &Caller,
        on_store_error: Option<OnStoreError>,
    ) -> Option<Result<Outcome, UnavailableReason>> {
        match &self.store {
            Store::Memory(store) => Some(self.decide_in(store, request, caller, on_store_error)),
            Store::Redis(redis) => {
                let key = KeyRef::new(request.policy, caller.parts());
                if let Some(leased) = redis.leased(key, request) {
                    return Some(Ok(leased));
                }
                redis.cached_refusal(key, request, Duration::ZERO).map(Ok)
            }
        }
    }

    /// Returns the refusal in the deny cache, if its wait is longer than `max_wait`. A call without
    /// one is to be [decided](Self::decide): it may be the call that revalidates.
    pub(super) fn cached_refusal(
        &self,
        request: Request<'_>,
        caller: &Caller,
        max_wait: Duration,
    ) -> Option<Outcome> {
        let key = KeyRef::new(request.policy, caller.parts());
        self.redis()?.cached_refusal(key, request, max_wait)
    }

    /// Returns the wait of a refusal in the deny cache, if it is longer than `max_wait`. The call is
    /// not the one that revalidates.
    pub(super) fn known_refusal(
        &self,
        request: Request<'_>,
        caller: &Caller,
        max_wait: Duration,
    ) -> Option<Micros> {
        let key = KeyRef::new(request.policy, caller.parts());
        self.redis()?.known_refusal(key, request, max_wait)
    }

    /// Decides a call for which the deny cache has no refusal.
    pub(super) async fn decide(
        &self,
        request: Request<'_>,
        caller: &Caller,
        on_store_error: Option<OnStoreError>,
        permit: Option<&mut PermitRequest>,
    ) -> Result<Outcome, UnavailableReason> {
        match &self.store {
            Store::Memory(store) => self.decide_in(store, request, caller, on_store_error),
            Store::Redis(redis) => {
                let key = self.key(request.policy, caller);
                redis.decide(&key, request, on_store_error, permit).await
            }
        }
    }

    fn decide_in(
        &self,
        store: &MemoryStore,
        request: Request<'_>,
        caller: &Caller,
        on_store_error: Option<OnStoreError>,
    ) -> Result<Outcome, UnavailableReason> {
        let decided = store.decide(KeyRef::new(request.policy, caller.parts()), request);
        decided.or_else(|reason| self.without_room(request, on_store_error, reason))
    }

    /// Returns the answer to a call for which memory has no room. No other store could count it.
    #[cold]
    fn without_room(
        &self,
        request: Request<'_>,
        on_store_error: Option<OnStoreError>,
        reason: UnavailableReason,
    ) -> Result<Outcome, UnavailableReason> {
        match on_store_error.unwrap_or(self.on_store_error) {
            OnStoreError::Allow => Ok(Outcome::unlimited(request)),
            OnStoreError::Local | OnStoreError::Deny => Err(reason),
        }
    }

    /// Removes everything that is counted for `caller` under `policy`.
    pub(super) async fn reset(
        &self,
        policy: &Policy,
        caller: &Caller,
    ) -> Result<(), UnavailableReason> {
        match &self.store {
            Store::Memory(store) => {
                store.reset(KeyRef::new(policy, caller.parts()));
                Ok(())
            }
            Store::Redis(redis) => redis.reset(&self.key(policy, caller)).await,
        }
    }

    /// Changes the units of a call that this process counted. Returns Redis and the key if Redis
    /// did.
    pub(super) fn settle_here(
        &self,
        key: KeyRef<'_>,
        settle: Settle,
        decided_by: DecidedBy,
    ) -> Option<(&Arc<RedisBackend>, Key)> {
        match &self.store {
            Store::Memory(store) => store.settle(key, settle),
            Store::Redis(redis) if decided_by == DecidedBy::Fallback => {
                redis.settle_in_fallback(key, settle);
            }
            Store::Redis(redis) if decided_by == DecidedBy::Lease && settle.raised() == 0 => {
                redis.give_back_to_lease(key, settle);
            }
            Store::Redis(redis) => return Some((redis, Key::compose(&self.prefix, key))),
        }
        None
    }

    fn key(&self, policy: &Policy, caller: &Caller) -> Key {
        Key::compose(&self.prefix, KeyRef::new(policy, caller.parts()))
    }
}
