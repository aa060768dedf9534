//! A dry run shows clients nothing: they would heed numbers of a limit that lets all calls pass.

use std::time::Duration;

use axum::{Router, routing::get};
use ratelimit_runtime::web::OnMissing;
use ratelimit_runtime::{
    Enforcement, Limiter, Override, Policy, RateLimitError, observe, rate_limit,
    web::{
        HeaderSyntax,
        actix::{Identity, IdentityMiddleware},
        tower::RateLimitLayer,
    },
};
use reqwest::header::HeaderMap;

use crate::{
    on_actix::Server,
    support::{Limited, by_user, client, serve},
};

const GATE: Policy = Policy::sliding_window("gate", Duration::from_secs(60), 1);

/// Returns the header fields of a response to a request that is served.
async fn served(url: &str) -> HeaderMap {
    let response = client().get(url).header("x-user", "alice").send().await.unwrap();
    assert_eq!(response.status(), 200);
    response.headers().clone()
}

async fn assert_shows_nothing(url: &str) {
    // The second and the third call would be refused.
    for _ in 0..3 {
        let fields = served(url).await;
        for name in HeaderSyntax::ALL.into_iter().chain(["retry-after"]) {
            assert!(!fields.contains_key(name), "{fields:?}");
        }
    }
}

#[rate_limit(name = "dry", threshold = 1, dry_run)]
async fn dry() -> Limited<&'static str> {
    Ok("hello")
}

#[tokio::test]
async fn on_axum() {
    let limiter = Limiter::in_memory();
    let gate = RateLimitLayer::new(GATE).on_missing(OnMissing::Shared).limiter(limiter.clone());
    let router = Router::new()
        .route("/attribute", get(dry))
        .route("/gate", get(|| async {}).layer(gate))
        .layer(by_user().headers(HeaderSyntax::Both));
    let url = format!("http://{}", serve(router).await);
    assert_shows_nothing(&format!("{url}/attribute")).await;
    // As a kill switch of operators: of all limits, and of one.
    limiter.overrides().here().set("*", Enforcement::DryRun).unwrap();
    assert_shows_nothing(&format!("{url}/gate")).await;
    limiter.overrides().here().remove("*");
    let dry_run = Override::new().enforcement(Enforcement::DryRun);
    limiter.overrides().here().set("gate", dry_run).unwrap();
    assert_shows_nothing(&format!("{url}/gate")).await;
    // The observer of a program gets the numbers nevertheless.
    limiter.check(&GATE, "alice").await.unwrap();
    let check = limiter.check(&GATE, "alice");
    let (passed, answers) = observe(async { check.await }).await;
    assert!(passed.unwrap().is_dry_run());
    assert!(matches!(answers[..], [Err(RateLimitError::Exceeded(_))]));
}

#[tokio::test]
async fn on_actix() {
    let identity = IdentityMiddleware::new(Identity::header("x-user"));
    let server = Server::serve(identity.headers(HeaderSyntax::Both), |config| {
        config.route("/attribute", actix_web::web::get().to(dry));
    });
    assert_shows_nothing(&server.url("/attribute")).await;
}
