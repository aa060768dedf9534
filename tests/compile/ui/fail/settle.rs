//! `settle`: its closure, and combinations.

use std::time::Duration;

use ratelimit_runtime::{Policy, RateLimitError, rate_limit};

type Done = Result<(), RateLimitError>;

const MINUTE: Duration = Duration::from_secs(60);
const UNITS: Policy = Policy::sliding_window("units", MINUTE, 5);
const PENALTY: Policy = Policy::token_bucket("penalty", MINUTE, 5).count_rejected();
const IN_FLIGHT: Policy = Policy::concurrency_limit("in-flight", 5);

#[rate_limit(settle = 3)]
async fn a_number() -> Done {
    Ok(())
}

#[rate_limit(settle = async |_| 3)]
async fn an_async_closure() -> Done {
    Ok(())
}

#[rate_limit(settle = |_| -> u32 { 3 })]
async fn a_written_type() -> Done {
    Ok(())
}

#[rate_limit(settle = || 3)]
async fn without_the_output() -> Done {
    Ok(())
}

#[rate_limit(settle = |_, _| 3)]
async fn too_many() -> Done {
    Ok(())
}

#[rate_limit(count_rejected, settle = |_| 3, settle = |_| 4)]
async fn with_count_rejected() -> Done {
    Ok(())
}

#[rate_limit(settle = |_| 3, concurrency = 5)]
async fn without_a_window() -> Done {
    Ok(())
}

#[rate_limit(policy = UNITS, settle = |_| 3)]
async fn of_single_units() -> Done {
    Ok(())
}

#[rate_limit(settle = |_| 3, policy = PENALTY)]
async fn under_the_penalty() -> Done {
    Ok(())
}

#[rate_limit(policy = IN_FLIGHT, settle = |_| 3)]
async fn of_calls_in_flight() -> Done {
    Ok(())
}

#[rate_limit(settle = |out| out.is_ok())]
async fn no_number() -> Done {
    Ok(())
}

#[rate_limit(settle = |_| -1)]
async fn negative() -> Done {
    Ok(())
}

#[rate_limit(settle = |_| name.len())]
async fn moved(name: String) -> Done {
    drop(name);
    Ok(())
}

#[rate_limit(settle = |out| out.len())]
async fn another_output() -> Result<u32, RateLimitError> {
    Ok(1)
}

#[rate_limit(settle = |_| 3)]
async fn another_body() -> Result<u32, RateLimitError> {
    Ok("text")
}

#[rate_limit(settle = |_| 3)]
async fn no_refusal_in_the_type() -> u32 {
    1
}

fn main() {}
