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
    middleware::{Middleware, header_changes, missing_headers},
    refusal::{PROBLEM_JSON, Refusal},
    treatment::{Replaced, ResponseHead, Treatment},
};
pub use super::{middleware::paths, permits::PermitBody};
use crate::{
    caller::Caller, decision::Decision, error::RateLimitError, observe::Observation,
    rejection::FromRejection,
};

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

/// The same response, for functions that return one as their error.
impl From<RateLimitError> for HttpResponse {
    fn from(error: RateLimitError) -> Self {
        problem_json(&error.into(), HeaderSyntax::default())
    }
}

// The compiler's advice on a wrong return type is the same with every feature.
#[diagnostic::do_not_recommend]
impl FromRejection for HttpResponse {
    fn from_rejection(error: RateLimitError) -> Self {
        error.into()
    }
}

fn status(refusal: &Refusal) -> StatusCode {
    StatusCode::from_u16(refusal.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}

fn problem_json(refusal: &Refusal, syntax: HeaderSyntax) -> HttpResponse {
    let response = HttpResponse::build(status(refusal))
        .insert_header((CONTENT_TYPE, PROBLEM_JSON))
        .body(refusal.problem());
    made_of(response, refusal, syntax)
}

/// Returns the response to a request that is not served.
fn refusal_response(
    respond: Option<&SharedFn<Refusal, HttpResponse>>,
    refusal: &Refusal,
    syntax: HeaderSyntax,
) -> HttpResponse {
    match respond {
        Some(respond) => made_of(respond(refusal), refusal, syntax),
        None => problem_json(refusal, syntax),
    }
}

/// Adds the headers of a refusal that the response lacks.
fn complete<B>(response: &mut HttpResponse<B>, refusal: &Refusal, syntax: HeaderSyntax) {
    let missing = missing_headers(refusal, syntax, |name| response.headers().contains_key(name));
    for (name, value) in missing {
        if let Ok(value) = HeaderValue::try_from(value) {
            response.headers_mut().insert(HeaderName::from_static(name), value);
        }
    }
}

/// Adds the headers of a refusal that the response lacks, and the error to its extensions, for middlewares
/// further out.
fn made_of(mut response: HttpResponse, refusal: &Refusal, syntax: HeaderSyntax) -> HttpResponse {
    complete(&mut response, refusal, syntax);
    if let Refusal::Limit(error) = refusal {
        response.extensions_mut().insert(error.clone());
    }
    response
}

/// Decides the treatment of a response to a request whose calls were observed.
fn treatment<B>(
    replaced: Replaced,
    response: &HttpResponse<B>,
    observed: &mut Observation,
) -> Treatment {
    let extensions = response.extensions();
    let head = ResponseHead {
        status: response.status().as_u16(),
        has_content_type: response.headers().contains_key(CONTENT_TYPE),
        made_of: extensions.get(),
    };
    replaced.treatment(&head, observed)
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
/// A 429 or 503 after a refused call gets the refusal's `Retry-After` and rate limit headers if it has none. A
/// 5xx of another status than the refusal's own is logged at `warn`, once for each limit: the handler's error
/// type has lost the refusal. See [`answer_refusals`](Self::answer_refusals).
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
        self.middleware.replaced.made = true;
        self.respond = Some(Arc::new(respond));
        self
    }

    /// Answers requests whose handlers have lost a refusal, as the refusal itself is answered: with its status,
    /// its headers and problem details, or by [`respond`](Self::respond). Off by default.
    ///
    /// The handler's response is dropped, with its body and headers, if the latest call of the request was
    /// refused and the response is
    ///
    /// - a 5xx of another status than the refusal's [own](Refusal::status), as of an error type without a
    ///   `status_code` of its own, which is 500,
    /// - or the refusal's own status without a `Content-Type`, as of a bare `StatusCode`.
    ///
    /// Any other response stays, such as a 2xx, a 404, or a 429 with a body. A call after the refused one that is
    /// admitted shows that the handler went on. A refusal in a dry run is none.
    #[must_use]
    pub fn answer_refusals(mut self) -> Self {
        self.middleware.replaced.lost = true;
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
            let (response, mut observed) = layer.middleware.observe(caller, call).await;
            let mut response = response?;
            let syntax = layer.middleware.syntax;
            let treatment =
                treatment(layer.middleware.replaced, response.response(), &mut observed);
            if let Treatment::Complete(refusal) = &treatment {
                complete(response.response_mut(), refusal, syntax);
            }
            let mut response = match treatment {
                Treatment::Replace(refusal) => {
                    let refusal = layer.refusal_response(&refusal);
                    response.into_response(refusal).map_into_right_body()
                }
                _ => response.map_into_left_body(),
            };
            set_headers(response.response_mut(), syntax, observed.answers);
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
