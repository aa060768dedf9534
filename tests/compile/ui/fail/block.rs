//! `block`: lengths and combinations.

use std::time::Duration;

use ratelimit_runtime::{Policy, RateLimitError, rate_limit};

type Done = Result<(), RateLimitError>;

const BLOCKED: Policy =
    Policy::fixed_window("blocked", Duration::from_secs(60), 5).block(&[Duration::from_secs(60)]);

#[rate_limit(block = "10 minutes")]
async fn an_unknown_unit() -> Done {
    Ok(())
}

#[rate_limit(block = ["2m", "1m", "1m"])]
async fn shrinking() -> Done {
    Ok(())
}

#[rate_limit(block = [0, "32d"])]
async fn out_of_range() -> Done {
    Ok(())
}

#[rate_limit(block = ["1m", "2m", "3m", "4m", "5m"])]
async fn too_many() -> Done {
    Ok(())
}

#[rate_limit(block = [])]
async fn none() -> Done {
    Ok(())
}

#[rate_limit(block = ["1m", length])]
async fn a_variable(length: Duration) -> Done {
    let _ = length;
    Ok(())
}

#[rate_limit(ban = "1m")]
async fn another_name() -> Done {
    Ok(())
}

#[rate_limit(
    block = "1m",
    tier(period = "1s", threshold = 1),
    tier(period = "1m", threshold = 2),
    tier(period = "1h", threshold = 3),
    tier(period = "2h", threshold = 4),
    tier(period = "3h", threshold = 5),
    tier(period = "4h", threshold = 6),
    tier(period = "5h", threshold = 7),
    tier(period = "6h", threshold = 8)
)]
async fn with_eight_tiers() -> Done {
    Ok(())
}

#[rate_limit(block = "1m", max_wait = "1s")]
async fn with_max_wait() -> Done {
    Ok(())
}

#[rate_limit(request_id = id, block = "1m")]
async fn with_request_id(id: u64) -> Done {
    let _ = id;
    Ok(())
}

#[rate_limit(leave = "20%", block = "1m")]
async fn with_leave() -> Done {
    Ok(())
}

#[rate_limit(block = "1m", lease = "20ms", period = "1m", threshold = 10_000)]
async fn with_a_lease() -> Done {
    Ok(())
}

#[rate_limit(concurrency = 5, block = "1m")]
async fn without_a_window() -> Done {
    Ok(())
}

#[rate_limit(policy = BLOCKED, block = "1m")]
async fn beside_a_policy() -> Done {
    Ok(())
}

#[rate_limit(policy = BLOCKED, leave = "20%")]
async fn leave_under_a_policy() -> Done {
    Ok(())
}

fn main() {}
