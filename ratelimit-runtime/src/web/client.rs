//! The limits of remote services: a layer for clients, and what an answer asks for.
//!
//! A [`HeedLayer`] keeps the calls of all processes to a remote service within its limit, and
//! pauses them when the service asks for it. [`Limiter::heed`] is the latter alone. The guide has
//! [what each process learns](crate::guide::waiting#calls-to-other-services).

mod layer;
pub(crate) mod told;

use std::time::{Duration, SystemTime};

use http::{HeaderMap, StatusCode};

pub use self::layer::{HeedLayer, HeedService};
use crate::{Decision, Limiter, RateLimitError};

impl Limiter {
    /// Pauses the key of an admitted call if the remote service that was called asks for it, as
    /// [`pause`](Self::pause). Returns `true` if it does. It needs the feature `tower`.
    ///
    /// An answer 429 or 503 asks by `Retry-After`, in seconds or as a date, or by `retry-after-ms`.
    /// Any answer asks by `RateLimit` with `r=0`, by `x-ratelimit-remaining: 0` beside
    /// `x-ratelimit-reset`, and by the forms of these in use, such as those of `OpenAI` and
    /// Anthropic. Every other answer does nothing, and asks no store.
    ///
    /// An answer that comes late does nothing: its wait, counted from the call's turn, is over by
    /// then.
    ///
    /// ```
    /// use std::time::Duration;
    /// use http::{HeaderMap, HeaderValue, StatusCode};
    /// use ratelimit_runtime::{Limiter, Policy};
    ///
    /// const PACE: Policy =
    ///     Policy::sliding_window("weather", Duration::from_secs(60), 100);
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), ratelimit_runtime::RateLimitError> {
    /// let limiter = Limiter::in_memory();
    /// let decision = limiter.check(&PACE, "all").await?;
    /// let headers = HeaderMap::from_iter([("retry-after".parse().unwrap(), HeaderValue::from(30))]);
    /// assert!(!limiter.heed(&decision, StatusCode::OK, &headers).await?);
    /// assert!(limiter.heed(&decision, StatusCode::TOO_MANY_REQUESTS, &headers).await?);
    /// assert!(limiter.check(&PACE, "all").await.is_err());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`pause`](Self::pause).
    pub async fn heed(
        &self,
        decision: &Decision,
        status: StatusCode,
        headers: &HeaderMap,
    ) -> Result<bool, RateLimitError> {
        match wait_told(status, headers) {
            Some(wait) => self.pause_after(decision, wait).await,
            None => Ok(false),
        }
    }
}

/// Returns the wait that an answer asks for.
fn wait_told(status: StatusCode, headers: &HeaderMap) -> Option<Duration> {
    let fields = |name| headers.get_all(name).into_iter().filter_map(|it| it.to_str().ok());
    told::told_wait(status.as_u16(), fields, SystemTime::now())
}
