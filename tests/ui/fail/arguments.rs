//! Arguments that cannot be read.

use ratelimit_runtime::{RateLimitError, rate_limit};

type Done = Result<(), RateLimitError>;

#[rate_limit(limit = 5, window = 30)]
async fn names_of_another_library() -> Done {
    Ok(())
}

#[rate_limit(perod = 30)]
async fn misspelt() -> Done {
    Ok(())
}

#[rate_limit(period = 30, threshold = 2, period = 60)]
async fn twice() -> Done {
    Ok(())
}

#[rate_limit(period, threshold = )]
async fn without_values() -> Done {
    Ok(())
}

#[rate_limit(30, 2)]
async fn without_names() -> Done {
    Ok(())
}

#[rate_limit(period = 30 threshold = 2)]
async fn without_a_comma() -> Done {
    Ok(())
}

#[rate_limit(key = )]
async fn half_typed() -> Done {
    Ok(())
}

fn main() {
    // The functions are there all the same: no further error comes from their callers.
    let _ = (names_of_another_library(), misspelt(), twice(), without_values());
    let _ = (without_names(), without_a_comma(), half_typed());
}
