//! The layer of a client.

use std::{
    error::Error,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use http::{Request, Response, request::Parts};
use http_body::Body;
use tokio::time::{Instant, sleep};
use tower_layer::Layer;
use tower_service::Service;

use super::wait_told;
use crate::{
    Caller, Limiter, Policy,
    time::LONGEST,
    web::{
        permits::{PermitBody, Permits},
        tower::{
            HoldPermits,
            service::{InnerService, ResponseFuture},
        },
    },
};

/// Any error: the refusal of a limit, or the error of the service.
type BoxError = Box<dyn Error + Send + Sync>;

type KeyOf = Arc<dyn Fn(&Parts) -> Caller + Send + Sync>;

/// Keeps the requests of a client within the limit of a remote service, over all processes.
///
/// A request waits for its turn, is sent, and [heeds](Limiter::heed) the answer. If that is 429 or
/// 503 and asks for a pause, it is dropped, and the request is sent again after the pause, within
/// [`max_wait`](Self::max_wait). It is a new call then: it takes units again, behind the requests
/// in line. If the pause cannot be written to the store, only this request waits for it. The answer
/// that asks for more than is left, or for no time, is returned as it is. Requests of one `key`
/// share the limit and its pauses, and those of another key go on.
///
/// The request's body is `Clone`, such as `http_body_util::Full<Bytes>`.
///
/// Under a policy with [`concurrency`](Policy::concurrency) a request is in flight until the body
/// of its answer has ended or is dropped.
///
/// The layer is ready at all times. A request waits for its turn first and for the wrapped service
/// then, so that one that waits for its turn takes no place of a wrapped limit of connections.
///
/// A request that gets no turn in time fails with the [`RateLimitError`](crate::RateLimitError) of
/// its limit, and is not sent, or not again.
///
/// ```
/// use std::{convert::Infallible, time::Duration};
/// use http::{Request, Response, request::Parts};
/// use ratelimit_runtime::{Caller, Limiter, Policy, client::HeedLayer};
/// use tower_layer::Layer;
/// use tower_service::Service;
///
/// const PACE: Policy =
///     Policy::sliding_window("weather", Duration::from_secs(60), 100);
///
/// # #[derive(Clone)] struct Client;
/// # impl Service<Request<()>> for Client {
/// #     type Response = Response<String>;
/// #     type Error = Infallible;
/// #     type Future = std::future::Ready<Result<Response<String>, Infallible>>;
/// #     fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), Infallible>> {
/// #         std::task::Poll::Ready(Ok(()))
/// #     }
/// #     fn call(&mut self, _: Request<()>) -> Self::Future {
/// #         std::future::ready(Ok(Response::new(String::new())))
/// #     }
/// # }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
/// let endpoint = |request: &Parts| Caller::from(request.uri.path());
/// let layer = HeedLayer::new(Limiter::in_memory(), PACE, endpoint)
///     .max_wait(Duration::from_secs(60));
/// let mut client = layer.layer(Client);
/// assert_eq!(client.call(Request::new(())).await?.status(), 200);
/// # Ok(())
/// # }
/// ```
#[must_use = "a layer does nothing until it is added to a client"]
#[derive(Clone)]
pub struct HeedLayer {
    limiter: Limiter,
    policy: Policy,
    key: KeyOf,
    max_wait: Duration,
}

impl HeedLayer {
    /// Creates a layer that asks for a turn under a [sliding window](Policy::sliding_window) for
    /// the `key` of each request, such as its endpoint. Requests wait for up to 30 s.
    pub fn new(
        limiter: Limiter,
        policy: Policy,
        key: impl Fn(&Parts) -> Caller + Send + Sync + 'static,
    ) -> Self {
        Self { limiter, policy, key: Arc::new(key), max_wait: Duration::from_secs(30) }
    }

    /// Sets the time for which a request may wait for its turns in all.
    pub fn max_wait(self, max_wait: Duration) -> Self {
        Self { max_wait: max_wait.min(LONGEST), ..self }
    }
}

impl<S> Layer<S> for HeedLayer {
    type Service = HeedService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        HeedService { inner, layer: self.clone() }
    }
}

/// The service of a [`HeedLayer`].
#[derive(Clone)]
pub struct HeedService<S> {
    inner: S,
    layer: HeedLayer,
}

impl<S, Q, B> Service<Request<Q>> for HeedService<S>
where
    S: Service<Request<Q>, Response = Response<B>, Future: Send> + Clone + Send + 'static,
    S::Error: Into<BoxError>,
    Q: Clone + Send + 'static,
    B: Body + Send + 'static,
{
    type Response = Response<PermitBody<B>>;
    type Error = BoxError;
    type Future = ResponseFuture<Self::Response, Self::Error>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Q>) -> Self::Future {
        let inner = self.inner.clone();
        let HeedLayer { limiter, policy, key, max_wait } = self.layer.clone();
        Box::pin(async move {
            let (ends, (head, body)) = (Instant::now() + max_wait, request.into_parts());
            let caller = key(&head);
            let request = Request::from_parts(head, body);
            loop {
                let left = ends.saturating_duration_since(Instant::now());
                let decision = limiter.check(&policy, &caller).max_wait(left).await?;
                let service = InnerService::new(inner.clone());
                let response = service.call(request.clone()).await.map_err(Into::into)?;
                let response = response.map(PermitBody::new);
                let (status, headers) = (response.status(), response.headers());
                let heeded = limiter.heed(&decision, status, headers).await;
                let (told, left) = (wait_told(status, headers), ends - Instant::now());
                let wait = told.filter(|_| matches!(status.as_u16(), 429 | 503));
                let again = wait.filter(|wait| match heeded {
                    // The wait of an answer that came late is over.
                    Ok(false) => decision.is_counted() && !left.is_zero(),
                    _ => *wait <= left,
                });
                let Some(wait) = again else {
                    // The last answer is in flight as any other.
                    return Ok(response.map(|body| body.hold(Permits::of([decision]))));
                };
                // They hold a connection, and a permit for which the request would wait.
                drop((response, decision));
                // No store knows the pause.
                if heeded.is_err() {
                    sleep(wait).await;
                }
            }
        })
    }
}
