//! How a limiter is made: its settings, and the store that a URL names.

use std::{fmt, sync::Arc, time::Duration};

use super::{
    Inner, Limiter, Notices,
    backend::{Backend, Store},
    environment,
};
use crate::{
    error::{ConnectError, ConnectFault},
    memory::MemoryStore,
    overrides::Overrides,
    redis::{RedisBackend, RedisClient, RedisOptions, Tls},
    request::OnStoreError,
};

/// The environment variable that [`Limiter::from_env`] reads.
pub const URL_VARIABLE: &str = "RATELIMIT_URL";

/// The start of every key, if no other is set.
const DEFAULT_PREFIX: &str = "ratelimit:";

/// The most that a setting may last: sums with it stay moments that a clock can tell.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// The most exhausted callers that are remembered; their rows alone take 6.3 MB.
const MOST_REFUSALS: usize = 1 << 20;

/// What a URL is called in errors when it came as an argument.
const URL_ARGUMENT: &str = "rate limit store URL";

/// Settings of a [`Limiter`], and the ways to make one with them.
#[derive(Clone)]
#[must_use = "a builder does nothing until one of its last methods makes the limiter"]
pub struct LimiterBuilder {
    prefix: Option<Box<str>>,
    secret: Option<Box<str>>,
    settings: RedisOptions,
    tls: Tls,
    is_instrumented: bool,
}

impl LimiterBuilder {
    pub(super) fn new() -> Self {
        Self {
            prefix: None,
            secret: None,
            settings: RedisOptions {
                deadline: Duration::from_millis(100),
                on_store_error: OnStoreError::default(),
                max_keys: 1_000_000,
                max_bytes: 256 << 20,
                deny_cache: 16_384,
                deny_cache_ttl: Duration::from_secs(1),
            },
            tls: Tls::default(),
            is_instrumented: true,
        }
    }

    /// The start of every key in the store; `ratelimit:` by default.
    ///
    /// Services that share a Redis need prefixes of their own: under one prefix they share the counts
    /// of limits of one name, such as `login`. A limiter on Redis without a prefix is logged at
    /// `warn`; to say that the default is meant, set it.
    pub fn prefix(mut self, prefix: impl Into<Box<str>>) -> Self {
        self.prefix = Some(prefix.into());
        self
    }

    /// Sets if decisions of this limiter are recorded: as events, metrics and stats; `true` by
    /// default. Turn it off for calls that are none of the service, such as those of a trial page.
    pub fn instrument(mut self, is_instrumented: bool) -> Self {
        self.is_instrumented = is_instrumented;
        self
    }

