//! The middleware that applies limits before the handler's arguments are extracted, and response
//! bodies that hold the permits of their requests.

use std::{
    future::{Ready, ready},
    pin::Pin,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll, ready},
};

use actix_web::{
    HttpResponse,
    body::{BodySize, EitherBody, MessageBody},
    dev::{Service, ServiceRequest, ServiceResponse, Transform, forward_ready},
    web::Bytes,
};

use super::{Limit, LocalFuture, Responder, refusal_response};
use crate::web::{
    self, Refusal,
    gate::Gate,
    permits::{PermitBody, Permits},
    treatment::complete,
};

/// Applies limits to requests before they are served. No argument of a handler has been extracted
/// by then, and nothing of the body has been read.
///
/// A request is counted for the ambient caller, which an
/// [`IdentityMiddleware`](super::IdentityMiddleware) further out sets, or for the caller that an
/// [`identity`](web::RateLimitLayer::identity) finds. Without either it is refused, unless
/// [`on_missing`](web::RateLimitLayer::on_missing) has another answer. An annotated function with
/// the policy's `name` and algorithm shares its counts.
///
/// Wrap an app, a scope or a resource. Of several middlewares the last one wrapped is the
/// outermost.
///
/// ```
/// use std::time::Duration;
/// use actix_web::{App, dev::ServiceRequest, web};
/// use ratelimit_runtime::{
///     Policy,
///     web::actix::{Identity, IdentityMiddleware, Limit, RateLimitMiddleware},
/// };
///
/// const USER: Policy = Policy::sliding_window("user", Duration::from_secs(60), 100);
/// const WRITES: Policy = Policy::sliding_window("writes", Duration::from_secs(60), 10);
/// const EXPORTS: Policy = Policy::concurrency_limit("exports", 2);
///
/// let writes = Limit::from_fn(|request: &ServiceRequest| {
///     (!request.method().is_safe()).then_some(WRITES)
/// });
/// let app = App::new()
///     .service(
///         web::resource("/export")
///             .wrap(RateLimitMiddleware::new(EXPORTS))
///             .route(web::get().to(|| async { "rows" })),
///     )
///     .wrap(RateLimitMiddleware::new(writes).and(USER))
///     .wrap(IdentityMiddleware::new(Identity::peer()));
/// ```
///
/// Several limits are decided together: all admit the request, or none counts it.
///
/// Under a policy with [`concurrency`](crate::Policy::concurrency) a request is in flight until the
/// body of its response has been passed on to the connection or is dropped, as when the client goes
/// away. Streams and server-sent events are in flight until they end.
///
/// actix-web notices that a client has gone when it writes to the connection. With
/// `HttpServer::h1_allow_half_closed(false)` it notices it at once.
pub type RateLimitMiddleware = web::RateLimitLayer<ServiceRequest, Responder>;

impl RateLimitMiddleware {
    /// Creates a middleware that applies `limit`: a [`Limit`], or a [`Policy`](crate::Policy),
    /// whose name is the name of the limit.
    pub fn new(limit: impl Into<Limit>) -> Self {
        Self { gate: Arc::new(Gate::new(limit.into())), responder: None }
    }

    /// Sets the function that builds refusal responses. Headers such as `Retry-After` are added.
    pub fn respond(
        self,
        respond: impl Fn(&Refusal) -> HttpResponse + Send + Sync + 'static,
    ) -> Self {
        Self { responder: Some(Arc::new(respond)), ..self }
    }

    /// Answers a request that is not served.
    fn refuse<B: MessageBody>(
        &self,
        request: ServiceRequest,
        refusal: Refusal,
    ) -> ServiceResponse<EitherBody<B>> {
        let response = refusal_response(self.responder.as_ref(), refusal, self.gate.reply);
        request.into_response(response).map_into_right_body()
    }
}

impl<S, B> Transform<S, ServiceRequest> for RateLimitMiddleware
where
    S: Service<ServiceRequest, Response = ServiceResponse<B>, Error = actix_web::Error> + 'static,
    B: MessageBody + 'static,
{
    type Response = ServiceResponse<EitherBody<PermitBody<B>>>;
    type Error = actix_web::Error;
    type Transform = RateLimitMiddlewareService<S>;
    type InitError = ();
    type Future = Ready<Result<Self::Transform, Self::InitError>>;

    fn new_transform(&self, service: S) -> Self::Future {
        ready(Ok(RateLimitMiddlewareService { service: Rc::new(service), layer: self.clone() }))
    }
}

/// The service of a [`RateLimitMiddleware`].
#[derive(Debug)]
pub struct RateLimitMiddlewareService<S> {
    service: Rc<S>,
    layer: RateLimitMiddleware,
}

impl<S, B> Service<ServiceRequest> for RateLimitMiddlewareService<S>
where
    S: Service<ServiceRequest, Response = ServiceResponse<B>, Error = actix_web::Error> + 'static,
    B: MessageBody + 'static,
{
    type Response = ServiceResponse<EitherBody<PermitBody<B>>>;
    type Error = actix_web::Error;
    type Future = LocalFuture<Result<Self::Response, Self::Error>>;

    forward_ready!(service);

    fn call(&self, request: ServiceRequest) -> Self::Future {
        let service = Rc::clone(&self.service);
        let layer = self.layer.clone();
        Box::pin(async move {
            let checks = match layer.gate.plan(&request) {
                Ok(checks) => checks,
                Err(refusal) => return Ok(layer.refuse(request, refusal)),
            };
            let hold = |permits| |_: &mut _, body| PermitBody::holding(body, permits);
            let Some(checks) = checks else {
                let response = service.call(request).await?;
                return Ok(response.map_body(hold(Permits::default())).map_into_left_body());
            };
            let checked = checks.observe(async {
                match checks.check().await {
                    Ok(permits) => Ok((service.call(request).await, permits)),
                    Err(error) => Err((request, Refusal::Limit(error))),
                }
            });
            match checked.await {
                (Err((request, refusal)), _) => Ok(layer.refuse(request, refusal)),
                (Ok((response, mut permits)), mut observed) => {
                    let mut response = response?;
                    complete(response.response_mut(), layer.gate.reply, &mut observed);
                    permits.0.extend(observed.permits);
                    Ok(response.map_body(hold(permits)).map_into_left_body())
                }
            }
        })
    }
}

/// Returns `true` if nothing of the body is left.
fn is_at_end(body: &impl MessageBody) -> bool {
    matches!(body.size(), BodySize::None | BodySize::Sized(0))
}

impl<B: MessageBody> PermitBody<B> {
    pub(super) fn holding(body: B, permits: Permits) -> Self {
        let permits = if is_at_end(&body) { Permits::default() } else { permits };
        Self { body, permits }
    }
}

impl<B: MessageBody> MessageBody for PermitBody<B> {
    type Error = B::Error;

    fn size(&self) -> BodySize {
        self.body.size()
    }

    fn poll_next(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, Self::Error>>> {
        let mut this = self.project();
        let chunk = ready!(this.body.as_mut().poll_next(context));
        if !matches!(chunk, Some(Ok(_))) || is_at_end(&*this.body) {
            this.permits.free();
        }
        Poll::Ready(chunk)
    }

    fn try_into_bytes(self) -> Result<Bytes, Self> {
        let Self { body, permits } = self;
        body.try_into_bytes().map_err(|body| Self { body, permits })
    }
}
