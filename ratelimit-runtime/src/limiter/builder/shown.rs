//! The settings of what operators see: callers, and the version of the program.

use super::LimiterBuilder;

impl LimiterBuilder {
    /// Adds a keyed digest of the caller to decision events, as the field `caller`; off by default.
    ///
    /// The secret is needed to find out if a digest belongs to a certain caller. The same secret gives
    /// the same digests in all processes.
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

    /// Names callers as keys contain them in [`Limiter::refused_callers`](crate::Limiter::refused_callers) and on the live page; off by default.
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
}
