//! Redis as a backend: deny cache, servers, fallback.
//!
//! A check passes three layers. Units on lease and the deny cache decide without a command. One
//! command goes to the key's [server](servers), through that server's circuit breaker and within
//! the deadline. If Redis cannot decide, `on_store_error` does.
//!
//! [`RedisBackend`] is what a limiter calls. [`RedisStore`] is its part that tasks share.
//! [`Servers`] is one server or a cluster, over connections of the [transport].
//!
//! Floor 5: only `limiter` and `overrides` may import this room; only this room names the crate
//! `redis`, except where a user brings a connection. It imports `memory`, `telemetry`, and the
//! plain data below them.

mod backoff;
mod deny_cache;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
#[cfg_attr(not(feature = "overrides"), allow(dead_code, reason = "only overrides read hashes"))]
mod hash;
mod late;
mod leases;
mod options;
mod outbox;
mod permits;
mod script;
mod servers;
mod store;
mod transport;
mod written_pauses;

use std::{sync::Arc, time::Duration};

use redis::aio::ConnectionLike;
use tokio::time::Instant;

pub use self::transport::Credentials;
use self::{
    backoff::Backoff,
    deny_cache::{DenyCache, RoundTrip},
    leases::Leases,
    outbox::Outbox,
    permits::{PendingPermit, PermitRegistry},
    script::{ScriptCall, reset, turn},
    servers::{Node, Servers},
    store::RedisStore,
    written_pauses::WrittenPauses,
};
#[cfg(feature = "overrides")]
pub(crate) use self::{hash::RedisHash, options::HashContent};
pub(crate) use self::{
    late::{LateReply, OnLate},
    options::{Content, OnDelivery, RedisOptions},
    transport::{ConnectOptions, CredentialsProvider},
};
use crate::{
    decision::Permit,
    error::{Fault, FlushError, Replied, ServerStatus, UnavailableReason},
    key::{Key, KeyRef},
    memory::{Clock, MemoryStore},
    policy::Policy,
    request::{
        CallerUsage, Charged, DecidedBy, LinePlace, OnStoreError, Op, Outcome, PermitRequest,
        Request, Settle, Standing,
    },
    telemetry,
    time::{Micros, Timestamp},
};

/// The pauses of a call that waits for Redis. The circuit breaker bounds its commands.
const WAITING_FOR_REDIS: Backoff =
    Backoff::new(Duration::from_millis(20), Duration::from_millis(320));

pub(crate) struct RedisBackend {
    store: Arc<RedisStore>,
    leases: Arc<Leases>,
    outbox: Arc<Outbox>,
    permits: Arc<PermitRegistry>,
    pauses: WrittenPauses,
}

impl RedisBackend {
    /// Connects in the background.
    pub(crate) fn open(
        url: &str,
        connection: &ConnectOptions,
        options: RedisOptions,
    ) -> Result<Self, Fault> {
        Ok(Self::new(Servers::open(url, connection)?, options))
    }

    /// Uses a connection of the program's own.
    pub(crate) fn from_connection<C>(connection: C, options: RedisOptions) -> Self
    where
        C: ConnectionLike + Clone + Send + Sync + 'static,
    {
        Self::new(Servers::Single(Arc::new(Node::from_connection(connection))), options)
    }

    fn new(servers: Servers, options: RedisOptions) -> Self {
        let RedisOptions { deadline, deny_cache, deny_cache_ttl, .. } = options;
        let store = Arc::new(RedisStore {
            servers,
            deny_cache: DenyCache::new(deny_cache, deny_cache_ttl),
            fallback: MemoryStore::new(options.max_keys, options.max_bytes),
            deadline,
        });
        let outbox = Outbox::new(Arc::clone(&store));
        Self {
            leases: Leases::new(Arc::clone(&store), deny_cache_ttl),
            permits: PermitRegistry::new(
                Arc::clone(&store),
                Arc::clone(&outbox),
                options.is_instrumented,
            ),
            pauses: WrittenPauses::default(),
            outbox,
            store,
        }
    }

    /// Waits for the end of the first attempt to connect.
    pub(crate) async fn connected(&self) -> Result<(), Fault> {
        self.store.servers.connected().await
    }

    /// Sets the function that is called for every posted command that has arrived. The first one is
    /// kept.
    pub(crate) fn on_delivery(&self, call: OnDelivery) {
        self.outbox.on_delivery.get_or_init(|| call);
    }

    /// Sends a command that nobody awaits.
    pub(crate) fn post(&self, key: Key, content: Content) {
        self.outbox.post(key, content);
    }

    /// Sends a command, and waits for the first attempt. One without an answer is sent again.
    pub(crate) async fn send(&self, key: Key, content: Content) {
        self.outbox.send(key, content).await;
    }

