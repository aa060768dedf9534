//! A hostile request creates no second quota, does no uncounted work, and learns nothing about other callers.

use std::{net::SocketAddr, time::Duration};

use crate::support::{Limited, client, serve};
use axum::{
    Router,
    extract::{Query, State},
    http::HeaderValue,
    routing::{any, get},
};
use harness::RedisServer;
use ratelimit_runtime::web::OnMissing;
use ratelimit_runtime::{
    Caller, Limiter, Policy, caller, rate_limit,
    web::tower::{Identity, IdentityLayer, RateLimitLayer},
};
use reqwest::{Method, Response};

const MINUTE: Duration = Duration::from_secs(60);

const PAID: Policy = Policy::sliding_window("paid", MINUTE, 1);

/// Returns the status of a request with these values of the header `x-api-key`.
async fn status(address: SocketAddr, keys: &[&[u8]]) -> u16 {
    let mut request = client().get(format!("http://{address}/"));
    for key in keys {
        request = request.header("x-api-key", HeaderValue::from_bytes(key).unwrap());
    }
    request.send().await.unwrap().status().as_u16()
}

fn field<'a>(response: &'a Response, name: &str) -> Option<&'a str> {
    response.headers().get(name).map(|value| value.to_str().unwrap())
}

#[tokio::test]
async fn a_malformed_identity_header_is_refused_and_makes_no_second_quota() {
    let limiter = Limiter::in_memory();
    let identity = Identity::header("x-api-key").or(Identity::peer());
    let router = Router::new()
        .route("/", get(|| async {}))
        .layer(RateLimitLayer::new(PAID).on_missing(OnMissing::Shared).limiter(limiter))
        .layer(IdentityLayer::new(identity));
    let address = serve(router).await;
    assert_eq!(status(address, &[b"mine"]).await, 200);
    assert_eq!(status(address, &[b"mine"]).await, 429);
    for malformed in [
        &[&b"mine"[..], b"mine"][..],
        &[b"mine", b"other"],
        &[b"mine", b""],
        &[b""],
        &[b" \t "],
        &[b"\xff"],
        &[b"mine\xc3\x28"],
    ] {
        assert_eq!(status(address, malformed).await, 400, "{malformed:?}");
    }
    // Only a request without the header is its peer's.
    assert_eq!(status(address, &[]).await, 200);
    assert_eq!(status(address, &[]).await, 429);
}

