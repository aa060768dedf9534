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
    Identity, ProblemJson, Respond, complete, refusal_response,
    service::{InnerService, ResponseFuture},
    set_headers, treatment,
};
use crate::web::{HeaderSyntax, Refusal, middleware::Middleware, treatment::Treatment};

/// Sets the ambient caller from the request, and the headers with the caller's remaining quota on the
/// response.
///
/// The headers list the limits of annotated functions, of checks by hand and of
/// [`RateLimitLayer`](super::RateLimitLayer)s further in, on admitted responses as on refusals. They replace
/// rate limit headers that the response has. A limit that counted another caller, by an explicit key,
/// is not listed: its numbers are not for this client. A refusal always names its own limit.
///
/// A 429 or 503 after a refused call gets the refusal's `Retry-After` and rate limit headers if it has none. A
/// 4xx or 5xx of another status than 429 and the refusal's own is logged at `warn`, once for each limit: the
/// handler's error type has lost the refusal. See [`answer_refusals`](Self::answer_refusals), and the
/// [guide](crate::guide::layers#lost-refusals) for a 4xx.
///
/// The `Retry-After` of a refusal is raised to the time at which no listed limit is exhausted.
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
}

impl IdentityLayer {
    /// Creates a layer that finds callers by `identity`.
    #[must_use]
    pub fn new(identity: Identity) -> Self {
        Self { middleware: Middleware::new(identity), responder: ProblemJson }
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
        let Self { mut middleware, .. } = self;
        middleware.replaced.made = true;
        IdentityLayer { middleware, responder: respond }
    }

    /// Answers requests whose handlers have lost a refusal, as the refusal itself is answered: with its status,
    /// its headers and problem details, or by [`respond`](Self::respond). Off by default.
    ///
    /// The handler's response is dropped, with its body and headers, if the latest call of the request was
    /// refused and the response is
    ///
    /// - a 5xx of another status than the refusal's [own](Refusal::status), as of an error type that converts
    ///   every error into 500,
    /// - or the refusal's own status without a `Content-Type`, as of a bare `StatusCode`.
    ///
    /// Any other response stays, such as a 2xx, a 404, or a 429 with a body. A call after the refused one that is
    /// admitted shows that the handler went on. A refusal in a dry run is none.
    ///
    /// ```
    /// use ratelimit_runtime::web::tower::{Identity, IdentityLayer};
    ///
    /// let layer = IdentityLayer::new(Identity::peer()).answer_refusals();
    /// ```
    #[must_use]
    pub fn answer_refusals(mut self) -> Self {
        self.middleware.replaced.lost = true;
        self
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
            let call = inner.call(request);
            let (response, mut observed) = layer.middleware.observe(caller, call).await;
            let mut response = response?;
            match treatment(layer.middleware.replaced, &response, &mut observed) {
                Treatment::Keep => {}
                Treatment::Complete(refusal) => complete(&mut response, &refusal, syntax),
                Treatment::Replace(refusal) => {
                    response = refusal_response(&layer.responder, &refusal, syntax);
                }
            }
            set_headers(&mut response, syntax, observed.answers);
            Ok(response)
        })
    }
}
