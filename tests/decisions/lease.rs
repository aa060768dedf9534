//! A lease is a property of the policy: the rules of calls and overrides, and the room that a bucket keeps.

use std::time::Duration;

use harness::{exceeded, on_each_store};
use ratelimit_runtime::{Override, Policy, RateLimitError, limits::policies, rate_limit};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const LEASE: Duration = Duration::from_millis(20);

/// Ten tokens refill during a lease.
const BUCKET: Policy = Policy::token_bucket("bucket", SECOND, 500).burst(13).lease(LEASE);

#[tokio::test]
async fn what_needs_the_store_at_each_call_is_invalid_under_a_lease() {
    const WINDOW: Policy = Policy::sliding_window("window", SECOND, 10_000).lease(LEASE);
    on_each_store(async |limiter| {
        for (check, argument) in [
            (limiter.check(&WINDOW, "alice").request_id("job-7"), "request_id"),
            (limiter.check(&WINDOW, "alice").max_wait(SECOND), "max_wait"),
        ] {
            let error = check.await.unwrap_err();
            let RateLimitError::InvalidPolicy(invalid) = &error else { panic!("{error}") };
            let start = format!("`{argument}` needs the store at each call");
            assert!(invalid.fault().to_string().starts_with(&start), "{error}");
        }
        let left = limiter.check(&WINDOW, "alice").max_wait(Duration::ZERO).await.unwrap();
        assert_eq!((left.threshold(), left.remaining()), (10_000, 9_999));
    })
    .await;
}

#[tokio::test]
async fn a_bucket_keeps_room_for_what_refills_during_a_lease() {
    on_each_store(async |limiter| {
        assert_eq!(limiter.peek(&BUCKET, "alice").cost(0).await.unwrap().remaining(), 3);
        let refused = limiter.check(&BUCKET, "alice").cost(4).await.unwrap_err();
        assert_eq!(
            refused.to_string(),
            "rate limit `bucket` never admits 4 units at once: its bucket holds 3 under its lease"
        );
        let slow = Policy::token_bucket("slow", MINUTE, 60).burst(3).lease(LEASE);
        assert_eq!(limiter.check(&slow, "alice").cost(2).await.unwrap().remaining(), 0);
        let wait = exceeded(limiter.check(&slow, "alice").await).retry_after();
        assert!(wait <= SECOND, "{wait:?}");
    })
    .await;
}

#[tokio::test]
async fn an_override_has_no_lease_and_none_of_its_bounds() {
    on_each_store(async |limiter| {
        let faster = Override::new().period(Duration::from_millis(100)).threshold(50).burst(13);
        limiter.overrides().here().set("bucket", faster).unwrap();
        let all = limiter.check(&BUCKET, "alice").cost(13).await.unwrap();
        assert_eq!((all.remaining(), all.period()), (0, Duration::from_millis(100)));
        limiter.overrides().here().remove("bucket");
        assert_eq!(limiter.check(&BUCKET, "bob").await.unwrap().remaining(), 2);
    })
    .await;
}

#[rate_limit(
    name = "leased",
    algorithm = fixed_window,
    period = 1,
    threshold = 10_000,
    lease = "20ms",
    key = user
)]
async fn leased(user: &str) -> Result<(), RateLimitError> {
    Ok(())
}

#[rate_limit(name = "leased by plan", period = 1, threshold = 10_000, lease = plan / 50, key = "all")]
async fn by_plan(plan: Duration) -> Result<(), RateLimitError> {
    Ok(())
}

#[tokio::test]
async fn a_lease_is_told_with_the_limit_and_validated_at_the_call() {
    let told: Vec<_> = policies().iter().map(ToString::to_string).collect();
    for line in [
        "leased: fixed_window, 10000 per 1s, lease 20ms, key (user)",
        "leased by plan: sliding_window, by plan / 50, key (\"all\")",
    ] {
        assert!(told.iter().any(|it| it == line), "{line} in {told:#?}");
    }
    leased("alice").await.unwrap();
    by_plan(SECOND).await.unwrap();
    let error = by_plan(MINUTE).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "invalid rate limit policy `leased by plan`: `lease` must be at most a tenth of the shortest \
         period of 1 s, but is 1200 ms"
    );
}
