//! The conversion of a refusal into the return value of an annotated function.
//!
//! Floor 3: imports `error`. Macro support and web may import it.

use std::convert::Infallible;

use crate::error::RateLimitError;

/// Declares a trait whose compile error also names the limits that need no change of a function, or
/// the missing feature before all else.
macro_rules! carries_refusal {
    ($(#[$attribute:meta])+ pub trait $($declaration:tt)+) => {
        #[cfg_attr(not(feature = "web"), diagnostic::on_unimplemented(
            note = "for handlers of axum, actix-web or tonic, enable the feature `axum`, `actix` or `tonic` of `ratelimit-runtime` first"
        ))]
        $(#[$attribute])+
        #[cfg_attr(feature = "web", diagnostic::on_unimplemented(
            note = "or leave the function as it is, and limit requests in front of it: `web::tower::RateLimitLayer`, `web::actix::RateLimitMiddleware`"
        ))]
        #[cfg_attr(feature = "mcp", diagnostic::on_unimplemented(
            note = "a tool of an MCP server is not limited by a layer alone: return a `CallToolResult`, or a `Result` with an `rmcp::ErrorData`"
        ))]
        pub trait $($declaration)+
    };
}
pub(crate) use carries_refusal;

carries_refusal! {
    /// A return type that can carry a refusal.
    ///
    /// | the function returns | to write |
    /// |---|---|
    /// | `Result<T, E>` with `E: From<RateLimitError>`: `anyhow::Error`, `Box<dyn Error + Send + Sync>`, errors of your own | nothing |
    /// | axum (feature `axum`): `Response`, `axum::response::Result<T>`, `StatusCode`, `(StatusCode, String)`, `(StatusCode, &'static str)`; `Result<T, E>` whose error is one of these; `impl IntoResponse` for one of these | nothing |
    /// | actix-web (feature `actix`): `HttpResponse`, `actix_web::Result<T>`, `impl Responder` for an `HttpResponse` | nothing |
    /// | tonic (feature `tonic`): `Result<Response<T>, Status>`, also of streams | nothing |
    /// | rmcp (feature `mcp`): `Result<T, rmcp::ErrorData>`, `CallToolResult` | nothing |
    /// | hyper and tower (feature `tower`): `http::Response<B>` with `B: From<String>`, alone or with the error `Infallible` | nothing |
    /// | `Result<T, E>` with an error of your own | `impl From<RateLimitError> for E` |
    /// | `()`, `String`, `&str`, `Json<T>`, `Html<T>`, `Sse<S>`, `Redirect`, `NamedFile`, other tuples and foreign errors, `impl IntoResponse` and `impl Responder` for one of these | [`fallible`](macro@crate::rate_limit#fallible) |
    /// | results with an error of poem, rocket, salvo or warp, which do not answer a `RateLimitError`; other `Result<T, Infallible>` | [`otherwise = Err(..)`](macro@crate::rate_limit#otherwise), or an error of your own |
    /// | `Option<T>` | [`otherwise = None`](macro@crate::rate_limit#otherwise), or `fallible` |
    /// | any other type of your own | an implementation of this trait, or `fallible` |
    ///
    /// The compile error for a type that cannot carry a refusal names the changes that suit it. A
    /// limit in front of a handler needs none: `web::tower::RateLimitLayer`,
    /// `web::actix::RateLimitMiddleware`.
    ///
    /// A bare `StatusCode` has no headers, and a pair with a text has no `Retry-After`. Under the
    /// identity layer the response gets both.
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
        note = "add `fallible` to the attribute: the body stays as it is, and callers get `Result<{Self}, RateLimitError>`",
        note = "or add `otherwise = value`: a refused call then returns this value",
        note = "or, if your crate declares `{Self}`, implement `ratelimit_runtime::FromRejection` for it"
    )]
    pub trait FromRejection {
        /// Returns the value that a call refused with `error` returns.
        fn from_rejection(error: RateLimitError) -> Self;
    }
}

impl<T, E: ErrorFromRejection> FromRejection for Result<T, E> {
    fn from_rejection(error: RateLimitError) -> Self {
        Err(error.into())
    }
}

/// A service's result that has no error: the value itself carries the refusal.
#[diagnostic::do_not_recommend]
impl<T: FromRejection> FromRejection for Result<T, Infallible> {
    fn from_rejection(error: RateLimitError) -> Self {
        Ok(T::from_rejection(error))
    }
}

carries_refusal! {
    /// An error type that can carry a refusal: each with `From<RateLimitError>`.
    #[diagnostic::on_unimplemented(
        message = "the error `{Self}` cannot carry a rate limit's refusal",
        label = "a refused call has to return this error",
        note = "if your crate declares `{Self}`, write `impl From<RateLimitError> for {Self} {{ fn from(error: RateLimitError) -> Self {{ .. }} }}`; if it is a type parameter, bound it by `From<RateLimitError>`",
        note = "otherwise add `fallible` to the attribute: the body stays as it is, and callers get `Result<_, RateLimitError>`",
        note = "or add `otherwise = Err(value)`: a refused call then returns this error, as poem, rocket, salvo and warp need it"
    )]
    pub trait ErrorFromRejection: From<RateLimitError> {}
}

/// Lets types carry a refusal that are made of one.
#[cfg(any(feature = "actix", feature = "tower"))]
macro_rules! are_outputs {
    ($($output:ty),+) => {$(
        // The compiler's advice on a wrong return type is the same with every feature.
        #[diagnostic::do_not_recommend]
        impl $crate::FromRejection for $output {
            fn from_rejection(error: $crate::RateLimitError) -> Self {
                error.into()
            }
        }
    )+};
}
#[cfg(any(feature = "actix", feature = "tower"))]
pub(crate) use are_outputs;

#[diagnostic::do_not_recommend]
impl<E: From<RateLimitError>> ErrorFromRejection for E {}
