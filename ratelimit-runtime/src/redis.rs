//! Redis as a backend: deny cache, client, fallback.
//!
//! A check passes three layers. Units on lease and the deny cache decide without a command. The client sends
//! one command to the key's server, through that server's circuit breaker and within the deadline. If
//! Redis cannot decide, `on_store_error` does.
//!
//! Floor 5: only `limiter` and `overrides` may import this room; only this room names the crate `redis`, except
//! where a user brings a connection. It imports `memory`, `telemetry`, and the plain data below them.

mod background;
mod backoff;
mod breaker;
mod client;
mod cluster;
mod command;
mod connect_options;
mod connection;
mod connector;
mod credentials;
mod deny_cache;
mod dial;
mod echo;
mod exchange;
mod failure;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
#[cfg(feature = "overrides")]
mod hash;
mod leases;
mod line;
mod managed;
mod multiplexer;
mod node;
mod options;
mod outbox;
mod permits;
mod resp;
mod script;
mod secrets;
mod stream;
mod target;
mod tls;

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use tokio::time::Instant;

pub use self::credentials::Credentials;
#[cfg(feature = "overrides")]
pub(crate) use self::options::HashContent;
pub(crate) use self::{
    background::start,
    client::{RedisClient, Unanswered},
    connect_options::{AddressMap, ConnectOptions},
    credentials::CredentialsProvider,
    options::RedisOptions,
    outbox::Content,
    permits::HeldPermit,
};
use self::{
    backoff::Backoff,
    deny_cache::{DenyCache, RoundTrip},
    leases::Leases,
    outbox::Outbox,
};
use crate::{
    algorithms::{Detail, Straight},
    error::UnavailableReason,
    key::{Key, KeyRef},
    memory::{Clock, MemoryStore},
    policy::Policy,
    request::{DecidedBy, OnStoreError, Op, Outcome, PermitRequest, Request, Settle},
    time::Micros,
};

/// The pauses of a call that waits for Redis. The circuit breaker bounds its commands.
const WAITING_FOR_REDIS: Backoff =
    Backoff::new(Duration::from_millis(20), Duration::from_millis(320));

pub(crate) struct RedisBackend {
    client: RedisClient,
    #[cfg(feature = "overrides")]
    hashes: hash::Hashes,
    deny_cache: DenyCache,
    leases: Leases,
    outbox: Outbox,
    /// Decides while Redis cannot, with [`OnStoreError::Local`].
    fallback: MemoryStore,
    permits: permits::PermitRegistry,
    /// Called for every posted command that has arrived.
    on_delivery: OnceLock<OnDelivery>,
    deadline: Duration,
    on_store_error: OnStoreError,
}

