//! The limits of the service, without a sleep, a server or a shared count.

use std::time::Duration;

use axum::{
    Router,
    body::Body,
    http::{Request, StatusCode, header::RETRY_AFTER},
    response::Response,
    routing::get,
};
use examples_testing::{service, with_back_off};
use ratelimit_runtime::{
    Limiter, OnStoreError, Policy, testing,
    web::tower::{Identity, Limit, RateLimitLayer},
};
use tower::ServiceExt;

async fn call(router: &Router, path: &str) -> Response {
    let request = Request::get(path).header("x-api-key", "ours").body(Body::empty()).unwrap();
    router.clone().oneshot(request).await.unwrap()
}

/// The promised wait is exact, although the handler returns no error of ours.
#[tokio::test(start_paused = true)]
async fn three_reports_an_hour() {
    let router = service();
    testing::isolated(testing::assert_limited(3, || call(&router, "/report/alice"))).await;
}

/// Beside the test above, for the same user: nothing is shared.
#[tokio::test]
async fn a_refused_report_is_429_with_its_wait() {
    testing::isolated(async {
        testing::refuse_for("report", "alice", Duration::from_secs(90));
        let response = call(&service(), "/report/alice").await;
        assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(response.headers()[RETRY_AFTER], "90");
        assert_eq!(call(&service(), "/report/bob").await.status(), StatusCode::OK);
    })
    .await;
}

#[tokio::test]
async fn too_many_exports_are_429_with_a_guess_of_the_wait() {
    testing::isolated(async {
        testing::busy("export");
        let response = call(&service(), "/export/alice").await;
        assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
        // Nobody knows when an export ends: a guess.
        let wait = response.headers()[RETRY_AFTER].to_str().unwrap();
        assert!(["1", "2"].contains(&wait), "{wait}");
    })
    .await;
}

#[tokio::test]
async fn a_store_that_cannot_decide_is_503() {
    testing::isolated(async {
        testing::unavailable_for("report", "alice");
        let response = call(&service(), "/report/alice").await;
        assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(call(&service(), "/report/bob").await.status(), StatusCode::OK);
    })
    .await;
}

/// Nothing listens there: what follows is what happens when Redis is down.
#[tokio::test]
async fn without_redis_the_service_goes_on_or_refuses_as_the_limiter_says() {
    for (choice, status) in [
        (OnStoreError::Local, StatusCode::OK),
        (OnStoreError::Deny, StatusCode::SERVICE_UNAVAILABLE),
    ] {
        let builder = Limiter::builder().on_store_error(choice);
        let lost = builder.connect_lazy("redis://127.0.0.1:1/").unwrap();
        let response = testing::isolated_with(lost, call(&service(), "/report/alice")).await;
        assert_eq!(response.status(), status);
    }
}

/// The remote of a client's test is our own layer: the statuses, the header fields and the waits are real.
#[tokio::test(start_paused = true)]
async fn a_client_waits_for_as_long_as_the_remote_says() {
    const REMOTE: Policy = Policy::token_bucket("remote", Duration::from_secs(10), 1);
    let limit = Limit::new(REMOTE).identity(Identity::header("x-api-key"));
    let remote = Router::new().route("/", get(async || "done\n")).layer(RateLimitLayer::new(limit));
    testing::isolated(async {
        let start = tokio::time::Instant::now();
        for _ in 0..3 {
            let ask = || async {
                let response = call(&remote, "/").await;
                (response.status(), response.headers().clone())
            };
            with_back_off(2, ask).await.unwrap();
        }
        assert_eq!(start.elapsed().as_secs(), 20);
    })
    .await;
}

/// Each limit of the program has admitted and refused a call, and knows its callers.
#[tokio::test]
async fn every_limit_is_covered() {
    testing::isolated(async {
        for path in ["/report/alice", "/export/alice"] {
            assert_eq!(call(&service(), path).await.status(), StatusCode::OK);
        }
        for limit in ["report", "export"] {
            testing::exhaust(limit);
        }
        for path in ["/report/alice", "/export/alice"] {
            assert_eq!(call(&service(), path).await.status(), StatusCode::TOO_MANY_REQUESTS);
        }
    })
    .await;
    // The remote service is one of the tests: its limit is not this program's.
    testing::assert_covered_but(&["remote"]);
}
