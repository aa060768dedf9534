//! A refusal as a gRPC status.
//!
//! With this feature [`RateLimitError`] converts into a [`Status`], so that the methods of a service can
//! be annotated. The layers of [`tower`](super::tower) set the caller. Add them with
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

use ::tonic::{Code, Status, body::Body};
use http::{Response, request::Parts};
use tonic_types::{ErrorDetails, StatusExt};

use super::refusal::{MALFORMED_IDENTITY, NO_IDENTITY, Refusal};
use crate::error::RateLimitError;

/// The status of each error:
///
/// - `RESOURCE_EXHAUSTED` for a limit that is reached, with `RetryInfo` and a `QuotaFailure` whose
///   subject is the policy's name,
/// - the same without `RetryInfo` if all permits are held,
/// - `FAILED_PRECONDITION` for a call that its limit can never admit,
/// - `UNAVAILABLE` if the store could not decide,
/// - `INTERNAL` for a policy that breaks a rule.
impl From<RateLimitError> for Status {
    fn from(error: RateLimitError) -> Self {
        let message = error.to_string();
        match error {
            RateLimitError::Exceeded(exceeded) => {
                let mut details = ErrorDetails::with_retry_info(Some(exceeded.retry_after()));
                details.add_quota_failure_violation(exceeded.policy(), &message);
                Self::with_error_details(Code::ResourceExhausted, message, details)
            }
            RateLimitError::Busy(busy) => {
                let mut details = ErrorDetails::new();
                details.add_quota_failure_violation(busy.policy(), &message);
                Self::with_error_details(Code::ResourceExhausted, message, details)
            }
            RateLimitError::TooLarge(_) => Self::failed_precondition(message),
            RateLimitError::Unavailable(_) => Self::unavailable(message),
            RateLimitError::InvalidPolicy(_) => Self::internal(message),
        }
    }
}

/// `INVALID_ARGUMENT` for a request without a well-formed identity.
impl From<Refusal> for Status {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Limit(error) => error.into(),
            Refusal::NoIdentity => Self::invalid_argument(NO_IDENTITY),
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
