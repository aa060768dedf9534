//! A refusal as an actix-web response, and a middleware that sets the ambient caller.
//!
//! With this feature [`RateLimitError`] is a `ResponseError`. An annotated handler may return
//! `actix_web::Result<T>`, `Result<T, RateLimitError>`, an error of its own with
//! `From<RateLimitError>`, or an `HttpResponse`.
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
//! actix-web extracts a handler's arguments first: the body is read before the limit of an annotated
//! handler decides. A [`RateLimitMiddleware`] decides before that, by the request's head.

mod rate_limit;

use std::{
    borrow::Cow,
    fmt,
    future::{Future, Ready, ready},
    net::IpAddr,
    pin::Pin,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll},
};

use actix_web::{
    HttpMessage, HttpResponse, ResponseError,
    body::{EitherBody, MessageBody},
    dev::{Service, ServiceRequest, ServiceResponse, Transform},
    http::{
        StatusCode,
        header::{CONTENT_TYPE, HeaderName, HeaderValue},
    },
};

pub use self::rate_limit::{RateLimitMiddleware, RateLimitMiddlewareService};
use super::{
    headers::HeaderSyntax,
    identity::{RequestHead, Sealed, SharedFn},
    middleware::{Middleware, header_changes},
    refusal::{PROBLEM_JSON, Refusal},
};
pub use super::{middleware::paths, permits::PermitBody};
use crate::{caller::Caller, decision::Decision, error::RateLimitError, rejection::FromRejection};

/// The extraction of callers from requests of actix-web.
pub type Identity = super::Identity<ServiceRequest>;

/// A limit of requests of actix-web.
pub type Limit = super::Limit<ServiceRequest>;

/// The future of a middleware's call.
pub type LocalFuture<T> = Pin<Box<dyn Future<Output = T>>>;

/// 429, 422, 503 or 500 with problem details, `Retry-After`, `Cache-Control: no-store` and the default
/// [`HeaderSyntax`]; see [`Refusal`].
impl ResponseError for RateLimitError {
    fn status_code(&self) -> StatusCode {
        status(&self.clone().into())
    }

    fn error_response(&self) -> HttpResponse {
        problem_json(&self.clone().into(), HeaderSyntax::default())
    }
}

// The compiler's advice on a wrong return type is the same with every feature.
#[diagnostic::do_not_recommend]
impl FromRejection for HttpResponse {
    fn from_rejection(error: RateLimitError) -> Self {
        problem_json(&error.into(), HeaderSyntax::default())
    }
}

