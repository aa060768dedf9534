//! The middleware of actix-web decides each request by its head.

use std::time::Duration;

use actix_web::{
    HttpResponse,
    dev::ServiceRequest,
    http::{Method, StatusCode, header::HeaderValue},
    web::{self as actix, Bytes},
};
use ratelimit_runtime::web::OnMissing;
use ratelimit_runtime::{
    Caller, Limiter, Policy,
    web::{
        HeaderSyntax, Refusal, RequestHead,
        actix::{Identity, IdentityMiddleware, Limit, RateLimitMiddleware, paths},
    },
};
use reqwest::Response;

use crate::{on_actix::Server, support::client};

const MINUTE: Duration = Duration::from_secs(60);
const USER: Policy = Policy::sliding_window("user", MINUTE, 5);
const ALL: Policy = Policy::sliding_window("all", MINUTE, 2);
const UNITS: Policy = Policy::token_bucket("units", MINUTE, 10);

/// Serves `/items/{id}` and `/healthz` behind the middleware.
fn serve(layer: &RateLimitMiddleware) -> Server {
    let layer = layer.clone();
    let identity = IdentityMiddleware::new(Identity::header("x-user"));
    Server::serve(identity, move |config| {
        let item = async |body: Bytes| body.len().to_string();
        let scope = actix::scope("")
            .wrap(layer.clone())
            .route("/items/{id}", actix::get().to(item))
            .route("/items/{id}", actix::put().to(item))
            .route("/healthz", actix::get().to(HttpResponse::Ok));
        config.service(scope);
    })
}

async fn send(server: &Server, method: Method, path: &str, units: &str) -> Response {
    let method = reqwest::Method::from_bytes(method.as_str().as_bytes()).unwrap();
    let request = client().request(method, server.url(path));
    let request = request.header("x-user", "alice").header("x-units", units);
    request.body("body").send().await.unwrap()
}

fn field<'a>(response: &'a Response, name: &str) -> Option<&'a str> {
    response.headers().get(name).map(|value| value.to_str().unwrap())
}

#[tokio::test]
async fn policy_and_cost_by_method_route_and_header() {
    let limiter = Limiter::in_memory();
    let limit = Limit::from_fn(|request: &ServiceRequest| match request.route().as_deref() {
        Some("/items/{id}") => Some(if request.method().is_safe() { USER } else { UNITS }),
        Some("/healthz") => None,
        other => panic!("{other:?}"),
    })
    .cost(|request| {
        let units = request.headers().get("x-units").map(HeaderValue::to_str);
        units.and_then(Result::ok).and_then(|units| units.parse().ok()).unwrap_or(1)
    });
    let server = serve(
        &RateLimitMiddleware::new(limit).on_missing(OnMissing::Shared).limiter(limiter.clone()),
    );
    let written = send(&server, Method::PUT, "/items/1", "7").await;
    assert_eq!(
        (written.status().as_u16(), field(&written, "ratelimit")),
        (200, Some(r#""units";r=3;t=6"#))
    );
    assert_eq!(written.text().await.unwrap(), "4");
    let refused = send(&server, Method::PUT, "/items/2", "4").await;
    assert_eq!((refused.status().as_u16(), field(&refused, "retry-after")), (429, Some("6")));
    assert_eq!(field(&refused, "ratelimit-policy"), Some(r#""units";q=10;w=60"#));
    assert_eq!(field(&refused, "content-type"), Some("application/problem+json"));
    assert_eq!(field(&refused, "cache-control"), Some("no-store"));
    assert_eq!(send(&server, Method::PUT, "/items/2", "11").await.status(), 422);
    let read = send(&server, Method::GET, "/items/2", "2").await;
    assert_eq!(
        (read.status().as_u16(), field(&read, "ratelimit")),
        (200, Some(r#""user";r=3;t=60"#))
    );
    let health = send(&server, Method::GET, "/healthz", "2").await;
    assert_eq!((health.status().as_u16(), field(&health, "ratelimit")), (200, None));
}

#[tokio::test]
async fn of_two_limits_all_admit_a_request_or_none_counts_it() {
    let limiter = Limiter::in_memory();
    let all = Identity::from_fn(|_| Some("all".into()));
    let layer = RateLimitMiddleware::new(USER)
        .on_missing(OnMissing::Shared)
        .and(Limit::new(ALL).identity(all))
        .skip(paths(["/healthz"]))
        .limiter(limiter.clone());
    let server = serve(&layer);
    for expected in [200, 200, 429, 429] {
        let response = send(&server, Method::GET, "/items/1", "").await;
        assert_eq!(response.status(), expected);
        assert!(field(&response, "ratelimit").unwrap().contains(r#""all";r="#));
        assert_eq!(field(&response, "retry-after").is_some(), expected == 429);
        assert_eq!(send(&server, Method::GET, "/healthz", "").await.status(), 200);
    }
    let left = limiter.peek(&USER, Caller::digest("alice")).cost(0).await.unwrap().remaining();
    assert_eq!(left, 3);
}

#[tokio::test]
async fn the_refusal_is_the_middlewares_own() {
    let layer = RateLimitMiddleware::new(ALL)
        .on_missing(OnMissing::Shared)
        .identity(Identity::plain_header("x-tenant"))
        .headers(HeaderSyntax::Legacy)
        .limiter(Limiter::in_memory())
        .respond(|_: &Refusal| HttpResponse::build(StatusCode::IM_A_TEAPOT).body("later"));
    let server = serve(&layer);
    let send = async |tenant: Option<&str>| {
        let request = client().get(server.url("/items/1")).header("x-user", "alice");
        let request = tenant.into_iter().fold(request, |it, tenant| it.header("x-tenant", tenant));
        request.send().await.unwrap()
    };
    for expected in [200, 200, 418] {
        let response = send(Some("acme")).await;
        assert_eq!(response.status(), expected);
        assert_eq!(field(&response, "retry-after").is_some(), expected == 418);
    }
    let nobody = send(None).await;
    assert_eq!(nobody.status(), 418);
    assert_eq!(nobody.text().await.unwrap(), "later");
    assert_eq!(send(Some("globex")).await.status(), 200);
}
