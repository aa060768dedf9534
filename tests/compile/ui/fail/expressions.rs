//! Expressions of the wrong type: the error is at the expression.

use ratelimit_runtime::{RateLimitError, rate_limit};

type Done = Result<(), RateLimitError>;

struct User;

#[rate_limit(key = user)]
async fn key_without_display(user: User) -> Done {
    let _ = user;
    Ok(())
}

#[rate_limit(key = (name, user))]
async fn part_without_display(name: String, user: Option<User>) -> Done {
    let _ = (name, user);
    Ok(())
}

#[rate_limit(key = parts)]
async fn tuple_in_a_variable(parts: (u32, u32)) -> Done {
    let _ = parts;
    Ok(())
}

#[rate_limit(key = nobody)]
async fn unknown_name() -> Done {
    Ok(())
}

#[rate_limit(limiter = name)]
async fn no_limiter(name: String) -> Done {
    let _ = name;
    Ok(())
}

#[rate_limit(period = seconds)]
async fn period_is_no_duration(seconds: u64) -> Done {
    let _ = seconds;
    Ok(())
}

#[rate_limit(threshold = calls, cost = units)]
async fn signed(calls: i64, units: isize) -> Done {
    let _ = (calls, units);
    Ok(())
}

#[rate_limit(algorithm = token_bucket, burst = tokens * 1.5, cost = units)]
async fn no_integer(tokens: f64, units: &u32) -> Done {
    let _ = (tokens, units);
    Ok(())
}

#[rustfmt::skip]
#[rate_limit(key = user, cost = units)]
async fn on_one_line(user: User, units: i32) -> Done { Ok(drop((user, units))) }

#[rate_limit(max_wait = seconds)]
async fn max_wait_is_no_duration(seconds: u64) -> Done {
    let _ = seconds;
    Ok(())
}

#[rate_limit(skip = is_admin)]
async fn no_bool(is_admin: Option<bool>) -> Done {
    let _ = is_admin;
    Ok(())
}

fn main() {}
