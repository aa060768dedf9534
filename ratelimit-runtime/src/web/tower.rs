//! Layers for tower services over the types of `http`: axum, tonic, hyper.
//!
//! [`IdentityLayer`] says who is calling, and puts on the response what is left. [`GateLayer`]
//! applies a limit to a service as a whole, before it is called.
//!
//! # Attribute or gate
//!
//! A framework's extractors run before the handler's body, and so before the limit of an annotated
//! handler: by then the request's body has been read. Such a limit can know all of the request, its
//! key, cost and threshold may come from what was extracted, and it stands where it is seen.
//! A gate decides on the request's head alone. Put one in front of handlers that read large bodies
//! or whose extractors are dear; both may be in place.
//!
//! # Order
//!
//! `Router::layer` and `ServerBuilder::layer` wrap what is there, so the last one added comes
//! first; in a `tower::ServiceBuilder` it is the other way round. From the outside in:
//!
//! 1. Cross-origin handling, such as `tower_http::cors::CorsLayer`. It answers preflights itself, so
//!    that none reaches a limit, and lets scripts read refusals. Have it expose `ratelimit`,
//!    `ratelimit-policy` and `retry-after`.
//! 2. Authentication, if [`Identity::extension`](super::Identity::extension) is to find whom it
//!    authenticated.
//! 3. [`IdentityLayer`].
//! 4. [`GateLayer`]s.
//!
//! Health checks are left out by adding their routes after the layers, or with
//! `.skip(tower::paths(["/healthz"]))`. There is no such predicate for preflights: a client that sends
//! what looks like one would reach handlers of `any` method uncounted.

mod gate;
mod identity;
mod peer;
mod service;

use std::net::IpAddr;

pub use gate::{GateLayer, GateService};
use http::{HeaderName, HeaderValue, Response, StatusCode, request::Parts};
pub use identity::{IdentityLayer, IdentityService};
pub use peer::PeerAddress;
pub use service::ResponseFuture;

use super::{
    headers::HeaderSyntax,
    identity::RequestHead,
    refusal::{PROBLEM_JSON, Refusal},
};
use crate::{decision::Decision, error::RateLimitError};

/// How the caller is found in a request of `http`.
///
/// The peer's address is axum's `ConnectInfo<SocketAddr>` or tonic's `TcpConnectInfo`, with their
/// features, or else a [`PeerAddress`] among the extensions.
pub type Identity = super::Identity<Parts>;

/// Whether a request is for one of `paths`, exactly as the layer sees them: inside axum's `nest`
/// without its prefix. For `skip`.
pub fn paths<const N: usize>(paths: [&'static str; N]) -> impl Fn(&Parts) -> bool + Clone {
    move |request| paths.contains(&request.uri.path())
}

/// Makes the response to a request that is not served: [`ProblemJson`], or a function.
///
/// Header fields that tell when to come back and what is left are added to it.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot make a response with the body `{B}`",
    note = "give the layer's `respond` a function from `&Refusal` to `http::Response<{B}>`; for a gRPC server it is `web::tonic::respond`"
)]
pub trait Respond<B> {
    /// The response.
    fn respond(&self, refusal: &Refusal) -> Response<B>;
}

impl<B, F: Fn(&Refusal) -> Response<B>> Respond<B> for F {
    fn respond(&self, refusal: &Refusal) -> Response<B> {
        self(refusal)
    }
}

/// Responds with problem details (RFC 9457), as [`Refusal::problem`] writes them.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProblemJson;

impl<B: From<String>> Respond<B> for ProblemJson {
    fn respond(&self, refusal: &Refusal) -> Response<B> {
        let mut response = Response::new(refusal.problem().into());
        *response.status_mut() = status(refusal);
        let content_type = HeaderValue::from_static(PROBLEM_JSON);
        response.headers_mut().insert(http::header::CONTENT_TYPE, content_type);
        response
    }
}

fn status(refusal: &Refusal) -> StatusCode {
    StatusCode::from_u16(refusal.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}

/// The response to a request that is not served, with the fields that it did not set itself. It
/// carries the error among its extensions, for layers further out.
pub(super) fn refuse<B>(
    responder: &impl Respond<B>,
    refusal: &Refusal,
    syntax: HeaderSyntax,
) -> Response<B> {
    let mut response = responder.respond(refusal);
    for (name, value) in refusal.fields(syntax) {
        if let Some(value) = header_value(value) {
            response.headers_mut().entry(HeaderName::from_static(name)).or_insert(value);
        }
    }
    if let Refusal::Limit(error) = refusal {
        response.extensions_mut().insert(error.clone());
    }
    response
}

/// Replaces the fields of a response by those of the answers, and of the refusal that made it.
///
/// A refusal is visible, and so are its limit and its wait, also those of an explicit key.
fn write_fields<B>(
    response: &mut Response<B>,
    syntax: HeaderSyntax,
    mut answers: Vec<Result<Decision, RateLimitError>>,
) {
    answers.extend(response.extensions().get::<RateLimitError>().cloned().map(Err));
    if answers.is_empty() {
        return;
    }
    let headers = response.headers_mut();
    for name in HeaderSyntax::ALL_FIELDS {
        headers.remove(name);
    }
    for (name, value) in syntax.fields(&answers) {
        headers.extend(header_value(value).map(|value| (HeaderName::from_static(name), value)));
    }
}

fn header_value(value: String) -> Option<HeaderValue> {
    HeaderValue::try_from(value).ok()
}

impl RequestHead for Parts {
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
