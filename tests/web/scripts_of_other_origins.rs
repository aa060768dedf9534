//! A script in a real browser reads the headers of a refusal by another origin, if the service exposes them.

use std::time::Duration;

use axum::{
    Router,
    http::{HeaderName, HeaderValue},
    response::{Html, Response},
    routing::get,
};
use harness::Browser;
use ratelimit_runtime::{
    Limiter, Policy,
    web::{
        EXPOSED_HEADERS, HeaderSyntax,
        tower::{Identity, IdentityLayer, RateLimitLayer},
    },
};
use serde_json::{Value, json};
use tower::util::MapResponseLayer;
use tower_http::cors::{Any, CorsLayer};

use crate::support::serve;

/// Fetches a URL, and keeps the status and the headers that the script can read, or the error.
const FETCH: &str = "
    window.seen = null;
    fetch(URL, OPTIONS).then(
        it => window.seen = [it.status, Object.fromEntries(it.headers)],
        error => window.seen = String(error));
";

async fn fetched(browser: &Browser, url: &str, options: &Value) -> Value {
    let script = FETCH.replace("URL", &json!(url).to_string());
    let script = script.replace("OPTIONS", &options.to_string());
    browser.page.execute(&script, Vec::new()).await.unwrap();
    browser.until("window.seen !== null").await;
    browser.value("window.seen").await
}

#[tokio::test]
async fn a_script_reads_the_wait_if_the_headers_are_exposed_by_name() {
    let page = Router::new().route("/", get(|| async { Html("<title>another origin</title>") }));
    let origin = format!("http://{}", serve(page).await);
    let with_credentials =
        || CorsLayer::new().allow_origin([origin.parse().unwrap()]).allow_credentials(true);
    let by_name =
        || with_credentials().expose_headers(EXPOSED_HEADERS.map(HeaderName::from_static));
    let any = CorsLayer::new().allow_origin(Any).expose_headers(Any);
    // With credentials, tower-http refuses to send a `*`.
    let star = MapResponseLayer::new(|mut response: Response| {
        let star = HeaderValue::from_static("*");
        response.headers_mut().insert("access-control-expose-headers", star);
        response
    });
    let limiter = Limiter::in_memory();
    let hourly = Policy::sliding_window("hourly", Duration::from_millis(3_600_500), 1);
    let identity = || IdentityLayer::new(Identity::peer()).headers(HeaderSyntax::Both);
    let app = || {
        let limit = RateLimitLayer::new(hourly).limiter(limiter.clone());
        Router::new().route("/", get(|| async { "hello" })).layer(limit).layer(identity())
    };
    let cors_inside = Router::new().route("/", get(|| async { "hello" })).layer(by_name());
    let limit_outside = RateLimitLayer::new(hourly).limiter(limiter.clone());
    let api = Router::new()
        .nest("/by-name", app().layer(by_name()))
        .nest("/unnamed", app().layer(with_credentials()))
        .nest("/star", app().layer(star).layer(with_credentials()))
        .nest("/any", app().layer(any))
        .nest("/outside", cors_inside.layer(limit_outside).layer(identity()));
    let api = format!("http://{}", serve(api).await);

    let browser = Browser::start().await;
    browser.page.goto(&origin).await.unwrap();
    let (include, omit) = (json!({ "credentials": "include" }), json!({}));
    let get = async |path: &str, options| fetched(&browser, &format!("{api}{path}"), options).await;
    assert_eq!(get("/by-name", &include).await[0], 200);
    let seen = get("/by-name", &include).await;
    assert_eq!(seen[0], 429);
    for name in EXPOSED_HEADERS {
        assert!(seen[1][name].is_string(), "{name}: {seen}");
    }
    let wait: u32 = seen[1]["retry-after"].as_str().unwrap().parse().unwrap();
    assert!((3_000..=3_601).contains(&wait), "{wait}");
    for (path, options, is_readable) in
        [("/unnamed", &include, false), ("/star", &include, false), ("/any", &omit, true)]
    {
        let seen = get(path, options).await;
        assert_eq!(seen[0], 429, "{path}");
        assert_eq!(seen[1]["retry-after"].is_string(), is_readable, "{path}: {seen}");
    }
    // A refusal without the headers of CORS shows neither a status nor a wait.
    assert_eq!(get("/outside", &include).await, "TypeError: Failed to fetch");
}
