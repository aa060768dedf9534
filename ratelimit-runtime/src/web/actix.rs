//! A refusal as an actix-web response, and a middleware that sets the ambient caller.
//!
//! With this feature [`RateLimitError`] is a `ResponseError`. An annotated handler may return
//! `actix_web::Result<T>`, `Result<T, RateLimitError>`, an error of its own with
//! `From<RateLimitError>`, or an `HttpResponse`; [`FromRejection`](crate::FromRejection) lists all.
//!
//! ```no_run
//! use actix_web::{App, HttpServer, web};
//! use ratelimit_runtime::{rate_limit, web::actix::{Identity, IdentityMiddleware}};
//!
//! #[rate_limit(period = 60, threshold = 5)]
//! async fn hello() -> actix_web::Result<&'static str> {
//!     Ok("hello")
//! }
//!
//! # async fn serve() -> std::io::Result<()> {
//! let identity = IdentityMiddleware::new(Identity::peer());
//! HttpServer::new(move || App::new().wrap(identity.clone()).route("/", web::get().to(hello)))
//!     .bind("127.0.0.1:3000")?
//!     .run()
//!     .await
//! # }
//! ```
//!
//! actix-web extracts a handler's arguments first: the body is read before the limit of an
//! annotated handler decides. A [`RateLimitMiddleware`] decides before that, by the request's head.

mod identity;
mod rate_limit;

use std::{borrow::Cow, future::Future, net::IpAddr, pin::Pin};

use actix_web::{
    HttpMessage, HttpResponse, ResponseError,
    dev::ServiceRequest,
    http::{
        StatusCode,
        header::{CONTENT_TYPE, HeaderName, HeaderValue},
    },
};

pub use self::{
    identity::{IdentityMiddleware, IdentityMiddlewareService},
    rate_limit::{RateLimitMiddleware, RateLimitMiddlewareService},
};
use super::{
    identity::{RequestHead, Sealed, SharedFn},
    refusal::{PROBLEM_JSON, Refusal},
    response::{ResponseParts, ResponseSettings, made_of, parts_of_http},
};
pub use super::{
    middleware::{body_units, paths},
    permits::PermitBody,
};
use crate::{caller::Caller, error::RateLimitError, rejection::are_outputs};

/// The extraction of callers from requests of actix-web.
pub type Identity = super::Identity<ServiceRequest>;

/// A limit of requests of actix-web.
pub type Limit = super::Limit<ServiceRequest>;

/// The function that builds refusal responses, if one is set.
pub(super) type Responder = Option<SharedFn<Refusal, HttpResponse>>;

/// The future of a middleware's call.
pub type LocalFuture<T> = Pin<Box<dyn Future<Output = T>>>;

/// 429, 403, 422, 503 or 500 with problem details, `Retry-After`, `Cache-Control: no-store` and the
/// default [`HeaderSyntax`](super::HeaderSyntax); see [`Refusal`].
impl ResponseError for RateLimitError {
    fn status_code(&self) -> StatusCode {
        self.clone().into()
    }

    fn error_response(&self) -> HttpResponse {
        refusal_response(None, self.clone().into(), ResponseSettings::default())
    }
}

/// The same response, for functions that return one as their error.
impl From<RateLimitError> for HttpResponse {
    fn from(error: RateLimitError) -> Self {
        refusal_response(None, error.into(), ResponseSettings::default())
    }
}

are_outputs!(HttpResponse);

fn problem_json(refusal: &Refusal, body: String) -> HttpResponse {
    let status = StatusCode::from_u16(refusal.status());
    HttpResponse::build(status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR))
        .insert_header((CONTENT_TYPE, PROBLEM_JSON))
        .body(body)
}

/// Returns a response whose body clients of language models understand too, by
/// [`Refusal::problem_with_error`]. For the `respond` of a middleware:
///
/// ```
/// use ratelimit_runtime::web::actix::{Identity, IdentityMiddleware, problem_with_error};
///
/// let middleware = IdentityMiddleware::new(Identity::peer()).respond(problem_with_error);
/// ```
#[must_use]
pub fn problem_with_error(refusal: &Refusal) -> HttpResponse {
    problem_json(refusal, refusal.problem_with_error())
}

/// Returns the response to a request that is not served.
fn refusal_response(
    respond: Option<&SharedFn<Refusal, HttpResponse>>,
    refusal: Refusal,
    reply: ResponseSettings,
) -> HttpResponse {
    let refusal = reply.refusal(refusal);
    let response = match respond {
        Some(respond) => respond(&refusal),
        None => problem_json(&refusal, refusal.problem()),
    };
    made_of(response, refusal, reply)
}

impl<B> ResponseParts for HttpResponse<B> {
    fn http_status(&self) -> u16 {
        self.status().as_u16()
    }

    parts_of_http!();
}

impl Sealed for ServiceRequest {}

impl RequestHead for ServiceRequest {
    fn method(&self) -> &str {
        ServiceRequest::method(self).as_str()
    }

    fn path(&self) -> &str {
        ServiceRequest::path(self)
    }

    fn route(&self) -> Option<Cow<'_, str>> {
        self.match_pattern().map(Cow::Owned)
    }

    fn peer(&self) -> Option<IpAddr> {
        Some(self.peer_addr()?.ip())
    }

    fn header_lines(&self, name: &str) -> impl DoubleEndedIterator<Item = &[u8]> {
        self.headers().get_all(name).map(HeaderValue::as_bytes)
    }

    fn extension<T: Send + Sync + 'static>(
        &self,
        read: impl FnOnce(&T) -> Caller,
    ) -> Option<Caller> {
        self.extensions().get::<T>().map(read)
    }
}
