//! `fallible` where it is not needed, or cannot be; and wrong bodies, reported as without it.

use axum::{Json, response::Response};
use ratelimit_runtime::{RateLimitError, rate_limit};

type Done<T> = Result<T, RateLimitError>;

#[rate_limit(fallible)]
async fn takes_refusals() -> Result<String, RateLimitError> {
    Ok(String::new())
}

#[rate_limit(threshold = 1, fallible)]
async fn by_alias() -> Done<u32> {
    Ok(1)
}

#[rate_limit(fallible)]
async fn is_a_response() -> Response {
    Response::default()
}

#[rate_limit(fallible)]
async fn beside_impl(text: &str) -> Result<impl Iterator<Item = char>, Box<dyn std::error::Error + Send + Sync>> {
    Ok(text.chars())
}

#[rate_limit(fallible = true)]
async fn with_a_value() -> Json<u32> {
    Json(1)
}

#[rate_limit(fallible)]
fn not_async() -> Json<u32> {
    Json(1)
}

#[async_trait::async_trait]
trait Service {
    async fn boxed(&self) -> u32;
}

struct Mine;

#[async_trait::async_trait]
impl Service for Mine {
    #[rate_limit(fallible)]
    async fn boxed(&self) -> u32 {
        1
    }
}

#[rate_limit(fallible)]
async fn wrong_value() -> Json<u32> {
    "text"
}

#[rate_limit(fallible)]
async fn wrong_return(text: &str) -> u32 {
    if text.is_empty() {
        return "";
    }
    1
}

#[rate_limit(fallible)]
async fn never_returns() -> ! {
    std::future::pending().await
}

#[rustfmt::skip]
#[rate_limit(fallible)]
async fn on_one_line() -> u32 { "text" }

#[rustfmt::skip]
#[rate_limit(fallible)]
async fn takes_refusals_on_one_line() -> Done<()> { Ok(()) }

fn main() {}
