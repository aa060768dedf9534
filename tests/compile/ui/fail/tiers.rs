//! Tiers that contradict each other or make no difference.

use ratelimit_runtime::{RateLimitError, rate_limit};

type Done = Result<(), RateLimitError>;

#[rate_limit(period = 30, tier(period = 60, threshold = 1))]
async fn period_beside_tiers() -> Done {
    Ok(())
}

#[rate_limit(tier(period = 60), tier(threshold = 5), tier())]
async fn incomplete() -> Done {
    Ok(())
}

#[rate_limit(tier)]
async fn bare() -> Done {
    Ok(())
}

#[rate_limit(tier(window = 60, threshold = 0, cost = 2))]
async fn wrong_inside() -> Done {
    Ok(())
}

#[rate_limit(tier(period = 60, threshold = 1), tier(period = "1m", threshold = 1))]
async fn twice() -> Done {
    Ok(())
}

#[rate_limit(tier(period = "1m", threshold = 1), tier(period = "1h", threshold = 60))]
async fn hour_can_never_refuse() -> Done {
    Ok(())
}

#[rate_limit(tier(period = "1s", threshold = 10), tier(period = "1m", threshold = 5))]
async fn second_can_never_refuse() -> Done {
    Ok(())
}

#[rate_limit(
    tier(period = 1, threshold = 1),
    tier(period = 2, threshold = 1),
    tier(period = 3, threshold = 1),
    tier(period = 4, threshold = 1),
    tier(period = 5, threshold = 1),
    tier(period = 6, threshold = 1),
    tier(period = 7, threshold = 1),
    tier(period = 8, threshold = 1),
    tier(period = 9, threshold = 1)
)]
async fn too_many() -> Done {
    Ok(())
}

#[rate_limit(tier(period = 60, threshold = 5), tier(period = 3600, threshold = 9), cost = 6)]
async fn costs_more_than_one_tier_admits() -> Done {
    Ok(())
}

fn main() {
    let _ = (period_beside_tiers(), incomplete(), bare(), wrong_inside(), twice());
    let _ = (hour_can_never_refuse(), second_can_never_refuse(), too_many());
    let _ = costs_more_than_one_tier_admits();
}
