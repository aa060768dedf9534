//! The conversion of a refusal into the return value of an annotated function.
//!
//! Floor 3: imports `error`. Macro support and web may import it.

use crate::error::RateLimitError;

/// A return type that can carry a refusal.
///
/// Every `Result<T, E>` with `E: From<RateLimitError>` implements it. Such errors are
/// `anyhow::Error`, `Box<dyn Error + Send + Sync>`, and your own types with that impl. The
/// frameworks' features add `StatusCode` and `(StatusCode, String)`.
///
/// For any other return type write [`fallible`](macro@crate::rate_limit#fallible), or implement this
/// trait for a type of your own:
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
    note = "add `fallible` to the attribute: the function then returns `Result<_, RateLimitError>`, with this value in `Ok`",
    note = "or add `otherwise = value`: a refused call then returns this value",
    note = "or return a type that can: `axum::response::Result<T>` or `Response`, `actix_web::Result<T>` or `HttpResponse`, any `Result<T, E>` with `impl From<ratelimit_runtime::RateLimitError> for E {{ .. }}`",
    note = "or, for a type of your own, implement `ratelimit_runtime::FromRejection`"
)]
pub trait FromRejection {
    /// Returns the value that a call refused with `error` returns.
    fn from_rejection(error: RateLimitError) -> Self;
}

#[diagnostic::do_not_recommend]
impl<T, E: From<RateLimitError>> FromRejection for Result<T, E> {
    fn from_rejection(error: RateLimitError) -> Self {
        Err(error.into())
    }
}
