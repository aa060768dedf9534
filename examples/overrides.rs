//! `cargo run --features overrides --example overrides`
//!
//! Overrides a limit at run time. If `RATELIMIT_URL` is set, it also writes an override to a hash
//! on Redis, which every limiter on that Redis follows. Without one it prints
//!
//! ```text
//! as written: 2 in 60 s                       2 of 10 pass
//! 5 in 60 s, two of them are taken            3 of 10 pass
//! a dry run                                  10 of 10 pass
//! invalid override of rate limit `reply`: `threshold` must be at least 1
//! as written again, and dry runs count        0 of 10 pass
//! ```
//!
//! and with one also `the kill switch of the fleet               10 of 10 pass`.

use std::{error::Error, time::Duration};

use ratelimit_runtime::{
    Enforcement, Limiter, Override, RateLimitError, install, overrides::Place, rate_limit,
};

#[rate_limit(name = "reply", period = 60, threshold = 2, key = user)]
async fn reply(user: &str) -> Result<(), RateLimitError> {
    Ok(())
}

/// Makes ten calls, and prints the number that passed.
async fn call_ten_times(what_holds: &str) {
    let mut passed = 0;
    for _ in 0..10 {
        passed += u32::from(reply("harry").await.is_ok());
    }
    println!("{what_holds:42} {passed:2} of 10 pass");
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let limiter = Limiter::from_env().await?;
    install(limiter.clone())?;
    call_ten_times("as written: 2 in 60 s").await;

    // In this process.
    let here = limiter.overrides().here();
    here.set("reply", Override::new().threshold(5))?;
    call_ten_times("5 in 60 s, two of them are taken").await;
    here.set("reply", Enforcement::DryRun)?;
    call_ten_times("a dry run").await;

    let wrong = here.set("reply", Override::new().threshold(0));
    println!("{}", wrong.expect_err("a threshold of 0 would admit nobody"));

    here.remove("reply");
    call_ten_times("as written again, and dry runs count").await;

    // In all processes of a fleet, including this one.
    if std::env::var("RATELIMIT_URL").is_ok() {
        let fleet = limiter.overrides().fleet();
        fleet.set(Place::all(), Enforcement::Off).await?;
        while limiter.overrides().enforcement().is_none() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        call_ten_times("the kill switch of the fleet").await;
        fleet.remove(Place::all()).await?;
    }
    Ok(())
}