fn status(refusal: &Refusal) -> StatusCode {
    StatusCode::from_u16(refusal.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}

fn problem_json(refusal: &Refusal, syntax: HeaderSyntax) -> HttpResponse {
    let response = HttpResponse::build(status(refusal))
        .insert_header((CONTENT_TYPE, PROBLEM_JSON))
        .body(refusal.problem());
    complete(response, refusal, syntax)
}

/// Returns the response to a request that is not served.
fn refusal_response(
    respond: Option<&SharedFn<Refusal, HttpResponse>>,
    refusal: &Refusal,
    syntax: HeaderSyntax,
) -> HttpResponse {
    match respond {
        Some(respond) => complete(respond(refusal), refusal, syntax),
        None => problem_json(refusal, syntax),
    }
}

/// Adds the headers of a refusal that the response has not set itself, and the error to its extensions,
/// for middlewares further out.
fn complete(mut response: HttpResponse, refusal: &Refusal, syntax: HeaderSyntax) -> HttpResponse {
    for (name, value) in refusal.headers(syntax) {
        let name = HeaderName::from_static(name);
        if let Ok(value) = HeaderValue::try_from(value)
            && !response.headers().contains_key(&name)
        {
            response.headers_mut().insert(name, value);
        }
    }
    if let Refusal::Limit(error) = refusal {
        response.extensions_mut().insert(error.clone());
    }
    response
}

/// Replaces the rate limit headers by those of the answers, and of the refusal that made the response.
fn set_headers<B>(
    response: &mut HttpResponse<B>,
    syntax: HeaderSyntax,
    answers: Vec<Result<Decision, RateLimitError>>,
) {
    let changes = header_changes(syntax, answers, response.extensions().get::<RateLimitError>());
    for (name, value) in changes {
        response.headers_mut().remove(name);
        if let Some(Ok(value)) = value.map(HeaderValue::try_from) {
            response.headers_mut().insert(HeaderName::from_static(name), value);
        }
    }
}

/// Sets the ambient caller from the request, and the headers with the caller's remaining quota on the
/// response.
///
/// The headers list the limits of annotated functions and of checks by hand, on admitted responses as
/// on refusals. They replace rate limit headers that the response has. A limit that counted another
/// caller, by an explicit key, is not listed: its numbers are not for this client. A refusal always
/// names its own limit.
///
/// Checks after the response has been returned are not covered: while its body streams, or in a
/// spawned task. The ambient caller is not set there either.
///
/// The last middleware that `App::wrap` adds is the outermost: wrap with CORS and authentication
/// after this one. CORS then answers preflights, and none reaches a limit.
#[derive(Clone)]
pub struct IdentityMiddleware {
    middleware: Middleware<ServiceRequest>,
    respond: Option<SharedFn<Refusal, HttpResponse>>,
}

impl IdentityMiddleware {
    /// Creates a middleware that finds callers by `identity`.
    #[must_use]
    pub fn new(identity: Identity) -> Self {
        Self { middleware: Middleware::new(identity), respond: None }
    }

    /// Sets the syntax of the rate limit headers.
    #[must_use]
    pub fn headers(mut self, syntax: HeaderSyntax) -> Self {
        self.middleware.syntax = syntax;
        self
    }

    /// Also lists limits that counted other callers, by an explicit key. Off by default.
    ///
    /// Use it only where no client can name another's key: the headers of a login would show everyone
    /// how often an account was tried.
    #[must_use]
    pub fn explicit_keys(mut self, are_listed: bool) -> Self {
        self.middleware.explicit_keys = are_listed;
        self
    }

    /// Passes on requests for which `skip` returns `true`, without a caller and without headers.
    ///
    /// Do not decide by what the client writes, such as a header or a method: clients could skip their
    /// limits. Paths are safe, because they select the handler; see [`paths`].
    #[must_use]
    pub fn skip(mut self, skip: impl Fn(&ServiceRequest) -> bool + Send + Sync + 'static) -> Self {
        self.middleware.skip = Some(Arc::new(skip));
        self
    }

    /// Sets the function that builds refusal responses.
    ///
    /// It is called for requests without an identity. It also replaces the responses that this crate
    /// made of a limit's refusal further in. Headers such as `Retry-After` are added.
    #[must_use]
    pub fn respond(
        mut self,
        respond: impl Fn(&Refusal) -> HttpResponse + Send + Sync + 'static,
    ) -> Self {
        self.respond = Some(Arc::new(respond));
        self
    }

    fn refusal_response(&self, refusal: &Refusal) -> HttpResponse {
        refusal_response(self.respond.as_ref(), refusal, self.middleware.syntax)
    }
}

impl fmt::Debug for IdentityMiddleware {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdentityMiddleware")
            .field("identity", &self.middleware.identity)
            .field("headers", &self.middleware.syntax)
            .finish_non_exhaustive()
    }
}

impl<S, B> Transform<S, ServiceRequest> for IdentityMiddleware
where
    S: Service<ServiceRequest, Response = ServiceResponse<B>, Error = actix_web::Error> + 'static,
    B: MessageBody + 'static,
{
    type Response = ServiceResponse<EitherBody<B>>;
    type Error = actix_web::Error;
    type Transform = IdentityMiddlewareService<S>;
    type InitError = ();
    type Future = Ready<Result<Self::Transform, Self::InitError>>;

    fn new_transform(&self, service: S) -> Self::Future {
        ready(Ok(IdentityMiddlewareService { service: Rc::new(service), layer: self.clone() }))
    }
}

/// The service of an [`IdentityMiddleware`].
#[derive(Debug)]
pub struct IdentityMiddlewareService<S> {
    service: Rc<S>,
    layer: IdentityMiddleware,
}

impl<S, B> Service<ServiceRequest> for IdentityMiddlewareService<S>
where
    S: Service<ServiceRequest, Response = ServiceResponse<B>, Error = actix_web::Error> + 'static,
    B: MessageBody + 'static,
{
    type Response = ServiceResponse<EitherBody<B>>;
    type Error = actix_web::Error;
    type Future = LocalFuture<Result<Self::Response, Self::Error>>;

    fn poll_ready(&self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.service.poll_ready(cx)
    }

    fn call(&self, request: ServiceRequest) -> Self::Future {
        let service = Rc::clone(&self.service);
        let layer = self.layer.clone();
        Box::pin(async move {
            let caller = match layer.middleware.caller(&request) {
                Ok(Some(caller)) => caller,
                Ok(None) => return Ok(service.call(request).await?.map_into_left_body()),
                Err(refusal) => {
                    let response = layer.refusal_response(&refusal);
                    return Ok(request.into_response(response).map_into_right_body());
                }
            };
            let call = async { service.call(request).await };
            let (response, answers) = layer.middleware.observe(caller, call).await;
            let response = response?;
            let refused = response.response().extensions().get::<RateLimitError>().cloned();
            let mut response = match refused {
                Some(error) if layer.respond.is_some() => {
                    let refusal = layer.refusal_response(&error.into());
                    response.into_response(refusal).map_into_right_body()
                }
                _ => response.map_into_left_body(),
            };
            set_headers(response.response_mut(), layer.middleware.syntax, answers);
            Ok(response)
        })
    }
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
