//! The limiters of a builder: the store that a URL names, and the limiter on it.

use std::sync::{Arc, Weak};

use tokio::sync::oneshot;

use super::{
    super::{
        Inner, Limiter,
        backend::{Backend, Store},
        environment,
        notices::Notices,
        queue::Queues,
        spread::Spread,
    },
    LimiterBuilder, URL_VARIABLE,
};
use crate::{
    decision::{LimiterId, Settler},
    error::{ConnectError, Fault},
    memory::MemoryStore,
    opaque::Opaque,
    overrides::Overrides,
    redis::RedisBackend,
};

/// The start of every key, unless another is set.
const DEFAULT_PREFIX: &str = "ratelimit:";

/// The name of a URL in errors, if it is an argument.
const URL_ARGUMENT: &str = "rate limit store URL";

impl LimiterBuilder {
    /// Builds a limiter that counts in this process's memory.
    #[must_use]
    pub fn in_memory(self) -> Limiter {
        let store = self.memory();
        self.build(store)
    }

    /// Builds a limiter on the store that `url` names, as [`Limiter::connect`].
    ///
    /// # Errors
    ///
    /// As [`Limiter::connect`].
    pub async fn connect(self, url: &str) -> Result<Limiter, ConnectError> {
        let store = self.connect_store(url, URL_ARGUMENT).await?;
        Ok(self.build_followed(store).await)
    }

    /// Builds a limiter on the store that `url` names, and connects in the background. Until Redis
    /// answers, calls get the answer of [`on_store_error`](Self::on_store_error). It may be called
    /// outside of a tokio runtime.
    ///
    /// # Errors
    ///
    /// [`ConnectError`] if the URL is malformed or its scheme unknown.
    pub fn connect_lazy(self, url: &str) -> Result<Limiter, ConnectError> {
        let failed = |fault| ConnectError { origin: URL_ARGUMENT, fault };
        let store = self.open(url).map_err(failed)?;
        Ok(self.start_following(store).0)
    }

    /// Builds a limiter on a connection of your own, of version 1 of the `redis` crate. All clones
    /// of it must share one connection, as those of `MultiplexedConnection`, `ConnectionManager`
    /// and `ClusterConnection` do.
    ///
    /// The limiter sends `EVALSHA`, `EVAL` and `UNLINK`. Its deadline and its circuit breaker
    /// apply; the connection itself has to reconnect. Turn its retries off: a client that sends a
    /// command again after a timeout may charge a call twice. `ClusterConnection` does so unless
    /// its `retries` are 0. A call that [`OnStoreError::Deny`](crate::OnStoreError::Deny) has
    /// refused gets its units back if the reply comes within the response timeout of the
    /// connection, which is 500 ms by default, and at most 10 s.
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
    #[cfg(feature = "redis")]
    #[must_use]
    pub fn redis_connection<C>(self, connection: C) -> Limiter
    where
        C: redis::aio::ConnectionLike + Clone + Send + Sync + 'static,
    {
        let redis = RedisBackend::from_connection(connection, self.settings);
        self.build(Store::Redis(Opaque::new(redis)))
    }

    /// Builds a limiter on the store that `RATELIMIT_URL` names, as [`Limiter::from_env`].
    ///
    /// # Errors
    ///
    /// As [`Limiter::from_env`].
    pub async fn from_env(self) -> Result<Limiter, ConnectError> {
        let store = match environment::variable(URL_VARIABLE)? {
            Some(url) => self.connect_store(&url, URL_VARIABLE).await?,
            None => self.memory(),
        };
        let limiter = self.build_followed(store).await;
        environment::apply(&limiter)?;
        Ok(limiter)
    }

    /// Opens the store that a URL from `origin` names, and waits until it is connected.
    async fn connect_store(&self, url: &str, origin: &'static str) -> Result<Store, ConnectError> {
        let failed = |fault| ConnectError { origin, fault };
        let store = self.open(url).map_err(failed)?;
        if let Store::Redis(redis) = &store {
            redis.connected().await.map_err(failed)?;
        }
        Ok(store)
    }

    /// Opens the store that a URL names: this process's memory, or Redis, which connects in the
    /// background.
    fn open(&self, url: &str) -> Result<Store, Fault> {
        match url.strip_prefix("memory://") {
            None => {
                let redis = RedisBackend::open(url, &self.connection, self.settings)?;
                Ok(Store::Redis(Opaque::new(redis)))
            }
            Some("") => Ok(self.memory()),
            Some(_) => Err(Fault::malformed_url("nothing may follow memory://")),
        }
    }

    fn memory(&self) -> Store {
        Store::Memory(MemoryStore::new(self.settings.max_keys, self.settings.max_bytes))
    }

    /// Builds the limiter after the first poll of the overrides.
    async fn build_followed(self, store: Store) -> Limiter {
        let (limiter, first_poll) = self.start_following(store);
        if let Some(first_poll) = first_poll {
            // Fails if the runtime ends.
            let _ = first_poll.await;
        }
        limiter
    }

    /// Builds the limiter, which follows the overrides in the background. Returns their first poll
    /// as well.
    fn start_following(self, store: Store) -> (Limiter, Option<oneshot::Receiver<()>>) {
        #[cfg(feature = "overrides")]
        if self.follows_overrides {
            let limiter = self.build(store);
            let first_poll = limiter.overrides().start_following();
            return (limiter, first_poll);
        }
        (self.build(store), None)
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
            Some(redis) => Overrides::on_redis(redis, backend.prefix(), self.shown),
            _ => Overrides::none(self.shown),
        };
        let queues = Opaque::new(Queues::new(backend.redis().is_some(), self.max_line));
        let inner = Arc::new(Inner {
            id: LimiterId::next(),
            backend,
            overrides,
            notices: Notices::default(),
            is_instrumented: self.settings.is_instrumented,
            queues,
            max_pause: self.max_pause,
            busy_wait: self.busy_wait,
            spread: Spread::default(),
            on_warning: self.on_warning,
        });
        // Weak: a decision that may still be settled keeps no limiter alive.
        let settler: Weak<dyn Settler> = Arc::<Inner>::downgrade(&inner);
        inner.id.register(settler);
        inner.follow_deliveries();
        Limiter { inner }
    }
}
