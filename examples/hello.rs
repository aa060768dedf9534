//! `cargo run --example hello`
//!
//! Two limited functions and two callers. It prints
//!
//! ```text
//! Limiter { store: "memory", prefix: "ratelimit:" }
//!
//! say_hi("alice")    hi, alice    1 left, more after 30.0s
//! say_hi("alice")    hi, alice    0 left, more after 30.0s
//! say_hi("alice")    rate limit `hello::say_hi` exceeded: at most 2 per 30s, retry after 30s
//! report() by alice  all is well  0 left, more after 60.0s
//! report() by alice  rate limit `hello::report` exceeded: at most 1 per 60s, retry after 60s
//!
//! say_hi("bob")      hi, bob      1 left, more after 30.0s
//! say_hi("bob")      hi, bob      0 left, more after 30.0s
//! say_hi("bob")      rate limit `hello::say_hi` exceeded: at most 2 per 30s, retry after 30s
//! report() by bob    all is well  0 left, more after 60.0s
//! report() by bob    rate limit `hello::report` exceeded: at most 1 per 60s, retry after 60s
//! ```
//!
//! On Redis: `RATELIMIT_URL=redis://127.0.0.1:6379 cargo run --example hello`. Run it twice within 30 seconds: in memory
//! each run starts with empty counts, on Redis the second run continues the counts of the first.

use std::{error::Error, fmt, future::Future};

use ratelimit_runtime::{Limiter, RateLimitError, caller, install, observe, rate_limit};

/// At most two greetings in any 30 seconds for each name.
#[rate_limit(period = 30, threshold = 2, key = name)]
async fn say_hi(name: &str) -> Result<String, RateLimitError> {
    Ok(format!("hi, {name}"))
}

/// At most one report in any 60 seconds for each ambient caller.
#[rate_limit(period = 60, threshold = 1)]
async fn report() -> Result<String, RateLimitError> {
    Ok("all is well".to_owned())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let limiter = Limiter::from_env().await?;
    println!("{limiter:?}\n");
    install(limiter)?;

    for name in ["alice", "bob"] {
        for _ in 0..3 {
            show(format_args!("say_hi({name:?})"), say_hi(name)).await;
        }
        for _ in 0..2 {
            show(format_args!("report() by {name}"), caller::scope(name, report())).await;
        }
        println!();
    }
    Ok(())
}

/// Awaits a call, and prints its result and the decision of its limit.
async fn show(
    call: fmt::Arguments<'_>,
    limited: impl Future<Output = Result<String, RateLimitError>>,
) {
    let (outcome, answers) = observe(limited).await;
    let call = call.to_string();
    match outcome {
        Ok(text) => print!("{call:18} {text:12}"),
        Err(error) => print!("{call:18} {error}"),
    }
    for decision in answers.iter().flatten() {
        print!(" {} left, more after {:.1?}", decision.remaining(), decision.replenish_after());
    }
    println!();
}
