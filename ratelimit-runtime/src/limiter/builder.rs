//! The builder of limiters: its settings.

mod build;
#[cfg(feature = "redis")]
mod connection;

use std::{fmt, sync::Arc, time::Duration};

use super::{
    pause::MAX_PAUSE,
    warning::{OnWarning, Warning},
};
use crate::{
    error::GUESS,
    overrides::Shown,
    redis::{ConnectOptions, RedisOptions},
    request::OnStoreError,
    time::LONGEST,
};

/// The environment variable from which [`Limiter::from_env`] takes the store's URL.
pub(super) const URL_VARIABLE: &str = "RATELIMIT_URL";

/// The maximum number of callers in the deny cache, whose table then takes 6.3 MB.
const MAX_DENY_CACHE: usize = 1 << 20;

/// The largest setting of the longest pause: a month.
const LONGEST_PAUSE: Duration = Duration::from_secs(31 * 24 * 3_600);

/// The settings of a [`Limiter`](crate::Limiter), and its constructors.
///
/// ```
/// use std::time::Duration;
/// use ratelimit_runtime::{Limiter, OnStoreError};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), ratelimit_runtime::ConnectError> {
/// let limiter = Limiter::builder()
///     .prefix("shop:")
///     .deadline(Duration::from_millis(50))
///     .on_store_error(OnStoreError::Deny)
///     .connect("memory://")
///     .await?;
/// assert!(limiter.is_in_memory());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[must_use = "a builder does nothing until `in_memory`, `connect` or the like builds the limiter"]
pub struct LimiterBuilder {
    prefix: Option<Box<str>>,
    shown: Shown,
    settings: RedisOptions,
    connection: ConnectOptions,
    max_line: u32,
    max_pause: Duration,
    busy_wait: Option<Duration>,
    on_warning: Option<OnWarning>,
    #[cfg(feature = "overrides")]
    follows_overrides: bool,
}

impl LimiterBuilder {
    pub(super) fn new() -> Self {
        Self {
            prefix: None,
            shown: Shown::default(),
            settings: RedisOptions {
                is_instrumented: true,
                deadline: Duration::from_millis(100),
                on_store_error: OnStoreError::default(),
                max_keys: 1_000_000,
                max_bytes: 256 << 20,
                deny_cache: 16_384,
                deny_cache_ttl: Duration::from_secs(1),
            },
            connection: ConnectOptions::default(),
            max_line: 500,
            max_pause: MAX_PAUSE,
            busy_wait: Some(GUESS),
            on_warning: None,
            #[cfg(feature = "overrides")]
            follows_overrides: true,
        }
    }

    /// Sets the start of every key in the store; `ratelimit:` by default.
    ///
    /// Give each service that shares a Redis a prefix of its own. Under one prefix, limits of one
    /// name, such as `login`, share their counts. A limiter on Redis without a prefix is logged at
    /// `warn`; set the default to confirm it.
    pub fn prefix(mut self, prefix: impl Into<Box<str>>) -> Self {
        self.prefix = Some(prefix.into());
        self
    }

    /// Enables or disables events, metrics and stats of this limiter's decisions; enabled by
    /// default. Disable them for calls that do not belong to the service, such as those of a trial
    /// page.
    pub fn instrument(mut self, is_instrumented: bool) -> Self {
        self.settings.is_instrumented = is_instrumented;
        self
    }

