//! A process that follows overrides: prints the effective limit, one line for each change.
//!
//! `override_follower URL`    follows the overrides on the Redis of this URL
//! `override_follower URL callers`    prints the numbers up to 200 of the callers for whom the limit is on
//! `override_follower`        reads its environment, and sets a threshold of 3 itself

use std::{env, time::Duration};

use ratelimit_runtime::{Enforcement, Limiter, Override, Policy};

const SHARED: Policy = Policy::sliding_window("shared", Duration::from_secs(3600), 100);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let limiter = if let Some(url) = env::args().nth(1) {
        Limiter::connect(&url).await?
    } else {
        let limiter = Limiter::from_env().await?;
        limiter.overrides().here().set(SHARED.name(), Override::new().threshold(3))?;
        limiter
    };
    let (mut printed, mut latest) = (String::new(), String::new());
    loop {
        let threshold = limiter.peek(&SHARED, "anyone").cost(0).await?.threshold();
        let enforcement = limiter.overrides().enforcement();
        let enforcement = enforcement.map_or("as written", |(enforcement, _)| enforcement.as_str());
        let holds = if env::args().nth(2).is_some() {
            enforced(&limiter).await?
        } else {
            format!("{threshold}, {enforcement}")
        };
        // A change may have come between two calls of one reading.
        if holds == latest && holds != printed {
            println!("{holds}");
            printed.clone_from(&holds);
        }
        latest = holds;
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Returns the callers for whom the limit is on.
async fn enforced(limiter: &Limiter) -> Result<String, Box<dyn std::error::Error>> {
    let mut callers = Vec::new();
    for caller in 0..200 {
        if limiter.usage(&SHARED, caller).await?.enforcement() == Enforcement::On {
            callers.push(caller.to_string());
        }
    }
    Ok(callers.join(" "))
}
