//! `tower_governor`: 5 at once, then one a minute, for each address.

use std::time::Duration;

use axum::{
    Router,
    body::{Body, to_bytes},
    extract::ConnectInfo,
    http::{HeaderMap, Method, Request},
    response::Response,
    routing::any,
};
use ratelimit_runtime::{
    Policy,
    web::{
        ClientAddress, HeaderSyntax,
        tower::{Identity, IdentityLayer, Limit, RateLimitLayer},
    },
};
use tower::ServiceExt;
use tower_governor::{
    GovernorLayer, governor::GovernorConfigBuilder, key_extractor::SmartIpKeyExtractor,
};

use crate::{address, first_five_each, traffic};

const MINUTE: Duration = Duration::from_secs(60);
const API: Policy = Policy::token_bucket("tower_governor", MINUTE, 1).burst(5);

fn routes() -> Router {
    Router::new().route("/", any(async || "hello"))
}

fn theirs() -> Router {
    let config = GovernorConfigBuilder::default().per_second(60).burst_size(5).finish().unwrap();
    routes().layer(GovernorLayer::new(config))
}

fn ours(limit: impl Into<Limit>) -> Router {
    routes().layer(RateLimitLayer::new(limit)).layer(IdentityLayer::new(Identity::peer()))
}

fn request(client: usize) -> Request<Body> {
    Request::get("/").extension(ConnectInfo(address(client))).body(Body::empty()).unwrap()
}

async fn answer(router: &Router, request: Request<Body>) -> Response {
    router.clone().oneshot(request).await.unwrap()
}

async fn statuses(router: &Router, requests: impl IntoIterator<Item = Request<Body>>) -> Vec<u16> {
    let mut statuses = Vec::new();
    for request in requests {
        statuses.push(answer(router, request).await.status().as_u16());
    }
    statuses
}

/// Sends requests of one client until one is refused.
async fn refused(router: &Router) -> (HeaderMap, String) {
    loop {
        let (parts, body) = answer(router, request(1)).await.into_parts();
        if parts.status == 429 {
            let body = to_bytes(body, usize::MAX).await.unwrap();
            return (parts.headers, String::from_utf8(body.to_vec()).unwrap());
        }
    }
}

#[tokio::test]
async fn each_address_has_the_same_count() {
    for router in [theirs(), ours(API)] {
        assert_eq!(statuses(&router, traffic().map(request)).await, first_five_each());
    }
}

#[tokio::test]
async fn methods_that_are_not_listed_pass() {
    const POSTS: Policy = Policy::token_bucket("posts", MINUTE, 1).burst(5);
    let mut config = GovernorConfigBuilder::default();
    let config = config.per_second(60).burst_size(5).methods(vec![Method::POST]).finish().unwrap();
    let theirs = routes().layer(GovernorLayer::new(config));
    let ours = ours(Limit::from_fn(|it| (it.method == Method::POST).then_some(POSTS)));
    for router in [theirs, ours] {
        assert_eq!(statuses(&router, (0..9).map(|_| request(1))).await, [200; 9]);
        let posts = (0..6).map(|_| {
            let mut post = request(1);
            *post.method_mut() = Method::POST;
            post
        });
        assert_eq!(statuses(&router, posts).await, [200, 200, 200, 200, 200, 429]);
    }
}

/// Behind a proxy, a client that writes addresses of its own has as many buckets as it likes, or one.
#[tokio::test]
async fn the_first_address_of_x_forwarded_for_is_trusted_there_and_not_here() {
    const BEHIND: Policy = Policy::token_bucket("behind", MINUTE, 1).burst(5);
    let forged = || {
        (0..9).map(|number| {
            let mut request = request(0);
            let addresses = format!("203.0.113.{number}, 198.51.100.7");
            request.headers_mut().insert("x-forwarded-for", addresses.parse().unwrap());
            request
        })
    };
    let mut config = GovernorConfigBuilder::default().key_extractor(SmartIpKeyExtractor);
    let config = config.per_second(60).burst_size(5).finish().unwrap();
    let theirs = routes().layer(GovernorLayer::new(config));
    assert_eq!(statuses(&theirs, forged()).await, [200; 9]);

    let client = ClientAddress::behind_proxies(["192.0.2.0"]).unwrap();
    let client = IdentityLayer::new(Identity::address(client));
    let ours = routes().layer(RateLimitLayer::new(BEHIND)).layer(client);
    assert_eq!(statuses(&ours, forged()).await, first_five_each()[10..19]);
}

/// Half a second and 999 ms are 0 s there, which is too short, and 1 s here.
#[tokio::test]
async fn a_refusal_has_other_fields_another_body_and_a_wait_that_is_rounded_up() {
    const BRIEF: Policy = Policy::token_bucket("brief", Duration::from_millis(999), 1);
    let mut config = GovernorConfigBuilder::default();
    let config = config.per_millisecond(999).burst_size(1).use_headers().finish().unwrap();
    let (headers, body) = refused(&routes().layer(GovernorLayer::new(config))).await;
    for (name, value) in [
        ("retry-after", "0"),
        ("x-ratelimit-after", "0"),
        ("x-ratelimit-limit", "1"),
        ("x-ratelimit-remaining", "0"),
    ] {
        assert_eq!(headers[name], value, "{name}");
    }
    assert_eq!(body, "Too Many Requests! Wait for 0s");

    let (headers, body) = refused(&ours(BRIEF)).await;
    assert_eq!(headers["retry-after"], "1");
    assert_eq!(headers["ratelimit-policy"], r#""brief";q=1"#);
    assert_eq!(headers["ratelimit"], r#""brief";r=0;t=1"#);
    assert_eq!(headers["content-type"], "application/problem+json");
    assert!(body.contains(r#""violated-policies":["brief"]"#), "{body}");

    let identity = IdentityLayer::new(Identity::peer()).headers(HeaderSyntax::Legacy);
    let (headers, _) = refused(&routes().layer(RateLimitLayer::new(BRIEF)).layer(identity)).await;
    for (name, value) in [
        ("retry-after", "1"),
        ("x-ratelimit-limit", "1"),
        ("x-ratelimit-remaining", "0"),
        ("x-ratelimit-reset", "1"),
    ] {
        assert_eq!(headers[name], value, "{name}");
    }
    assert!(!headers.contains_key("x-ratelimit-after"), "{headers:?}");
}
