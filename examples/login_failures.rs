//! `cargo run --example login_failures`
//!
//! Only failed logins count. Each attempt is charged before the password is checked, so that nobody
//! can try many at once, and refunded if the password was right. If the store fails before the
//! refund, the attempt stays counted and the login succeeds.
//!
//! The last answer shows the price of counting by user alone: strangers lock the owner out. A service counts by
//! address, and by address and account.

use std::{error::Error, time::Duration};

use ratelimit_runtime::{Limiter, Policy, RateLimitError};

const ATTEMPTS: Policy = Policy::sliding_window("login", Duration::from_secs(900), 3);

async fn login(limiter: &Limiter, user: &str, password: &str) -> Result<bool, RateLimitError> {
    let attempt = limiter.check(&ATTEMPTS, user).await?;
    let is_right = password == "open sesame";
    if is_right && let Err(error) = limiter.refund(&attempt).await {
        eprintln!("a login counts as an attempt: {error}");
    }
    Ok(is_right)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let limiter = Limiter::from_env().await?;
    let passwords = ["open sesame", "guess", "open sesame", "guess", "guess", "open sesame"];
    for password in passwords {
        let answer = match login(&limiter, "ali baba", password).await {
            Ok(true) => "welcome".to_owned(),
            Ok(false) => {
                let left = limiter.peek(&ATTEMPTS, "ali baba").cost(0).await?.remaining();
                format!("wrong, {left} attempts left")
            }
            Err(error) => error.to_string(),
        };
        println!("{password:12} {answer}");
    }
    Ok(())
}
