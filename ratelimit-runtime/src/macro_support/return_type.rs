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
        "add `fallible` to the attribute: the body stays as it is, and the function returns `Result<(), RateLimitError>`"
        "or add `otherwise = ()`: a refused call then ends without an error";
    /// A type of another crate: `Json<T>`, `String`, a reference or a tuple.
    RefusalAsForeign:
        "add `fallible` to the attribute: the body stays as it is, and the function returns `Result<{Self}, RateLimitError>`"
        "or add `otherwise = value`: a refused call then returns this value";
    /// `Option<T>`.
    RefusalAsOption:
        "add `otherwise = None` to the attribute: a refused call then returns `None`"
        "or add `fallible`: the body stays as it is, and the function returns `Result<{Self}, RateLimitError>`";
    /// `impl IntoResponse` of axum.
    RefusalAsIntoResponse:
        "add `fallible` to the attribute: the body stays as it is, and the function returns `Result<impl IntoResponse, RateLimitError>`"
        "or return `axum::response::Response`, by `.into_response()` at the end of the body";
    /// `impl Responder` of actix-web.
    RefusalAsResponder:
        "add `fallible` to the attribute: the body stays as it is, and the function returns `Result<impl Responder, RateLimitError>`"
        "or return `actix_web::Result<impl Responder>`, and the value in `Ok`";
    /// Any other `impl Trait`.
    RefusalAsImplTrait:
        "add `fallible` to the attribute: the body stays as it is, and the function returns `Result<impl .., RateLimitError>`"
        "or add `otherwise = value`: a refused call then returns this value";
    /// `Result<T, E>` with an error type of another crate.
    RefusalAsForeignError:
        "add `fallible` to the attribute: the body stays as it is, and the function returns `Result<{Self}, RateLimitError>`"
        "or return an error that can: `RateLimitError`, `anyhow::Error`, `axum::response::ErrorResponse`, `actix_web::Error`, or one of your own with `impl From<ratelimit_runtime::RateLimitError>`";
    /// Any output of a future that is boxed already, as by `#[async_trait]`.
    RefusalInBox:
        "return `Result<T, E>` with an error type that can: `ratelimit_runtime::RateLimitError`, or one of your own with `impl From<ratelimit_runtime::RateLimitError>`"
        "or add `otherwise = value` to the attribute: a refused call then returns this value";
}
