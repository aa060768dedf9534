//! `cargo run -p examples-axum --example admin`
//!
//! Lists limits, overrides them and resets callers over plain HTTP. A service adds its authorization.
//!
//! - `curl http://127.0.0.1:3000/hello/alice` is admitted twice a minute.
//! - `curl http://127.0.0.1:3000/limits` lists limits, their overrides, and calls since the start.
//! - `curl -X PUT -d '{"threshold": 5}' http://127.0.0.1:3000/limits/hello` overrides a limit.
//! - `curl -X DELETE http://127.0.0.1:3000/limits/hello` removes the override.
//! - `curl -X DELETE http://127.0.0.1:3000/limits/hello/alice` resets a caller.

use axum::{Router, extract::Path, http::StatusCode, routing};
use ratelimit_runtime::{
    Override, RateLimitError, limiter, policies, rate_limit,
    stats::{self, Verdict},
};

#[rate_limit(name = "hello", period = "1m", threshold = 2, key = user)]
async fn hello(Path(user): Path<String>) -> Result<String, RateLimitError> {
    Ok(format!("hello, {user}\n"))
}

async fn list() -> String {
    let (limits, stats, overrides) = (policies(), stats::snapshot(), limiter().overrides().list());
    let lines = limits.iter().map(|limit| {
        let calls = stats.iter().find(|calls| calls.name() == limit.name());
        let total = |verdict| calls.map_or(0, |calls| calls.total(verdict));
        let (admitted, refused) = (total(Verdict::Admitted), total(Verdict::Refused));
        let change = overrides.get(limit.name()).map(|it| format!(", override {it}"));
        format!("{limit}{}: {admitted} admitted, {refused} refused\n", change.unwrap_or_default())
    });
    lines.collect()
}

async fn set(Path(name): Path<String>, change: String) -> Result<(), (StatusCode, String)> {
    let invalid = |error| (StatusCode::UNPROCESSABLE_ENTITY, format!("{error}\n"));
    let change: Override = change.parse().map_err(invalid)?;
    limiter().overrides().set(&name, change).map_err(invalid)
}

async fn reset(Path((name, caller)): Path<(String, String)>) -> Result<(), RateLimitError> {
    let limits = policies();
    let Some(limit) = limits.iter().find(|limit| limit.name() == name) else { return Ok(()) };
    limiter().reset(limit.declared(), caller).await
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    stats::enable();
    let remove = async |Path(name): Path<String>| limiter().overrides().remove(&name);
    let router = Router::new()
        .route("/hello/{user}", routing::get(hello))
        .route("/limits", routing::get(list))
        .route("/limits/{name}", routing::put(set).delete(remove))
        .route("/limits/{name}/{caller}", routing::delete(reset));
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:3000".to_owned());
    let listener = tokio::net::TcpListener::bind(address).await?;
    println!("listening on http://{}", listener.local_addr()?);
    Ok(axum::serve(listener, router).await?)
}
