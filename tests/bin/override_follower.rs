//! A process that follows overrides: prints the effective limit, one line for each change.
//!
//! `override_follower URL`    follows the overrides on the Redis of this URL
//! `override_follower`        reads its environment, and sets a threshold of 3 itself

use std::{env, time::Duration};

use ratelimit_runtime::{Limiter, Override, Policy};

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
    let mut printed = String::new();
    loop {
        let threshold = limiter.peek(&SHARED, "anyone").cost(0).await?.threshold();
        let enforcement = limiter.overrides().enforcement();
        let enforcement = enforcement.map_or("as written", |(enforcement, _)| enforcement.as_str());
        let holds = format!("{threshold}, {enforcement}");
        if holds != printed {
            println!("{holds}");
            printed = holds;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
