//! Annotated functions that decide on a limiter of their own, and its connection.

use std::time::Duration;

use ratelimit_runtime::{Limiter, OnStoreError, Policy, RateLimitError, rate_limit};

use crate::server::Result;

/// The policy of [`admitted`]: wide enough for what one server can decide.
pub const ADMITTED: (u64, u32) = (5_000_000, 400);

/// The policy of [`refused`].
pub const REFUSED: (u64, u32) = (31_622_400_000_000, 2);

/// A limit so wide that each call is admitted.
///
/// # Errors
///
/// When the store does not decide.
#[rate_limit(period = "5s", threshold = 400, key = user, limiter = limiter)]
pub async fn admitted(limiter: &Limiter, user: u32) -> std::result::Result<(), RateLimitError> {
    Ok(())
}

/// A limit so narrow that each call is refused, except a caller's first two.
///
/// # Errors
///
/// The refusal.
#[rate_limit(period = "366d", threshold = 2, key = user, limiter = limiter)]
pub async fn refused(limiter: &Limiter, user: u32) -> std::result::Result<(), RateLimitError> {
    Ok(())
}

/// The policy of [`leased`]: one lease suffices for all calls.
pub const LEASED: Policy = Policy::fixed_window("leased", Duration::from_secs(86_400), 800_000_000)
    .lease(Duration::from_secs(3_600));

/// A limit under which this process takes units ahead.
///
/// # Errors
///
/// When the store does not decide.
#[rate_limit(policy = LEASED, key = user, limiter = limiter)]
pub async fn leased(limiter: &Limiter, user: u32) -> std::result::Result<(), RateLimitError> {
    Ok(())
}

/// Returns a limiter with a deny cache of this size, which lives as long as the process. A call
/// without a decision fails.
///
/// # Errors
///
/// When the server is not there.
pub async fn limiter(url: &str, deny_cache: usize) -> Result<&'static Limiter> {
    let builder = Limiter::builder()
        .deadline(Duration::from_secs(10))
        .on_store_error(OnStoreError::Deny)
        .deny_cache(deny_cache);
    Ok(Box::leak(Box::new(builder.connect(url).await?)))
}

/// Makes one call, which must be admitted or refused as expected.
///
/// # Panics
///
/// When the store has not decided.
pub async fn call(limiter: &Limiter, is_admitted: bool, user: u32) -> bool {
    let answer =
        if is_admitted { admitted(limiter, user).await } else { refused(limiter, user).await };
    match answer {
        Ok(()) => true,
        Err(RateLimitError::Exceeded(_)) => false,
        Err(error) => panic!("{error}"),
    }
}
