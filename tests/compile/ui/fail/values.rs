//! Values that break a rule, all reported at once.

use ratelimit_runtime::{RateLimitError, rate_limit};

type Done = Result<(), RateLimitError>;

#[rate_limit(period = 0, threshold = 0, cost = 0)]
async fn zero() -> Done {
    Ok(())
}

#[rate_limit(period = -30, threshold = -2, cost = -1)]
async fn negative() -> Done {
    Ok(())
}

#[rate_limit(period = 40_000_000, threshold = 1_000_000_001)]
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

#[rate_limit(period = true, threshold = 2.0, cost = 'c')]
async fn more_wrong_types() -> Done {
    Ok(())
}

#[rate_limit(period = "30 seconds")]
async fn bad_unit() -> Done {
    Ok(())
}

#[rate_limit(period = "30")]
async fn no_unit() -> Done {
    Ok(())
}

#[rate_limit(period = "1.5s")]
async fn fraction() -> Done {
    Ok(())
}

#[rate_limit(period = "soon")]
async fn no_time() -> Done {
    Ok(())
}

#[rate_limit(period = "0ms")]
async fn too_short() -> Done {
    Ok(())
}

#[rate_limit(period = "367d")]
async fn too_long() -> Done {
    Ok(())
}

#[rate_limit(max_wait = "1 second")]
async fn wait_with_a_bad_unit() -> Done {
    Ok(())
}

#[rate_limit(on_store_error = fail_open)]
async fn word_of_another_library() -> Done {
    Ok(())
}

#[rate_limit(on_store_error = "deny")]
async fn quoted_word() -> Done {
    Ok(())
}

#[rate_limit(on_store_error = local(0))]
async fn no_share() -> Done {
    Ok(())
}

#[rate_limit(on_store_error = local(101))]
async fn more_than_all() -> Done {
    Ok(())
}

#[rate_limit(on_store_error = local("20%"))]
async fn share_as_text() -> Done {
    Ok(())
}

#[rate_limit(on_store_error = local(share))]
async fn share_of_a_call(share: u8) -> Done {
    Ok(())
}

#[rate_limit(on_store_error = deny(20))]
async fn share_of_another_word() -> Done {
    Ok(())
}

#[rate_limit(threshold = 5, cost = 6)]
async fn never_passes() -> Done {
    Ok(())
}

#[rate_limit(name = "", key = ())]
async fn empty() -> Done {
    Ok(())
}

#[rate_limit(key = |user| user)]
async fn closure(user: u64) -> Done {
    Ok(drop(user))
}

#[rate_limit(key = ("user", "{user}"))]
async fn filled_in(user: u64) -> Done {
    Ok(drop(user))
}

#[rate_limit(key = "user")]
async fn quoted_parameter(user: u64) -> Done {
    Ok(drop(user))
}

fn main() {
    let _ = (closure(1), filled_in(1), quoted_parameter(1));
    let _ = (zero(), negative(), too_large(), overflow(), wrong_type(), more_wrong_types());
    let _ = (bad_unit(), no_unit(), fraction(), no_time(), too_short(), too_long());
    let _ = (wait_with_a_bad_unit(), word_of_another_library(), quoted_word());
    let _ = (no_share(), more_than_all(), share_as_text(), share_of_a_call(1));
    let _ = (share_of_another_word(), never_passes(), empty());
}
