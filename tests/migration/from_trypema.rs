//! `trypema`, local and absolute: five in an hour for each user, and a call of several units.

use std::{sync::Arc, time::Duration};

use ratelimit_runtime::{Limiter, Policy, RateLimitError};
use trypema::{
    RateLimit, RateLimitDecision, RateLimiterBuilder, WindowSize, local::LocalRateLimiterProvider,
};

use crate::{first_five_each, status, traffic};

const API: Policy = Policy::sliding_window("trypema", Duration::from_secs(3_600), 5);

fn theirs() -> Arc<LocalRateLimiterProvider> {
    let builder = LocalRateLimiterProvider::builder().window_size(WindowSize::hours_or_panic(1));
    builder.disable_cleanup().build().unwrap()
}

fn is_admitted(limiter: &LocalRateLimiterProvider, user: &str, units: u64) -> bool {
    let five = RateLimit::per_hour_or_panic(5.0);
    matches!(limiter.absolute().inc(user, &five, units), RateLimitDecision::Allowed)
}

#[tokio::test]
async fn five_an_hour_for_each_user() {
    let (theirs, ours) = (theirs(), Limiter::in_memory());
    let mut statuses = (Vec::new(), Vec::new());
    for client in traffic() {
        statuses.0.push(status(is_admitted(&theirs, &client.to_string(), 1)));
        statuses.1.push(status(ours.check(&API, client).await.is_ok()));
    }
    assert_eq!(statuses, (first_five_each(), first_five_each()));
}

#[tokio::test]
async fn a_call_above_what_is_left_passes_there_and_is_refused_here() {
    let (theirs, ours) = (theirs(), Limiter::in_memory());
    assert!(is_admitted(&theirs, "alice", 4));
    ours.check(&API, "alice").cost(4).await.unwrap();

    assert!(is_admitted(&theirs, "alice", 3));
    assert_eq!(theirs.absolute().get("alice"), 7);
    let refused = ours.check(&API, "alice").cost(3).await.unwrap_err();
    assert!(matches!(refused, RateLimitError::Exceeded(_)));
    assert_eq!(ours.check(&API, "alice").cost(0).await.unwrap().remaining(), 1);
}
