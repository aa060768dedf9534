//! `cargo run --example by_hand`
//!
//! Limits without the attribute, in memory or on `RATELIMIT_URL`. It prints
//!
//! ```text
//! check: 5 of 20 replies of Harry are admitted, the next one again in 60.0s
//! check_all: 3 of 4 orders of alice, then `order-user` refuses; the tenant has 2 left
//! check_all: 2 of 3 orders of bob, then `order-tenant` refuses; bob has 1 left
//! peek: 4 left for the next call, and again 4 left: nothing is taken
//! request_id: 4 left after job-7, and 4 left after its repeat
//! refund: 4 left after an attempt, and 5 left after its refund
//! ```

use std::{error::Error, time::Duration};

use ratelimit_runtime::{Limiter, Policy, RateLimitError};

const MINUTE: Duration = Duration::from_secs(60);
pub(crate) const REPLY: Policy = Policy::sliding_window("reply", MINUTE, 5);
pub(crate) const ORDER_USER: Policy = Policy::sliding_window("order-user", MINUTE, 3);
pub(crate) const ORDER_TENANT: Policy = Policy::sliding_window("order-tenant", MINUTE, 5);
pub(crate) const JOB: Policy = Policy::sliding_window("job", MINUTE, 5);

/// One call, and the same with the numbers of its decision.
async fn reply(limiter: &Limiter) -> Result<(), RateLimitError> {
    let (mut admitted, mut wait) = (0, Duration::ZERO);
    for _ in 0..20 {
        match limiter.check(&REPLY, "Harry").await {
            Ok(_) => admitted += 1,
            Err(RateLimitError::Exceeded(refusal)) => wait = refusal.retry_after(),
            Err(error) => return Err(error),
        }
    }
    println!(
        "check: {admitted} of 20 replies of Harry are admitted, the next one again in {wait:.1?}"
    );
    Ok(())
}

/// Two limits of one call: both admit it, or none counts it.
async fn order(limiter: &Limiter, user: &str, orders: u32) -> Result<String, RateLimitError> {
    for admitted in 0..orders {
        let checks = [limiter.check(&ORDER_USER, user), limiter.check(&ORDER_TENANT, "acme")];
        match limiter.check_all(checks).await {
            Ok(_) => {}
            Err(RateLimitError::Exceeded(refusal)) => {
                let by = refusal.policy();
                return Ok(format!("{admitted} of {orders} orders of {user}, then `{by}` refuses"));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(format!("all orders of {user}"))
}

/// Returns the units that a caller has left. A peek with a cost of 0 is never refused.
async fn left(limiter: &Limiter, policy: &Policy, caller: &str) -> Result<u32, RateLimitError> {
    Ok(limiter.peek(policy, caller).cost(0).await?.remaining())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let limiter = &Limiter::from_env().await?;
    reply(limiter).await?;

    let orders = order(limiter, "alice", 4).await?;
    println!(
        "check_all: {orders}; the tenant has {} left",
        left(limiter, &ORDER_TENANT, "acme").await?
    );
    let orders = order(limiter, "bob", 3).await?;
    println!("check_all: {orders}; bob has {} left", left(limiter, &ORDER_USER, "bob").await?);

    let next = limiter.peek(&REPLY, "Sally").await?.remaining();
    let again = limiter.peek(&REPLY, "Sally").await?.remaining();
    println!("peek: {next} left for the next call, and again {again} left: nothing is taken");

    // The id is the program's own: whoever chooses ids is charged once for all calls.
    let first = limiter.check(&JOB, "worker").request_id("job-7").await?.remaining();
    let repeat = limiter.check(&JOB, "worker").request_id("job-7").await?.remaining();
    println!("request_id: {first} left after job-7, and {repeat} left after its repeat");

    let attempt = limiter.check(&REPLY, "Tom").await?;
    let charged = attempt.remaining();
    limiter.refund(&attempt).await?;
    let refunded = left(limiter, &REPLY, "Tom").await?;
    println!("refund: {charged} left after an attempt, and {refunded} left after its refund");
    Ok(())
}