/// A function that receives the key and the content of a command that has arrived.
pub(crate) type OnDelivery = Box<dyn Fn(KeyRef<'_>, Content) + Send + Sync>;

impl RedisBackend {
    pub(crate) fn new(client: RedisClient, options: RedisOptions) -> Self {
        let RedisOptions { deadline, on_store_error, deny_cache, deny_cache_ttl, .. } = options;
        Self {
            client,
            #[cfg(feature = "overrides")]
            hashes: hash::Hashes::default(),
            deny_cache: DenyCache::new(deny_cache, deny_cache_ttl),
            leases: Leases::new(deny_cache_ttl),
            outbox: Outbox::default(),
            fallback: MemoryStore::new(options.max_keys, options.max_bytes),
            permits: permits::PermitRegistry::default(),
            on_delivery: OnceLock::new(),
            deadline,
            on_store_error,
        }
    }

    /// Sets the function that is called for every posted command that has arrived. The first one is kept.
    pub(crate) fn on_delivery(&self, call: OnDelivery) {
        self.on_delivery.get_or_init(|| call);
    }

    /// The clock of the deny cache.
    #[inline]
    fn clock(&self) -> &Clock {
        self.fallback.clock()
    }

    /// Takes one of the units on lease, or refuses it as Redis would, under a valid policy of one tier
    /// that no override changes. Returns also the part that decides. Skipped, nothing is done.
    #[inline(never)]
    pub(crate) fn take_ahead<D: Detail>(
        &self,
        key: KeyRef<'_>,
        policy: &Policy,
    ) -> (Straight<D>, DecidedBy) {
        let (request, clock) = (Request::new(policy, Op::Take, 1), || self.clock().now());
        if let Some(outcome) = self.leased(key, request) {
            return (outcome.into(), outcome.decided_by);
        }
        let refusal = self.deny_cache.look(key, request, Duration::ZERO, clock);
        (refusal.map_or(Straight::Skipped, Straight::from), DecidedBy::DenyCache)
    }

    /// Returns the refusal in the deny cache that Redis would return, if its wait is longer than
    /// `max_wait`. A call without one is to be [decided](Self::decide): it may be the call that
    /// revalidates, and a second look-up would find a refusal for it.
    #[inline]
    pub(crate) fn cached_refusal(
        &self,
        key: KeyRef<'_>,
        request: Request<'_>,
        max_wait: Duration,
    ) -> Option<Outcome> {
        self.deny_cache.get(key, request, max_wait, || self.clock().now())
    }

    /// Returns the wait of a refusal in the deny cache, if it is longer than `max_wait`.
    pub(crate) fn known_refusal(
        &self,
        key: KeyRef<'_>,
        request: Request<'_>,
        max_wait: Duration,
    ) -> Option<Micros> {
        let refusal = self.deny_cache.look(key, request, max_wait, || self.clock().now());
        refusal.map(|refusal| refusal.wait)
    }

    /// Decides a request for which the deny cache has no refusal.
    pub(crate) async fn decide(
        self: &Arc<Self>,
        key: &Key,
        request: Request<'_>,
        on_store_error: Option<OnStoreError>,
        permit: Option<&mut PermitRequest>,
    ) -> Result<Outcome, UnavailableReason> {
        let asked = Instant::now();
        let deadline = asked + self.deadline;
        if request.policy.lease_micros().is_some() {
            match self.decide_on_lease(key, request, deadline).await {
                Some(Ok(outcome)) => return Ok(outcome),
                Some(Err(reason)) => {
                    return self.without_redis(key, request, on_store_error, (asked, reason));
                }
                None => {}
            }
        }
        let sent = self.clock().surely_past();
        match self.client.decide(key, request, permit, deadline).await {
            Ok(outcome) => {
                // Without a free permit nothing is known of the windows, and a permit is free at any time.
                if !outcome.is_busy
                    && !request.policy.tiers().is_empty()
                    && outcome.turn() == Micros::ZERO
                {
                    let trip = RoundTrip { sent, answered: self.clock().now() };
                    self.deny_cache.insert(key.as_key_ref(), request, outcome, trip);
                }
                Ok(outcome)
            }
            // Not an outage, so that the fallback must not decide.
            Err(UnavailableReason::WrongType) => Err(UnavailableReason::WrongType),
            Err(reason) => self.without_redis(key, request, on_store_error, (asked, reason)),
        }
    }

    /// Decides a request that Redis was asked and has not decided. A call that may wait for longer asks Redis
    /// again first.
    fn without_redis(
        &self,
        key: &Key,
        request: Request<'_>,
        on_store_error: Option<OnStoreError>,
        (asked, reason): (Instant, UnavailableReason),
    ) -> Result<Outcome, UnavailableReason> {
        if asked.elapsed() < Duration::from(request.max_wait) {
            return Err(reason);
        }
        let request = Request { max_wait: Micros::ZERO, ..request };
        match on_store_error.unwrap_or(self.on_store_error) {
            OnStoreError::Local => {
                let outcome = self.fallback.decide(key.as_key_ref(), request)?;
                Ok(Outcome { decided_by: DecidedBy::Fallback, ..outcome })
            }
            OnStoreError::Deny => Err(reason),
            OnStoreError::Allow => Ok(Outcome::unlimited(request)),
        }
    }

    /// Returns `true` if a call that Redis cannot decide fails.
    pub(crate) fn denies(&self, on_store_error: Option<OnStoreError>) -> bool {
        on_store_error.unwrap_or(self.on_store_error) == OnStoreError::Deny
    }

    /// Returns the pause of a call that waits for Redis, which has failed it so many times.
    #[expect(clippy::unused_self, reason = "as without the feature")]
    pub(crate) fn pause(&self, failures: u32) -> Duration {
        WAITING_FOR_REDIS.after(failures)
    }

    /// Returns the names of the known servers. One with an open breaker comes with the reason of its
    /// last failure.
    pub(crate) fn servers(&self) -> Vec<(String, Option<UnavailableReason>)> {
        self.client.servers()
    }

    /// Deletes the caller's counts, here and on Redis.
    pub(crate) async fn reset(&self, key: &Key) -> Result<(), UnavailableReason> {
        self.fallback.reset(key.as_key_ref());
        self.leases.invalidate(key.as_key_ref());
        let reset = self.client.reset(key, Instant::now() + self.deadline);
        let result = self.invalidating(key, reset).await;
        // Units that were taken meanwhile may be from before the reset.
        self.leases.invalidate(key.as_key_ref());
        result
    }

    /// Returns the store that decides while Redis cannot.
    pub(crate) fn fallback(&self) -> &MemoryStore {
        &self.fallback
    }

    /// Changes the units of a call that the fallback decided.
    pub(crate) fn settle_in_fallback(&self, key: KeyRef<'_>, settle: Settle) {
        self.fallback.settle(key, settle);
    }

    /// Changes the units of a call that Redis decided.
    pub(crate) async fn settle(&self, key: &Key, settle: Settle) -> Result<(), Unanswered> {
        let change = self.client.settle(key, settle, Instant::now() + self.deadline);
        // More units make no remembered wait too long.
        if settle.raised() > 0 { change.await } else { self.invalidating(key, change).await }
    }

    /// Awaits a reset or settle, and removes the key's refusals from the deny cache before and
    /// after it.
    async fn invalidating<T>(&self, key: &Key, change: impl Future<Output = T>) -> T {
        // The change may take effect although its reply is lost, or nobody awaits it.
        self.deny_cache.invalidate(key.as_key_ref(), self.clock().now());
        let result = change.await;
        // A refusal from before the change may have arrived meanwhile.
        self.deny_cache.invalidate(key.as_key_ref(), self.clock().now());
        result
    }

    /// Returns the fields of a hash and their values.
    #[cfg(feature = "overrides")]
    pub(crate) async fn fields(&self, key: &[u8]) -> Result<HashContent, UnavailableReason> {
        self.hashes.fields(&self.client, key, self.deadline).await
    }

    /// Sets fields of a hash.
    #[cfg(feature = "overrides")]
    pub(crate) async fn set_fields(
        &self,
        key: &[u8],
        fields: &[(String, String)],
    ) -> Result<(), UnavailableReason> {
        hash::set_fields(&self.client, key, fields, self.deadline).await
    }

    /// Removes a field of a hash.
    #[cfg(feature = "overrides")]
    pub(crate) async fn remove_field(
        &self,
        key: &[u8],
        field: &str,
    ) -> Result<(), UnavailableReason> {
        hash::remove_field(&self.client, key, field, self.deadline).await
    }
}
