//! The limiter: policy + caller -> key -> store -> decision.

use std::{fmt, sync::Arc, time::Duration};

use once_cell::sync::{Lazy, OnceCell};

use crate::{
    caller::Caller,
    decision::{self, Decision},
    error::{
        AlreadyInstalled, ConnectError, ConnectFault, RateLimitError, Unavailable,
        UnavailableReason,
    },
    key::Key,
    policy::Policy,
    store::{
        Outcome, Request,
        memory::MemoryStore,
        redis::{OpenError, RedisStore},
    },
};

/// The environment variable that [`Limiter::from_env`] reads.
pub const URL_VARIABLE: &str = "RATELIMIT_URL";

/// What a URL is called in errors when it came as an argument.
const URL_ARGUMENT: &str = "rate limit store URL";

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
    prefix: Box<str>,
    deadline: Duration,
}

enum Store {
    Memory(MemoryStore),
    Redis(RedisStore),
}

impl Limiter {
    /// A limiter whose counts live in this process.
    ///
    /// Time is tokio's: a test with `start_paused = true` moves it with `tokio::time::advance`.
    #[must_use]
    pub fn in_memory() -> Self {
        Self::builder().in_memory()
    }

    /// A limiter on the store that `url` names: `memory://`, `redis://[user:password@]host[:port][/db]`
    /// or `unix:///path/to/socket`.
    ///
    /// # Errors
    ///
    /// [`ConnectError`] when the URL is malformed or its scheme unknown, or, within a second, when
    /// the store cannot be reached.
    pub async fn connect(url: &str) -> Result<Self, ConnectError> {
        Self::builder().connect(url).await
    }

    /// A limiter on the store that the environment variable `RATELIMIT_URL` names, in memory if it
    /// is not set.
    ///
    /// # Errors
    ///
    /// As [`connect`](Self::connect); the message names the variable.
    pub async fn from_env() -> Result<Self, ConnectError> {
        Self::builder().from_env().await
    }

    /// A limiter with settings of your own.
    pub fn builder() -> LimiterBuilder {
        LimiterBuilder {
            prefix: "ratelimit:".into(),
            deadline: Duration::from_millis(100),
            max_keys: 1_000_000,
        }
    }

    /// Takes one unit of `caller`'s quota under `policy`.
    ///
    /// # Errors
    ///
    /// [`RateLimitError::Exceeded`] when the limit is reached, which consumes nothing;
    /// [`RateLimitError::Unavailable`] when the store cannot decide within the deadline;
    /// [`RateLimitError::InvalidPolicy`] when the policy breaks a rule.
    pub async fn check(
        &self,
        policy: &Policy,
        caller: impl Into<Caller>,
    ) -> Result<Decision, RateLimitError> {
        self.check_n(policy, caller, 1).await
    }

    /// Takes `cost` units, all or none.
    ///
    /// # Errors
    ///
    /// As [`check`](Self::check); a cost of 0 or above a threshold is an
    /// [`RateLimitError::InvalidPolicy`].
    pub async fn check_n(
        &self,
        policy: &Policy,
        caller: impl Into<Caller>,
        cost: u32,
    ) -> Result<Decision, RateLimitError> {
        policy.validate_with(Some(cost))?;
        self.decide(&caller.into(), Request { policy, cost, record: true }).await
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
        self.peek_n(policy, caller, 1).await
    }

    /// The answer that [`check_n`](Self::check_n) would give now; nothing is consumed. With a cost
    /// of 0 it tells what is left.
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
        policy.validate_with((cost > 0).then_some(cost))?;
        self.decide(&caller.into(), Request { policy, cost, record: false }).await
    }

    /// Forgets what `caller` has consumed under `policy`.
    ///
    /// # Errors
    ///
    /// [`RateLimitError::Unavailable`] when the store cannot do it within the deadline.
    pub async fn reset(
        &self,
        policy: &Policy,
        caller: impl Into<Caller>,
    ) -> Result<(), RateLimitError> {
        let key = Key::compose(&self.inner.prefix, policy, caller.into().parts());
        match &self.inner.store {
            Store::Memory(store) => {
                store.reset(&key);
                Ok(())
            }
            Store::Redis(store) => self.within_deadline(policy, store.reset(&key)).await,
        }
    }

    /// Decides a call whose policy has been validated.
    pub(crate) async fn decide(
        &self,
        caller: &Caller,
        request: Request<'_>,
    ) -> Result<Decision, RateLimitError> {
        let policy = request.policy;
        let key = Key::compose(&self.inner.prefix, policy, caller.parts());
        let outcome: Outcome = match &self.inner.store {
            Store::Memory(store) => store
                .decide(&key, request)
                .map_err(|reason| Unavailable::new(policy.name(), reason))?,
            Store::Redis(store) => {
                self.within_deadline(policy, store.decide(&key, request)).await?
            }
        };
        Ok(decision::decide(policy, &outcome)?)
    }

    async fn within_deadline<T>(
        &self,
        policy: &Policy,
        call: impl Future<Output = Result<T, UnavailableReason>>,
    ) -> Result<T, RateLimitError> {
        tokio::time::timeout(self.inner.deadline, call)
            .await
            .unwrap_or(Err(UnavailableReason::DeadlineExceeded))
            .map_err(|reason| Unavailable::new(policy.name(), reason).into())
    }
}

