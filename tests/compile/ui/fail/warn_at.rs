//! `warn_at`: values and combinations.

use std::time::Duration;

use ratelimit_runtime::{Plans, Policy, RateLimitError, rate_limit};

type Done = Result<(), RateLimitError>;

const SECOND: Duration = Duration::from_secs(1);
const TIERS: Policy = Policy::fixed_window("tiers", SECOND, 5).tier(Duration::from_secs(2), 6);
const PLANS: Plans =
    Plans::new("api", "free", Policy::fixed_window("", SECOND, 5)).plan("pro", TIERS);
const UPLOAD: Policy = Policy::concurrency_limit("upload", 5);

#[rate_limit(threshold = 100, warn_at = "0%")]
async fn at_once() -> Done {
    Ok(())
}

#[rate_limit(threshold = 100, warn_at = "101%")]
async fn beyond() -> Done {
    Ok(())
}

#[rate_limit(threshold = 100, warn_at = 0.8)]
async fn a_fraction() -> Done {
    Ok(())
}

#[rate_limit(
    tier(period = "1m", threshold = 9),
    tier(period = "1h", threshold = 99),
    warn_at = "80%"
)]
async fn with_tiers() -> Done {
    Ok(())
}

#[rate_limit(concurrency = 5, warn_at = "80%")]
async fn without_a_window() -> Done {
    Ok(())
}

#[rate_limit(policy = TIERS, warn_at = "80%")]
async fn under_a_policy_of_tiers() -> Done {
    Ok(())
}

#[rate_limit(policy = UPLOAD, warn_at = "80%")]
async fn under_a_policy_without_a_window() -> Done {
    Ok(())
}

#[rate_limit(policy = TIERS, warn_at = "101%")]
async fn beyond_a_policy() -> Done {
    Ok(())
}

#[rate_limit(threshold = 100, alert_at = "80%")]
async fn another_name() -> Done {
    Ok(())
}

#[rate_limit(policy = PLANS, plan = plan, warn_at = "80%")]
async fn under_a_plan_of_tiers(plan: &str) -> Done {
    let _ = plan;
    Ok(())
}

#[rate_limit(threshold = 100, warn_at = "+80%")]
async fn signed() -> Done {
    Ok(())
}

#[rate_limit(threshold = 100, warn_at = "080%")]
async fn with_a_zero() -> Done {
    Ok(())
}

fn main() {}
