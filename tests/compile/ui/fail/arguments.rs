//! Arguments that cannot be read.

use ratelimit_runtime::{RateLimitError, rate_limit};

type Done = Result<(), RateLimitError>;

#[rate_limit(limit = 5, window = 30)]
async fn names_of_another_library() -> Done {
    Ok(())
}

#[rate_limit(rate = 5, per = "1m", weight = 2, identifier = 7)]
async fn names_of_more_libraries() -> Done {
    Ok(())
}

#[rate_limit(per_minute = 5, max_in_flight = 2, failures_only, error_handler = reply)]
async fn words_of_other_settings() -> Done {
    Ok(())
}

#[rate_limit(on_error = deny, priority = 3, fair, headroom = 20, leave = "20%", reserve = 5)]
async fn words_of_no_argument() -> Done {
    Ok(())
}

#[rate_limit(perod = 30, treshold = 2, dryrun)]
async fn misspelt() -> Done {
    Ok(())
}

#[rate_limit(colour = "red")]
async fn unknown() -> Done {
    Ok(())
}

#[rate_limit(period = 30, threshold = 2, period = 60, dry_run, dry_run)]
async fn twice() -> Done {
    Ok(())
}

#[rate_limit(period, threshold = )]
async fn without_values() -> Done {
    Ok(())
}

#[rate_limit(dry_run = true)]
async fn flag_with_a_value() -> Done {
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

#[rate_limit(key = user., threshold = 0)]
async fn half_typed(user: u32) -> Done {
    Ok(())
}

#[rate_limit(fallible, key = a.)]
async fn half_typed_at_the_end(a: u32) -> u32 {
    a
}

fn main() {
    // The functions are there all the same: no further error comes from their callers.
    let _ = (names_of_another_library(), names_of_more_libraries(), misspelt(), unknown(), twice());
    let _ = (without_values(), flag_with_a_value(), without_names(), without_a_comma());
    let _ = (half_typed(1), half_typed_at_the_end(1));
    let _ = (words_of_other_settings(), words_of_no_argument());
}
