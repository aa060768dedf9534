//! The layer that sets the ambient caller, and the headers with the remaining quota.

use std::{
    fmt,
    sync::Arc,
    task::{Context, Poll},
};

use http::{Request, Response, request::Parts};
use tower_layer::Layer;
use tower_service::Service;

use super::{
    Identity, ProblemJson, Respond, refusal_response,
    service::{InnerService, ResponseFuture},
    set_headers,
};
use crate::{
    error::RateLimitError,
    web::{HeaderSyntax, Refusal, middleware::Middleware},
};

/// Sets the ambient caller from the request, and the headers with the caller's remaining quota on the
/// response.
///
/// The headers list the limits of annotated functions, of checks by hand and of
/// [`RateLimitLayer`](super::RateLimitLayer)s further in, on admitted responses as on refusals. They replace
/// rate limit headers that the response has. A limit that counted another caller, by an explicit key,
/// is not listed: its numbers are not for this client. A refusal always names its own limit.
///
/// Checks after the response has been returned are not covered: while its body streams, or in a
/// spawned task. The ambient caller is not set there either.
///
/// ```
/// use ratelimit_runtime::web::{ClientAddress, tower::{Identity, IdentityLayer}};
///
/// let client = ClientAddress::behind_proxies(["10.0.0.1", "10.0.0.2"]).unwrap();
/// let layer = IdentityLayer::new(Identity::address(client));
/// ```
#[derive(Clone)]
pub struct IdentityLayer<H = ProblemJson> {
    middleware: Middleware<Parts>,
    responder: H,
    /// `true` if the responder also replaces the refusals of handlers.
    rewrites_refusals: bool,
}

impl IdentityLayer {
    /// Creates a layer that finds callers by `identity`.
    #[must_use]
    pub fn new(identity: Identity) -> Self {
        let middleware = Middleware::new(identity);
        Self { middleware, responder: ProblemJson, rewrites_refusals: false }
    }
}

impl<H> IdentityLayer<H> {
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
    /// limits. Paths are safe, because they select the handler; see [`paths`](super::paths).
    #[must_use]
    pub fn skip(mut self, skip: impl Fn(&Parts) -> bool + Send + Sync + 'static) -> Self {
        self.middleware.skip = Some(Arc::new(skip));
        self
    }

    /// Sets the function that builds refusal responses.
    ///
    /// It is called for requests without an identity. It also replaces the responses that this crate
    /// made of a limit's refusal further in. Headers such as `Retry-After` are added.
    #[must_use]
    pub fn respond<F, B>(self, respond: F) -> IdentityLayer<F>
    where
        F: Fn(&Refusal) -> Response<B>,
    {
        let Self { middleware, .. } = self;
        IdentityLayer { middleware, responder: respond, rewrites_refusals: true }
    }
}

impl<H> fmt::Debug for IdentityLayer<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdentityLayer")
            .field("identity", &self.middleware.identity)
            .field("headers", &self.middleware.syntax)
            .finish_non_exhaustive()
    }
}

impl<S, H: Clone> Layer<S> for IdentityLayer<H> {
    type Service = IdentityService<S, H>;

    fn layer(&self, inner: S) -> Self::Service {
        IdentityService { inner: InnerService::new(inner), layer: self.clone() }
    }
}

/// The service of an [`IdentityLayer`].
#[derive(Clone, Debug)]
pub struct IdentityService<S, H = ProblemJson> {
    inner: InnerService<S>,
    layer: IdentityLayer<H>,
}

impl<S, H, Q, B> Service<Request<Q>> for IdentityService<S, H>
where
    S: Service<Request<Q>, Response = Response<B>, Future: Send> + Clone + Send + 'static,
    S::Error: Send,
    H: Respond<B> + Clone + Send + 'static,
    Q: Send + 'static,
    B: Send + 'static,
{
    type Response = Response<B>;
    type Error = S::Error;
    type Future = ResponseFuture<Self::Response, Self::Error>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Q>) -> Self::Future {
        let inner = self.inner.take();
        let layer = self.layer.clone();
        let (head, body) = request.into_parts();
        let caller = layer.middleware.caller(&head);
        let request = Request::from_parts(head, body);
        Box::pin(async move {
            let syntax = layer.middleware.syntax;
            let caller = match caller {
                Ok(Some(caller)) => caller,
                Ok(None) => return inner.call(request).await,
                Err(refusal) => return Ok(refusal_response(&layer.responder, &refusal, syntax)),
            };
            let (response, answers) = layer.middleware.observe(caller, inner.call(request)).await;
            let mut response = response?;
            if layer.rewrites_refusals
                && let Some(error) = response.extensions().get::<RateLimitError>()
            {
                let refusal = Refusal::Limit(error.clone());
                response = refusal_response(&layer.responder, &refusal, syntax);
            }
            set_headers(&mut response, syntax, answers);
            Ok(response)
        })
    }
}
