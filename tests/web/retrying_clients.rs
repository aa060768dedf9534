//! A retrying client that is not ours, `curl --retry`, repeats a refused request as documented.

use std::{
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use axum::{Router, extract::Path, middleware::from_fn, routing::get};
use ratelimit_runtime::web::OnMissing;
use ratelimit_runtime::{
    Limiter, Policy, rate_limit,
    web::{actix, tower::RateLimitLayer},
};
use tokio::task::spawn_blocking;

use crate::{
    on_actix::Server,
    support::{Limited, by_user, serve},
};

/// Longer than the second for which `curl` waits without `Retry-After`.
const PERIOD: Duration = Duration::from_secs(2);

/// Runs `curl` as this user with at most this many retries, and returns the last status.
async fn curl(url: &str, user: &str, retries: &str) -> String {
    let mut command = Command::new("curl");
    command.args(["--silent", "--noproxy", "*", "--header", &format!("x-user: {user}")]);
    command.args(["--write-out", "%{stderr}%{http_code}", "--retry", retries, url]);
    let output =
        spawn_blocking(move || command.output()).await.unwrap().expect("curl is installed");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stderr).unwrap()
}

#[rate_limit(name = "retried", period = PERIOD, threshold = 1)]
async fn attribute() -> Limited<&'static str> {
    Ok("hello")
}

/// Uses up the limit of a user. The next request is refused, and served after one retry.
async fn assert_served_after_one_retry(url: &str, user: &str) {
    assert_eq!(curl(url, user, "0").await, "200");
    assert_eq!(curl(url, user, "1").await, "200");
}

#[tokio::test]
async fn a_refused_request_waits_and_is_served_on_axum() {
    let policy = Policy::sliding_window("retried", PERIOD, 1);
    let gate =
        RateLimitLayer::new(policy).on_missing(OnMissing::Shared).limiter(Limiter::in_memory());
    let router = Router::new()
        .route("/attribute", get(attribute))
        .route("/gate", get(|| async {}).layer(gate))
        .layer(by_user());
    let url = format!("http://{}", serve(router).await);
    let (attribute, gate) = (format!("{url}/attribute"), format!("{url}/gate"));
    tokio::join!(
        assert_served_after_one_retry(&attribute, "axum"),
        assert_served_after_one_retry(&gate, "gate")
    );
}

#[tokio::test]
async fn a_refused_request_waits_and_is_served_on_actix() {
    let identity = actix::IdentityMiddleware::new(actix::Identity::header("x-user"));
    let server = Server::serve(identity, |config| {
        config.route("/attribute", actix_web::web::get().to(attribute));
    });
    assert_served_after_one_retry(&server.url("/attribute"), "actix").await;
}

#[tokio::test]
async fn a_request_that_can_never_pass_is_sent_once() {
    #[rate_limit(name = "pages", threshold = 5, cost = pages)]
    async fn print(Path(pages): Path<u32>) -> Limited<()> {
        Ok(())
    }

    let requests = Arc::new(AtomicUsize::new(0));
    let shared = Arc::clone(&requests);
    let counted = from_fn(move |request, next: axum::middleware::Next| {
        shared.fetch_add(1, Ordering::Relaxed);
        next.run(request)
    });
    let router = Router::new().route("/print/{pages}", get(print)).layer(by_user()).layer(counted);
    let url = format!("http://{}/print/6", serve(router).await);
    assert_eq!(curl(&url, "alice", "3").await, "422");
    assert_eq!(requests.load(Ordering::Relaxed), 1);
}
