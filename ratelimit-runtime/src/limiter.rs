//! The limiter: policy + caller -> key -> store -> decision.

mod builder;
mod course;
mod environment;
mod installed;
mod notices;
mod request;
mod settle;
mod status;
#[cfg(feature = "overrides")]
mod steering;
mod wait;

use std::{fmt, sync::Arc};

use self::notices::Notices;
pub use self::{
    builder::{LimiterBuilder, URL_VARIABLE},
    installed::install,
    request::CheckRequest,
    status::ServerStatus,
};
pub(crate) use self::{
    course::{Asked, Course},
    installed::installed,
    request::Terms,
};
use crate::{
    caller::Caller,
    decision::Decision,
    error::{ConnectError, RateLimitError, Unavailable, UnavailableReason},
    key::{self, Key, KeyRef},
    memory::MemoryStore,
    overrides::Overrides,
    policy::Policy,
    redis::RedisBackend,
    request::{OnStoreError, Outcome, Request},
};

/// Decides calls, and is where their counts live: in this process or on Redis.
///
/// A limiter is a handle; clones share one store and one connection.
///
/// ```
/// use std::time::Duration;
/// use ratelimit_runtime::{Limiter, Policy, RateLimitError};
///
/// const REPLY: Policy = Policy::sliding_window("reply", Duration::from_secs(60), 1);
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let limiter = Limiter::in_memory();
/// assert_eq!(limiter.check(&REPLY, "harry").await.unwrap().remaining(), 0);
/// let refused = limiter.check(&REPLY, "harry").await.unwrap_err();
/// assert!(matches!(refused, RateLimitError::Exceeded(e) if e.retry_after() <= REPLY.tiers()[0].period()));
/// # }
/// ```
#[derive(Clone)]
pub struct Limiter {
    inner: Arc<Inner>,
}

struct Inner {
    store: Store,
    on_store_error: OnStoreError,
    overrides: Overrides,
    notices: Notices,
    prefix: Box<str>,
    /// What makes the callers' pseudonyms; without it they have none.
    secret: Option<Box<str>>,
}

enum Store {
    Memory(MemoryStore),
    RedisBackend(Box<RedisBackend>),
}

impl Limiter {
    /// A limiter whose counts live in this process.
    ///
    /// Time is tokio's: a test with `start_paused = true` moves it with `tokio::time::advance`.
    #[must_use]
    pub fn in_memory() -> Self {
        Self::builder().in_memory()
    }

    /// A limiter on the store that `url` names: `memory://`, `redis://[user:password@]host[:port][/db]`,
    /// `unix:///path/to/socket`, `redis+cluster://host[:port],host[:port],..`, or
    /// `redis+sentinel://host[:port],host[:port],../primary[/db]`. With the feature `tls`, `rediss` in
    /// place of `redis` is the same over TLS. The page [`guide::redis`](crate::guide::redis) has all of it.
    ///
    /// What keeps the connection are tasks of the tokio runtime in which this is called: once that
    /// has ended, as after a `#[tokio::test]`, calls get what
    /// [`on_store_error`](LimiterBuilder::on_store_error) says.
    ///
    /// # Errors
    ///
    /// [`ConnectError`] when the URL is malformed or its scheme unknown, or when the store cannot be
    /// reached: within a second for one server, within 1.5 s for each address of a cluster that is
    /// named, and within 4 s, of which the Sentinels have 3, behind Sentinels.
    pub async fn connect(url: &str) -> Result<Self, ConnectError> {
        Self::builder().connect(url).await
    }

    /// A limiter on the store that the environment variable `RATELIMIT_URL` names, in memory if it
    /// is not set.
    ///
    /// `RATELIMIT_ENFORCEMENT`, one of `on`, `dry_run` and `off`, says what the refusals of all limits
    /// are worth at the most. With the feature `overrides`, `RATELIMIT_OVERRIDES` holds a document of
    /// overrides, and `RATELIMIT_OVERRIDES_FILE` names a file of them, which is followed.
    ///
    /// # Errors
    ///
    /// As [`connect`](Self::connect), and when an override is wrong; the message names the variable.
    pub async fn from_env() -> Result<Self, ConnectError> {
        Self::builder().from_env().await
    }

    /// A limiter with settings of your own.
    pub fn builder() -> LimiterBuilder {
        LimiterBuilder::new()
    }

    /// Takes one unit of `caller`'s quota under `policy`.
    ///
    /// # Errors
    ///
    /// [`RateLimitError::Exceeded`] when the limit is reached, which consumes nothing;
    /// [`RateLimitError::TooLarge`] when the limit can never admit the call;
    /// [`RateLimitError::Unavailable`] when the store cannot decide within the deadline;
    /// [`RateLimitError::InvalidPolicy`] when the policy breaks a rule.
    pub async fn check(
        &self,
        policy: &Policy,
        caller: impl Into<Caller>,
    ) -> Result<Decision, RateLimitError> {
        self.request(policy, caller).check().await
    }

