//! Layers for tower services over the types of `http`: axum, tonic, hyper.
//!
//! [`IdentityLayer`] sets the ambient caller, and headers with the remaining quota on the response.
//! [`RateLimitLayer`] applies limits to the requests of a service, before it is called.
//! [`ProblemJson`] builds the response to a refused request, unless the program brings a function
//! for it.
//!
//! # Attribute or layer
//!
//! A framework's extractors run before the limit of an annotated handler: by then the request's
//! body has been read. The key, cost and threshold of such a limit may come from extracted values.
//! A layer decides by the request's head alone. Put one in front of handlers that read large bodies
//! or have expensive extractors. Both may be in place.
//!
//! # Order
//!
//! The last layer that axum's `Router::layer` adds is the outermost. In a `tower::ServiceBuilder`
//! and in tonic's `Server` it is the first. From the outside in:
//!
//! 1. Cross-origin handling, such as `tower_http::cors::CorsLayer`. It answers preflights itself,
//!    so that none reaches a limit, and makes refusals readable for scripts. Expose the
//!    [headers](super::EXPOSED_HEADERS) there:
//!    [recipe](crate::guide::layers#scripts-of-other-origins).
//! 2. Authentication, if [`Identity::extension`](super::Identity::extension) reads the
//!    authenticated principal.
//! 3. [`IdentityLayer`].
//! 4. [`RateLimitLayer`]s.
//!
//! To leave out health checks, add their routes after the layers, or write
//! `.skip(tower::paths(["/healthz"]))`. There is no such predicate for preflights: a client could
//! imitate one and reach handlers of `any` method uncounted.

mod body;
mod deadline;
mod identity;
mod peer;
mod rate_limit;
pub(super) mod service;

use std::{borrow::Cow, net::IpAddr};

pub use body::HoldPermits;
use http::{HeaderName, HeaderValue, Response, StatusCode, header::CONTENT_TYPE, request::Parts};
pub use identity::{IdentityLayer, IdentityService};
pub use peer::PeerAddress;
pub use rate_limit::{RateLimitLayer, RateLimitService};
pub use service::ResponseFuture;

use super::{
    identity::{RequestHead, Sealed},
    refusal::{PROBLEM_JSON, Refusal},
    response::{ResponseParts, ResponseSettings, made_of, parts_of_http},
};
pub use super::{
    middleware::{body_units, paths},
    permits::PermitBody,
};
use crate::{error::RateLimitError, rejection::FromRejection};

/// The extraction of callers from requests of `http`.
///
/// The peer's address is a [`PeerAddress`] in the extensions. With their features, it is otherwise
/// axum's `ConnectInfo<SocketAddr>` or tonic's `TcpConnectInfo`.
pub type Identity = super::Identity<Parts>;

/// A limit of requests of `http`.
pub type Limit = super::Limit<Parts>;

/// A builder of refusal responses: [`ProblemJson`], or a function.
///
/// Headers such as `Retry-After` and the remaining quota are added to its response.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot make a response with the body `{B}`",
    note = "give the layer's `respond` a function from `&Refusal` to `http::Response<{B}>`; for a gRPC server it is `web::tonic::respond`"
)]
pub trait Respond<B> {
    /// Returns the response to a request that is not served.
    fn respond(&self, refusal: &Refusal) -> Response<B>;
}

impl<B, F: Fn(&Refusal) -> Response<B>> Respond<B> for F {
    fn respond(&self, refusal: &Refusal) -> Response<B> {
        self(refusal)
    }
}

/// Responses with the problem details (RFC 9457) of [`Refusal::problem`].
#[derive(Clone, Copy, Debug, Default)]
pub struct ProblemJson;

impl<B: From<String>> Respond<B> for ProblemJson {
    fn respond(&self, refusal: &Refusal) -> Response<B> {
        problem_json(refusal, refusal.problem())
    }
}

fn problem_json<B: From<String>>(refusal: &Refusal, body: String) -> Response<B> {
    let mut response = Response::new(body.into());
    let status = StatusCode::from_u16(refusal.status());
    *response.status_mut() = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let content_type = HeaderValue::from_static(PROBLEM_JSON);
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    response
}

/// Returns a response whose body clients of language models understand too, by
/// [`Refusal::problem_with_error`]. For the `respond` of a layer:
///
/// ```
/// use axum::Router;
/// use ratelimit_runtime::web::tower::{Identity, IdentityLayer, problem_with_error};
///
/// # #[cfg(feature = "axum")]
/// let app: Router =
///     Router::new().layer(IdentityLayer::new(Identity::peer()).respond(problem_with_error));
/// ```
#[must_use]
pub fn problem_with_error<B: From<String>>(refusal: &Refusal) -> Response<B> {
    problem_json(refusal, refusal.problem_with_error())
}

/// Returns the response to a request that is not served, with the headers that the responder did
/// not set itself. Its extensions contain the error, for layers further out.
pub(super) fn refusal_response<B>(
    responder: &impl Respond<B>,
    refusal: Refusal,
    reply: ResponseSettings,
) -> Response<B> {
    let refusal = reply.refusal(refusal);
    made_of(responder.respond(&refusal), refusal, reply)
}

/// The response of [`ProblemJson`] with the default [`HeaderSyntax`](super::HeaderSyntax), as of
/// axum and hyper.
impl<B: From<String>> From<RateLimitError> for Response<B> {
    fn from(error: RateLimitError) -> Self {
        refusal_response(&ProblemJson, error.into(), ResponseSettings::default())
    }
}

// The compiler's advice on a wrong return type is the same with every feature.
#[diagnostic::do_not_recommend]
impl<B: From<String>> FromRejection for Response<B> {
    fn from_rejection(error: RateLimitError) -> Self {
        error.into()
    }
}

impl<B> ResponseParts for Response<B> {
    fn http_status(&self) -> u16 {
        // A gRPC response without messages has its code among the headers, and the HTTP status 200.
        self.header("grpc-status").map_or(self.status().as_u16(), status_of_grpc)
    }

    parts_of_http!();
}

/// Returns the HTTP status that a gRPC code stands for, as `google/rpc/code.proto` lists them; of
/// most of the client's faults 400.
fn status_of_grpc(code: &[u8]) -> u16 {
    match code {
        b"0" => 200,
        b"2" | b"13" | b"15" => 500,
        b"4" => 504,
        b"7" => 403,
        b"8" => 429,
        // Of this crate: the request is more than its limit ever admits.
        b"9" => 422,
        b"12" => 501,
        b"14" => 503,
        _ => 400,
    }
}

impl Sealed for Parts {}

impl RequestHead for Parts {
    fn method(&self) -> &str {
        self.method.as_str()
    }

    fn path(&self) -> &str {
        self.uri.path()
    }

    fn route(&self) -> Option<Cow<'_, str>> {
        #[cfg(feature = "axum")]
        return Some(self.extensions.get::<axum::extract::MatchedPath>()?.as_str().into());
        #[cfg(not(feature = "axum"))]
        None
    }

    fn peer(&self) -> Option<IpAddr> {
        peer::peer(&self.extensions)
    }

    fn header_lines(&self, name: &str) -> impl DoubleEndedIterator<Item = &[u8]> {
        self.headers.get_all(name).iter().map(HeaderValue::as_bytes)
    }

    fn extension<T: Send + Sync + 'static>(
        &self,
        read: impl FnOnce(&T) -> crate::Caller,
    ) -> Option<crate::Caller> {
        self.extensions.get::<T>().map(read)
    }
}
