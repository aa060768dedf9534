//! The conversion of refusals by the return type as it is written. Only the compile errors differ.

use crate::{
    error::RateLimitError,
    rejection::{FromRejection, carries_refusal},
};

/// Declares a trait for each row: the types that it is for, and the ways out for them.
macro_rules! return_types {
    ($($(#[doc = $doc:literal])+ $name:ident: $($way_out:literal)+;)+) => {$(
        carries_refusal! {
            $(#[doc = $doc])+
            #[diagnostic::on_unimplemented(
                message = "`{Self}` cannot carry a rate limit's refusal",
                label = "a refused call has to return this type",
                $(note = $way_out,)+
            )]
            pub trait $name {
                /// Returns the value that a call refused with `error` returns.
                fn from_rejection(error: RateLimitError) -> Self;
            }
        }

        #[diagnostic::do_not_recommend]
        impl<T: FromRejection> $name for T {
            fn from_rejection(error: RateLimitError) -> Self {
                FromRejection::from_rejection(error)
            }
        }
    )+};
}

return_types! {
    /// `()`, or no type.
    RefusalAsUnit:
        "add `fallible` to the attribute: the body stays as it is, and callers get `Result<(), RateLimitError>`"
        "or add `otherwise = ()`: a refused call then ends without an error";
    /// `!`, of a function that never returns.
    RefusalAsNever:
        "return `Result<std::convert::Infallible, RateLimitError>`, and leave the body as it is"
        "or add `otherwise = panic!(..)` to the attribute: a refused call then panics";
    /// A type of another crate: `Json<T>`, `String`, a reference or a tuple.
    RefusalAsForeign:
        "add `fallible` to the attribute: the body stays as it is, and callers get `Result<{Self}, RateLimitError>`"
        "or add `otherwise = value`: a refused call then returns this value";
    /// `Option<T>`.
    RefusalAsOption:
        "add `otherwise = None` to the attribute: a refused call then returns `None`"
        "or add `fallible`: the body stays as it is, and callers get `Result<{Self}, RateLimitError>`";
    /// `impl IntoResponse` of axum.
    RefusalAsIntoResponse:
        "add `fallible` to the attribute: the body stays as it is, and callers get `Result<impl IntoResponse, RateLimitError>`"
        "or return `axum::response::Response`, by `.into_response()` at the end of the body";
    /// `impl Responder` of actix-web.
    RefusalAsResponder:
        "add `fallible` to the attribute: the body stays as it is, and callers get `Result<impl Responder, RateLimitError>`"
        "or return `actix_web::Result<impl Responder>`, and the value in `Ok`";
    /// Any other `impl Trait`.
    RefusalAsImplTrait:
        "add `fallible` to the attribute: the body stays as it is, and callers get `Result<impl .., RateLimitError>`"
        "or add `otherwise = value`: a refused call then returns this value";
    /// `Result<T, E>` with an error type of another crate.
    RefusalAsForeignError:
        "add `fallible` to the attribute: the body stays as it is, and callers get `Result<{Self}, RateLimitError>`"
        "or return an error that can: `RateLimitError`, `anyhow::Error`, `axum::response::ErrorResponse`, `actix_web::Error`, or one of your own with `impl From<ratelimit_runtime::RateLimitError>`"
        "or add `otherwise = Err(value)`: a refused call then returns this error";
    /// `Result<T, Infallible>`, whose value carries no refusal.
    RefusalAsInfallible:
        "add `otherwise = Ok(value)` to the attribute: a refused call then returns this value; of warp: `otherwise = Ok(StatusCode::TOO_MANY_REQUESTS.into_response())`, with `warp::reply::Response` in the return type"
        "or return a `T` that can: `http::Response<B>`, `axum::response::Response`, or one of your own with `impl FromRejection`";
    /// A result with an error of poem.
    RefusalAsPoemError:
        "add `otherwise` to the attribute: `otherwise = |error| Err(poem::Error::from_string(error.to_string(), poem::http::StatusCode::TOO_MANY_REQUESTS))`"
        "or return an error of your own with `impl From<RateLimitError>` and `Into<poem::Error>`";
    /// A result with a status of rocket.
    RefusalAsRocketStatus:
        "add `otherwise` to the attribute: `otherwise = Err(rocket::http::Status::TooManyRequests)`"
        "or return an error of your own with `impl From<RateLimitError>` and `Responder`";
    /// A result with an error of salvo.
    RefusalAsSalvoError:
        "add `otherwise` to the attribute: `otherwise = Err(salvo::http::StatusError::too_many_requests().into())`"
        "or return an error of your own with `impl From<RateLimitError>` and `salvo::Writer`";
    /// A result with a rejection of warp.
    RefusalAsWarpRejection:
        "add `otherwise` to the attribute: `otherwise = |error| Err(warp::reject::custom(TooManyRequests(error)))`, with a type of your own that is a `warp::reject::Reject`"
        "or return `Result<warp::reply::Response, Infallible>`, and add `otherwise = Ok(response)`";
    /// Any output of a future that is boxed already, as by `#[async_trait]`.
    RefusalInBox:
        "return `Result<T, E>` with an error type that can: `ratelimit_runtime::RateLimitError`, or one of your own with `impl From<ratelimit_runtime::RateLimitError>`"
        "or add `otherwise = value` to the attribute: a refused call then returns this value";
}
