//! Return types that cannot carry a refusal: one error each, at the type.

use ratelimit_runtime::rate_limit;

struct AppError;

#[rate_limit(period = 30, threshold = 2)]
async fn no_result() -> String {
    String::new()
}

#[rate_limit(period = 30, threshold = 2)]
async fn nothing() {}

#[rate_limit(period = 30, threshold = 2)]
async fn error_without_from() -> Result<String, AppError> {
    Ok(String::new())
}

#[rate_limit(period = 30, threshold = 2)]
async fn option() -> Option<String> {
    None
}

fn main() {}