    /// How long a call waits for its store at the most; 100 ms by default, a year at the most. A
    /// store in memory answers at once.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.settings.deadline = deadline.min(LONGEST);
        self
    }

    /// Sets the answer of a call that Redis cannot decide within the deadline, or that needs room in
    /// the store of this process when that is [full](Self::max_keys); [`OnStoreError::Local`] by
    /// default. A call may have its own, by `on_store_error` in the attribute.
    ///
    /// While Redis fails, calls do not each wait for it: after five failures in a row it is left
    /// alone, and one call after the other looks whether it is back, first after 100 ms, then at
    /// least every second.
    pub fn on_store_error(mut self, on_store_error: OnStoreError) -> Self {
        self.settings.on_store_error = on_store_error;
        self
    }

    /// The number of exhausted callers whose refusals are repeated without asking Redis, until the
    /// call could be admitted; 16 384 by default, 0 for none, 1 048 576 at the most. Each takes at most
    /// 1 KiB and the length of its key.
    ///
    /// For each of them a process sends Redis at most one command a second, one more at each end of a
    /// wait, and the calls that are admitted, whatever their costs. The page
    /// [`guide::capacity`](crate::guide::capacity#an-exhausted-caller) has the details, and the calls that
    /// ask each time.
    pub fn deny_cache(mut self, entries: usize) -> Self {
        self.settings.deny_cache = entries.min(MOST_REFUSALS);
        self
    }

    /// The age from which a remembered refusal is not repeated before one call has asked Redis again,
    /// so that a reset or a refund by another process is seen; a second by default, a year at the most.
    pub fn deny_cache_ttl(mut self, ttl: Duration) -> Self {
        self.settings.deny_cache_ttl = ttl.min(LONGEST);
        self
    }

    /// The most keys, a policy and a caller each, that the store in this process holds; 1 000 000
    /// by default. `usize::MAX` is no bound. Redis has bounds of its own; there the setting is that
    /// of the store that [`OnStoreError::Local`] counts in.
    ///
    /// Keys whose quota is back in full are forgotten as new ones come; no other key ever is. While
    /// the store is full, callers who are known go on counting. A new one gets what
    /// [`on_store_error`](Self::on_store_error) decides: with [`OnStoreError::Allow`] it passes
    /// uncounted, otherwise its error is [`Unavailable`](crate::Unavailable) with
    /// [`StoreFull`](crate::UnavailableReason::StoreFull).
    ///
    /// **Shares.** A limit, which is a policy's name, takes in a new key only while it holds at most
    /// three times as many as would still be free. One limit alone fills three quarters of the
    /// store. Of `n` limits that are flooded, each fills `3 / (3n + 1)`. Every other limit finds
    /// room.
    ///
    /// A call that finds the store full searches for expired keys, some 260 000 at the most, which
    /// takes up to some milliseconds. The next call continues where it stopped.
    ///
    /// ```
    /// use std::time::Duration;
    /// use ratelimit_runtime::{Limiter, Policy, RateLimitError, UnavailableReason};
    ///
    /// const LOGIN: Policy = Policy::token_bucket("login", Duration::from_secs(60), 3);
    /// const API: Policy = Policy::token_bucket("api", Duration::from_secs(60), 3);
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let limiter = Limiter::builder().max_keys(4).in_memory();
    /// for name in ["a", "b", "c"] {
    ///     assert!(limiter.check(&LOGIN, name).await.is_ok());
    /// }
    /// let full = limiter.check(&LOGIN, "d").await.unwrap_err();
    /// assert!(matches!(full, RateLimitError::Unavailable(e) if e.reason() == UnavailableReason::StoreFull));
    /// assert!(limiter.check(&LOGIN, "a").await.is_ok());
    /// assert!(limiter.check(&API, "d").await.is_ok());
    /// # }
    /// ```
    pub fn max_keys(mut self, max_keys: usize) -> Self {
        self.settings.max_keys = max_keys;
        self
    }

    /// The most bytes of memory that the keys of the store in this process take; 256 MiB by default.
    /// `usize::MAX` is no bound.
    ///
    /// A key takes 93 bytes, and a caller of more than 16 bytes its length. A sliding window adds 8
    /// bytes for each unit of which it has to keep the time, once these are more than three:
    /// a threshold of 1 000 takes up to 8 kB for each caller. Limits have shares of the bytes as of
    /// the keys, see [`max_keys`](Self::max_keys). A known caller also finds the store full when its
    /// window has to grow beyond them.
    pub fn max_bytes(mut self, max_bytes: usize) -> Self {
        self.settings.max_bytes = max_bytes;
        self
    }

    /// Has events of decisions tell callers apart without naming them: their field `caller` is a
    /// digest of who calls, made with this secret. By default events say nothing of callers.
    ///
    /// Who knows the secret can find out whether a digest is that of a certain caller; without it
    /// no one can. The same secret gives the same digests in all processes.
    ///
    /// ```
    /// use ratelimit_runtime::Limiter;
    ///
    /// let secret = std::env::var("CALLER_DIGEST_SECRET").unwrap_or_else(|_| "for tests".into());
    /// let limiter = Limiter::builder().caller_digest(secret).in_memory();
    /// ```
    pub fn caller_digest(mut self, secret: impl Into<Box<str>>) -> Self {
        self.secret = Some(secret.into());
        self
    }

    /// The certificates, in PEM, of the authorities that Redis's certificate may come from; the
    /// system's by default. Needs a URL with TLS: `rediss://`.
    #[cfg(feature = "tls")]
    pub fn root_certificate(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.tls.set_root_certificate(pem.into());
        self
    }

    /// The certificate, and its key, that Redis is shown, in PEM. Needs a URL with TLS:
    /// `rediss://`.
    #[cfg(feature = "tls")]
    pub fn client_certificate(
        mut self,
        certificate: impl Into<Vec<u8>>,
        key: impl Into<Vec<u8>>,
    ) -> Self {
        self.tls.set_client_certificate(certificate.into(), key.into());
        self
    }

    /// A limiter whose counts live in this process.
    #[must_use]
    pub fn in_memory(self) -> Limiter {
        let store = self.memory();
        self.build(store)
    }

    /// A limiter on the store that `url` names, as [`Limiter::connect`].
    ///
    /// # Errors
    ///
    /// As [`Limiter::connect`].
    pub async fn connect(self, url: &str) -> Result<Limiter, ConnectError> {
        let failed = |cause| ConnectError { origin: URL_ARGUMENT, cause };
        let store = self.open(url).await.map_err(failed)?;
        Ok(self.build(store))
    }

    /// A limiter on the store that `url` names, connected in the background: it is there at once,
    /// also while Redis is not, and calls get what [`on_store_error`](Self::on_store_error) says
    /// until it is. As with [`Limiter::connect`], it ends with the tokio runtime.
    ///
    /// # Errors
    ///
    /// [`ConnectError`] when the URL is malformed or its scheme unknown.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    pub fn connect_lazy(self, url: &str) -> Result<Limiter, ConnectError> {
        let store = match is_memory(url) {
            Ok(true) => Ok(self.memory()),
            Ok(false) => {
                let opened = RedisClient::open_lazy(url, &self.tls);
                opened.map(|store| self.remote(store))
            }
            Err(fault) => Err(fault),
        };
        let failed = |cause| ConnectError { origin: URL_ARGUMENT, cause };
        Ok(self.build(store.map_err(failed)?))
    }

    /// A limiter on a connection of your own, of version 1 of the `redis` crate: one shared
    /// connection, which its clones lead to, such as `MultiplexedConnection`,
    /// `ConnectionManager` or `ClusterConnection`.
    ///
    /// The limiter sends `EVALSHA`, `EVAL` and `UNLINK`, keeps to its deadline and leaves
    /// the connection alone while it fails; to make it anew when it is lost is the connection's
    /// own affair. Let it repeat nothing by itself: a client that sends a command again after a
    /// timeout, as `ClusterConnection` does unless its `retries` are 0, may charge a call twice.
    ///
    /// ```no_run
    /// use ratelimit_runtime::Limiter;
    ///
    /// # async fn connect() -> Result<(), redis::RedisError> {
    /// let client = redis::Client::open("redis://127.0.0.1/")?;
    /// let connection = client.get_multiplexed_async_connection().await?;
    /// let limiter = Limiter::builder().redis_connection(connection);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn redis_connection<C>(self, connection: C) -> Limiter
    where
        C: redis::aio::ConnectionLike + Clone + Send + Sync + 'static,
    {
        let store = self.remote(RedisClient::brought(connection));
        self.build(store)
    }

    /// A limiter on the store that `RATELIMIT_URL` names, as [`Limiter::from_env`].
    ///
    /// # Errors
    ///
    /// As [`Limiter::from_env`].
    pub async fn from_env(self) -> Result<Limiter, ConnectError> {
        let store = match environment::variable(URL_VARIABLE)? {
            Some(url) => {
                let failed = |cause| ConnectError { origin: URL_VARIABLE, cause };
                self.open(&url).await.map_err(failed)?
            }
            None => self.memory(),
        };
        let limiter = self.build(store);
        environment::override_limits(&limiter)?;
        Ok(limiter)
    }

    async fn open(&self, url: &str) -> Result<Store, ConnectFault> {
        if is_memory(url)? {
            return Ok(self.memory());
        }
        Ok(self.remote(RedisClient::open(url, &self.tls).await?))
    }

    fn memory(&self) -> Store {
        Store::Memory(MemoryStore::new(self.settings.max_keys, self.settings.max_bytes))
    }

    fn remote(&self, store: RedisClient) -> Store {
        Store::Redis(Arc::new(RedisBackend::new(store, self.settings)))
    }

    fn build(self, store: Store) -> Limiter {
        if self.prefix.is_none() && matches!(store, Store::Redis(_)) {
            tracing::warn!(
                prefix = DEFAULT_PREFIX,
                "default key prefix on Redis: services that share this Redis share the counts of limits of one name; set `prefix`"
            );
        }
        let prefix = self.prefix.unwrap_or_else(|| DEFAULT_PREFIX.into());
        let backend = Backend::new(store, prefix, self.settings.on_store_error);
        let overrides = match backend.redis() {
            #[cfg(feature = "overrides")]
            Some(redis) => Overrides::on_redis(Arc::clone(redis), backend.prefix()),
            _ => Overrides::none(),
        };
        Limiter {
            inner: Arc::new(Inner {
                backend,
                overrides,
                notices: Notices::default(),
                secret: self.secret,
                is_instrumented: self.is_instrumented,
            }),
        }
    }
}

/// Without the secret.
impl fmt::Debug for LimiterBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LimiterBuilder")
            .field("prefix", &self.prefix)
            .field("settings", &self.settings)
            .field("tls", &self.tls)
            .finish_non_exhaustive()
    }
}

/// Whether the URL names the store in this process.
fn is_memory(url: &str) -> Result<bool, ConnectFault> {
    match url.strip_prefix("memory://") {
        None => Ok(false),
        Some("") => Ok(true),
        Some(_) => Err(ConnectFault::Malformed("nothing may follow memory://".to_owned())),
    }
}
