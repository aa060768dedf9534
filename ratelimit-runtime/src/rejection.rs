//! How a refusal becomes the return value of the annotated function.

use crate::error::RateLimitError;

/// Return types that can carry a refusal.
///
/// Every `Result<T, E>` with `E: From<RateLimitError>` can: your own error types with such an
/// impl, `anyhow::Error`, `Box<dyn Error + Send + Sync>`. For another return type, implement this
/// trait:
///
/// ```
/// use ratelimit_runtime::{FromRejection, RateLimitError, rate_limit};
///
/// enum Reply {
///     Text(String),
///     Busy,
/// }
///
/// impl FromRejection for Reply {
///     fn from_rejection(_error: RateLimitError) -> Self {
///         Self::Busy
///     }
/// }
///
/// #[rate_limit(period = 60, threshold = 5, key = user)]
/// async fn greet(user: &str) -> Reply {
///     Reply::Text(format!("hello, {user}"))
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot carry a rate limit's refusal",
    label = "a refused call has to return this type",
    note = "either return a `Result<T, E>` whose error can be made from the refusal:\n`impl From<ratelimit_runtime::RateLimitError> for E {{ .. }}`",
    note = "or implement `ratelimit_runtime::FromRejection` for the return type"
)]
pub trait FromRejection {
    /// The return value of a call that was refused with `error`.
    fn from_rejection(error: RateLimitError) -> Self;
}

#[diagnostic::do_not_recommend]
impl<T, E: From<RateLimitError>> FromRejection for Result<T, E> {
    fn from_rejection(error: RateLimitError) -> Self {
        Err(error.into())
    }
}
