//! A refusal as an actix-web response, and a middleware that says who is calling.
//!
//! With this feature [`RateLimitError`] is a `ResponseError`, and so an annotated handler may return
//! `actix_web::Result<T>`, `Result<T, RateLimitError>`, its own error that passes it on, or an
//! `HttpResponse`.
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
//! actix-web extracts a handler's arguments before the handler, and so reads a body before the limit
//! of an annotated handler is asked.

use std::{
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

use super::{
    headers::HeaderSyntax,
    identity::{RequestHead, SharedFn},
    refusal::{PROBLEM_JSON, Refusal},
};
use crate::{
    caller::{self, Caller},
    error::RateLimitError,
    observe::{Audience, observe_for},
    rejection::FromRejection,
};

/// How the caller is found in a request of actix-web.
pub type Identity = super::Identity<ServiceRequest>;

/// 429, 503 or 500 with problem details, `Retry-After`, `Cache-Control: no-store` and the default
/// [`HeaderSyntax`]; see [`Refusal`].
impl ResponseError for RateLimitError {
    fn status_code(&self) -> StatusCode {
        status(&self.clone().into())
    }

    fn error_response(&self) -> HttpResponse {
        problem_json(&self.clone().into(), HeaderSyntax::default())
    }
}

// What the compiler advises on a wrong return type is the same with every feature.
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

/// The response with the fields that it has not set itself. It carries the error among its
/// extensions, for middlewares further out.
fn complete(mut response: HttpResponse, refusal: &Refusal, syntax: HeaderSyntax) -> HttpResponse {
    for (name, value) in refusal.fields(syntax) {
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

/// Whether a request is for one of `paths`, exactly. For [`IdentityMiddleware::skip`].
pub fn paths<const N: usize>(paths: [&'static str; N]) -> impl Fn(&ServiceRequest) -> bool + Clone {
    move |request| paths.contains(&request.path())
}

/// Sets the ambient caller from the request, and lists on the response what is left to that caller.
///
/// Listed are the limits of annotated functions and of checks by hand, on admitted responses as on
/// refusals. They replace fields of other limits that the response has. A limit that counted somebody
/// else, by an explicit key, is not listed: its numbers are not the client's to know. A refusal always
/// names its own limit.
///
/// What is asked after the response has been returned, while its body streams, or in a task that was
/// spawned, is not covered; nor is the ambient caller set there.
///
/// The last middleware that `App::wrap` adds is the outermost: wrap with CORS and authentication
/// after this one. CORS then answers preflights, and none reaches a limit.
#[derive(Clone)]
pub struct IdentityMiddleware {
    identity: Identity,
    syntax: HeaderSyntax,
    explicit_keys: bool,
    skip: Option<SharedFn<ServiceRequest, bool>>,
    respond: Option<SharedFn<Refusal, HttpResponse>>,
}

impl IdentityMiddleware {
    /// A middleware that finds callers by `identity`.
    #[must_use]
    pub fn new(identity: Identity) -> Self {
        Self {
            identity,
            syntax: HeaderSyntax::default(),
            explicit_keys: false,
            skip: None,
            respond: None,
        }
    }

    /// In which header fields responses tell what is left.
    #[must_use]
    pub fn headers(mut self, syntax: HeaderSyntax) -> Self {
        self.syntax = syntax;
        self
    }

    /// Also lists the limits of other callers than the request's, those with an explicit key; they are
    /// not listed by default. Only where no client can name another's key: the fields of a login
    /// would show everyone how often an account was tried.
    #[must_use]
    pub fn explicit_keys(mut self, are_listed: bool) -> Self {
        self.explicit_keys = are_listed;
        self
    }

    /// Passes on requests for which `skip` is true, without a caller and without header fields. What
    /// the client writes, such as a header or a method, must not be what decides: its limits would be
    /// skipped at its word. Paths are safe, because they choose the handler.
    #[must_use]
    pub fn skip(mut self, skip: impl Fn(&ServiceRequest) -> bool + Send + Sync + 'static) -> Self {
        self.skip = Some(Arc::new(skip));
        self
    }

    /// Has `respond` make the responses to requests without an identity, and to those that a limit
    /// refused further in, if their error was made a response by this crate. `Retry-After` and the
    /// like are added.
    #[must_use]
    pub fn respond(
        mut self,
        respond: impl Fn(&Refusal) -> HttpResponse + Send + Sync + 'static,
    ) -> Self {
        self.respond = Some(Arc::new(respond));
        self
    }

    fn skips(&self, request: &ServiceRequest) -> bool {
        self.skip.as_ref().is_some_and(|skip| skip(request))
    }

    fn refuse(&self, refusal: &Refusal) -> HttpResponse {
        match &self.respond {
            Some(respond) => complete(respond(refusal), refusal, self.syntax),
            None => problem_json(refusal, self.syntax),
        }
    }

    /// Replaces the fields of a response by those of the answers, and of the refusal that made it.
    fn write_fields<B>(
        &self,
        response: &mut HttpResponse<B>,
        mut answers: Vec<Result<crate::Decision, RateLimitError>>,
    ) {
        answers.extend(response.extensions().get::<RateLimitError>().cloned().map(Err));
        if answers.is_empty() {
            return;
        }
        let headers = response.headers_mut();
        for name in HeaderSyntax::ALL_FIELDS {
            headers.remove(name);
        }
        for (name, value) in self.syntax.fields(&answers) {
            if let Ok(value) = HeaderValue::try_from(value) {
                headers.insert(HeaderName::from_static(name), value);
            }
        }
    }
}

impl fmt::Debug for IdentityMiddleware {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdentityMiddleware")
            .field("identity", &self.identity)
            .field("headers", &self.syntax)
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
    type Transform = IdentityService<S>;
    type InitError = ();
    type Future = Ready<Result<Self::Transform, Self::InitError>>;

    fn new_transform(&self, service: S) -> Self::Future {
        ready(Ok(IdentityService { service: Rc::new(service), middleware: self.clone() }))
    }
}

/// A service whose callers are known; made by [`IdentityMiddleware`].
#[derive(Debug)]
pub struct IdentityService<S> {
    service: Rc<S>,
    middleware: IdentityMiddleware,
}

impl<S, B> Service<ServiceRequest> for IdentityService<S>
where
    S: Service<ServiceRequest, Response = ServiceResponse<B>, Error = actix_web::Error> + 'static,
    B: MessageBody + 'static,
{
    type Response = ServiceResponse<EitherBody<B>>;
    type Error = actix_web::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>>>>;

    fn poll_ready(&self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.service.poll_ready(cx)
    }

    fn call(&self, request: ServiceRequest) -> Self::Future {
        let service = Rc::clone(&self.service);
        let middleware = self.middleware.clone();
        Box::pin(async move {
            if middleware.skips(&request) {
                return Ok(service.call(request).await?.map_into_left_body());
            }
            let caller = match middleware.identity.caller(&request) {
                Ok(caller) => caller,
                Err(refusal) => {
                    let response = middleware.refuse(&refusal);
                    return Ok(request.into_response(response).map_into_right_body());
                }
            };
            let explicit_keys = middleware.explicit_keys;
            let audience = Audience { caller: caller.clone(), explicit_keys };
            let call = async { service.call(request).await };
            let (response, answers) = observe_for(audience, caller::scope(caller, call)).await;
            let response = response?;
            let refused = response.response().extensions().get::<RateLimitError>().cloned();
            let mut response = match refused {
                Some(error) if middleware.respond.is_some() => {
                    let refusal = middleware.refuse(&error.into());
                    response.into_response(refusal).map_into_right_body()
                }
                _ => response.map_into_left_body(),
            };
            middleware.write_fields(response.response_mut(), answers);
            Ok(response)
        })
    }
}

impl RequestHead for ServiceRequest {
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
