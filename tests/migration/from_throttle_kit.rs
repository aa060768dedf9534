//! `throttle-kit` in memory: five at once for each user, then one each hour.

use std::time::Duration;

use ratelimit_runtime::{Limiter, Policy};
use throttle_kit::{InMemoryBackend, Quota, RateLimiter};

use crate::{first_five_each, status, traffic};

const HOUR: Duration = Duration::from_secs(3_600);
const API: Policy = Policy::token_bucket("throttle_kit", HOUR, 1).burst(5);

fn theirs() -> RateLimiter<InMemoryBackend> {
    RateLimiter::new(Quota::per_hour(1).allow_burst(5), InMemoryBackend::new())
}

#[tokio::test]
async fn five_at_once_for_each_user() {
    let (theirs, ours) = (theirs(), Limiter::in_memory());
    let mut statuses = (Vec::new(), Vec::new());
    for client in traffic() {
        statuses.0.push(status(theirs.check(&client.to_string()).await.allowed));
        statuses.1.push(status(ours.check(&API, client).await.is_ok()));
    }
    assert_eq!(statuses, (first_five_each(), first_five_each()));
}

#[tokio::test]
async fn remaining_counts_the_taken_calls_there_and_those_that_are_left_here() {
    let (theirs, ours) = (theirs(), Limiter::in_memory());
    for taken in 1..=2 {
        // A millisecond between two calls rounds theirs down.
        assert!(theirs.check("alice").await.remaining <= u64::from(taken));
        assert_eq!(ours.check(&API, "alice").await.unwrap().remaining(), 5 - taken);
    }
}
