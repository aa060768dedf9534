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
    observe::{Audience, observe_for},
    web::{HeaderSyntax, Refusal, identity::SharedFn},
};

/// Sets the ambient caller from the request, and lists on the response what is left to that caller.
///
/// Listed are the limits of annotated functions, of checks by hand and of
/// [`GateLayer`](super::GateLayer)s further in, on admitted responses as on refusals. They replace
/// fields of other limits that the response has. A limit that counted somebody else, by an explicit
/// key, is not listed: its numbers are not the client's to know. A refusal always names its own limit.
///
/// What is asked after the response has been returned, while its body streams, or in a task that was
/// spawned, is not covered; nor is the ambient caller set there.
///
/// ```
/// use ratelimit_runtime::web::{ClientAddress, tower::{Identity, IdentityLayer}};
///
/// let client = ClientAddress::behind_proxies(["10.0.0.1", "10.0.0.2"]).unwrap();
/// let layer = IdentityLayer::new(Identity::address(client));
/// ```
#[derive(Clone)]
pub struct IdentityLayer<H = ProblemJson> {
    identity: Identity,
    syntax: HeaderSyntax,
    explicit_keys: bool,
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
            explicit_keys: false,
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
        let Self { identity, syntax, explicit_keys, skip, .. } = self;
        IdentityLayer { identity, syntax, explicit_keys, skip, responder: respond, replaces: true }
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
    type Service = IdentityService<S, H>;

    fn layer(&self, inner: S) -> Self::Service {
        IdentityService { inner: Inner::new(inner), layer: self.clone() }
    }
}

/// A service whose callers are known; made by [`IdentityLayer`].
#[derive(Clone, Debug)]
pub struct IdentityService<S, H = ProblemJson> {
    inner: Inner<S>,
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
            let explicit_keys = layer.explicit_keys;
            let audience = Audience { caller: caller.clone(), explicit_keys };
            let call = caller::scope(caller, inner.call(request));
            let (response, answers) = observe_for(audience, call).await;
            let mut response = response?;
            if layer.replaces
                && let Some(error) = response.extensions().get::<RateLimitError>()
            {
                let refusal = Refusal::Limit(error.clone());
                response = refuse(&layer.responder, &refusal, layer.syntax);
            }
            write_fields(&mut response, layer.syntax, answers);
            Ok(response)
        })
    }
}
