//! Arguments that this version knows and does not have: never accepted and ignored.

use ratelimit_runtime::{RateLimitError, rate_limit};

type Done = Result<(), RateLimitError>;

#[rate_limit(on_store_error = deny)]
async fn all() -> Done {
    Ok(())
}

#[rate_limit(on_store_error = fail_open)]
async fn and_wrong() -> Done {
    Ok(())
}

fn main() {
    let _ = (all(), and_wrong());
}
