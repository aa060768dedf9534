//! The backend of a limiter: the one place that distinguishes memory and Redis.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use crate::{
    caller::Caller,
    decision::Permit,
    error::{Replied, UnavailableReason},
    key::{Key, KeyRef},
    memory::MemoryStore,
    opaque::Opaque,
    policy::{Policy, Tier},
    redis::{OnLate, RedisBackend},
    request::{
        Answered, CallerUsage, DecidedBy, LinePlace, OnStoreError, Op, Outcome, PlainAnswer,
        Request, Settle, Standing,
    },
    time::{Micros, Timestamp},
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
    Redis(Opaque<RedisBackend>),
}

/// The answer of a store, and the permit that an admitted call holds under a policy with
/// `concurrency`.
#[cfg_attr(test, derive(Clone))]
pub(super) struct Decided {
    pub(super) outcome: Replied<Outcome>,
    pub(super) permit: Option<Arc<dyn Permit>>,
}

impl From<Replied<Outcome>> for Decided {
    fn from(outcome: Replied<Outcome>) -> Self {
        Self { outcome, permit: None }
    }
}

impl Decided {
    /// Returns `true` if a store has refused the call.
    pub(super) fn is_refused(&self) -> bool {
        self.outcome.is_ok_and(|outcome| !outcome.admitted)
    }
}

impl Backend {
    pub(super) fn new(store: Store, prefix: Box<str>, on_store_error: OnStoreError) -> Self {
        Self { store, prefix, on_store_error }
    }

    /// Returns the time of the process.
    pub(super) fn uptime(&self) -> Micros {
        let clock = match &self.store {
            Store::Memory(store) => store.clock(),
            Store::Redis(redis) => redis.clock(),
        };
        clock.uptime(clock.now())
    }

