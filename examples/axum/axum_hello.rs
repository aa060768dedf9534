//! `cargo run -p examples-axum --example axum_hello`
//!
//! An HTTP server with one limited handler. The third request within 30 seconds is refused:
//!
//! ```text
//! $ curl -H 'x-user: alice' http://127.0.0.1:3000/hello/sayHi
//! hi, alice
//!
//! $ curl -H 'x-user: alice' http://127.0.0.1:3000/hello/sayHi
//! hi, alice
//!
//! $ curl -i -H 'x-user: alice' http://127.0.0.1:3000/hello/sayHi
//! HTTP/1.1 429 Too Many Requests
//! content-type: text/plain; charset=utf-8
//! retry-after: 30
//!
//! rate limit `axum_hello::say_hi` exceeded: at most 2 per 30s, retry after 30s
//!
//! $ curl -H 'x-user: bob' http://127.0.0.1:3000/hello/sayHi
//! hi, bob
//! ```
//!
//! The answer is the error type's own: text, without `RateLimit` fields. `axum_service` has those, by a layer, and
//! problem details as its body.
//!
//! Another address: `cargo run -p examples-axum --example axum_hello 127.0.0.1:8080`
//! On Redis: `RATELIMIT_URL=redis://127.0.0.1:6379 cargo run -p examples-axum --example axum_hello`

use std::{env, error::Error};

use axum::{
    Router,
    http::{HeaderMap, HeaderValue, StatusCode, header::RETRY_AFTER},
    response::{IntoResponse, Response},
    routing::get,
};
use ratelimit_runtime::{Limiter, RateLimitError, install, rate_limit, web::Refusal};
use tokio::net::TcpListener;

#[rate_limit(period = 30, threshold = 2, key = user(&headers))]
async fn say_hi(headers: HeaderMap) -> Result<String, AppError> {
    Ok(format!("hi, {}\n", user(&headers).unwrap_or("stranger")))
}

/// Returns the caller's name. Requests without one share one caller.
fn user(headers: &HeaderMap) -> Option<&str> {
    headers.get("x-user")?.to_str().ok()
}

struct AppError(RateLimitError);

impl From<RateLimitError> for AppError {
    fn from(error: RateLimitError) -> Self {
        Self(error)
    }
}

impl IntoResponse for AppError {
    fn into_response(self) -> Response {
        let Self(error) = self;
        let body = format!("{error}\n");
        let refusal = Refusal::from(error.clone());
        let wait = refusal.retry_after().map(|seconds| [(RETRY_AFTER, HeaderValue::from(seconds))]);
        (StatusCode::from(error), wait, body).into_response()
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    install(Limiter::from_env().await?)?;
    let address = env::args().nth(1).unwrap_or_else(|| "127.0.0.1:3000".to_owned());
    let listener = TcpListener::bind(address).await?;
    println!("listening on http://{}", listener.local_addr()?);
    let router = Router::new().route("/hello/sayHi", get(say_hi));
    axum::serve(listener, router).await?;
    Ok(())
}
