//! `cargo run --example reply`
//!
//! Harry may reply five times in 60 seconds. Of twenty replies at once, the first five are admitted
//! and fifteen are refused.

use std::{error::Error, time::Duration};

use ratelimit_runtime::{Limiter, Policy, RateLimitError};

const REPLY: Policy = Policy::sliding_window("reply", Duration::from_secs(60), 5);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let limiter = Limiter::from_env().await?;
    let (mut allowed, mut refused) = (0, 0);
    for call in 1..=20 {
        match limiter.check(&REPLY, "Harry").await {
            Ok(decision) => {
                allowed += 1;
                println!("call {call:2}: allowed, {} left", decision.remaining());
            }
            Err(RateLimitError::Exceeded(exceeded)) => {
                refused += 1;
                println!("call {call:2}: refused, again in {:.1?}", exceeded.retry_after());
            }
            Err(error) => return Err(error.into()),
        }
    }
    println!("{allowed} allowed, {refused} refused");
    Ok(())
}
