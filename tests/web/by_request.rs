//! A layer decides each request by its head: policy, cost, caller, several limits at once.

use axum::{
    Extension, Router,
    body::Body,
    http::{HeaderValue, Method, Request, request::Parts},
    routing::{get, post},
};
use ratelimit_runtime::web::OnMissing;
use ratelimit_runtime::{
    Caller, Limiter, Policy,
    web::{
        HeaderSyntax, PROBLEM_JSON, Refusal, RequestHead,
        tower::{Identity, Limit, RateLimitLayer, paths},
    },
};
use serde_json::Value;
use std::time::Duration;
use tower::{ServiceBuilder, ServiceExt, service_fn};

use crate::support::{ask, by_user, client, header, request, serve};

const MINUTE: Duration = Duration::from_secs(60);
const USER: Policy = Policy::sliding_window("user", MINUTE, 5);
const TENANT: Policy = Policy::sliding_window("tenant", MINUTE, 2);
const UNITS: Policy = Policy::token_bucket("units", MINUTE, 10);

/// Returns the units that a request names.
fn units(request: &Parts) -> u32 {
    let named = request.headers.get("x-units").map(HeaderValue::to_str);
    named.and_then(Result::ok).and_then(|units| units.parse().ok()).unwrap_or(1)
}

async fn left(limiter: &Limiter, policy: &Policy, caller: Caller) -> u32 {
    limiter.peek(policy, caller).cost(0).await.unwrap().remaining()
}

fn user(name: &str) -> Caller {
    Caller::digest(name)
}

#[tokio::test]
async fn the_policy_is_chosen_by_method_route_and_extension() {
    const READS: Policy = Policy::sliding_window("reads", MINUTE, 3);
    const WRITES: Policy = Policy::sliding_window("writes", MINUTE, 1);
    const OF_A_PLAN: Policy = Policy::sliding_window("plan", MINUTE, 2);

    #[derive(Clone)]
    struct Plan(Policy);

    let limit = Limit::from_fn(|request: &Parts| {
        if let Some(Plan(policy)) = request.extensions.get() {
            return Some(*policy);
        }
        match (&request.method, request.route().as_deref()) {
            (_, Some("/health")) => None,
            (&Method::GET, Some("/api/files/{name}")) => Some(READS),
            (_, Some("/api/files/{name}")) => Some(WRITES),
            (_, route) => panic!("{route:?} has no limit"),
        }
    });
    let layer =
        RateLimitLayer::new(limit).on_missing(OnMissing::Shared).limiter(Limiter::in_memory());
    let files = Router::new().route("/files/{name}", get(|| async {}).post(|| async {}));
    let router = Router::new()
        .nest("/api", files.layer(layer.clone()))
        .merge(Router::new().route("/health", get(|| async {})).layer(layer.clone()))
        .layer(by_user());
    let send = async |method: Method, path: &str| {
        let request = Request::builder().method(method).uri(path).header("x-user", "alice");
        let response = ask(&router, request.body(Body::empty()).unwrap()).await;
        let policies = header(&response, "ratelimit-policy").unwrap_or("none").to_owned();
        (response.status().as_u16(), policies)
    };
    let reads = r#""reads";q=3;w=60"#.to_owned();
    let writes = r#""writes";q=1;w=60"#.to_owned();
    for expected in [200, 200, 200, 429] {
        assert_eq!(send(Method::GET, "/api/files/a").await, (expected, reads.clone()));
    }
    for expected in [200, 429] {
        assert_eq!(send(Method::POST, "/api/files/b").await, (expected, writes.clone()));
    }
    for _ in 0..5 {
        assert_eq!(send(Method::GET, "/health").await, (200, "none".to_owned()));
    }
    let of_a_plan = Router::new().route("/", get(|| async {})).layer(layer).layer(by_user());
    let of_a_plan = of_a_plan.layer(Extension(Plan(OF_A_PLAN)));
    for expected in [200, 200, 429] {
        assert_eq!(ask(&of_a_plan, request("/", "alice")).await.status(), expected);
    }
}

