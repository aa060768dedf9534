//! Tiers, costs, bursts and values of a call limit as the attribute declares them.

#![allow(
    clippy::items_after_statements,
    reason = "a limited function stands where its test uses it"
)]

use std::time::Duration;

use ratelimit_runtime::{Limiter, Policy, RateLimitError, rate_limit};

use crate::is_exceeded;

type Done = Result<(), RateLimitError>;
#[tokio::test]
async fn the_same_limit_by_attribute_and_by_call() {
    let limiter = Limiter::in_memory();

    #[rate_limit(period = 60, threshold = 2, name = "mail", key = user, limiter = limiter)]
    async fn mail(limiter: &Limiter, user: &str) -> Done {
        Ok(())
    }

    const MAIL: Policy = Policy::sliding_window("mail", Duration::from_secs(60), 2);
    mail(&limiter, "alice").await.unwrap();
    assert_eq!(limiter.check(&MAIL, "alice").await.unwrap().remaining(), 0);
    assert!(is_exceeded(&mail(&limiter, "alice").await));
}

fn fault(answer: Done) -> String {
    match answer {
        Err(RateLimitError::InvalidPolicy(error)) => error.fault().to_string(),
        Err(RateLimitError::TooLarge(error)) => error.fault().to_string(),
        other => panic!("expected an invalid policy, got {other:?}"),
    }
}

#[tokio::test]
async fn values_of_a_call_obey_the_same_rules_and_never_panic() {
    #[rate_limit(period = period, threshold = threshold, cost = cost)]
    async fn call(period: Duration, threshold: u32, cost: u32) -> Done {
        Ok(())
    }

    const MINUTE: Duration = Duration::from_secs(60);
    call(MINUTE, 1, 1).await.unwrap();
    for (period, threshold, cost, expected) in [
        (Duration::ZERO, 1, 1, "`period` must be at least 1 ms, but is 0"),
        (Duration::from_micros(999), 1, 1, "`period` must be at least 1 ms, but is 999 µs"),
        (Duration::MAX, 1, 1, "`period` must be at most 366 days"),
        (MINUTE, 0, 1, "`threshold` must be at least 1"),
        (MINUTE, 2, 3, "`cost` is 3, which can never pass a threshold of 2"),
    ] {
        assert_eq!(fault(call(period, threshold, cost).await), expected);
    }
    assert!(
        fault(call(MINUTE, u32::MAX, 1).await).contains("at most 1000000000, but is 4294967295")
    );
}

#[tokio::test]
async fn tiers_of_expressions_obey_the_same_rules() {
    #[rate_limit(
        tier(period = "1m", threshold = minute),
        tier(period = "1h", threshold = hour),
        key = 1
    )]
    async fn call(minute: u32, hour: u32) -> Done {
        Ok(())
    }

    call(1, 2).await.unwrap();
    assert!(is_exceeded(&call(1, 2).await));
    assert!(fault(call(1, 60).await).contains("this tier can never refuse"));
}

#[tokio::test]
async fn a_plan_may_set_the_threshold() {
    #[rate_limit(threshold = plan, key = user)]
    async fn call(user: &str, plan: u32) -> Done {
        Ok(())
    }

    call("free", 1).await.unwrap();
    assert!(is_exceeded(&call("free", 1).await));
    for _ in 0..5 {
        call("pro", 5).await.unwrap();
    }
    assert!(is_exceeded(&call("pro", 5).await));
    // A raised threshold goes on with the same history.
    call("free", 2).await.unwrap();
    assert!(is_exceeded(&call("free", 2).await));
}

#[tokio::test]
async fn tiers_of_literals_are_decided_together() {
    let limiter = Limiter::in_memory();

    #[rate_limit(
        tier(period = 60, threshold = 1),
        tier(period = "1h", threshold = 5),
        tier(period = "1d", threshold = 10),
        name = "mail",
        key = mailbox,
        limiter = limiter
    )]
    async fn mail(limiter: &Limiter, mailbox: &str) -> Done {
        Ok(())
    }

    mail(&limiter, "a").await.unwrap();
    let Err(RateLimitError::Exceeded(refused)) = mail(&limiter, "a").await else { panic!() };
    assert_eq!((refused.threshold(), refused.period()), (1, Duration::from_secs(60)));
    mail(&limiter, "b").await.unwrap();
}

#[tokio::test]
async fn a_cost_takes_as_many_units() {
    #[rate_limit(threshold = 10, cost = units, key = 1)]
    async fn call(units: u32) -> Done {
        Ok(())
    }

    call(7).await.unwrap();
    assert!(is_exceeded(&call(4).await));
    call(3).await.unwrap();
    assert!(is_exceeded(&call(1).await));
}

#[tokio::test]
async fn units_are_of_any_unsigned_type_and_saturate() {
    #[rate_limit(threshold = threshold, cost = body.len(), key = 1)]
    async fn by_length(threshold: u8, body: &str) -> Done {
        Ok(())
    }

    #[rate_limit(
        algorithm = token_bucket,
        threshold = threshold,
        burst = burst,
        cost = match plan { "free" => 2, _ => 60_000 },
        key = 1
    )]
    async fn many(threshold: u64, burst: u128, plan: &str) -> Done {
        Ok(())
    }

    by_length(10, "seven..").await.unwrap();
    assert!(is_exceeded(&by_length(10, "four").await));
    by_length(10, "3..").await.unwrap();
    // Not a threshold of 0, as `as u32` would make of it.
    for plan in ["free", "pro"] {
        many(1 << 32, 70_000, plan).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_bucket_paces_calls() {
    #[rate_limit(
        algorithm = token_bucket,
        period = "1s",
        threshold = 10,
        burst = 1,
        key = 1,
        limiter = limiter
    )]
    async fn paced(limiter: &Limiter) -> Done {
        Ok(())
    }

    let limiter = Limiter::in_memory();
    paced(&limiter).await.unwrap();
    let Err(RateLimitError::Exceeded(refused)) = paced(&limiter).await else { panic!("refused") };
    assert_eq!(refused.retry_after(), Duration::from_millis(100));
    tokio::time::advance(refused.retry_after()).await;
    paced(&limiter).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn under_the_penalty_a_caller_who_keeps_on_stays_shut_out() {
    #[rate_limit(period = 10, threshold = 2, count_rejected, key = user)]
    async fn login(user: &str) -> Done {
        Ok(())
    }

    for user in ["keeps on", "waits"] {
        login(user).await.unwrap();
        login(user).await.unwrap();
    }
    for _ in 0..5 {
        tokio::time::advance(Duration::from_secs(4)).await;
        assert!(is_exceeded(&login("keeps on").await));
    }
    login("waits").await.unwrap();
    tokio::time::advance(Duration::from_secs(10)).await;
    login("keeps on").await.unwrap();
}