    /// Gives all leases back, sends what is posted, and waits for what others send and for late
    /// replies.
    pub(crate) async fn flush(&self) -> Result<(), FlushError> {
        let leases = self.leases.give_all_back().await;
        let (unsent, unanswered) = self.outbox.flush().await;
        FlushError::check(leases + unsent, unanswered)
    }

    /// The clock of this process's part.
    pub(crate) fn clock(&self) -> &Clock {
        self.store.clock()
    }

    /// Decides a call by units on lease or by the deny cache, if they can. A call without an answer
    /// is to be [decided](Self::decide): it may be the one that revalidates its refusal, and a
    /// second look-up would find the refusal.
    #[inline(never)]
    pub(crate) fn decide_now(&self, key: KeyRef<'_>, request: Request<'_>) -> Option<Outcome> {
        if let Some(leased) = self.leases.take(key, request) {
            return Some(leased);
        }
        let now = || self.store.clock().now();
        self.store.deny_cache.get(key, request, request.max_wait, true, now)
    }

    /// Returns the wait of a refusal in the deny cache, if it is longer than `max_wait`.
    pub(crate) fn known_refusal(
        &self,
        key: KeyRef<'_>,
        request: Request<'_>,
        max_wait: Duration,
    ) -> Option<Micros> {
        let now = || self.store.clock().now();
        let refusal = self.store.deny_cache.get(key, request, max_wait.into(), false, now);
        refusal.map(|refusal| refusal.wait)
    }

    /// Decides a request for which the deny cache has no refusal, and returns the permit of an
    /// admitted call. The deadline runs from `asked` on.
    pub(crate) async fn decide(
        &self,
        key: &Key,
        request: Request<'_>,
        asked: Instant,
        on_store_error: OnStoreError,
        on_late: Option<OnLate<'_>>,
    ) -> (Replied<Outcome>, Option<Arc<dyn Permit>>) {
        let mut pending = PendingPermit::new(&self.permits, key, request, asked);
        let permit = pending.as_mut().map(|pending| &mut pending.permit);
        let outcome = self.outcome(key, request, asked, on_store_error, permit, on_late).await;
        (outcome, pending.and_then(|pending| pending.answered(outcome)))
    }

    async fn outcome(
        &self,
        key: &Key,
        request: Request<'_>,
        asked: Instant,
        on_store_error: OnStoreError,
        permit: Option<&mut PermitRequest>,
        on_late: Option<OnLate<'_>>,
    ) -> Replied<Outcome> {
        let deadline = asked + self.store.deadline;
        // An answer of Redis would come too late.
        if deadline <= Instant::now() {
            let late = (asked, UnavailableReason::DeadlineExceeded);
            return self.without_redis(key, request, on_store_error, late);
        }
        if request.policy.lease_micros().is_some() {
            match self.leases.decide(key, request, deadline).await {
                Some(Ok(outcome)) => return Ok(outcome),
                Some(Err(reason)) => {
                    return self.without_redis(key, request, on_store_error, (asked, reason));
                }
                None => {}
            }
        }
        let sent = self.store.clock().surely_past();
        let permit_id = permit.as_deref().map(|permit| permit.id);
        let late = |reply, echo| {
            if let Some(receive) = on_late {
                let expected = self.outbox.expect();
                receive(LateReply { reply, echo, permit: permit_id, expected });
            }
        };
        match self.store.servers.decide(key, request, permit, deadline, &late).await {
            Ok(outcome) => {
                let trip = RoundTrip { sent, answered: self.store.clock().now() };
                if self.pauses.are_ended_by(key, request, outcome, trip) {
                    self.store.fallback.reset(key.as_key_ref());
                }
                // Without a free permit nothing is known of the windows, and a permit is free at
                // any time. A call that a look's refusal answered would be no offence.
                if !outcome.is_busy()
                    && (request.op == Op::Take || !request.policy.has_block())
                    && !request.policy.tiers().is_empty()
                    && outcome.turn == Micros::ZERO
                {
                    self.store.deny_cache.insert(key.as_key_ref(), request, outcome, trip);
                }
                Ok(outcome)
            }
            // Not an outage, so that the fallback must not decide.
            Err(UnavailableReason::WrongType) => Err(UnavailableReason::WrongType),
            Err(reason) => self.without_redis(key, request, on_store_error, (asked, reason)),
        }
    }

    /// Decides a request that Redis was asked and has not decided. A call that may wait for longer
    /// asks Redis again first.
    fn without_redis(
        &self,
        key: &Key,
        request: Request<'_>,
        on_store_error: OnStoreError,
        (asked, reason): (Instant, UnavailableReason),
    ) -> Replied<Outcome> {
        if asked.elapsed() < Duration::from(request.max_wait) {
            return Err(reason);
        }
        let request = Request { max_wait: Micros::ZERO, ..request };
        match on_store_error {
            OnStoreError::Local => self.decide_alone(key, request),
            OnStoreError::LocalShare(share) => {
                let policy = request.policy.shared_out(share, request.cost).ok_or(reason)?;
                self.decide_alone(key, Request { policy: &policy, ..request })
            }
            OnStoreError::Deny => Err(reason),
            OnStoreError::Allow => Ok(Outcome::unlimited(request)),
        }
    }