#[tokio::test]
async fn the_cost_is_what_a_header_says() {
    let limiter = Limiter::in_memory();
    let layer = RateLimitLayer::new(Limit::new(UNITS).cost(units))
        .on_missing(OnMissing::Shared)
        .limiter(limiter.clone());
    let router = Router::new().route("/", post(|| async {})).layer(layer).layer(by_user());
    let url = format!("http://{}/", serve(router).await);
    let send = async |units: &str| {
        let request = client().post(&url).header("x-user", "alice").header("x-units", units);
        request.send().await.unwrap()
    };
    assert_eq!(send("4").await.headers()["ratelimit"], r#""units";r=6;t=6"#);
    assert_eq!(send("0").await.status(), 200);
    assert_eq!(left(&limiter, &UNITS, user("alice")).await, 6);
    let refused = send("7").await;
    assert_eq!(
        (refused.status().as_u16(), refused.headers()["retry-after"].as_bytes()),
        (429, &b"6"[..])
    );
    assert_eq!(send("6").await.status(), 200);
    let never = send("11").await;
    assert_eq!(never.status(), 422);
    let problem: Value = never.json().await.unwrap();
    assert!(problem["detail"].as_str().unwrap().contains("`units` never admits 11 units"));
}

#[tokio::test]
async fn of_two_limits_all_admit_a_request_or_none_counts_it() {
    let limiter = Limiter::in_memory();
    let layer = RateLimitLayer::new(USER)
        .on_missing(OnMissing::Shared)
        .and(Limit::new(TENANT).identity(Identity::plain_header("x-tenant")))
        .limiter(limiter.clone());
    let router = Router::new().route("/", get(|| async { "hello" })).layer(layer).layer(by_user());
    let url = format!("http://{}/", serve(router).await);
    let send = async |user: &str, tenant: Option<&str>| {
        let request = client().get(&url).header("x-user", user);
        let request = tenant.into_iter().fold(request, |it, tenant| it.header("x-tenant", tenant));
        request.send().await.unwrap()
    };
    let admitted = send("alice", Some("acme")).await;
    assert_eq!(admitted.status(), 200);
    assert_eq!(admitted.headers()["ratelimit-policy"], r#""user";q=5;w=60, "tenant";q=2;w=60"#);
    assert_eq!(admitted.headers()["ratelimit"], r#""user";r=4;t=60, "tenant";r=1;t=60"#);
    assert_eq!(send("bob", Some("acme")).await.status(), 200);

    for _ in 0..4 {
        let refused = send("alice", Some("acme")).await;
        assert_eq!(refused.status(), 429);
        let wait = refused.headers()["retry-after"].to_str().unwrap().to_owned();
        assert!((1..=60).contains(&wait.parse::<u32>().unwrap()), "{wait}");
        let numbers = refused.headers()["ratelimit"].to_str().unwrap();
        assert!(numbers.starts_with(&format!(r#""tenant";r=0;t={wait}, "#)), "{numbers}");
        assert_eq!(refused.headers()["cache-control"], "no-store");
        assert_eq!(refused.headers()["content-type"], PROBLEM_JSON);
        let problem: Value = refused.json().await.unwrap();
        assert_eq!(problem["violated-policies"], serde_json::json!(["tenant"]));
    }
    assert_eq!(left(&limiter, &USER, user("alice")).await, 4);
    // Neither is a request counted that lacks the identity of the second limit.
    assert_eq!(send("alice", None).await.status(), 400);
    assert_eq!(left(&limiter, &USER, user("alice")).await, 4);
    // Another tenant's requests pass until the user's limit refuses, and are then not the tenant's.
    for (tenant, expected) in
        [("b", 200), ("b", 200), ("c", 200), ("c", 200), ("d", 429), ("d", 429), ("d", 429)]
    {
        assert_eq!(send("alice", Some(tenant)).await.status(), expected, "{tenant}");
    }
    assert_eq!(left(&limiter, &TENANT, "d".into()).await, 2);
}

#[tokio::test]
async fn all_or_none_holds_on_redis() {
    let server = harness::RedisServer::start();
    let limiter = server.limiter().await;
    let all = Identity::from_fn(|_| Some("all".into()));
    let layer = RateLimitLayer::new(USER)
        .on_missing(OnMissing::Shared)
        .and(Limit::new(TENANT).identity(all))
        .limiter(limiter.clone());
    let router = Router::new().route("/", get(|| async {})).layer(layer).layer(by_user());
    for (user, expected) in [("alice", 200), ("bob", 200), ("alice", 429), ("carol", 429)] {
        assert_eq!(ask(&router, request("/", user)).await.status(), expected, "{user}");
    }
    assert_eq!(left(&limiter, &USER, user("alice")).await, 4);
    assert_eq!(left(&limiter, &USER, user("carol")).await, 5);
}

#[tokio::test]
async fn skipped_requests_meet_no_limit_and_others_have_an_identity_of_the_layer() {
    let limiter = Limiter::in_memory();
    let none = Limit::from_fn(|request: &Parts| (request.uri.path() != "/free").then_some(TENANT));
    let layer = RateLimitLayer::new(none)
        .on_missing(OnMissing::Shared)
        .identity(Identity::header("x-user"))
        .skip(paths(["/healthz"]))
        .headers(HeaderSyntax::Legacy)
        .limiter(limiter.clone())
        .respond(|refusal: &Refusal| {
            axum::response::Response::new(Body::from(refusal.status().to_string()))
        });
    let service =
        ServiceBuilder::new().layer(layer).service(service_fn(async |_: Request<Body>| {
            Ok::<_, std::convert::Infallible>(axum::response::Response::new(Body::from("served")))
        }));
    let send = async |path: &str, user: &str| {
        let response = service.clone().oneshot(request(path, user)).await.unwrap();
        let left = header(&response, "x-ratelimit-remaining").map(str::to_owned);
        let body = axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap();
        (String::from_utf8(body.to_vec()).unwrap(), left)
    };
    for path in ["/healthz", "/free"] {
        for _ in 0..3 {
            assert_eq!(send(path, "alice").await, ("served".to_owned(), None), "{path}");
        }
    }
    for (body, remaining) in [("served", "1"), ("served", "0"), ("429", "0")] {
        assert_eq!(send("/", "alice").await, (body.to_owned(), Some(remaining.to_owned())));
    }
    assert_eq!(send("/", "bob").await.0, "served");
}

#[tokio::test]
async fn a_request_leaves_the_share_that_a_function_of_it_returns() {
    let limit = Limit::new(UNITS)
        .leave(|request: &Parts| if request.headers.contains_key("x-batch") { 50 } else { 0 });
    let layer = RateLimitLayer::new(limit).limiter(Limiter::in_memory());
    let router = Router::new().route("/", get(|| async {})).layer(layer).layer(by_user());
    let send = async |is_batch: bool| {
        let mut request = request("/", "alice");
        if is_batch {
            request.headers_mut().insert("x-batch", HeaderValue::from_static("1"));
        }
        ask(&router, request).await.status()
    };
    for used in 0..6 {
        assert_eq!(send(true).await, if used < 5 { 200 } else { 429 });
    }
    for _ in 0..5 {
        assert_eq!(send(false).await, 200);
    }
    assert_eq!(send(false).await, 429);
}