    /// Takes `cost` units, all or none. A cost of 0 is admitted and takes nothing.
    ///
    /// # Errors
    ///
    /// As [`check`](Self::check); a cost above a threshold or a burst is
    /// [`RateLimitError::TooLarge`].
    pub async fn check_n(
        &self,
        policy: &Policy,
        caller: impl Into<Caller>,
        cost: u32,
    ) -> Result<Decision, RateLimitError> {
        self.request(policy, caller).cost(cost).check().await
    }

    /// The answer that [`check`](Self::check) would give now; nothing is consumed.
    ///
    /// # Errors
    ///
    /// As [`check`](Self::check).
    pub async fn peek(
        &self,
        policy: &Policy,
        caller: impl Into<Caller>,
    ) -> Result<Decision, RateLimitError> {
        self.request(policy, caller).peek().await
    }

    /// The answer that [`check_n`](Self::check_n) would give now; nothing is consumed. With a cost
    /// of 0 it reports what is left, and is never refused.
    ///
    /// # Errors
    ///
    /// As [`check`](Self::check).
    pub async fn peek_n(
        &self,
        policy: &Policy,
        caller: impl Into<Caller>,
        cost: u32,
    ) -> Result<Decision, RateLimitError> {
        self.request(policy, caller).cost(cost).peek().await
    }

    /// A call with more to say than [`check`](Self::check): its cost, how long it may wait, an id
    /// under which it is charged once.
    pub fn request<'a>(
        &'a self,
        policy: &'a Policy,
        caller: impl Into<Caller>,
    ) -> CheckRequest<'a> {
        CheckRequest::new(self, policy, caller.into())
    }

    /// The Redis servers that this limiter knows, all nodes of a cluster that have slots; none in
    /// memory.
    ///
    /// ```
    /// use ratelimit_runtime::Limiter;
    ///
    /// let is_healthy = |limiter: &Limiter| limiter.servers().iter().all(|it| it.failure().is_none());
    /// assert!(is_healthy(&Limiter::in_memory()));
    /// ```
    #[must_use]
    pub fn servers(&self) -> Vec<ServerStatus> {
        let servers = match &self.inner.store {
            Store::Memory(_) => Vec::new(),
            Store::RedisBackend(remote) => remote.servers(),
        };
        servers.into_iter().map(|(name, failure)| ServerStatus::new(name, failure)).collect()
    }

    /// What operators say of this limiter's limits, for all of its clones.
    #[must_use]
    pub fn overrides(&self) -> &Overrides {
        &self.inner.overrides
    }

    fn key(&self, policy: &Policy, caller: &Caller) -> Key {
        Key::compose(&self.inner.prefix, policy, caller.parts())
    }

    /// What a caller is called in events.
    pub(crate) fn pseudonym(&self, caller: &Caller) -> Option<String> {
        let secret = self.inner.secret.as_ref()?;
        Some(key::pseudonym(secret, caller.parts()))
    }

    /// The store, if it is in memory and answers at once.
    pub(crate) fn memory(&self) -> Option<&MemoryStore> {
        match &self.inner.store {
            Store::Memory(store) => Some(store),
            Store::RedisBackend(_) => None,
        }
    }

    /// The answer to a call for which the store in memory has no room. There is no other store to
    /// count in.
    #[cold]
    pub(crate) fn without_room(
        &self,
        request: Request<'_>,
        on_store_error: Option<OnStoreError>,
        reason: UnavailableReason,
    ) -> Result<Outcome, UnavailableReason> {
        match on_store_error.unwrap_or(self.inner.on_store_error) {
            OnStoreError::Allow => Ok(Outcome::unlimited(request)),
            OnStoreError::Local | OnStoreError::Deny => Err(reason),
        }
    }

    /// Decides a call whose policy has been validated.
    pub(crate) async fn decide(
        &self,
        caller: &Caller,
        request: Request<'_>,
        terms: Terms,
    ) -> Result<Outcome, UnavailableReason> {
        let policy = request.policy;
        match &self.inner.store {
            Store::Memory(store) => {
                let outcome = store.decide(KeyRef::new(policy, caller.parts()), request);
                outcome.or_else(|reason| self.without_room(request, terms.on_store_error, reason))
            }
            Store::RedisBackend(store) => {
                let Terms { max_wait, on_store_error } = terms;
                store.decide(&self.key(policy, caller), request, max_wait, on_store_error).await
            }
        }
    }
}

/// What a call is told when its store could not answer.
fn unavailable<T>(
    policy: &Policy,
    answer: Result<T, UnavailableReason>,
) -> Result<T, RateLimitError> {
    answer.map_err(|reason| Unavailable::new(policy.name(), reason).into())
}

impl fmt::Debug for Limiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let store = match self.inner.store {
            Store::Memory(_) => "memory",
            Store::RedisBackend(_) => "redis",
        };
        f.debug_struct("Limiter")
            .field("store", &store)
            .field("prefix", &self.inner.prefix)
            .finish()
    }
}
