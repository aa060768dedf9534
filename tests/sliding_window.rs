//! The sliding window means the same in memory and on Redis.

use std::time::{Duration, Instant};

use harness::{exceeded, on_each_store};
use ratelimit_runtime::{Policy, RateLimitError};

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3_600);

#[tokio::test]
async fn of_20_calls_the_first_5_are_admitted() {
    const REPLY: Policy = Policy::sliding_window("reply", MINUTE, 5);
    on_each_store(async |limiter| {
        for call in 0..20 {
            let answer = limiter.check(&REPLY, "harry").await;
            if call < 5 {
                let decision = answer.unwrap();
                assert_eq!(decision.remaining(), 4 - call);
                assert_eq!((decision.policy(), decision.threshold()), ("reply", 5));
                assert_eq!(decision.reset_after(), MINUTE);
                assert!(decision.replenish_after() <= MINUTE);
            } else {
                let refused = exceeded(answer);
                assert_eq!((refused.threshold(), refused.period()), (5, MINUTE));
                assert!(refused.retry_after() <= refused.reset_after());
                assert!(refused.reset_after() <= MINUTE);
            }
        }
        assert!(limiter.check(&REPLY, "ron").await.is_ok());
    })
    .await;
}

#[tokio::test]
async fn a_refused_call_is_admitted_after_its_wait_and_not_before() {
    const BRIEF: Policy = Policy::sliding_window("brief", Duration::from_millis(200), 2);
    on_each_store(async |limiter| {
        limiter.check(&BRIEF, "alice").await.unwrap();
        limiter.check(&BRIEF, "alice").await.unwrap();
        // Refused calls are not counted: asking all the time does not make the wait longer.
        let mut refused = None;
        loop {
            let asked = Instant::now();
            match limiter.check(&BRIEF, "alice").await {
                Ok(_) => break,
                refusal => refused = Some((asked, exceeded(refusal).retry_after())),
            }
        }
        // The last refusal was asked for at least its wait before the admission.
        let (asked, wait) = refused.expect("a refusal");
        assert!(asked.elapsed() + Duration::from_millis(1) >= wait, "{wait:?}");
    })
    .await;
}

#[tokio::test]
async fn looking_consumes_nothing() {
    const LOOK: Policy = Policy::sliding_window("look", MINUTE, 2);
    on_each_store(async |limiter| {
        assert_eq!(limiter.peek_n(&LOOK, "alice", 0).await.unwrap().remaining(), 2);
        for left in [1, 0] {
            assert_eq!(limiter.peek(&LOOK, "alice").await.unwrap().remaining(), left);
            assert_eq!(limiter.check(&LOOK, "alice").await.unwrap().remaining(), left);
        }
        exceeded(limiter.peek(&LOOK, "alice").await);
        exceeded(limiter.check(&LOOK, "alice").await);
        let left = limiter.peek_n(&LOOK, "alice", 0).await.unwrap();
        assert_eq!(left.remaining(), 0);
        assert!(left.replenish_after() > MINUTE / 2 && left.reset_after() > MINUTE / 2);
    })
    .await;
}

#[tokio::test]
async fn a_reset_forgets_one_caller() {
    const RESET: Policy = Policy::sliding_window("reset", MINUTE, 1);
    on_each_store(async |limiter| {
        limiter.reset(&RESET, "nobody yet").await.unwrap();
        limiter.check(&RESET, "alice").await.unwrap();
        limiter.check(&RESET, "bob").await.unwrap();
        limiter.reset(&RESET, "alice").await.unwrap();
        limiter.check(&RESET, "alice").await.unwrap();
        exceeded(limiter.check(&RESET, "bob").await);
    })
    .await;
}

#[tokio::test]
async fn tiers_are_charged_together_or_not_at_all() {
    const MAIL: Policy = Policy::sliding_window("mail", MINUTE, 2).tier(HOUR, 3);
    const HOURLY: Policy = Policy::sliding_window("mail", HOUR, 3);
    on_each_store(async |limiter| {
        for _ in 0..2 {
            limiter.check(&MAIL, "box").await.unwrap();
        }
        let refused = exceeded(limiter.check(&MAIL, "box").await);
        assert_eq!((refused.threshold(), refused.period()), (2, MINUTE));
        // The hour was not charged for the refused call.
        assert_eq!(limiter.peek_n(&HOURLY, "box", 0).await.unwrap().remaining(), 1);
    })
    .await;
}

#[tokio::test]
async fn a_cost_is_taken_whole_or_not_at_all() {
    const UNITS: Policy = Policy::sliding_window("units", MINUTE, 10);
    on_each_store(async |limiter| {
        assert_eq!(limiter.check_n(&UNITS, "alice", 7).await.unwrap().remaining(), 3);
        assert_eq!(exceeded(limiter.check_n(&UNITS, "alice", 4).await).remaining(), 3);
        assert_eq!(limiter.check_n(&UNITS, "alice", 3).await.unwrap().remaining(), 0);
        for cost in [0, 11] {
            let error = limiter.check_n(&UNITS, "alice", cost).await.unwrap_err();
            assert!(matches!(error, RateLimitError::InvalidPolicy(_)), "{error}");
        }
    })
    .await;
}

#[tokio::test]
async fn callers_never_share() {
    const EACH: Policy = Policy::sliding_window("each", MINUTE, 1);
    on_each_store(async |limiter| {
        let long = "x".repeat(1 << 20);
        for caller in ["", " ", "a", "a:b", "a/b", "{a}", "}{", "%none", "a\0", "a\r\n", "é", &long]
        {
            assert!(limiter.check(&EACH, caller).await.is_ok(), "{caller:.20}");
        }
        let pair = |a: &str, b: &str| ratelimit_runtime::Caller::from(a).and(b);
        assert!(limiter.check(&EACH, pair("a:b", "c")).await.is_ok());
        assert!(limiter.check(&EACH, pair("a", "b:c")).await.is_ok());
        exceeded(limiter.check(&EACH, pair("a", "b:c")).await);
    })
    .await;
}
