//! `cargo test -p examples-testing`
//!
//! A small service and a client with back-off. Their tests, in `tests/limits.rs`, are the subject.

use std::time::Duration;

use axum::{
    Router,
    extract::Path,
    http::{HeaderMap, StatusCode, header::RETRY_AFTER},
    response::Result,
    routing::get,
};
use ratelimit_runtime::rate_limit;

/// At most three reports an hour for each user.
#[rate_limit(name = "report", period = "1h", threshold = 3, key = user)]
async fn report(Path(user): Path<String>) -> Result<String> {
    Ok(format!("the report of {user}\n"))
}

/// At most two calls of one user at one time.
#[rate_limit(name = "export", concurrency = 2, key = user)]
async fn export(Path(user): Path<String>) -> Result<String> {
    Ok(format!("the data of {user}\n"))
}

/// Returns the service.
pub fn service() -> Router {
    Router::new().route("/report/{user}", get(report)).route("/export/{user}", get(export))
}

/// Calls a remote until it does not answer 429, at most `attempts` times. Between two calls it waits for as long as
/// the remote asks for.
///
/// # Errors
///
/// The status of the last answer that is no success.
pub async fn with_back_off<F>(
    attempts: u32,
    mut call: impl FnMut() -> F,
) -> std::result::Result<(), StatusCode>
where
    F: Future<Output = (StatusCode, HeaderMap)>,
{
    let mut last = StatusCode::TOO_MANY_REQUESTS;
    for _ in 0..attempts {
        let (status, headers) = call().await;
        if status.is_success() {
            return Ok(());
        }
        last = status;
        let seconds = headers.get(RETRY_AFTER).and_then(|wait| wait.to_str().ok()?.parse().ok());
        match seconds {
            Some(seconds) if status == StatusCode::TOO_MANY_REQUESTS => {
                tokio::time::sleep(Duration::from_secs(seconds)).await;
            }
            _ => break,
        }
    }
    Err(last)
}
