//! The layer that applies limits before the service is called.

use std::{
    sync::Arc,
    task::{Context, Poll},
};

use http::{Request, Response, request::Parts};
use tower_layer::Layer;
use tower_service::Service;

use super::{
    HoldPermits, Limit, ProblemJson, Respond, refusal_response,
    service::{InnerService, ResponseFuture},
};
use crate::web::{self, Refusal, gate::Gate, treatment::complete};

/// Applies limits to the requests of a service, before the service is called. No extractor has run
/// by then, and nothing of the body has been read.
///
/// A request is counted for the ambient caller, which an [`IdentityLayer`](super::IdentityLayer)
/// further out sets, or for the caller that an [`identity`](web::RateLimitLayer::identity) finds.
/// Without either it is refused, unless [`on_missing`](web::RateLimitLayer::on_missing) has another
/// answer. An annotated function with the policy's `name` and algorithm shares its counts.
///
/// ```
/// use std::time::Duration;
/// use ratelimit_runtime::{Policy, web::tower::{RateLimitLayer, paths}};
///
/// const UPLOAD: Policy = Policy::sliding_window("upload", Duration::from_secs(3600), 20);
///
/// let layer = RateLimitLayer::new(UPLOAD).skip(paths(["/healthz"]));
/// ```
///
/// # By request
///
/// A [`Limit`] takes the policy, the cost and the caller of each request from its head. Several
/// limits are decided together: all admit the request, or none counts it.
///
/// ```
/// use std::time::Duration;
/// use ratelimit_runtime::{Policy, web::tower::{Identity, Limit, RateLimitLayer, body_units}};
///
/// const USER: Policy = Policy::token_bucket("user", Duration::from_secs(60), 1_000);
/// const SERVICE: Policy = Policy::token_bucket("service", Duration::from_secs(1), 50_000);
///
/// // One unit for each KiB that the client announces, and 100 if it announces no length.
/// let kibibytes = || body_units(1_024, 100);
/// let all = Identity::from_fn(|_| Some("all".into()));
/// let layer = RateLimitLayer::new(Limit::new(USER).cost(kibibytes()))
///     .and(Limit::new(SERVICE).cost(kibibytes()).identity(all));
/// ```
///
/// # Requests in flight
///
/// Under a policy with [`concurrency`](crate::Policy::concurrency) a request is in flight until the
/// body of its response has been passed on to the connection or is dropped, as when the client goes
/// away. Streams and server-sent events are in flight until they end. A WebSocket is not: its
/// response has no body, so the task that serves it keeps a [`Decision`](crate::Decision) of its
/// own.
///
/// The response's body has to be one that [holds permits](HoldPermits), as those of axum and tonic
/// do. Wrap another one in a [`PermitBody`](super::PermitBody):
///
/// ```
/// use std::convert::Infallible;
/// use http::{Request, Response};
/// use ratelimit_runtime::{Policy, web::tower::{Identity, PermitBody, RateLimitLayer}};
/// use tower_layer::Layer;
/// use tower_service::Service;
///
/// const FEED: Policy = Policy::concurrency_limit("feed", 5);
///
/// # #[derive(Clone)] struct Feed;
/// impl Service<Request<()>> for Feed {
///     type Response = Response<PermitBody<String>>;
///     # type Error = Infallible;
///     # type Future = std::future::Ready<Result<Self::Response, Self::Error>>;
///     // ..
///     # fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), Infallible>> {
///     #     std::task::Poll::Ready(Ok(()))
///     # }
///     # fn call(&mut self, _: Request<()>) -> Self::Future {
///     #     std::future::ready(Ok(Response::new(PermitBody::new("news".to_owned()))))
///     # }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let layer = RateLimitLayer::new(FEED).identity(Identity::header("x-user"));
/// let mut feed = layer.layer(Feed);
/// let refused = feed.call(Request::new(())).await.unwrap();
/// assert_eq!(refused.status(), 400);
/// # }
/// ```
pub type RateLimitLayer<H = ProblemJson> = web::RateLimitLayer<Parts, H>;

impl RateLimitLayer {
    /// Creates a layer that applies `limit`: a [`Limit`], or a [`Policy`](crate::Policy), whose
    /// name is the name of the limit.
    pub fn new(limit: impl Into<Limit>) -> Self {
        Self { gate: Arc::new(Gate::new(limit.into())), responder: ProblemJson }
    }
}

impl<H> RateLimitLayer<H> {
    /// Sets the function that builds refusal responses. Headers such as `Retry-After` are added.
    pub fn respond<F: Fn(&Refusal) -> Response<B>, B>(self, respond: F) -> RateLimitLayer<F> {
        RateLimitLayer { gate: self.gate, responder: respond }
    }
}

impl<S, H: Clone> Layer<S> for RateLimitLayer<H> {
    type Service = RateLimitService<S, H>;

    fn layer(&self, inner: S) -> Self::Service {
        RateLimitService { inner: InnerService::new(inner), layer: self.clone() }
    }
}

/// The service of a [`RateLimitLayer`].
#[derive(Clone, Debug)]
pub struct RateLimitService<S, H = ProblemJson> {
    inner: InnerService<S>,
    layer: RateLimitLayer<H>,
}

impl<S, H, Q, B> Service<Request<Q>> for RateLimitService<S, H>
where
    S: Service<Request<Q>, Response = Response<B>, Future: Send> + Clone + Send + 'static,
    S::Error: Send,
    H: Respond<B> + Clone + Send + Sync + 'static,
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
        let RateLimitLayer { gate, responder } = self.layer.clone();
        Box::pin(async move {
            let (head, body) = request.into_parts();
            let (planned, reply) = (gate.plan(&head), gate.reply.to(&head));
            let request = Request::from_parts(head, body);
            let refuse = |refusal| refusal_response(&responder, refusal, reply);
            let checks = match planned {
                Ok(Some(checks)) => checks,
                Ok(None) => return inner.call(request).await,
                Err(refusal) => return Ok(refuse(refusal)),
            };
            let checked = checks.observe(async {
                let permits = checks.check().await?;
                Ok((inner.call(request).await, permits))
            });
            match checked.await {
                (Err(error), _) => Ok(refuse(Refusal::Limit(error))),
                (Ok((response, mut permits)), mut observed) => {
                    let mut response = response?;
                    complete(&mut response, reply, &mut observed);
                    permits.0.extend(observed.permits);
                    Ok(response.map(|body| body.hold(permits)))
                }
            }
        })
    }
}
