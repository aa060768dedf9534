//! `cost` and `max_wait` under a policy that is named by its path, and costs under `count_rejected`.

use std::time::Duration;

use ratelimit_runtime::{Policy, RateLimitError, rate_limit};

type Done = Result<(), RateLimitError>;

const MINUTE: Duration = Duration::from_secs(60);
static CALLS: Policy = Policy::sliding_window("calls", MINUTE, 5);
const PENALTY: Policy = CALLS.count_rejected();
const IN_FLIGHT: Policy = Policy::concurrency_limit("in-flight", 5);

#[rate_limit(policy = CALLS, cost = 0)]
async fn nothing() -> Done {
    Ok(())
}

#[rate_limit(cost = pages, policy = PENALTY)]
async fn under_the_penalty(pages: u32) -> Done {
    let _ = pages;
    Ok(())
}

#[rate_limit(policy = IN_FLIGHT, cost = 1)]
async fn cost_of_calls_in_flight() -> Done {
    Ok(())
}

#[rate_limit(request_id = 1, policy = IN_FLIGHT)]
async fn request_id_of_calls_in_flight() -> Done {
    Ok(())
}

#[rate_limit(cost = pages, threshold = 9, count_rejected)]
async fn with_count_rejected(pages: u32) -> Done {
    let _ = pages;
    Ok(())
}

#[rate_limit(count_rejected, cost = -1)]
async fn a_wrong_cost() -> Done {
    Ok(())
}

#[rate_limit(threshold = 1_000_000_001, cost = 2)]
async fn too_large() -> Done {
    Ok(())
}

fn main() {}
