//! How a limiter is made: its settings, and the store that a URL names.

use std::{sync::Arc, time::Duration};

use super::{Inner, Limiter, Store};
use crate::{
    error::{ConnectError, ConnectFault},
    store::{
        memory::MemoryStore,
        redis::{OpenError, RedisStore},
    },
};

/// The environment variable that [`Limiter::from_env`] reads.
pub const URL_VARIABLE: &str = "RATELIMIT_URL";

/// What a URL is called in errors when it came as an argument.
const URL_ARGUMENT: &str = "rate limit store URL";

/// Settings of a [`Limiter`], and the ways to make one with them.
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until one of its last three methods makes the limiter"]
pub struct LimiterBuilder {
    prefix: Box<str>,
    deadline: Duration,
    max_keys: usize,
}

impl LimiterBuilder {
    pub(super) fn new() -> Self {
        Self {
            prefix: "ratelimit:".into(),
            deadline: Duration::from_millis(100),
            max_keys: 1_000_000,
        }
    }

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
