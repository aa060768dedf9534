//! `cargo run --example outbound`
//!
//! Calls to a service that allows ten a second. Instead of failing, each call waits for up to two
//! seconds. Of thirty calls, five pass at once, twenty wait, and those that would wait for more than
//! two seconds are refused.

use std::error::Error;

use ratelimit_runtime::{RateLimitError, rate_limit};
use tokio::time::Instant;

#[rate_limit(
    algorithm = token_bucket,
    period = "1s",
    threshold = 10,
    burst = 5,
    max_wait = "2s",
    key = "their api"
)]
async fn call_their_api(start: Instant) -> Result<(), RateLimitError> {
    println!("{:>6.1?}  served", start.elapsed());
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let start = Instant::now();
    let calls: Vec<_> = (0..30).map(|_| tokio::spawn(call_their_api(start))).collect();
    let mut refused = 0;
    for call in calls {
        if let Err(error) = call.await? {
            refused += 1;
            println!("{:>6.1?}  {error}", start.elapsed());
        }
    }
    println!("{} served, {refused} refused", 30 - refused);
    Ok(())
}
