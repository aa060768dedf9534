//! `actix-governor`: 5 at once, then one a minute, for each address.

use std::time::Duration;

use actix_governor::{Governor, GovernorConfigBuilder};
use actix_web::{
    App,
    body::{MessageBody, to_bytes},
    dev::{Service, ServiceResponse},
    http::header::HeaderMap,
    test::{TestRequest, init_service},
    web,
};
use ratelimit_runtime::{
    Policy,
    web::actix::{Identity, IdentityMiddleware, RateLimitMiddleware},
};

use crate::{address, first_five_each, traffic};

const API: Policy = Policy::token_bucket("actix-governor", Duration::from_secs(60), 1).burst(5);

/// An app with these middlewares, the innermost first.
macro_rules! app {
    ($($middleware:expr),+) => {
        init_service(
            App::new().route("/", web::get().to(async || "hello"))$(.wrap($middleware))+,
        )
        .await
    };
}

pub(crate) async fn statuses<S, B>(
    app: &S,
    requests: impl IntoIterator<Item = TestRequest>,
) -> Vec<u16>
where
    S: Service<actix_http::Request, Response = ServiceResponse<B>, Error = actix_web::Error>,
{
    let mut statuses = Vec::new();
    for request in requests {
        statuses.push(app.call(request.to_request()).await.unwrap().status().as_u16());
    }
    statuses
}

fn request(client: usize) -> TestRequest {
    TestRequest::get().uri("/").peer_addr(address(client))
}

/// Sends requests of one client until one is refused.
async fn refused<S, B>(app: &S) -> (HeaderMap, String)
where
    S: Service<actix_http::Request, Response = ServiceResponse<B>, Error = actix_web::Error>,
    B: MessageBody,
{
    loop {
        let response = app.call(request(1).to_request()).await.unwrap();
        if response.status() == 429 {
            let headers = response.headers().clone();
            let body = to_bytes(response.into_body()).await.ok().expect("a body");
            return (headers, String::from_utf8(body.to_vec()).unwrap());
        }
    }
}

#[actix_web::test]
async fn each_address_has_the_same_count() {
    let config = GovernorConfigBuilder::default().seconds_per_request(60).burst_size(5).finish();
    let theirs = app!(Governor::new(&config.unwrap()));
    assert_eq!(statuses(&theirs, traffic().map(request)).await, first_five_each());
    let ours = app!(RateLimitMiddleware::new(API), IdentityMiddleware::new(Identity::peer()));
    assert_eq!(statuses(&ours, traffic().map(request)).await, first_five_each());
}

#[actix_web::test]
async fn a_refusal_has_other_fields_another_body_and_a_wait_that_is_rounded_up() {
    const BRIEF: Policy = Policy::token_bucket("actix brief", Duration::from_millis(999), 1);
    let mut config = GovernorConfigBuilder::default();
    let config = config.milliseconds_per_request(999).burst_size(1).finish().unwrap();
    let (headers, body) = refused(&app!(Governor::new(&config))).await;
    assert_eq!(headers.get("retry-after").unwrap(), "0");
    assert_eq!(headers.get("x-ratelimit-after").unwrap(), "0");
    assert_eq!(body, "Too many requests, retry in 0s");

    let ours = app!(RateLimitMiddleware::new(BRIEF), IdentityMiddleware::new(Identity::peer()));
    let (headers, body) = refused(&ours).await;
    assert_eq!(headers.get("retry-after").unwrap(), "1");
    assert_eq!(headers.get("ratelimit").unwrap(), r#""actix brief";r=0;t=1"#);
    assert_eq!(headers.get("content-type").unwrap(), "application/problem+json");
    assert!(body.contains(r#""violated-policies":["actix brief"]"#), "{body}");
}
