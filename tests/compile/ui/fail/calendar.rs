//! `calendar_window`: periods, zones and combinations.

use std::time::Duration;

use ratelimit_runtime::{CalendarUnit, Policy, RateLimitError, rate_limit};

type Done = Result<(), RateLimitError>;

const MONTHLY: Policy = Policy::calendar_window("monthly", CalendarUnit::Month, 100);

#[rate_limit(algorithm = calendar_window, threshold = 100)]
async fn without_a_period() -> Done {
    Ok(())
}

#[rate_limit(algorithm = calendar_window, period = "1d", threshold = 100)]
async fn of_a_length() -> Done {
    Ok(())
}

#[rate_limit(algorithm = calendar_window, period = length, threshold = 100)]
async fn of_a_dynamic_length(length: Duration) -> Done {
    let _ = length;
    Ok(())
}

#[rate_limit(period = "month", threshold = 100)]
async fn of_another_algorithm() -> Done {
    Ok(())
}

#[rate_limit(algorithm = fixed_window, period = "1d", zone = "Europe/Berlin")]
async fn a_zone_of_another_algorithm() -> Done {
    Ok(())
}

#[rate_limit(algorithm = calendar_window, period = "day", zone = 2)]
async fn a_zone_that_is_no_text() -> Done {
    Ok(())
}

#[rate_limit(algorithm = calendar_window, period = "day", timezone = "UTC")]
async fn another_name() -> Done {
    Ok(())
}

#[rate_limit(
    algorithm = calendar_window,
    tier(period = "day", threshold = 10),
    tier(period = "month", threshold = 100)
)]
async fn several_tiers() -> Done {
    Ok(())
}

#[rate_limit(
    algorithm = calendar_window,
    period = "week",
    burst = 3,
    count_rejected,
    lease = "1s",
    max_wait = "1s",
    request_id = 7
)]
async fn with_what_needs_a_length() -> Done {
    Ok(())
}

#[rate_limit(policy = MONTHLY, max_wait = "1s")]
async fn a_wait_under_a_policy() -> Done {
    Ok(())
}

#[rate_limit(policy = MONTHLY, zone = "UTC")]
async fn a_zone_beside_a_policy() -> Done {
    Ok(())
}

fn main() {}
