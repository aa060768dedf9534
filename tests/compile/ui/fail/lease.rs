//! `lease`: values and combinations.

use std::time::Duration;

use ratelimit_runtime::{Policy, RateLimitError, rate_limit};

type Done = Result<(), RateLimitError>;

const SECOND: Duration = Duration::from_secs(1);
const LEASED: Policy = Policy::sliding_window("leased", SECOND, 10_000).lease(Duration::from_millis(20));

#[rate_limit(period = 1, threshold = 10_000, lease = "20 msec")]
async fn an_unknown_unit() -> Done {
    Ok(())
}

#[rate_limit(period = 1, threshold = 10_000, lease = 0)]
async fn none() -> Done {
    Ok(())
}

#[rate_limit(tier(period = "1m", threshold = 100_000), tier(period = "1s", threshold = 10_000), lease = "101ms")]
async fn longer_than_a_tenth() -> Done {
    Ok(())
}

#[rate_limit(lease = 0.02, threshold = 10_000)]
async fn a_fraction() -> Done {
    Ok(())
}

#[rate_limit(lease, threshold = 10_000)]
async fn without_value() -> Done {
    Ok(())
}

#[rate_limit(algorithm = token_bucket, period = 1, threshold = 1_000, burst = 20, lease = "20ms")]
async fn a_small_bucket() -> Done {
    Ok(())
}

#[rate_limit(algorithm = token_bucket, period = 1, threshold = 1_000, burst = 30, cost = 11, lease = "20ms")]
async fn a_large_cost() -> Done {
    Ok(())
}

#[rate_limit(lease = "20ms", period = 1, threshold = 10_000, settle = |_| 1_u32)]
async fn with_settle() -> Done {
    Ok(())
}

#[rate_limit(request_id = id, lease = "20ms", period = 1, threshold = 10_000)]
async fn with_request_id(id: u64) -> Done {
    let _ = id;
    Ok(())
}

#[rate_limit(period = 1, threshold = 10_000, lease = "20ms", max_wait = "1s")]
async fn with_max_wait() -> Done {
    Ok(())
}

#[rate_limit(max_wait = patience, lease = "20ms", period = 1, threshold = 10_000)]
async fn with_a_dynamic_wait(patience: Duration) -> Done {
    Ok(())
}

#[rate_limit(lease = "20ms", period = 1, threshold = 10_000, count_rejected)]
async fn with_count_rejected() -> Done {
    Ok(())
}

#[rate_limit(concurrency = 5, lease = "20ms", period = 1, threshold = 10_000)]
async fn with_concurrency() -> Done {
    Ok(())
}

#[rate_limit(concurrency = 5, lease = "20ms")]
async fn without_a_window() -> Done {
    Ok(())
}

#[rate_limit(policy = LEASED, lease = "20ms")]
async fn with_a_policy() -> Done {
    Ok(())
}

#[rate_limit(policy = LEASED, settle = |_| 1_u32)]
async fn settle_under_a_leased_policy() -> Done {
    Ok(())
}

#[rate_limit(policy = LEASED, request_id = id)]
async fn request_id_under_a_leased_policy(id: u64) -> Done {
    let _ = id;
    Ok(())
}

#[rate_limit(policy = LEASED, max_wait = "1s")]
async fn max_wait_under_a_leased_policy() -> Done {
    Ok(())
}

#[rate_limit(lease = plan, threshold = 10_000)]
async fn another_type(plan: u64) -> Done {
    let _ = plan;
    Ok(())
}

fn main() {}