    /// Returns the time of the process when [`take_units`](Self::take_units) refused one.
    #[inline]
    pub(super) fn uptime_of(&self, refusal: Timestamp) -> Micros {
        match &self.store {
            Store::Memory(store) => store.clock().uptime(refusal),
            Store::Redis(_) => self.uptime(),
        }
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
    pub(crate) fn redis(&self) -> Option<&RedisBackend> {
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

    /// Takes units, and a permit, or refuses a unit: see
    /// [`State::take_units`](crate::algorithms::State::take_units). Memory decides for a caller
    /// that it knows. On Redis units on lease and the deny cache decide about one unit.
    #[inline(always)]
    pub(super) fn take_units<A: PlainAnswer>(
        &self,
        request: Request<'_>,
        caller: &Caller,
        takes_permit: bool,
    ) -> Answered<A> {
        match &self.store {
            Store::Memory(store) => store.take_units(caller.parts(), request, takes_permit),
            Store::Redis(redis) => {
                let key = KeyRef::new(request.policy, caller.parts());
                let Some(outcome) = redis.decide_now(key, request.apart()) else {
                    return Answered::nothing();
                };
                let (decided_by, at) = (outcome.decided_by, outcome.mark.at);
                Answered { answer: Some(A::from(outcome)), decided_by, at }
            }
        }
    }

    /// Decides a call without an await, if calls are counted in memory, units are on lease or the
    /// deny cache has its refusal, for longer than the call may wait.
    #[inline]
    pub(super) fn decide_now(
        &self,
        request: Request<'_>,
        caller: &Caller,
        on_store_error: Option<OnStoreError>,
    ) -> Option<Replied<Outcome>> {
        match &self.store {
            Store::Memory(store) => Some(self.decide_in(store, request, caller, on_store_error)),
            Store::Redis(redis) => {
                redis.decide_now(KeyRef::new(request.policy, caller.parts()), request).map(Ok)
            }
        }
    }

    /// Returns the wait of a refusal in the deny cache, if it is longer than `max_wait`. The call
    /// is not the one that revalidates.
    pub(super) fn known_refusal(
        &self,
        request: Request<'_>,
        caller: &Caller,
        max_wait: Duration,
    ) -> Option<Micros> {
        let key = KeyRef::new(request.policy, caller.parts());
        self.redis()?.known_refusal(key, request, max_wait)
    }

    /// Decides a call for which the deny cache has no refusal, and returns the permit of one that
    /// Redis has admitted. The deadline runs from `asked` on.
    pub(super) async fn decide(
        &self,
        request: Request<'_>,
        caller: &Caller,
        asked: Instant,
        on_store_error: Option<OnStoreError>,
        on_late: Option<OnLate<'_>>,
    ) -> Decided {
        let redis = match &self.store {
            Store::Memory(store) => {
                return self.decide_in(store, request, caller, on_store_error).into();
            }
            Store::Redis(redis) => redis,
        };
        let key = self.key(request.policy, caller);
        let on_store_error = self.on_store_error(on_store_error);
        let (outcome, permit) = redis.decide(&key, request, asked, on_store_error, on_late).await;
        Decided { outcome, permit }
    }

    /// Returns the answer to a call that cannot be decided: its own, or that of the limiter.
    pub(super) fn on_store_error(&self, of_call: Option<OnStoreError>) -> OnStoreError {
        of_call.unwrap_or(self.on_store_error)
    }

    /// Returns what a caller has used under a policy.
    pub(super) async fn usage(&self, policy: &Policy, caller: &Caller) -> Replied<CallerUsage> {
        let store = match &self.store {
            Store::Memory(store) => store,
            Store::Redis(redis) => return redis.usage(&self.key(policy, caller), policy).await,
        };
        let (key, windows) = (KeyRef::new(policy, caller.parts()), policy.without_concurrency());
        let look = |tier: &Tier| {
            // A store has a count for each tier, which it finds by the period.
            store.decide(key, Request::new(&windows.with_tiers(&[*tier]), Op::Peek, 0))
        };
        Ok(CallerUsage {
            tiers: policy.tiers().iter().map(look).collect::<Result<_, _>>()?,
            free: policy.get_concurrency().unwrap_or_default().saturating_sub(store.held(key)),
            blocked: store.blocked_for(key, policy)?,
        })
    }

    #[inline(always)]
    fn decide_in(
        &self,
        store: &MemoryStore,
        request: Request<'_>,
        caller: &Caller,
        on_store_error: Option<OnStoreError>,
    ) -> Replied<Outcome> {
        let decided = store.decide(KeyRef::new(request.policy, caller.parts()), request);
        if let Err(reason) = decided {
            return self.without_room(request, on_store_error, reason);
        }
        decided
    }

    /// Returns the answer to a call for which memory has no room. No other store could count it.
    #[cold]
    fn without_room(
        &self,
        request: Request<'_>,
        on_store_error: Option<OnStoreError>,
        reason: UnavailableReason,
    ) -> Replied<Outcome> {
        match self.on_store_error(on_store_error) {
            OnStoreError::Allow => Ok(Outcome::unlimited(request)),
            OnStoreError::Local | OnStoreError::LocalShare(_) | OnStoreError::Deny => Err(reason),
        }
    }

    /// Removes everything that is counted for `caller` under `policy`.
    pub(super) async fn reset(&self, policy: &Policy, caller: &Caller) -> Replied<()> {
        match &self.store {
            Store::Memory(store) => {
                store.reset(KeyRef::new(policy, caller.parts()));
                Ok(())
            }
            Store::Redis(redis) => redis.reset(&self.key(policy, caller)).await,
        }
    }

    /// Admits nobody under the key of a sliding window before the end of a pause. Returns `false`
    /// if `ends`, the time at which it would have ended without delay, has come.
    pub(super) async fn pause(
        &self,
        key: KeyRef<'_>,
        policy: &Policy,
        length: Micros,
        ends: Option<Timestamp>,
    ) -> Replied<bool> {
        match &self.store {
            Store::Memory(store) => store.pause(key, policy, length, ends),
            Store::Redis(redis) => {
                redis.pause_key(&Key::compose(&self.prefix, key), policy, length, ends).await
            }
        }
    }

    /// Moves the first turn that lies ahead forwards, if it is the one of this place and has room.
    /// Returns the turn, unless the charge is gone.
    pub(super) async fn advance(
        &self,
        key: &Key,
        place: LinePlace<'_>,
    ) -> Replied<Option<Standing>> {
        match &self.store {
            Store::Memory(store) => Ok(store.advance(key.as_key_ref(), place)),
            Store::Redis(redis) => redis.advance(key, place).await,
        }
    }

    /// Returns the times of charges, none for one that is gone.
    pub(super) async fn turns(
        &self,
        key: &Key,
        places: &[LinePlace<'_>],
    ) -> Replied<Vec<Option<Timestamp>>> {
        match &self.store {
            Store::Memory(store) => Ok(store.turns(key.as_key_ref(), places)),
            Store::Redis(redis) => redis.turns(key, places).await,
        }
    }

    /// Changes the units of a call that this process counted. Returns Redis and the key if Redis
    /// did.
    #[inline]
    pub(super) fn settle_here(
        &self,
        key: KeyRef<'_>,
        settle: &Settle,
        decided_by: DecidedBy,
    ) -> Option<(&Opaque<RedisBackend>, Key)> {
        match &self.store {
            Store::Memory(store) => store.settle(key, settle),
            Store::Redis(redis) if redis.settle_here(key, *settle, decided_by) => {}
            Store::Redis(redis) => return Some((redis, Key::compose(&self.prefix, key))),
        }
        None
    }

    pub(super) fn key(&self, policy: &Policy, caller: &Caller) -> Key {
        Key::compose(&self.prefix, KeyRef::new(policy, caller.parts()))
    }
}
