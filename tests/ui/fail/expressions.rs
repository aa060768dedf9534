//! Expressions of the wrong type: the error is at the expression.

use ratelimit_runtime::{RateLimitError, rate_limit};

type Done = Result<(), RateLimitError>;

struct User;

#[rate_limit(period = 30, threshold = 2, key = user)]
async fn key_without_display(user: User) -> Done {
    let _ = user;
    Ok(())
}

#[rate_limit(period = 30, threshold = 2, key = (name, user))]
async fn part_without_display(name: String, user: Option<User>) -> Done {
    let _ = (name, user);
    Ok(())
}

#[rate_limit(period = 30, threshold = 2, key = nobody)]
async fn unknown_name() -> Done {
    Ok(())
}

#[rate_limit(period = 30, threshold = 2, limiter = name)]
async fn no_limiter(name: String) -> Done {
    let _ = name;
    Ok(())
}

fn main() {}
