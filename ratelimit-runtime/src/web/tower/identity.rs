//! The layer that says who is calling, and on the response what is left.

use std::{
    fmt,
    sync::Arc,
    task::{Context, Poll},
};

use http::{Request, Response, request::Parts};
use tower_layer::Layer;
use tower_service::Service;

use super::{
    Identity, ProblemJson, Respond, refuse,
    service::{Inner, ResponseFuture},
    write_fields,
};
use crate::{
    caller,
    error::RateLimitError,
    observe::observe_latest,
    web::{HeaderSyntax, Refusal, identity::SharedFn},
};

/// Sets the ambient caller from the request, and puts on the response what the limits answered that
/// were asked while it was made.
///
/// All of them are listed: those of annotated functions and of [`GateLayer`](super::GateLayer)s
/// further in, on admitted responses as on refusals. They replace fields of other limits that the
/// response has. What is asked after the response has been returned, while its body streams, or in
/// a task that was spawned, is not covered; nor is the ambient caller set there.
///
/// ```
/// use ratelimit_runtime::web::{ClientAddress, tower::{Identity, IdentityLayer}};
///
/// let client = ClientAddress::behind_proxies(["10.0.0.0/8"]).unwrap();
/// let layer = IdentityLayer::new(Identity::address(client));
/// ```
#[derive(Clone)]
pub struct IdentityLayer<H = ProblemJson> {
    identity: Identity,
    syntax: HeaderSyntax,
    skip: Option<SharedFn<Parts, bool>>,
    responder: H,
    /// Whether the responder speaks for the limits of handlers as well.
    replaces: bool,
}

impl IdentityLayer {
    /// A layer that finds callers by `identity`.
    #[must_use]
    pub fn new(identity: Identity) -> Self {
        Self {
            identity,
            syntax: HeaderSyntax::default(),
            skip: None,
            responder: ProblemJson,
            replaces: false,
        }
    }
}

impl<H> IdentityLayer<H> {
    /// In which header fields responses tell what is left.
    #[must_use]
    pub fn headers(mut self, syntax: HeaderSyntax) -> Self {
        self.syntax = syntax;
        self
    }

    /// Passes on requests for which `skip` is true, without a caller and without header fields.
    #[must_use]
    pub fn skip(mut self, skip: impl Fn(&Parts) -> bool + Send + Sync + 'static) -> Self {
        self.skip = Some(Arc::new(skip));
        self
    }

    /// Has `respond` make the responses to requests without an identity, and to those that a limit
    /// refused further in, if their error was made a response by this crate. `Retry-After` and the
    /// like are added.
    #[must_use]
    pub fn respond<F, B>(self, respond: F) -> IdentityLayer<F>
    where
        F: Fn(&Refusal) -> Response<B>,
    {
        let Self { identity, syntax, skip, .. } = self;
        IdentityLayer { identity, syntax, skip, responder: respond, replaces: true }
    }

    fn skips(&self, request: &Parts) -> bool {
        self.skip.as_ref().is_some_and(|skip| skip(request))
    }
}

impl<H> fmt::Debug for IdentityLayer<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdentityLayer")
            .field("identity", &self.identity)
            .field("headers", &self.syntax)
            .finish_non_exhaustive()
    }
}

impl<S, H: Clone> Layer<S> for IdentityLayer<H> {
    type Service = Identified<S, H>;

    fn layer(&self, inner: S) -> Self::Service {
        Identified { inner: Inner::new(inner), layer: self.clone() }
    }
}

/// A service whose callers are known; made by [`IdentityLayer`].
#[derive(Clone, Debug)]
pub struct Identified<S, H = ProblemJson> {
    inner: Inner<S>,
    layer: IdentityLayer<H>,
}

impl<S, H, Q, B> Service<Request<Q>> for Identified<S, H>
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
        let caller = if layer.skips(&head) {
            None
        } else {
            match layer.identity.caller(&head) {
                Ok(caller) => Some(caller),
                Err(refusal) => {
                    let response = refuse(&layer.responder, &refusal, layer.syntax);
                    return Box::pin(async { Ok(response) });
                }
            }
        };
        let request = Request::from_parts(head, body);
        Box::pin(async move {
            let Some(caller) = caller else { return inner.call(request).await };
            let call = caller::scope(caller, inner.call(request));
            let (response, answers) = observe_latest(call).await;
            let mut response = response?;
            if layer.replaces
                && let Some(error) = response.extensions().get::<RateLimitError>()
            {
                let refusal = Refusal::Limit(error.clone());
                response = refuse(&layer.responder, &refusal, layer.syntax);
            }
            write_fields(response.headers_mut(), layer.syntax, &answers);
            Ok(response)
        })
    }
}