impl fmt::Debug for Limiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let store = match self.inner.store {
            Store::Memory(_) => "memory",
            Store::Redis(_) => "redis",
        };
        f.debug_struct("Limiter")
            .field("store", &store)
            .field("prefix", &self.inner.prefix)
            .field("deadline", &self.inner.deadline)
            .finish()
    }
}

/// Settings of a [`Limiter`], and the ways to make one with them.
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until one of its last three methods makes the limiter"]
pub struct LimiterBuilder {
    prefix: Box<str>,
    deadline: Duration,
    max_keys: usize,
}

impl LimiterBuilder {
    /// What every key in the store starts with; `ratelimit:` by default.
    pub fn prefix(mut self, prefix: impl Into<Box<str>>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// How long a call waits for its store at the most; 100 ms by default. A store in memory
    /// answers at once.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// How many keys, a policy and a caller each, a store in memory holds at the most; 1 000 000
    /// by default. Redis has bounds of its own.
    ///
    /// Keys whose quota is back in full are forgotten as new ones come. When as many as this are
    /// still counting, a call that needs another key is not decided: its error is
    /// [`RateLimitError::Unavailable`] with [`UnavailableReason::StoreFull`]. Callers who are
    /// known go on as before, and no count is lost.
    ///
    /// ```
    /// use std::time::Duration;
    /// use ratelimit_runtime::{Limiter, Policy, RateLimitError, UnavailableReason};
    ///
    /// const P: Policy = Policy::token_bucket("p", Duration::from_secs(60), 3);
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let limiter = Limiter::builder().max_keys(1).in_memory();
    /// assert!(limiter.check(&P, "alice").await.is_ok());
    /// let full = limiter.check(&P, "bob").await.unwrap_err();
    /// assert!(matches!(full, RateLimitError::Unavailable(e) if e.reason() == UnavailableReason::StoreFull));
    /// assert!(limiter.check(&P, "alice").await.is_ok());
    /// # }
    /// ```
    pub fn max_keys(mut self, max_keys: usize) -> Self {
        self.max_keys = max_keys;
        self
    }

    /// A limiter whose counts live in this process.
    #[must_use]
    pub fn in_memory(self) -> Limiter {
        let store = MemoryStore::new(self.max_keys);
        self.build(Store::Memory(store))
    }

    /// A limiter on the store that `url` names, as [`Limiter::connect`].
    ///
    /// # Errors
    ///
    /// As [`Limiter::connect`].
    pub async fn connect(self, url: &str) -> Result<Limiter, ConnectError> {
        let store = open(url, self.max_keys)
            .await
            .map_err(|cause| ConnectError { origin: URL_ARGUMENT, cause })?;
        Ok(self.build(store))
    }

    /// A limiter on the store that `RATELIMIT_URL` names, as [`Limiter::from_env`].
    ///
    /// # Errors
    ///
    /// As [`Limiter::from_env`].
    pub async fn from_env(self) -> Result<Limiter, ConnectError> {
        let failed = |cause| ConnectError { origin: URL_VARIABLE, cause };
        let url = match std::env::var(URL_VARIABLE) {
            Ok(url) => url,
            Err(std::env::VarError::NotPresent) => return Ok(self.in_memory()),
            Err(std::env::VarError::NotUnicode(_)) => return Err(failed(ConnectFault::NotUnicode)),
        };
        let store = open(&url, self.max_keys).await.map_err(failed)?;
        Ok(self.build(store))
    }

    fn build(self, store: Store) -> Limiter {
        let Self { prefix, deadline, max_keys: _ } = self;
        Limiter { inner: Arc::new(Inner { store, prefix, deadline }) }
    }
}

async fn open(url: &str, max_keys: usize) -> Result<Store, ConnectFault> {
    let Some((scheme, rest)) = url.split_once("://") else {
        return Err(ConnectFault::Malformed("it has no scheme".to_owned()));
    };
    match scheme {
        "memory" if rest.is_empty() => Ok(Store::Memory(MemoryStore::new(max_keys))),
        "memory" => Err(ConnectFault::Malformed("nothing may follow memory://".to_owned())),
        "redis" | "unix" => match RedisStore::open(url).await {
            Ok(store) => Ok(Store::Redis(store)),
            Err(OpenError::Malformed(why)) => Err(ConnectFault::Malformed(why)),
            Err(OpenError::Unreachable { address, cause }) => {
                Err(ConnectFault::Unreachable { address, cause })
            }
        },
        scheme => Err(ConnectFault::UnknownScheme(scheme.to_owned())),
    }
}

static INSTALLED: OnceCell<Limiter> = OnceCell::new();
static EMBEDDED: Lazy<Limiter> = Lazy::new(Limiter::in_memory);

/// Makes `limiter` the one that annotated functions use when they name none, for the rest of the
/// process. Until then they are served by an embedded limiter in memory.
///
/// # Errors
///
/// [`AlreadyInstalled`] after the first time.
pub fn install(limiter: Limiter) -> Result<(), AlreadyInstalled> {
    INSTALLED.set(limiter).map_err(|_| AlreadyInstalled)
}

/// The installed limiter, or the embedded one while there is none.
pub(crate) fn installed() -> &'static Limiter {
    INSTALLED.get().unwrap_or_else(|| &EMBEDDED)
}
