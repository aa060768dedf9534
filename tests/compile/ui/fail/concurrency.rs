//! `concurrency` and `concurrency_timeout`: values and combinations.

use std::time::Duration;

use ratelimit_runtime::{Policy, RateLimitError, rate_limit};

type Done = Result<(), RateLimitError>;

const UPLOAD: Policy = Policy::concurrency_limit("upload", 5);

#[rate_limit(concurrency = 0)]
async fn none_at_a_time() -> Done {
    Ok(())
}

#[rate_limit(concurrency = "five", concurrency_timeout = "30 sec")]
async fn wrong_values() -> Done {
    Ok(())
}

#[rate_limit(concurrency = 5, concurrency_timeout = "1ms")]
async fn too_short() -> Done {
    Ok(())
}

#[rate_limit(concurrency = 5, period = 60)]
async fn without_threshold() -> Done {
    Ok(())
}

#[rate_limit(threshold = 5, concurrency = 5)]
async fn without_period() -> Done {
    Ok(())
}

#[rate_limit(concurrency_timeout = 30, threshold = 5)]
async fn timeout_alone() -> Done {
    Ok(())
}

#[rate_limit(concurrency = 5, cost = 2)]
async fn with_cost() -> Done {
    Ok(())
}

#[rate_limit(algorithm = token_bucket, burst = 5, concurrency = 5)]
async fn with_an_algorithm() -> Done {
    Ok(())
}

#[rate_limit(concurrency = 5, count_rejected, request_id = 7)]
async fn with_what_counts() -> Done {
    Ok(())
}

#[rate_limit(concurrency = 5, policy = UPLOAD, concurrency_timeout = 30)]
async fn with_a_policy() -> Done {
    Ok(())
}

#[rate_limit(concurrency = 5, concurrency = 6, max_concurrent = 7)]
async fn twice() -> Done {
    Ok(())
}

#[rate_limit(concurrency = plan)]
async fn another_type(plan: Duration) -> Done {
    let _ = plan;
    Ok(())
}

#[rate_limit(concurrency = 5)]
async fn no_refusal_in_the_type() -> u32 {
    1
}

fn main() {}
