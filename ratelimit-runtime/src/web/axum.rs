//! A refusal as an axum response.
//!
//! With this feature [`RateLimitError`] is an `IntoResponse`. An annotated handler may return
//! `axum::response::Result<T>`, `Result<T, RateLimitError>`, an error of its own with
//! `From<RateLimitError>`, or a `Response`; [`FromRejection`](crate::FromRejection) lists all.
//! [`tower::IdentityLayer`](super::tower::IdentityLayer) sets the caller:
//!
//! ```no_run
//! use std::net::SocketAddr;
//! use axum::{Router, routing::get};
//! use ratelimit_runtime::{rate_limit, web::tower::{Identity, IdentityLayer}};
//!
//! #[rate_limit(period = 60, threshold = 5)]
//! async fn hello() -> axum::response::Result<&'static str> {
//!     Ok("hello")
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> std::io::Result<()> {
//! let app = Router::new().route("/", get(hello)).layer(IdentityLayer::new(Identity::peer()));
//! let listener = tokio::net::TcpListener::bind("127.0.0.1:3000").await?;
//! axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>()).await
//! # }
//! ```
//!
//! Without `into_make_service_with_connect_info` axum does not pass on the peer's address. Every
//! request is then refused with 400, and a warning is logged.

use ::axum::response::{IntoResponse, Response};

use super::{
    refusal::Refusal,
    response::ResponseSettings,
    tower::{ProblemJson, refusal_response},
};
use crate::error::RateLimitError;

/// 429, 403, 422, 503 or 500 with problem details, `Retry-After`, `Cache-Control: no-store` and the
/// default [`HeaderSyntax`](super::HeaderSyntax); see [`Refusal`].
impl IntoResponse for RateLimitError {
    fn into_response(self) -> Response {
        Refusal::Limit(self).into_response()
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        refusal_response(&ProblemJson, self, ResponseSettings::default())
    }
}
