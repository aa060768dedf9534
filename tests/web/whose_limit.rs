//! A refusal tells whether the limit is the caller's own or shared: in the error, in the body and in a header field.

use std::time::Duration;

use axum::{Extension, Router, body::Body, http::Request, routing::get};
use harness::RedisServer;
use ratelimit_runtime::{
    Caller, Limiter, Policy, RateLimitError, caller, rate_limit,
    web::{EXPOSED_HEADERS, HeaderSyntax, Refusal},
};
use serde_json::Value;

use crate::support::{Limited, ask, by_user, header, request};

#[rate_limit(name = "own", period = 60, threshold = 1, limiter = limiter)]
async fn own(Extension(limiter): Extension<Limiter>) -> Limited<&'static str> {
    Ok("hello")
}

#[rate_limit(name = "tenant", period = 60, threshold = 1, key = tenant(), limiter = limiter)]
async fn of_tenant(Extension(limiter): Extension<Limiter>) -> Limited<&'static str> {
    Ok("hello")
}

fn tenant() -> &'static str {
    "acme"
}

#[rate_limit(name = "member", period = 60, threshold = 1, key = (tenant(), caller::current()), limiter = limiter)]
async fn of_member(Extension(limiter): Extension<Limiter>) -> Limited<&'static str> {
    Ok("hello")
}

#[rate_limit(name = "all", period = 60, threshold = 1, key = "all", limiter = limiter)]
async fn of_all(Extension(limiter): Extension<Limiter>) -> Limited<&'static str> {
    Ok("hello")
}

#[rate_limit(name = "part", period = 60, threshold = 1, key = ("all", 1), limiter = limiter, max_wait = "1ms")]
async fn of_part(Extension(limiter): Extension<Limiter>) -> Limited<&'static str> {
    Ok("hello")
}

fn router(limiter: Limiter) -> Router {
    let router = Router::new().route("/own", get(own)).route("/tenant", get(of_tenant));
    let router = router.route("/member", get(of_member)).route("/all", get(of_all));
    router.route("/part", get(of_part)).layer(Extension(limiter))
}

/// Asks until a request is refused. Returns the scopes in its header and in its body.
async fn scopes(router: &Router, request: impl Fn() -> Request<Body>) -> (String, String) {
    loop {
        let response = ask(router, request()).await;
        if response.status() == 200 {
            assert_eq!(header(&response, "x-ratelimit-scope"), None);
            continue;
        }
        let told = header(&response, "x-ratelimit-scope").unwrap_or("none").to_owned();
        let body = axum::body::to_bytes(response.into_body(), 10_000).await.unwrap();
        let body: Value = serde_json::from_slice(&body).unwrap();
        return (told, body["scope"].as_str().unwrap().to_owned());
    }
}

async fn assert_scopes(limiter: Limiter) {
    let bare = router(limiter);
    let behind_layer = bare.clone().layer(by_user());
    let silent = bare.clone().layer(by_user().headers(HeaderSyntax::Off));
    for (path, with_caller, without) in [
        ("/own", "user", "shared"),
        // Without a caller of the request, a key may be that of one client.
        ("/tenant", "shared", "user"),
        ("/member", "user", "user"),
        ("/all", "shared", "shared"),
        ("/part", "shared", "shared"),
    ] {
        let told = |scope: &str| (scope.to_owned(), scope.to_owned());
        let by_alice = || request(path, "alice");
        assert_eq!(scopes(&behind_layer, by_alice).await, told(with_caller), "{path}");
        let of_nobody = || Request::get(path).body(Body::empty()).unwrap();
        assert_eq!(scopes(&bare, of_nobody).await, told(without), "{path}");
        let expected = ("none".to_owned(), with_caller.to_owned());
        assert_eq!(scopes(&silent, by_alice).await, expected, "{path}");
    }
}

#[tokio::test]
async fn in_memory() {
    assert_scopes(Limiter::in_memory()).await;
}

#[tokio::test]
async fn on_redis() {
    let redis = RedisServer::start();
    // With a deny cache, most refusals are repeated.
    for entries in [0, 1_000] {
        let limiter = Limiter::builder().prefix(format!("whose{entries}:")).deny_cache(entries);
        assert_scopes(limiter.connect(&redis.url()).await.unwrap()).await;
    }
}

#[tokio::test]
async fn calls_in_flight_have_a_scope_too_and_other_refusals_have_none() {
    const FLIGHT: Policy = Policy::concurrency_limit("flight", 1);
    let limiter = Limiter::in_memory();
    let everybody = Caller::shared();
    for (caller, is_shared) in [(Caller::from("alice"), false), (everybody, true)] {
        let _held = limiter.check(&FLIGHT, &caller).await.unwrap();
        let Err(RateLimitError::Busy(busy)) = limiter.check(&FLIGHT, &caller).await else {
            panic!("it is in flight");
        };
        assert_eq!(busy.is_shared(), is_shared);
        let refusal = Refusal::from(RateLimitError::from(busy));
        let scope = if is_shared { "shared" } else { "user" };
        let body: Value = serde_json::from_str(&refusal.problem_with_error()).unwrap();
        assert_eq!(body["scope"], scope);
        let fields = refusal.headers(HeaderSyntax::Draft11);
        assert!(fields.contains(&("x-ratelimit-scope", scope.to_owned())), "{fields:?}");
    }
    let never = Policy::sliding_window("never", Duration::from_secs(60), 0);
    let refusal = Refusal::from(limiter.check(&never, "a").await.unwrap_err());
    assert!(!refusal.problem().contains("scope"), "{}", refusal.problem());
    assert!(EXPOSED_HEADERS.contains(&"x-ratelimit-scope"));
}

/// The type before the caller is no key that somebody has written.
#[tokio::test]
async fn the_default_method_of_a_trait_lists_its_limit_to_the_client() {
    trait Shop {
        #[rate_limit(period = "1h", threshold = 2)]
        async fn buy(&self) -> Limited<&'static str> {
            Ok("sold")
        }
    }

    struct Books;
    impl Shop for Books {}

    async fn buy() -> Limited<&'static str> {
        Books.buy().await
    }

    let router = Router::new().route("/", get(buy)).layer(by_user());
    let response = ask(&router, request("/", "alice")).await;
    let listed = header(&response, "ratelimit").unwrap_or_default();
    assert!(listed.ends_with(";r=1;t=3600"), "{listed}");
}