    fn decide_alone(&self, key: &Key, request: Request<'_>) -> Replied<Outcome> {
        let outcome = self.store.fallback.decide(key.as_key_ref(), request)?;
        Ok(Outcome { decided_by: DecidedBy::Fallback, ..outcome })
    }

    /// Returns what a caller has used under a policy.
    pub(crate) async fn usage(&self, key: &Key, policy: &Policy) -> Replied<CallerUsage> {
        let call = ScriptCall::usage(key, policy);
        let decode = |reply: &_| call.decode_usage(reply);
        self.store.ask(key, |attempt| call.command(attempt), decode).await
    }

    /// Returns the pause of a call that waits for Redis, which has failed it so many times.
    #[expect(clippy::unused_self, reason = "as without the feature")]
    pub(crate) fn pause(&self, failures: u32) -> Duration {
        WAITING_FOR_REDIS.after(failures)
    }

    /// Returns the names of the known servers. One with an open breaker comes with the reason of
    /// its last failure.
    pub(crate) fn servers(&self) -> Vec<ServerStatus> {
        self.store.servers.statuses()
    }

    /// Moves the first turn that lies ahead forwards, if it is the one of this place and has room.
    /// Returns the turn, unless the charge is gone.
    pub(crate) async fn advance(
        &self,
        key: &Key,
        place: LinePlace<'_>,
    ) -> Replied<Option<Standing>> {
        // Without a charge there is no turn.
        if place.mark.charged == Charged::Nothing {
            return Ok(None);
        }
        let command = |attempt| turn::advance_command(key, place, attempt);
        self.store.ask(key, command, |reply| turn::decode_advance(place.mark, reply)).await
    }

    /// Returns the times of charges in a sliding window, none for one that is gone.
    pub(crate) async fn turns(
        &self,
        key: &Key,
        places: &[LinePlace<'_>],
    ) -> Replied<Vec<Option<Timestamp>>> {
        let command = |attempt| turn::turns_command(key, places, attempt);
        self.store.ask(key, command, turn::decode_turns).await
    }

    /// Admits nobody under the key of a sliding window before the end of a pause. One whose time
    /// `ends` has come is none, and the result `false`. One that cannot be written is kept here,
    /// for calls that this process decides without Redis.
    pub(crate) async fn pause_key(
        &self,
        key: &Key,
        policy: &Policy,
        length: Micros,
        ends: Option<Timestamp>,
    ) -> Replied<bool> {
        let sent = self.store.clock().surely_past();
        let command = |attempt| turn::pause_command(key, policy, length, ends, attempt);
        let pause = self.store.ask(key, command, turn::decode_pause);
        let paused = self.store.invalidating(key, pause).await;
        if paused != Ok(false) {
            // Redis may be away later, during the pause.
            let _ = self.store.fallback.pause(key.as_key_ref(), policy, length, None);
        }
        match paused {
            Ok(true) => self.pauses.add(key, self.store.clock().now(), sent + length),
            Ok(false) => {}
            Err(reason) => {
                // No answer of Redis ends a pause that it does not know.
                self.pauses.forget(key);
                telemetry::pause_is_local(policy.name(), reason);
            }
        }
        paused
    }

    /// Deletes the counts and the block of a key's caller, here and on Redis.
    pub(crate) async fn reset(&self, key: &Key) -> Replied<()> {
        self.store.fallback.reset(key.as_key_ref());
        self.pauses.forget(key);
        self.leases.invalidate(key.as_key_ref());
        let reset = self.store.ask(key, |_| reset(key).into(), |_| Some(()));
        let result = self.store.invalidating(key, reset).await;
        // Units that were taken meanwhile may be from before the reset.
        self.leases.invalidate(key.as_key_ref());
        result
    }

    /// Changes the units of a call that this process counted: the fallback, or a lease, if that
    /// lasts. Returns `false` if Redis did.
    pub(crate) fn settle_here(
        &self,
        key: KeyRef<'_>,
        settle: Settle,
        decided_by: DecidedBy,
    ) -> bool {
        match decided_by {
            DecidedBy::Fallback => self.store.fallback.settle(key, &settle),
            DecidedBy::Lease if settle.raised() == 0 => self.leases.give_back(key, settle),
            _ => return false,
        }
        true
    }

    /// Changes the units of a call that Redis decided.
    pub(crate) async fn settle(&self, key: &Key, settle: Settle) -> Replied<()> {
        self.store.settle(key, settle).await.map_err(|failed| failed.reason)
    }

    /// Returns the hash of this key.
    #[cfg(feature = "overrides")]
    pub(crate) fn hash(&self, key: &str) -> RedisHash {
        RedisHash::new(Arc::clone(&self.store), key)
    }
}
