//! `plan`: without plans, with one policy, and plans whose callers would have different histories.

use std::time::Duration;

use ratelimit_runtime::{Plans, Policy, RateLimitError, rate_limit};

type Done = Result<(), RateLimitError>;

const MINUTE: Duration = Duration::from_secs(60);
const FREE: Policy = Policy::sliding_window("free", MINUTE, 5);
const API: Plans = Plans::new("api", "free", FREE).plan("pro", FREE);
const BUCKET: Plans = Plans::new("api", "free", FREE).plan("pro", Policy::token_bucket("", MINUTE, 5));
const LEASED: Plans = Plans::new("api", "free", FREE).plan("pro", FREE.lease(Duration::from_secs(1)));
const TWICE: Plans = Plans::new("api", "free", FREE).plan("free", FREE);
const AT: Plans = Plans::new("api", "fr@ee", FREE);
const UNNAMED: Plans = Plans::new("", "free", FREE);
const NINE: Plans = {
    let four = Plans::new("api", "1", FREE).plan("2", FREE).plan("3", FREE).plan("4", FREE);
    four.plan("5", FREE).plan("6", FREE).plan("7", FREE).plan("8", FREE).plan("9", FREE)
};

#[rate_limit(period = 60, threshold = 5, plan = plan)]
async fn without_a_policy(plan: &str) -> Done {
    let _ = plan;
    Ok(())
}

#[rate_limit(plan = plan, policy = FREE)]
async fn of_one_policy(plan: &str) -> Done {
    let _ = plan;
    Ok(())
}

#[rate_limit(policy = API)]
async fn without_a_plan() -> Done {
    Ok(())
}

#[rate_limit(policy = API, plan = plan, threshold = 5)]
async fn with_a_threshold(plan: &str) -> Done {
    let _ = plan;
    Ok(())
}

#[rate_limit(policy = API, plan = plan)]
async fn without_display(plan: Duration) -> Done {
    let _ = plan;
    Ok(())
}

#[rate_limit(policy = API, plan = plan, plan = plan, subscription = plan)]
async fn twice(plan: &str) -> Done {
    let _ = plan;
    Ok(())
}

fn main() {
    let _ = (BUCKET, LEASED, TWICE, AT, UNNAMED, NINE);
}