    /// Sets how long a call waits for Redis; 100 ms by default, at most 366 days. Memory answers at
    /// once.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.settings.deadline = deadline.min(LONGEST);
        self
    }

    /// Sets the answer of a call that Redis cannot decide within the deadline, and of one for which
    /// memory is [full](Self::max_keys); [`OnStoreError::Local`] by default. The argument
    /// `on_store_error` of the attribute and
    /// [`Check::on_store_error`](crate::Check::on_store_error) set it for single calls, and
    /// [`Policy::on_store_error`](crate::Policy::on_store_error) for a policy.
    ///
    /// After five consecutive failures a circuit breaker opens, and calls get this answer at once.
    /// One probe at a time is sent: the first after 100 ms, then at least one a second.
    pub fn on_store_error(mut self, on_store_error: OnStoreError) -> Self {
        self.settings.on_store_error = on_store_error;
        self
    }

    /// Sets the number of callers in the deny cache; 16 384 by default, at most 1 048 576, 0 for
    /// none. The cache repeats refusals of Redis without a command until the call could be
    /// admitted. Each caller takes at most 1 KiB and the length of its key.
    ///
    /// For each of these callers a process sends at most one command a second, whatever the costs.
    /// In addition it sends one at each end of a wait, and one for each admitted call. The page
    /// [`guide::redis`](crate::guide::redis#the-deny-cache) lists the calls that are
    /// sent each time.
    pub fn deny_cache(mut self, entries: usize) -> Self {
        self.settings.deny_cache = entries.min(MAX_DENY_CACHE);
        self
    }

    /// Sets the age at which one call revalidates a cached refusal on Redis; 1 s by default, at
    /// most 366 days. A reset or refund by another process takes effect then.
    pub fn deny_cache_ttl(mut self, ttl: Duration) -> Self {
        self.settings.deny_cache_ttl = ttl.min(LONGEST);
        self
    }

    /// Sets the maximum number of keys in this process's memory, each for one policy and caller;
    /// 1 000 000 by default. `usize::MAX` removes the bound. On Redis the setting bounds the memory
    /// in which [`OnStoreError::Local`] counts.
    ///
    /// Keys whose quota is back in full are evicted as new ones arrive, and no other key ever is.
    /// While memory is full, callers that have a key are still counted. A new caller gets the
    /// answer of [`on_store_error`](Self::on_store_error). With [`OnStoreError::Allow`] its call
    /// passes uncounted; otherwise it fails with
    /// [`StoreFull`](crate::UnavailableReason::StoreFull).
    ///
    /// **Shares.** A limit takes a new key only while its own keys are at most three times the free
    /// ones. All policies of one name are one limit. One limit alone fills three quarters of the
    /// memory. Of `n` flooded limits each fills `3 / (3n + 1)`. Every other limit finds room.
    ///
    /// A call that finds memory full searches at most about 32 000 keys for expired ones, which
    /// takes up to some hundred microseconds. The next call continues where it stopped.
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

    /// Sets the maximum number of bytes that keys take in this process's memory; 256 MiB by
    /// default. `usize::MAX` removes the bound.
    ///
    /// A key takes some 87 bytes. A caller of more than 16 bytes adds 56, and one of more than 54
    /// its length besides. A sliding window adds 8 bytes for each unit after the third: a threshold
    /// of 1 000 takes up to 8 kB for each caller. Limits share the bytes as they share the keys,
    /// see [`max_keys`](Self::max_keys). A caller that has a key is affected as well if its window
    /// would grow beyond the bound.
    pub fn max_bytes(mut self, max_bytes: usize) -> Self {
        self.settings.max_bytes = max_bytes;
        self
    }

    /// Sets the maximum number of turns ahead under one key; 500 by default, 0 for none. A call
    /// that would wait behind more is refused at once, whatever its
    /// [`max_wait`](crate::Check::max_wait).
    ///
    /// On Redis the line is that of all processes. The calls that wait for a permit of
    /// [`concurrency`](crate::Policy::concurrency) are a line of this process, with the same
    /// maximum.
    ///
    /// ```
    /// let limiter = ratelimit_runtime::Limiter::builder().max_line(2_000).in_memory();
    /// ```
    pub fn max_line(mut self, max_line: u32) -> Self {
        self.max_line = max_line;
        self
    }

    /// Sets the longest [pause](crate::Limiter::pause) of a caller; 24 hours by default, at most 31
    /// days. A longer one is cut, and logged at `warn`: the remote service chooses it, and may be
    /// wrong.
    ///
    /// ```
    /// use std::time::Duration;
    /// use ratelimit_runtime::Limiter;
    ///
    /// let limiter = Limiter::builder().max_pause(Duration::from_secs(60)).in_memory();
    /// ```
    pub fn max_pause(mut self, max_pause: Duration) -> Self {
        self.max_pause = max_pause.min(LONGEST_PAUSE);
        self
    }

    /// Sets the wait that clients are told by a [`Busy`](crate::Busy), or `None` for none; 1 s by
    /// default. It is a guess, and spread: each client gets a time between this one and twice that.
    ///
    /// Without a wait many clients repeat a refused call at once, see
    /// [clients that wait](crate::guide::clients#clients-that-wait). A layer may set another one.
    ///
    /// ```
    /// use std::time::Duration;
    /// use ratelimit_runtime::{Limiter, Policy, RateLimitError};
    ///
    /// const UPLOAD: Policy = Policy::concurrency_limit("upload", 1);
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), RateLimitError> {
    /// let limiter = Limiter::builder().retry_busy_after(Duration::from_secs(20)).in_memory();
    /// let _upload = limiter.check(&UPLOAD, "alice").await?;
    /// let Err(RateLimitError::Busy(busy)) = limiter.check(&UPLOAD, "alice").await else { panic!() };
    /// assert!((20..=40).contains(&busy.retry_after().unwrap().as_secs()));
    /// # Ok(())
    /// # }
    /// ```
    pub fn retry_busy_after(mut self, wait: impl Into<Option<Duration>>) -> Self {
        self.busy_wait = wait.into();
        self
    }

    /// Sets the function that is called for each [warning](crate::Check::warn_at): once for each
    /// caller and period, over all processes. It must not block.
    ///
    /// ```
    /// use std::{sync::mpsc, time::Duration};
    /// use ratelimit_runtime::{Limiter, Policy};
    ///
    /// const API: Policy = Policy::fixed_window("api", Duration::from_secs(3600), 10);
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let (mails, sent) = mpsc::channel();
    /// let limiter = Limiter::builder()
    ///     .on_warning(move |warning| {
    ///         let left = warning.decision().remaining();
    ///         let _ = mails.send(format!("{}: {left} left", warning.caller_key()));
    ///     })
    ///     .in_memory();
    /// for _ in 0..10 {
    ///     limiter.check(&API, "alice").warn_at(80).await?;
    /// }
    /// assert_eq!(sent.try_iter().collect::<Vec<_>>(), ["alice: 2 left"]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn on_warning(mut self, call: impl Fn(Warning) + Send + Sync + 'static) -> Self {
        self.on_warning = Some(Arc::new(call));
        self
    }

    /// Adds a keyed digest of the caller to decision events, as the field `caller`; off by default.
    ///
    /// The secret is needed to find out if a digest belongs to a certain caller. The same secret
    /// gives the same digests in all processes.
    ///
    /// ```
    /// use ratelimit_runtime::Limiter;
    ///
    /// let secret = std::env::var("CALLER_DIGEST_SECRET").unwrap_or_else(|_| "for tests".into());
    /// let limiter = Limiter::builder().caller_digest(secret).in_memory();
    /// ```
    pub fn caller_digest(mut self, secret: impl Into<Box<str>>) -> Self {
        self.shown.secret = Some(secret.into());
        self
    }

    /// Names callers as keys contain them in
    /// [`Limiter::refused_callers`](crate::Limiter::refused_callers) and on the live page; off by
    /// default.
    ///
    /// Names may be personal data. Events contain them only as [digests](Self::caller_digest).
    pub fn show_callers(mut self) -> Self {
        self.shown.callers = true;
        self
    }

    /// Sets the version of the program that the live page shows, such as that of its deploy.
    ///
    /// ```
    /// use ratelimit_runtime::Limiter;
    ///
    /// let limiter = Limiter::builder().version(env!("CARGO_PKG_VERSION")).in_memory();
    /// assert_eq!(limiter.version(), Some(env!("CARGO_PKG_VERSION")));
    /// ```
    pub fn version(mut self, version: impl Into<Box<str>>) -> Self {
        self.shown.version = Some(version.into());
        self
    }

    /// Enables or disables the [overrides on Redis](crate::Overrides#method.follow_redis) of a
    /// limiter that [`connect`](Self::connect), [`connect_lazy`](Self::connect_lazy) or
    /// [`from_env`](Self::from_env) builds; enabled by default. They are the kill switch of a
    /// fleet.
    ///
    /// They cost two or three `HLEN`, `HGET` and `TIME` a second for each process, and `HGETALL` as
    /// often while the hash of limits is not empty. `connect` and `from_env` return after the first
    /// poll, which the [`deadline`](Self::deadline) bounds.
    ///
    /// ```no_run
    /// use ratelimit_runtime::Limiter;
    ///
    /// # async fn connect() -> Result<(), ratelimit_runtime::ConnectError> {
    /// let builder = Limiter::builder().follow_overrides(false);
    /// let limiter = builder.connect("redis://127.0.0.1").await?;
    /// # Ok(())
    /// # }
    /// ```
    #[cfg(feature = "overrides")]
    pub fn follow_overrides(mut self, follows: bool) -> Self {
        self.follows_overrides = follows;
        self
    }
}

/// Does not show the secret.
impl fmt::Debug for LimiterBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LimiterBuilder")
            .field("prefix", &self.prefix)
            .field("settings", &self.settings)
            .field("connection", &self.connection)
            .finish_non_exhaustive()
    }
}
