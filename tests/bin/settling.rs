//! Takes calls of two units, and settles all of them at one at once, without waiting for Redis.
//!
//! `settling` takes the URL and the number of calls, and prints a line when it has taken them.

use std::{env, time::Duration};

use ratelimit_runtime::{Limiter, OnStoreError, Policy};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [url, calls] = arguments.as_slice() else {
        return Err("usage: settling URL CALLS".into());
    };
    let builder = Limiter::builder().deadline(Duration::from_secs(30));
    let limiter = builder.on_store_error(OnStoreError::Deny).connect(url).await?;
    let hour = Duration::from_secs(3_600);
    let policies = [
        Policy::sliding_window("settling", hour, 100_000),
        Policy::sliding_counter("settling", hour, 100_000),
        Policy::fixed_window("settling", hour, 100_000),
        Policy::token_bucket("settling", Duration::from_secs(300 * 86_400), 100_000),
    ];
    let calls: usize = calls.parse()?;
    let mut decisions = Vec::new();
    for call in 0..calls {
        decisions.push(limiter.check(&policies[call % policies.len()], 0).cost(2).await?);
    }
    println!("taken");
    for decision in &decisions {
        decision.settle(1);
    }
    limiter.flush().await?;
    println!("settled");
    Ok(())
}
