//! Every algorithm keeps the common promises and its own, in memory and on Redis.

use std::time::{Duration, Instant};

use harness::{exceeded, on_each_store};
use ratelimit_runtime::{Caller, Limiter, Policy, RateLimitError};

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3_600);
const DAY: Duration = Duration::from_secs(24 * 3_600);

type Make = fn(&'static str, Duration, u32) -> Policy;

const ALL: [Make; 4] =
    [Policy::sliding_window, Policy::sliding_counter, Policy::fixed_window, Policy::token_bucket];

/// Runs the test with each algorithm on each store.
async fn with_each(test: impl AsyncFn(Make, &Limiter)) {
    on_each_store(async |limiter| {
        for make in ALL {
            test(make, limiter).await;
        }
    })
    .await;
}

#[tokio::test]
async fn of_20_calls_the_first_5_are_admitted() {
    with_each(async |make, limiter| {
        let policy = make("reply", DAY, 5);
        for call in 0..20 {
            let answer = limiter.check(&policy, "harry").await;
            if call < 5 {
                let decision = answer.unwrap();
                assert_eq!(decision.remaining(), 4 - call, "{policy:?}");
                assert_eq!((decision.threshold(), decision.period()), (5, DAY));
                assert!(decision.replenish_after() <= 2 * DAY);
                assert!(decision.replenish_after() <= decision.reset_after());
            } else {
                let refused = exceeded(answer);
                assert_eq!((refused.threshold(), refused.period()), (5, DAY));
                assert_eq!(refused.remaining(), 0);
                assert!(refused.retry_after() <= refused.reset_after());
                assert!(refused.reset_after() <= 2 * DAY);
            }
        }
        assert!(limiter.check(&policy, "ron").await.is_ok());
    })
    .await;
}

#[tokio::test]
async fn a_refused_call_is_admitted_after_its_wait_and_not_before() {
    with_each(async |make, limiter| {
        let policy = make("brief", Duration::from_millis(150), 2);
        limiter.check(&policy, "alice").await.unwrap();
        limiter.check(&policy, "alice").await.unwrap();
        let mut refused = None;
        loop {
            let asked = Instant::now();
            match limiter.check(&policy, "alice").cost(2).await {
                Ok(_) => break,
                refusal => refused = Some((asked, exceeded(refusal).retry_after())),
            }
        }
        // The last refusal was asked for at least its wait before the admission.
        let (asked, wait) = refused.expect("a refusal");
        assert!(asked.elapsed() + Duration::from_millis(1) >= wait, "{policy:?}: {wait:?}");
    })
    .await;
}

#[tokio::test]
async fn a_peek_consumes_nothing_and_answers_as_a_call_would() {
    with_each(async |make, limiter| {
        let policy = make("look", DAY, 2);
        assert_eq!(limiter.peek(&policy, "alice").cost(0).await.unwrap().remaining(), 2);
        assert_eq!(
            limiter.peek(&policy, "alice").cost(0).await.unwrap().reset_after(),
            Duration::ZERO
        );
        for left in [1, 0] {
            for _ in 0..2 {
                assert_eq!(limiter.peek(&policy, "alice").await.unwrap().remaining(), left);
            }
            assert_eq!(limiter.check(&policy, "alice").await.unwrap().remaining(), left);
        }
        exceeded(limiter.peek(&policy, "alice").await);
        exceeded(limiter.check(&policy, "alice").await);
        let left = limiter.peek(&policy, "alice").cost(0).await.unwrap();
        assert_eq!(left.remaining(), 0);
        assert!(left.replenish_after() > Duration::ZERO);
    })
    .await;
}

#[tokio::test]
async fn a_reset_clears_one_caller() {
    with_each(async |make, limiter| {
        let policy = make("reset", DAY, 1);
        limiter.reset(&policy, "nobody yet").await.unwrap();
        limiter.check(&policy, "alice").await.unwrap();
        limiter.check(&policy, "bob").await.unwrap();
        limiter.reset(&policy, "alice").await.unwrap();
        limiter.check(&policy, "alice").await.unwrap();
        exceeded(limiter.check(&policy, "bob").await);
    })
    .await;
}

#[tokio::test]
async fn tiers_are_charged_together_or_not_at_all() {
    with_each(async |make, limiter| {
        let mail = make("mail", DAY, 4).tier(2 * DAY, 6);
        for _ in 0..4 {
            limiter.check(&mail, "box").await.unwrap();
        }
        let refused = exceeded(limiter.check(&mail, "box").await);
        assert_eq!((refused.threshold(), refused.period()), (4, DAY));
        // The refused call has left the two days as they were.
        let two_days = make("mail", 2 * DAY, 6);
        let left = match mail.algorithm().as_str() {
            // One log serves all tiers, whichever of them is asked.
            "sliding_window" => limiter.peek(&two_days, "box").cost(0).await.unwrap().remaining(),
            // The others keep numbers by tier: the first one is asked alone.
            _ => limiter
                .peek(&make("mail", DAY, 6), "box")
                .cost(0)
                .await
                .map_or(0, |left| left.remaining()),
        };
        // A bucket whose rate has changed keeps its whole tokens, here none.
        let expected = if mail.algorithm().as_str() == "token_bucket" { 0 } else { 2 };
        assert_eq!(left, expected, "{mail:?}");
    })
    .await;
}

#[tokio::test]
async fn a_cost_is_taken_whole_or_not_at_all() {
    with_each(async |make, limiter| {
        let policy = make("units", DAY, 10);
        assert_eq!(limiter.check(&policy, "alice").cost(7).await.unwrap().remaining(), 3);
        assert_eq!(exceeded(limiter.check(&policy, "alice").cost(4).await).remaining(), 3);
        assert_eq!(limiter.check(&policy, "alice").cost(3).await.unwrap().remaining(), 0);
        let error = limiter.check(&policy, "alice").cost(11).await.unwrap_err();
        assert!(matches!(error, RateLimitError::TooLarge(_)), "{error}");
        assert_eq!(limiter.check(&policy, "alice").cost(0).await.unwrap().remaining(), 0);
    })
    .await;
}

#[tokio::test]
async fn callers_never_share() {
    with_each(async |make, limiter| {
        let each = make("each", DAY, 1);
        let long = "x".repeat(1 << 20);
        for caller in ["", " ", "a", "a:b", "a/b", "{a}", "}{", "%none", "a\0", "a\r\n", "é", &long]
        {
            assert!(limiter.check(&each, caller).await.is_ok(), "{caller:.20}");
        }
        let pair = |a: &str, b: &str| Caller::from(a).and(b);
        assert!(limiter.check(&each, pair("a:b", "c")).await.is_ok());
        assert!(limiter.check(&each, pair("a", "b:c")).await.is_ok());
        exceeded(limiter.check(&each, pair("a", "b:c")).await);
    })
    .await;
}

#[tokio::test]
async fn algorithms_of_one_name_never_meet() {
    with_each(async |make, limiter| {
        let policy = make("same name", DAY, 1);
        assert_eq!(limiter.check(&policy, "alice").await.unwrap().remaining(), 0);
    })
    .await;
}

#[tokio::test]
async fn a_changed_threshold_keeps_the_history() {
    with_each(async |make, limiter| {
        for _ in 0..4 {
            limiter.check(&make("changed", DAY, 8), "alice").await.unwrap();
        }
        let is_bucket = make("", DAY, 1).algorithm().as_str() == "token_bucket";
        // Half of the bucket is left, and a bucket never holds more than its size.
        let wider = limiter.peek(&make("changed", DAY, 16), "alice").cost(0).await.unwrap();
        assert_eq!(wider.remaining(), if is_bucket { 4 } else { 12 });
        let narrower = limiter.check(&make("changed", DAY, 2), "alice").await;
        if is_bucket {
            assert_eq!(narrower.unwrap().remaining(), 1);
        } else {
            exceeded(narrower);
        }
    })
    .await;
}

#[tokio::test]
async fn a_penalty_makes_the_wait_longer() {
    on_each_store(async |limiter| {
        for make in [Policy::sliding_window, Policy::token_bucket] {
            let policy = make("penalty", MINUTE, 1).count_rejected();
            limiter.check(&policy, "alice").await.unwrap();
            for _ in 0..3 {
                tokio::time::sleep(Duration::from_millis(5)).await;
                let refused = exceeded(limiter.check(&policy, "alice").await);
                // Without it the wait would be shorter by the pause.
                assert_eq!(refused.retry_after(), MINUTE, "{policy:?}");
            }
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_penalty_of_a_sliding_counter_weighs_in_the_next_window() {
    const POLICY: Policy = Policy::sliding_counter("p", MINUTE, 10);
    let limiter = Limiter::in_memory();
    // Of 10 recorded units 6 s have to pass for the next one, and as many for the call itself.
    for (policy, wait) in [(POLICY, 0), (POLICY.named("penalty").count_rejected(), 12)] {
        limiter.check(&policy, "alice").cost(5).await.unwrap();
        exceeded(limiter.check(&policy, "alice").cost(6).await);
        tokio::time::advance(MINUTE).await;
        let next = limiter.check(&policy, "alice").await;
        let waits =
            next.map_or_else(|error| exceeded::<()>(Err(error)).retry_after(), |_| Duration::ZERO);
        assert_eq!(waits, Duration::from_secs(wait));
        tokio::time::advance(10 * MINUTE).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_fixed_window_opens_at_the_first_call() {
    const POLICY: Policy = Policy::fixed_window("p", MINUTE, 2);
    let limiter = Limiter::in_memory();
    tokio::time::advance(Duration::from_secs(45)).await;
    assert_eq!(limiter.check(&POLICY, "alice").await.unwrap().reset_after(), MINUTE);
    tokio::time::advance(Duration::from_secs(59)).await;
    limiter.check(&POLICY, "alice").await.unwrap();
    let refused = exceeded(limiter.check(&POLICY, "alice").await);
    assert_eq!(refused.retry_after(), Duration::from_secs(1));
    // Across the end of a window twice the threshold passes: a property of the algorithm.
    tokio::time::advance(Duration::from_secs(1)).await;
    limiter.check(&POLICY, "alice").cost(2).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_sliding_counter_weighs_the_window_before() {
    const POLICY: Policy = Policy::sliding_counter("p", MINUTE, 10);
    let limiter = Limiter::in_memory();
    limiter.check(&POLICY, "alice").cost(10).await.unwrap();
    tokio::time::advance(MINUTE).await;
    assert_eq!(exceeded(limiter.check(&POLICY, "alice").await).retry_after(), MINUTE / 10);
    tokio::time::advance(MINUTE / 4).await;
    // Three quarters of ten is seven and a half: two more fit.
    assert_eq!(limiter.check(&POLICY, "alice").cost(2).await.unwrap().remaining(), 0);
    assert_eq!(exceeded(limiter.check(&POLICY, "alice").await).retry_after(), MINUTE / 20);
}

#[tokio::test(start_paused = true)]
async fn a_burst_of_one_spaces_calls_evenly() {
    const PACED: Policy = Policy::token_bucket("p", Duration::from_secs(1), 10).burst(1);
    let limiter = Limiter::in_memory();
    tokio::time::advance(HOUR).await;
    for _ in 0..100 {
        limiter.check(&PACED, "alice").await.unwrap();
        let refused = exceeded(limiter.check(&PACED, "alice").await);
        assert_eq!(refused.retry_after(), Duration::from_millis(100));
        tokio::time::advance(Duration::from_millis(100)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_token_bucket_does_not_drift_in_a_hundred_thousand_calls() {
    // A seventh of a second is no whole number of microseconds.
    const POLICY: Policy = Policy::token_bucket("p", Duration::from_secs(1), 7).burst(2);
    const CALLS: u64 = 100_000;
    let limiter = Limiter::in_memory();
    let start = tokio::time::Instant::now();
    limiter.check(&POLICY, "alice").cost(2).await.unwrap();
    for _ in 0..CALLS {
        let left = limiter.peek(&POLICY, "alice").cost(0).await.unwrap();
        assert_eq!(left.remaining(), 0);
        tokio::time::advance(left.replenish_after()).await;
        limiter.check(&POLICY, "alice").await.unwrap();
    }
    assert_eq!(start.elapsed(), Duration::from_micros((CALLS * 1_000_000).div_ceil(7)));
}
