//! `limitador` in memory: five an hour for each user, two limits of one call, and a reservation.

use std::{collections::HashMap, time::Duration};

use limitador::{
    RateLimiter,
    limit::{Context, Limit},
};
use ratelimit_runtime::{Limiter, Policy, RateLimitError};

use crate::{first_five_each, status, traffic};

const HOUR: Duration = Duration::from_secs(3_600);
const API: Policy = Policy::fixed_window("limitador", HOUR, 5);
const TOKENS: Policy = Policy::token_bucket("limitador-tokens", HOUR, 1_000);

/// Limits for each user: the first of an hour, the second of two.
fn theirs(thresholds: &[u64]) -> RateLimiter {
    let limiter = RateLimiter::new(100);
    for (threshold, hours) in thresholds.iter().zip(1..) {
        let user = "user".try_into().unwrap();
        limiter.add_limit(Limit::new("api", *threshold, hours * 3_600, [], [user]));
    }
    limiter
}

fn user(client: usize) -> Context<'static> {
    HashMap::from([("user".to_owned(), client.to_string())]).into()
}

fn is_limited(limiter: &RateLimiter, client: usize) -> bool {
    limiter.check_rate_limited_and_update(&"api".into(), &user(client), 1).unwrap().limited
}

/// Returns the units that are left in each limit of a user.
fn left(limiter: &RateLimiter, client: usize) -> Vec<u64> {
    let answer = limiter.check_rate_limited_and_update(&"api".into(), &user(client), 0).unwrap();
    let mut left: Vec<_> = answer.counters.iter().filter_map(|it| it.remaining()).collect();
    left.sort_unstable();
    left
}

#[tokio::test]
async fn five_an_hour_for_each_user() {
    let (theirs, ours) = (theirs(&[5]), Limiter::in_memory());
    let mut statuses = (Vec::new(), Vec::new());
    for client in traffic() {
        statuses.0.push(status(!is_limited(&theirs, client)));
        statuses.1.push(status(ours.check(&API, client).await.is_ok()));
    }
    assert_eq!(statuses, (first_five_each(), first_five_each()));
}

#[tokio::test]
async fn a_call_that_one_limit_refuses_is_counted_in_none() {
    let (theirs, ours) = (theirs(&[1, 5]), Limiter::in_memory());
    let narrow = Policy::fixed_window("limitador-narrow", HOUR, 1);
    for is_refused in [false, true] {
        assert_eq!(is_limited(&theirs, 0), is_refused);
        let decided = ours.check_all([ours.check(&narrow, "0"), ours.check(&API, "0")]).await;
        assert_eq!(decided.is_err(), is_refused);
    }
    assert_eq!(left(&theirs, 0), [0, 4]);
    assert_eq!(ours.check(&API, "0").cost(0).await.unwrap().remaining(), 4);
}

#[tokio::test]
async fn a_reservation_is_settled_at_what_the_call_took() -> Result<(), RateLimitError> {
    let (theirs, ours) = (theirs(&[1_000]), Limiter::in_memory());
    let held = theirs.reserve(&"api".into(), &user(0), 600, None).unwrap();
    let decision = ours.check(&TOKENS, "0").cost(600).await?;
    // Until it is settled, nobody gets what is reserved.
    assert!(theirs.reserve(&"api".into(), &user(0), 600, None).unwrap().limited);
    ours.check(&TOKENS, "0").cost(600).await.unwrap_err();

    theirs.commit_reservation(&"api".into(), &user(0), held.reservation_id.as_ref(), 120).unwrap();
    ours.settle(&decision, 120).await?;
    assert_eq!(left(&theirs, 0), [880]);
    assert_eq!(ours.check(&TOKENS, "0").cost(0).await?.remaining(), 880);
    Ok(())
}
