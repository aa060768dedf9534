//! Arguments that do not go with the algorithm.

use ratelimit_runtime::{RateLimitError, rate_limit};

type Done = Result<(), RateLimitError>;

#[rate_limit(algorithm = tokenbucket)]
async fn misspelt() -> Done {
    Ok(())
}

#[rate_limit(algorithm = gcra)]
async fn unknown() -> Done {
    Ok(())
}

#[rate_limit(algorithm = "token_bucket")]
async fn quoted() -> Done {
    Ok(())
}

#[rate_limit(burst = 5)]
async fn burst_without_a_bucket() -> Done {
    Ok(())
}

#[rate_limit(algorithm = token_bucket, burst = 0)]
async fn burst_of_nothing() -> Done {
    Ok(())
}

#[rate_limit(
    algorithm = token_bucket,
    burst = 5,
    tier(period = 1, threshold = 5),
    tier(period = 60, threshold = 9)
)]
async fn burst_of_two_buckets() -> Done {
    Ok(())
}

#[rate_limit(algorithm = token_bucket, threshold = 10, burst = 5, cost = 6)]
async fn costs_more_than_the_burst() -> Done {
    Ok(())
}

#[rate_limit(algorithm = token_bucket, period = "366d", threshold = 11, burst = 285)]
async fn bucket_too_fine() -> Done {
    Ok(())
}

#[rate_limit(algorithm = fixed_window, count_rejected)]
async fn no_effect() -> Done {
    Ok(())
}

#[rate_limit(algorithm = sliding_counter, threshold = 4_294_967_296)]
async fn no_u32() -> Done {
    Ok(())
}

fn main() {
    let _ = (misspelt(), unknown(), quoted(), burst_without_a_bucket(), burst_of_nothing());
    let _ = (burst_of_two_buckets(), costs_more_than_the_burst(), bucket_too_fine());
    let _ = (no_effect(), no_u32());
}
