//! Requests that pass no layer with an identity are refused as loudly as those without an identity, and
//! services with API keys answer 401.

use std::time::Duration;

use actix_web::{App, HttpResponse, test as actix, web as actix_routes};
use axum::{Router, body::Body, routing::get};
use harness::{Lines, listen};
use http::{Request, Response};
use ratelimit_runtime::{
    Limiter, Policy, RateLimitError, rate_limit,
    web::{
        self, OnMissing, Refusal,
        actix::{IdentityMiddleware, RateLimitMiddleware},
        tower::{Identity, IdentityLayer, Limit, RateLimitLayer, body_units},
    },
};
use tower::ServiceExt;

const ONE: Policy = Policy::fixed_window("without_a_layer", Duration::from_secs(3600), 1);
/// Another limit: the first refusal of each is logged.
const OTHER: Policy = Policy::fixed_window("without_a_middleware", Duration::from_secs(3600), 1);
const UNITS: Policy = Policy::token_bucket("announced", Duration::from_secs(3600), 1_000);

async fn answer(router: &Router, request: Request<Body>) -> Response<Body> {
    router.clone().oneshot(request).await.unwrap()
}

fn request() -> Request<Body> {
    Request::new(Body::empty())
}

fn gated(layer: RateLimitLayer) -> Router {
    Router::new().route("/", get(|| async {})).layer(layer.limiter(Limiter::in_memory()))
}

#[tokio::test]
async fn a_limit_without_an_identity_layer_refuses_and_names_the_layer() {
    let lines = Lines::default();
    let _listening = listen(lines.clone());
    let router = gated(RateLimitLayer::new(ONE));
    for _ in 0..3 {
        assert_eq!(answer(&router, request()).await.status(), 400);
    }
    let logged: Vec<_> = lines.all().into_iter().filter(|line| line.starts_with("ERROR")).collect();
    assert_eq!(logged.len(), 1, "{logged:?}");
    assert!(logged[0].contains("add `IdentityLayer`") && logged[0].contains("without_a_layer"));

    let challenged = gated(RateLimitLayer::new(ONE).on_missing(OnMissing::Unauthorized("Bearer")));
    let refused = answer(&challenged, request()).await;
    assert_eq!(refused.status(), 401);
    assert_eq!(refused.headers()["www-authenticate"], "Bearer");
    let shared = gated(RateLimitLayer::new(ONE).on_missing(OnMissing::Shared));
    assert_eq!(answer(&shared, request()).await.status(), 200);
    assert_eq!(answer(&shared, request()).await.status(), 429);
    let within = gated(RateLimitLayer::new(ONE)).layer(IdentityLayer::new(Identity::header("key")));
    let by_key = Request::builder().header("key", "k").body(Body::empty()).unwrap();
    assert_eq!(answer(&within, by_key).await.status(), 200);
}

#[rate_limit(name = "layerless", period = "1h", threshold = 5)]
async fn layerless() -> Result<(), RateLimitError> {
    Ok(())
}

#[tokio::test]
async fn a_function_without_a_caller_is_an_error_in_the_log_once() {
    let lines = Lines::default();
    let _listening = listen(lines.clone());
    for _ in 0..2 {
        layerless().await.unwrap();
    }
    let logged: Vec<_> = lines.all().into_iter().filter(|line| line.contains("ERROR")).collect();
    assert_eq!(logged.len(), 1, "{logged:?}");
    assert!(logged[0].contains("add `IdentityLayer`"), "{logged:?}");
}

#[tokio::test]
async fn a_service_with_api_keys_answers_401_with_its_scheme() {
    let identity = Identity::header("x-api-key").unauthorized("ApiKey realm=\"orders\"");
    let router = Router::new().route("/", get(|| async {})).layer(IdentityLayer::new(identity));
    let refused = answer(&router, request()).await;
    assert_eq!(refused.status(), 401);
    assert_eq!(refused.headers()["www-authenticate"], "ApiKey realm=\"orders\"");
    assert_eq!(refused.headers()["content-type"], "application/problem+json");
    let body = axum::body::to_bytes(refused.into_body(), 1_000).await.unwrap();
    let problem: serde_json::Value = serde_json::from_slice(&body).unwrap();
    assert_eq!((&problem["status"], &problem["title"]), (&401.into(), &"Unauthorized".into()));
    let known = Request::builder().header("x-api-key", "k").body(Body::empty()).unwrap();
    assert_eq!(answer(&router, known).await.status(), 200);

    let refusal = Refusal::Unauthorized { challenge: "ApiKey" };
    assert_eq!(tonic::Status::from(refusal).code(), tonic::Code::Unauthenticated);
}

#[actix_web::test]
async fn actix_web_answers_the_same() {
    let hello = || actix_routes::get().to(async || HttpResponse::Ok());
    let alone = RateLimitMiddleware::new(OTHER).limiter(Limiter::in_memory());
    let app = actix::init_service(App::new().route("/", hello()).wrap(alone)).await;
    let refused = actix::call_service(&app, actix::TestRequest::get().to_request()).await;
    assert_eq!(refused.status().as_u16(), 400);
    let identity = web::actix::Identity::header("x-api-key").unauthorized("ApiKey");
    let keyed = IdentityMiddleware::new(identity);
    let app = actix::init_service(App::new().route("/", hello()).wrap(keyed)).await;
    let refused = actix::call_service(&app, actix::TestRequest::get().to_request()).await;
    assert_eq!(refused.status().as_u16(), 401);
    assert_eq!(refused.headers().get("www-authenticate").unwrap(), "ApiKey");
}

#[tokio::test]
async fn a_body_costs_by_its_announced_length_whatever_that_is() {
    const UNANNOUNCED: u32 = 500;
    let cost = body_units(1_024, UNANNOUNCED);
    let of = |lengths: &[&str]| {
        let request = lengths
            .iter()
            .fold(Request::builder(), |request, length| request.header("content-length", *length));
        cost(&request.body(()).unwrap().into_parts().0)
    };
    for (length, units) in [
        ("0", 1),
        ("1", 1),
        ("1024", 1),
        ("1025", 2),
        ("4294967295", 4_194_304),
        ("4294967296", 4_194_304),
        ("5000000000000000", u32::MAX),
        ("99999999999999999999999999", u32::MAX),
        ("-1", UNANNOUNCED),
        ("+1", UNANNOUNCED),
        ("1e3", UNANNOUNCED),
        ("", UNANNOUNCED),
    ] {
        assert_eq!(of(&[length]), units, "{length}");
    }
    assert_eq!(of(&[]), UNANNOUNCED);
    assert_eq!(of(&["1", "1"]), UNANNOUNCED);

    let limit = Limit::new(UNITS).cost(cost.clone());
    let router = gated(RateLimitLayer::new(limit).on_missing(OnMissing::Shared));
    let announced = |length: &str| {
        Request::builder().header("content-length", length).body(Body::empty()).unwrap()
    };
    assert_eq!(answer(&router, announced("8589934592")).await.status(), 422);
    assert_eq!(answer(&router, request()).await.status(), 200);
    assert_eq!(answer(&router, request()).await.status(), 200);
    assert_eq!(answer(&router, request()).await.status(), 429);
}
