//! A refusal as a gRPC status.
//!
//! With this feature [`RateLimitError`] converts into a [`Status`], so that the methods of a
//! service can be annotated. The layers of [`tower`](super::tower) set the caller. Add them with
//! `Server::builder().layer(..)`; metadata are headers there:
//!
//! ```
//! use ratelimit_runtime::web::{self, tower::{Identity, IdentityLayer}};
//!
//! let identity = Identity::header("x-api-key").or(Identity::peer());
//! let server = tonic::transport::Server::builder()
//!     .layer(IdentityLayer::new(identity).respond(web::tonic::respond));
//! ```
//!
//! The peer's address is known for TCP; under TLS take it from the extension `TlsConnectInfo` with
//! `Identity::from_fn`, or insert a [`PeerAddress`](super::tower::PeerAddress).

use ::tonic::{
    Code, Status,
    body::Body,
    metadata::{MetadataMap, MetadataValue},
};
use http::{Response, request::Parts};
use tonic_types::{ErrorDetails, StatusExt};

use super::{
    refusal::{MALFORMED_IDENTITY, NO_IDENTITY, Refusal},
    response::{NO_RETRY, PUSHBACK},
    wait::Wait,
};
use crate::error::RateLimitError;

/// The status of each error:
///
/// | error | status | `RetryInfo` | `grpc-retry-pushback-ms` |
/// |---|---|---|---|
/// | [`Exceeded`](crate::Exceeded) | `RESOURCE_EXHAUSTED` | the wait | the wait, rounded up and at least 1 |
/// | [`Busy`](crate::Busy) | `RESOURCE_EXHAUSTED` | a guess, 1 to 2 s | the guess |
/// | [`Denied`](crate::Denied) until a time | `RESOURCE_EXHAUSTED` | the wait | the wait, as above |
/// | [`Denied`](crate::Denied) without an end | `PERMISSION_DENIED` | none | none |
/// | [`Unavailable`](crate::Unavailable) | `UNAVAILABLE` | a guess, 1 to 2 s | the guess |
/// | [`TooLarge`](crate::TooLarge) | `FAILED_PRECONDITION` | none | none |
/// | [`InvalidPolicy`](crate::InvalidPolicy) | `INTERNAL` | none | -1: no retry |
///
/// The first two have a `QuotaFailure`, whose subject is the policy's name, with its plan.
///
/// The metadata is for retry policies in a client's service config, which ignore `RetryInfo`. It
/// makes a client that retries `RESOURCE_EXHAUSTED` wait as long as it must. It is at most
/// 2 147 483 000, some 24 days. `TooLarge` has none, because clients count a -1 as a failure of the
/// server, and then retry their other calls less.
///
/// Under a layer it is -1 if the wait is longer than the call's `grpc-timeout` leaves. A client
/// would otherwise wait for its deadline, and report `DEADLINE_EXCEEDED` in place of the refusal.
impl From<RateLimitError> for Status {
    fn from(error: RateLimitError) -> Self {
        let (message, wait) = (error.to_string(), Wait::of(&error));
        let (code, failed_quota) = match &error {
            RateLimitError::Exceeded(error) => (Code::ResourceExhausted, Some(error.shown_name())),
            RateLimitError::Busy(error) => (Code::ResourceExhausted, Some(error.shown_name())),
            RateLimitError::Denied(_) if wait.is_some() => (Code::ResourceExhausted, None),
            RateLimitError::Denied(_) => (Code::PermissionDenied, None),
            RateLimitError::TooLarge(_) => (Code::FailedPrecondition, None),
            RateLimitError::Unavailable(_) => (Code::Unavailable, None),
            RateLimitError::InvalidPolicy(_) => (Code::Internal, None),
        };
        let (mut details, mut metadata) = (ErrorDetails::new(), MetadataMap::new());
        if let Some(policy) = failed_quota {
            details.add_quota_failure_violation(policy, &message);
        }
        if let Some(wait) = wait {
            details.set_retry_info(Some(wait.exact));
            metadata.insert(PUSHBACK, MetadataValue::from(wait.millis()));
        } else if code == Code::Internal {
            metadata.insert(PUSHBACK, MetadataValue::from_static(NO_RETRY));
        }
        Self::with_error_details_and_metadata(code, message, details, metadata)
    }
}

/// `INVALID_ARGUMENT` for a request without a well-formed identity, and `UNAUTHENTICATED` under
/// [`OnMissing::Unauthorized`](super::OnMissing::Unauthorized).
impl From<Refusal> for Status {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Limit(error) => error.into(),
            Refusal::NoIdentity => Self::invalid_argument(NO_IDENTITY),
            Refusal::Unauthorized { .. } => Self::unauthenticated(NO_IDENTITY),
            Refusal::MalformedIdentity => Self::invalid_argument(MALFORMED_IDENTITY),
        }
    }
}

/// Returns the service and the method that a request calls: for `/helloworld.Greeter/SayHello`
/// `("helloworld.Greeter", "SayHello")`.
///
/// ```
/// use std::time::Duration;
/// use http::request::Parts;
/// use ratelimit_runtime::{Policy, web::{self, tower::{Limit, RateLimitLayer}}};
///
/// const GREET: Policy = Policy::sliding_window("greet", Duration::from_secs(60), 100);
/// const WATCH: Policy = Policy::concurrency_limit("watch", 3);
///
/// let limit = Limit::from_fn(|request: &Parts| match web::tonic::service_and_method(request)? {
///     ("helloworld.Greeter", "Watch") => Some(WATCH),
///     ("helloworld.Greeter", _) => Some(GREET),
///     _ => None,
/// });
/// let server = tonic::transport::Server::builder()
///     .layer(RateLimitLayer::new(limit).respond(web::tonic::respond));
/// ```
#[must_use]
pub fn service_and_method(request: &Parts) -> Option<(&str, &str)> {
    let (service, method) = request.uri.path().strip_prefix('/')?.split_once('/')?;
    let is_call = !service.is_empty() && !method.is_empty() && !method.contains('/');
    is_call.then_some((service, method))
}

/// Returns the response of a gRPC server to a request that is not served, for the layers of
/// [`tower`](super::tower).
#[must_use]
pub fn respond(refusal: &Refusal) -> Response<Body> {
    Status::from(refusal.clone()).into_http()
}
