//! `cargo run -p examples-axum --example admin`
//!
//! Lists limits, overrides them and resets callers over plain HTTP. A service adds its authorization.
//!
//! ```text
//! $ for i in 1 2 3; do curl -s -o /dev/null -w '%{http_code}\n' http://127.0.0.1:3000/hello/alice; done
//! 200
//! 200
//! 429
//!
//! $ curl http://127.0.0.1:3000/limits
//! hello: sliding_window, 2 per 60s, key (user): 2 admitted, 1 refused
//!
//! $ curl -i -X PUT -d '{"threshold": 3}' http://127.0.0.1:3000/limits/hello
//! HTTP/1.1 200 OK
//!
//! $ curl http://127.0.0.1:3000/hello/alice http://127.0.0.1:3000/limits
//! hello, alice
//! hello: sliding_window, 2 per 60s, key (user), override {"threshold":3}: 3 admitted, 1 refused
//!
//! $ curl -i -X DELETE http://127.0.0.1:3000/limits/hello
//! HTTP/1.1 200 OK
//!
//! $ curl -i -X DELETE http://127.0.0.1:3000/limits/hello/alice
//! HTTP/1.1 200 OK
//!
//! $ curl http://127.0.0.1:3000/hello/alice
//! hello, alice
//!
//! $ curl -i -X PUT -d '{"threshold": "abc"}' http://127.0.0.1:3000/limits/hello
//! HTTP/1.1 422 Unprocessable Entity
//!
//! invalid type: string "abc", expected a whole number up to 4294967295, as `threshold`, `burst` and `concurrency` are
//! an override is such as {"threshold": 5, "period": "1m"}, or off
//!
//! $ curl -i -X DELETE http://127.0.0.1:3000/limits/nosuch
//! HTTP/1.1 404 Not Found
//!
//! there is no limit `nosuch`
//! ```

use axum::{Router, extract::Path, http::StatusCode, routing};
use ratelimit_runtime::{
    Override, RateLimitError, limiter,
    limits::{RegisteredPolicy, policies},
    rate_limit,
    stats::{self, Verdict},
};

/// A status, and the reason in words.
type Refused = (StatusCode, String);

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

/// Returns the limit of this name, rather than override one that nobody has.
fn known(name: &str) -> Result<RegisteredPolicy, Refused> {
    let limit = policies().into_iter().find(|limit| limit.name() == name);
    limit.ok_or_else(|| (StatusCode::NOT_FOUND, format!("there is no limit `{name}`\n")))
}

async fn set(Path(name): Path<String>, change: String) -> Result<(), Refused> {
    let invalid = |error| {
        let example = r#"an override is such as {"threshold": 5, "period": "1m"}, or off"#;
        (StatusCode::UNPROCESSABLE_ENTITY, format!("{error}\n{example}\n"))
    };
    let limit = known(&name)?;
    let change: Override = change.parse().map_err(invalid)?;
    limiter().overrides().here().set(limit.name(), change).map_err(invalid)
}

async fn remove(Path(name): Path<String>) -> Result<(), Refused> {
    limiter().overrides().here().remove(known(&name)?.name());
    Ok(())
}

async fn reset(Path((name, caller)): Path<(String, String)>) -> Result<(), Refused> {
    let failed = |error: RateLimitError| (StatusCode::SERVICE_UNAVAILABLE, format!("{error}\n"));
    limiter().reset(known(&name)?.declared(), caller).await.map_err(failed)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
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
