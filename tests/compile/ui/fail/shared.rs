//! `policy` and `request_id`: paths that no `static` can name, and combinations.

use std::time::Duration;

use ratelimit_runtime::{Policy, RateLimitError, rate_limit};

type Done = Result<(), RateLimitError>;

const MINUTE: Duration = Duration::from_secs(60);
const LOGIN: Policy = Policy::sliding_window("login", MINUTE, 5);
static PENALTY: Policy = Policy::sliding_window("penalty", MINUTE, 5).count_rejected();
const BUCKET: Policy = Policy::token_bucket("bucket", MINUTE, 5);
const UNNAMED: Policy = Policy::sliding_window("", MINUTE, 5);
const CALLS: u32 = 5;

#[rate_limit(policy = LOGIN, period = 60, threshold = 5, tier(period = 1, threshold = 1))]
async fn with_windows() -> Done {
    Ok(())
}

#[rate_limit(algorithm = token_bucket, burst = 2, name = "mine", count_rejected, policy = LOGIN)]
async fn after_the_rest() -> Done {
    Ok(())
}

#[rate_limit(policy = LOGIN, policy = PENALTY)]
async fn twice() -> Done {
    Ok(())
}

#[rate_limit(policy = Policy::sliding_window("login", MINUTE, 5))]
async fn a_call() -> Done {
    Ok(())
}

#[rate_limit(policy = "login")]
async fn a_name() -> Done {
    Ok(())
}

#[rate_limit(policy = policy)]
async fn a_parameter(policy: &Policy) -> Done {
    let _ = policy;
    Ok(())
}

#[rate_limit(policy = T::LIMIT)]
async fn a_type_parameter<T: Limited>() -> Done {
    Ok(())
}

trait Limited {
    const LIMIT: Policy;
}

struct Service<T>(T);

impl<T: Limited> Service<T> {
    const LIMIT: Policy = LOGIN;

    #[rate_limit(policy = Self::LIMIT)]
    async fn of_self(&self) -> Done {
        Ok(())
    }

    #[rate_limit(policy = <T as Limited>::LIMIT)]
    async fn qualified(&self) -> Done {
        Ok(())
    }

    #[rate_limit(policy = T::LIMIT)]
    async fn of_the_impl(&self) -> Done {
        Ok(())
    }
}

#[rate_limit(policy = self)]
async fn self_alone() -> Done {
    Ok(())
}

#[rate_limit(policy = LOCAL)]
async fn a_local() -> Done {
    const LOCAL: Policy = LOGIN;
    let _ = LOCAL;
    Ok(())
}

#[rate_limit(policy = CALLS)]
async fn another_type() -> Done {
    Ok(())
}

#[rate_limit(policy = UNNAMED)]
async fn without_a_name() -> Done {
    Ok(())
}

#[rate_limit(policy = BUCKET, request_id = 1)]
async fn request_id_of_a_bucket() -> Done {
    Ok(())
}

#[rate_limit(request_id = 1, policy = PENALTY)]
async fn request_id_under_the_penalty() -> Done {
    Ok(())
}

#[rate_limit(algorithm = fixed_window, request_id = 1)]
async fn request_id_of_a_window() -> Done {
    Ok(())
}

#[rate_limit(request_id = 1, count_rejected)]
async fn request_id_with_count_rejected() -> Done {
    Ok(())
}

#[rate_limit(request_id = id)]
async fn request_id_without_display(id: Duration) -> Done {
    let _ = id;
    Ok(())
}

#[rate_limit(policy = LOGIN, cost = 0, idempotency_key = 1)]
async fn no_cost() -> Done {
    Ok(())
}

fn main() {}
