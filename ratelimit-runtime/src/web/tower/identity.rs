//! The layer that sets the ambient caller, and the headers with the remaining quota.

use std::task::{Context, Poll};

use http::{Request, Response, request::Parts};
use tower_layer::Layer;
use tower_service::Service;

use super::{
    HoldPermits, Identity, ProblemJson, Respond, refusal_response,
    service::{InnerService, ResponseFuture},
};
use crate::web::{self, Refusal, permits::Permits, response::set_headers};

/// Sets the ambient caller from the request, and the headers with the caller's remaining quota on
/// the response.
///
/// The headers list the limits of annotated functions, of checks by hand and of
/// [`RateLimitLayer`](super::RateLimitLayer)s further in, on admitted responses as on refusals.
/// They replace rate limit headers that the response has. A limit that counted another caller, by
/// an explicit key, is not listed: its numbers are not for this client. A refusal always names its
/// own limit.
///
/// A 429 or 503 after a refused call gets the refusal's `Retry-After` and rate limit headers if it
/// has none. A 4xx or 5xx of another status than 429 and the refusal's own is logged at `warn`,
/// once for each limit: the handler's error type has lost the refusal. See
/// [`answer_refusals`](web::IdentityLayer::answer_refusals), and the
/// [guide](crate::guide::layers#lost-refusals) for a 4xx.
///
/// The `Retry-After` of a refusal is raised to the time at which no listed limit is exhausted.
///
/// Under [`concurrency`](crate::Policy::concurrency) the call of an annotated handler is in flight
/// until the body of its response has ended or is dropped; the
/// [guide](crate::guide::layers#requests-in-flight) has the rule. The response's body has to be one
/// that [holds permits](HoldPermits).
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
pub type IdentityLayer<H = ProblemJson> = web::IdentityLayer<Parts, H>;

impl IdentityLayer {
    /// Creates a layer that finds callers by `identity`.
    pub fn new(identity: Identity) -> Self {
        Self::with_responder(identity, ProblemJson)
    }
}

impl<H> IdentityLayer<H> {
    /// Sets the function that builds refusal responses.
    ///
    /// It is called for requests without an identity. It also replaces the responses that this
    /// crate made of a limit's refusal further in. Headers such as `Retry-After` are added.
    pub fn respond<F: Fn(&Refusal) -> Response<B>, B>(self, respond: F) -> IdentityLayer<F> {
        self.responding(respond)
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
    B: HoldPermits + Send + 'static,
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
        let (caller, reply) = (layer.caller(&head), layer.reply.to(&head));
        let request = Request::from_parts(head, body);
        Box::pin(async move {
            let caller = match caller {
                Ok(Some(caller)) => caller,
                // Left out by `skip`: it has no caller, and its answers are not shown.
                Ok(None) => return inner.call(request).await,
                Err(refusal) => return Ok(refusal_response(&layer.responder, refusal, reply)),
            };
            #[cfg(feature = "mcp")]
            let request = web::mcp::with_caller(request, &caller);
            let call = inner.call(request);
            let (response, mut observed) = layer.observe(caller, call).await;
            let mut response = response?;
            if let Some(refusal) = layer.replaced.treat(&mut response, reply, &mut observed) {
                response = refusal_response(&layer.responder, refusal, reply);
            }
            set_headers(&mut response, reply, observed.answers);
            Ok(response.map(|body| body.hold(Permits(observed.permits))))
        })
    }
}
