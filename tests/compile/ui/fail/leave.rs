//! `leave`: values and combinations.

use std::time::Duration;

use ratelimit_runtime::{Policy, RateLimitError, rate_limit};

type Done = Result<(), RateLimitError>;

const SECOND: Duration = Duration::from_secs(1);
const LEASED: Policy = Policy::fixed_window("leased", SECOND, 10_000).lease(Duration::from_millis(20));
const PENAL: Policy = Policy::sliding_window("penal", SECOND, 10).count_rejected();

#[rate_limit(threshold = 100, leave = "20")]
async fn without_percent() -> Done {
    Ok(())
}

#[rate_limit(threshold = 100, leave = "12.5%")]
async fn a_fraction_of_a_percent() -> Done {
    Ok(())
}

#[rate_limit(threshold = 100, leave = "20 %")]
async fn with_a_space() -> Done {
    Ok(())
}

#[rate_limit(threshold = 100, leave = 0.2)]
async fn a_fraction() -> Done {
    Ok(())
}

#[rate_limit(threshold = 100, leave = "100%")]
async fn all() -> Done {
    Ok(())
}

#[rate_limit(tier(period = "1m", threshold = 100), tier(period = "1s", threshold = 3), leave = 67)]
async fn all_of_a_tier() -> Done {
    Ok(())
}

#[rate_limit(algorithm = token_bucket, threshold = 100, burst = 1, leave = "1%")]
async fn all_of_a_burst() -> Done {
    Ok(())
}

#[rate_limit(concurrency = 2, leave = "51%")]
async fn all_permits() -> Done {
    Ok(())
}

#[rate_limit(threshold = 100, cost = 81, leave = "20%")]
async fn a_large_cost() -> Done {
    Ok(())
}

#[rate_limit(threshold = 100, leave = -20)]
async fn negative() -> Done {
    Ok(())
}

#[rate_limit(threshold = 100, leave = "20%", max_wait = "1s")]
async fn with_a_wait() -> Done {
    Ok(())
}

#[rate_limit(threshold = 100, count_rejected, leave = "20%")]
async fn with_recorded_refusals() -> Done {
    Ok(())
}

#[rate_limit(threshold = 100_000, period = 1, leave = "20%", lease = "20ms")]
async fn with_a_lease() -> Done {
    Ok(())
}

#[rate_limit(policy = LEASED, leave = "20%")]
async fn under_a_leased_policy() -> Done {
    Ok(())
}

#[rate_limit(leave = "20%", policy = PENAL)]
async fn under_a_policy_of_recorded_refusals() -> Done {
    Ok(())
}

#[rate_limit(policy = PENAL, leave = "100%")]
async fn all_of_a_policy() -> Done {
    Ok(())
}

#[rate_limit(threshold = 100, leave = share)]
async fn another_type(share: f64) -> Done {
    let _ = share;
    Ok(())
}

#[rate_limit(name = "first", threshold = 100, priority = 1)]
#[rate_limit(name = "second", threshold = 100, reserve = "20%")]
#[rate_limit(name = "third", threshold = 100, headroom = 20)]
#[rate_limit(name = "fourth", threshold = 100, importance = 2)]
async fn other_names() -> Done {
    Ok(())
}

fn main() {}