#[tokio::test]
async fn a_stranger_does_not_learn_how_often_an_account_was_tried() {
    #[rate_limit(name = "tries of an account", period = 60, threshold = 3, key = account)]
    async fn attempt(account: &str) -> Limited<()> {
        let _ = account;
        Ok(())
    }

    #[rate_limit(name = "tries of an address", period = 60, threshold = 9)]
    async fn login(Query(account): Query<Vec<(String, String)>>) -> Limited<&'static str> {
        attempt(&account[0].1).await?;
        Ok("wrong password")
    }

    let router = Router::new().route("/login", get(login));
    let by_peer = || IdentityLayer::new(Identity::peer());
    let address = serve(router.clone().layer(by_peer())).await;
    let ask = async |account: &str| {
        let url = format!("http://{address}/login?account={account}");
        client().get(url).send().await.unwrap()
    };
    for left in [8, 7, 6] {
        let response = ask("alice").await;
        assert_eq!(response.status(), 200);
        let expected = format!(r#""tries of an address";r={left};t="#);
        let listed = field(&response, "ratelimit").unwrap();
        assert!(listed.starts_with(&expected) && !listed.contains("account"), "{listed}");
        let policies = field(&response, "ratelimit-policy").unwrap();
        assert_eq!(policies, r#""tries of an address";q=9;w=60"#);
    }
    // A refusal shows its own limit.
    let refused = ask("alice").await;
    assert_eq!(refused.status(), 429);
    assert!(refused.headers().contains_key("retry-after"));
    let listed = field(&refused, "ratelimit").unwrap();
    assert!(listed.contains(r#""tries of an account";r=0;t="#), "{listed}");
    let problem: serde_json::Value = refused.json().await.unwrap();
    assert_eq!(problem["violated-policies"], serde_json::json!(["tries of an account"]));
}

#[tokio::test]
async fn a_check_by_hand_for_the_requests_caller_is_in_the_header_fields() {
    const PAGES: Policy = Policy::sliding_window("pages", MINUTE, 5);
    const OTHERS: Policy = Policy::sliding_window("others", MINUTE, 5);

    async fn read(State(limiter): State<Limiter>) -> Limited<()> {
        let own = caller::current().unwrap();
        limiter.check(&PAGES, own).cost(2).await?;
        limiter.check(&OTHERS, "somebody else").await?;
        Ok(())
    }

    let router = Router::new()
        .route("/", get(read))
        .with_state(Limiter::in_memory())
        .layer(IdentityLayer::new(Identity::peer()));
    let url = format!("http://{}/", serve(router).await);
    for expected in [r#""pages";r=3;t=60"#, r#""pages";r=1;t="#, r#""pages";r=1;t="#] {
        let response = client().get(&url).send().await.unwrap();
        let listed = field(&response, "ratelimit").expect("header fields");
        assert!(listed.starts_with(expected), "{listed}");
        assert!(!listed.contains("others"), "{listed}");
    }
}

#[tokio::test]
async fn an_api_key_is_not_stored_on_redis() {
    let redis = RedisServer::start();
    let limiter = redis.limiter().await;
    let router = Router::new()
        .route("/", get(|| async {}))
        .layer(RateLimitLayer::new(PAID).on_missing(OnMissing::Shared).limiter(limiter))
        .layer(IdentityLayer::new(Identity::header("x-api-key")));
    let address = serve(router).await;
    assert_eq!(status(address, &[b"sk-live-4711"]).await, 200);
    assert_eq!(status(address, &[b"sk-live-4711"]).await, 429);
    assert_eq!(status(address, &[b"sk-live-4712"]).await, 200);
    let keys = redis.keys();
    assert_eq!(keys.len(), 2, "{keys:?}");
    for key in keys {
        assert!(!key.contains("sk-live"), "{key}");
    }
}

#[tokio::test]
async fn no_caller_that_the_program_names_is_one_of_another_source() {
    let limiter = Limiter::in_memory();
    let identity = Identity::header("x-api-key").or(Identity::peer());
    let router = Router::new()
        .route("/", get(|| async {}))
        .layer(RateLimitLayer::new(PAID).on_missing(OnMissing::Shared).limiter(limiter.clone()))
        .layer(IdentityLayer::new(identity));
    let address = serve(router).await;
    for part in ["or", "%or", "%alternative"] {
        limiter.check(&PAID, Caller::from(part).and("127.0.0.1")).await.unwrap();
    }
    assert_eq!(status(address, &[]).await, 200);
    assert_eq!(status(address, &[]).await, 429);
}

#[tokio::test]
async fn a_request_that_resembles_a_preflight_does_no_uncounted_work() {
    let limiter = Limiter::in_memory();
    let router = Router::new()
        .route("/", any(|| async { "work" }))
        .fallback(|| async { "work" })
        .layer(RateLimitLayer::new(PAID).on_missing(OnMissing::Shared).limiter(limiter))
        .layer(IdentityLayer::new(Identity::peer()));
    let address = serve(router).await;
    for (path, expected) in [("", 200), ("", 429), ("elsewhere", 429)] {
        let request = client()
            .request(Method::OPTIONS, format!("http://{address}/{path}"))
            .header("origin", "https://a.example")
            .header("access-control-request-method", "POST");
        assert_eq!(request.send().await.unwrap().status(), expected, "{path}");
    }
}
