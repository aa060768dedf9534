//! Values that break a rule, all told at once.

use ratelimit_runtime::{RateLimitError, rate_limit};

type Done = Result<(), RateLimitError>;

#[rate_limit(period = 0, threshold = 0)]
async fn zero() -> Done {
    Ok(())
}

#[rate_limit(period = -30, threshold = -2)]
async fn negative() -> Done {
    Ok(())
}

#[rate_limit(period = 40_000_000, threshold = 100_001)]
async fn too_large() -> Done {
    Ok(())
}

#[rate_limit(period = 99999999999999999999999, threshold = 99999999999999999999999)]
async fn overflow() -> Done {
    Ok(())
}

#[rate_limit(period = 1.5, threshold = "2", name = 7)]
async fn wrong_type() -> Done {
    Ok(())
}

#[rate_limit(name = "", key = ())]
async fn empty() -> Done {
    Ok(())
}

fn main() {
    let _ = (zero(), negative(), too_large(), overflow(), wrong_type(), empty());
}
