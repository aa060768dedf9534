//! The middleware that sets the ambient caller, and the headers with the remaining quota.

use std::{
    future::{Ready, ready},
    mem,
    rc::Rc,
    sync::Arc,
};

use actix_web::{
    HttpResponse,
    body::{EitherBody, MessageBody},
    dev::{Service, ServiceRequest, ServiceResponse, Transform, forward_ready},
    error::InternalError,
};

use super::{Identity, LocalFuture, Responder, refusal_response};
use crate::{
    observe::Observation,
    web::{
        self, Refusal,
        permits::{PermitBody, Permits},
        response::set_headers,
    },
};

/// Sets the ambient caller from the request, and the headers with the caller's remaining quota on
/// the response.
///
/// The headers list the limits of annotated functions and of checks by hand, on admitted responses
/// as on refusals. They replace rate limit headers that the response has. A limit that counted
/// another caller, by an explicit key, is not listed: its numbers are not for this client. A
/// refusal always names its own limit.
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
/// [guide](crate::guide::layers#requests-in-flight) has the rule.
///
/// Checks after the response has been returned are not covered: while its body streams, or in a
/// spawned task. The ambient caller is not set there either.
///
/// The last middleware that `App::wrap` adds is the outermost: wrap with CORS and authentication
/// after this one. CORS then answers preflights, and none reaches a limit.
pub type IdentityMiddleware = web::IdentityLayer<ServiceRequest, Responder>;

impl IdentityMiddleware {
    /// Creates a middleware that finds callers by `identity`.
    pub fn new(identity: Identity) -> Self {
        Self::with_responder(identity, None)
    }

    /// Sets the function that builds refusal responses.
    ///
    /// It is called for requests without an identity. It also replaces the responses that this
    /// crate made of a limit's refusal further in. Headers such as `Retry-After` are added.
    pub fn respond(
        self,
        respond: impl Fn(&Refusal) -> HttpResponse + Send + Sync + 'static,
    ) -> Self {
        self.responding(Some(Arc::new(respond)))
    }

    fn refusal_response(&self, refusal: Refusal) -> HttpResponse {
        refusal_response(self.responder.as_ref(), refusal, self.reply)
    }

    /// Returns the response to a request whose calls were observed: with their headers, or the
    /// layer's own.
    fn finish<B: MessageBody>(
        &self,
        mut response: HttpResponse<B>,
        mut observed: Observation,
    ) -> HttpResponse<EitherBody<PermitBody<B>>> {
        let reply = self.reply;
        let permits = Permits(mem::take(&mut observed.permits));
        let hold = |_: &mut _, body| PermitBody::holding(body, permits);
        let mut response = match self.replaced.treat(&mut response, reply, &mut observed) {
            Some(refusal) => self.refusal_response(refusal).map_into_right_body(),
            None => response.map_body(hold).map_into_left_body(),
        };
        set_headers(&mut response, reply, observed.answers);
        response
    }
}

impl<S, B> Transform<S, ServiceRequest> for IdentityMiddleware
where
    S: Service<ServiceRequest, Response = ServiceResponse<B>, Error = actix_web::Error> + 'static,
    B: MessageBody + 'static,
{
    type Response = ServiceResponse<EitherBody<PermitBody<B>>>;
    type Error = actix_web::Error;
    type Transform = IdentityMiddlewareService<S>;
    type InitError = ();
    type Future = Ready<Result<Self::Transform, Self::InitError>>;

    fn new_transform(&self, service: S) -> Self::Future {
        ready(Ok(IdentityMiddlewareService { service: Rc::new(service), layer: self.clone() }))
    }
}

/// The service of an [`IdentityMiddleware`].
#[derive(Debug)]
pub struct IdentityMiddlewareService<S> {
    service: Rc<S>,
    layer: IdentityMiddleware,
}

impl<S, B> Service<ServiceRequest> for IdentityMiddlewareService<S>
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
            let caller = match layer.caller(&request) {
                Ok(Some(caller)) => caller,
                // Left out by `skip`: it has no caller, and its answers are not shown.
                Ok(None) => {
                    let response =
                        service.call(request).await?.map_body(|_, body| PermitBody::new(body));
                    return Ok(response.map_into_left_body());
                }
                Err(refusal) => {
                    let response = layer.refusal_response(refusal);
                    return Ok(request.into_response(response).map_into_right_body());
                }
            };
            let call = async { service.call(request).await };
            match layer.observe(caller, call).await {
                (Ok(response), observed) => {
                    let (request, response) = response.into_parts();
                    Ok(ServiceResponse::new(request, layer.finish(response, observed)))
                }
                // A middleware further in was refused, and actix-web makes the response outside of
                // this one.
                (Err(error), observed) if observed.refused.is_some() => {
                    let response = layer.finish(error.error_response(), observed);
                    Err(InternalError::from_response(error, response.map_into_boxed_body()).into())
                }
                (Err(error), _) => Err(error),
            }
        })
    }
}
