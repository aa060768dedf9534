//! The layer that applies a limit before the service is called.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
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
    caller::{self, Caller},
    error::RateLimitError,
    limiter::{Limiter, limiter},
    observe::{Audience, observe_for},
    policy::Policy,
    web::{HeaderSyntax, Refusal, identity::SharedFn},
};

/// Applies a limit per caller to all requests of a service, before the service is called. No
/// extractor has run by then, and nothing of the body has been read.
///
/// It counts for the ambient caller, which an [`IdentityLayer`](super::IdentityLayer) further out
/// sets, or for the caller of its own [`identity`](Self::identity). Without either, all requests share
/// one limit. An annotated function with the policy's `name` and algorithm shares its counts.
///
/// Under a policy with [`concurrency`](Policy::concurrency) a request is in flight until the service has
/// made its response. The body of the response may still be sent then: a handler that streams keeps its
/// own [`Decision`](crate::Decision) in the stream.
///
/// ```
/// use std::time::Duration;
/// use ratelimit_runtime::{Policy, web::tower::{GateLayer, paths}};
///
/// const UPLOAD: Policy = Policy::sliding_window("upload", Duration::from_secs(3600), 20);
///
/// let gate = GateLayer::new(UPLOAD).skip(paths(["/healthz"]));
/// ```
#[derive(Clone)]
pub struct GateLayer<H = ProblemJson> {
    policy: Policy,
    limiter: Option<Limiter>,
    identity: Option<Identity>,
    syntax: HeaderSyntax,
    skip: Option<SharedFn<Parts, bool>>,
    responder: H,
    warned: Arc<AtomicBool>,
}

impl GateLayer {
    /// Creates a layer that applies `policy`. The name of the policy is the name of the limit.
    #[must_use]
    pub fn new(policy: Policy) -> Self {
        Self {
            policy,
            limiter: None,
            identity: None,
            syntax: HeaderSyntax::default(),
            skip: None,
            responder: ProblemJson,
            warned: Arc::default(),
        }
    }
}

impl<H> GateLayer<H> {
    /// Sets the limiter; the installed one by default.
    #[must_use]
    pub fn limiter(mut self, limiter: Limiter) -> Self {
        self.limiter = Some(limiter);
        self
    }

    /// Counts for the caller that `identity` finds, instead of the ambient one. It does not change the
    /// ambient caller of the service.
    #[must_use]
    pub fn identity(mut self, identity: Identity) -> Self {
        self.identity = Some(identity);
        self
    }

    /// Sets the syntax of the rate limit headers. An [`IdentityLayer`](super::IdentityLayer) further
    /// out replaces them by its own.
    #[must_use]
    pub fn headers(mut self, syntax: HeaderSyntax) -> Self {
        self.syntax = syntax;
        self
    }

    /// Passes on requests for which `skip` returns `true`, uncounted.
    ///
    /// Do not decide by what the client writes, such as a header or a method: clients could skip the
    /// limit. Paths are safe, because they select the handler; see [`paths`](super::paths).
    #[must_use]
    pub fn skip(mut self, skip: impl Fn(&Parts) -> bool + Send + Sync + 'static) -> Self {
        self.skip = Some(Arc::new(skip));
        self
    }

    /// Sets the function that builds refusal responses. Headers such as `Retry-After` are added.
    #[must_use]
    pub fn respond<F, B>(self, respond: F) -> GateLayer<F>
    where
        F: Fn(&Refusal) -> Response<B>,
    {
        let Self { policy, limiter, identity, syntax, skip, warned, .. } = self;
        GateLayer { policy, limiter, identity, syntax, skip, responder: respond, warned }
    }

    fn caller(&self, request: &Parts) -> Result<Caller, Refusal> {
        match &self.identity {
            Some(identity) => identity.caller(request),
            None => Ok(caller::current().unwrap_or_else(|| {
                if !self.warned.swap(true, Ordering::Relaxed) {
                    tracing::warn!(
                        policy = self.policy.name(),
                        "a gate without an identity and outside an `IdentityLayer`: all requests share one limit"
                    );
                }
                Caller::shared()
            })),
        }
    }
}

impl<H> fmt::Debug for GateLayer<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GateLayer")
            .field("policy", &self.policy)
            .field("limiter", &self.limiter)
            .field("identity", &self.identity)
            .field("headers", &self.syntax)
            .finish_non_exhaustive()
    }
}

impl<S, H: Clone> Layer<S> for GateLayer<H> {
    type Service = GateService<S, H>;

    fn layer(&self, inner: S) -> Self::Service {
        GateService { inner: InnerService::new(inner), layer: self.clone() }
    }
}

/// The service of a [`GateLayer`].
#[derive(Clone, Debug)]
pub struct GateService<S, H = ProblemJson> {
    inner: InnerService<S>,
    layer: GateLayer<H>,
}

impl<S, H, Q, B> Service<Request<Q>> for GateService<S, H>
where
    S: Service<Request<Q>, Response = Response<B>, Future: Send> + Clone + Send + 'static,
    S::Error: Send,
    H: Respond<B> + Clone + Send + Sync + 'static,
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
        Box::pin(async move {
            let (head, body) = request.into_parts();
            if layer.skip.as_ref().is_some_and(|skip| skip(&head)) {
                return inner.call(Request::from_parts(head, body)).await;
            }
            let refuse = |refusal| refusal_response(&layer.responder, &refusal, layer.syntax);
            let caller = match layer.caller(&head) {
                Ok(caller) => caller,
                Err(refusal) => return Ok(refuse(refusal)),
            };
            let limiter = layer.limiter.as_ref().unwrap_or_else(|| limiter());
            // The gate's own identity is found in the request as well: its client may see the numbers.
            let client = caller::current().unwrap_or_else(Caller::shared);
            let audience = Audience { caller: client.clone(), explicit_keys: false };
            let checked = async {
                // It holds the permit of a policy with `concurrency` until the response is there.
                let _admitted = limiter.check(&layer.policy, &caller).observed_as(&client).await?;
                Ok::<_, RateLimitError>(inner.call(Request::from_parts(head, body)).await)
            };
            let (checked, answers) = observe_for(audience, checked).await;
            let mut response = match checked {
                Ok(response) => response?,
                Err(error) => return Ok(refuse(error.into())),
            };
            set_headers(&mut response, layer.syntax, answers);
            Ok(response)
        })
    }
}
