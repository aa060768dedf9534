//! Planned refusals.

use std::time::Duration;

use ratelimit_runtime::{
    Caller, Enforcement, Limiter, Override, Plans, Policy, RateLimitError, UnavailableReason,
    caller, limiter, limits::policies_of, rate_limit, testing,
};

use super::{failure_of, report};

const SECOND: Duration = Duration::from_secs(1);
const BY_HAND: Policy =
    Policy::token_bucket("by hand", SECOND, 10).tier(Duration::from_secs(60), 100);

#[rate_limit(name = "pairs", period = 60, threshold = 2, key = (tenant, user))]
async fn pairs(tenant: &str, user: u64) -> Result<(), RateLimitError> {
    Ok(())
}

const HOUR: Duration = Duration::from_secs(3_600);
const PLANS: Plans = Plans::new("by plan", "free", Policy::fixed_window("free", HOUR, 9))
    .plan("pro", Policy::fixed_window("pro", HOUR, 99));

#[rate_limit(policy = PLANS, plan = plan, key = user)]
async fn by_plan(plan: &str, user: &str) -> Result<(), RateLimitError> {
    Ok(())
}

/// Counted by the caller that an identity layer finds, such as the digest of an API key.
#[rate_limit(name = "by identity", period = 60, threshold = 100)]
async fn by_identity() -> Result<(), RateLimitError> {
    Ok(())
}

fn wait_of(answer: Result<(), RateLimitError>) -> Duration {
    match answer {
        Err(RateLimitError::Exceeded(refused)) => refused.retry_after(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn each_plan_gives_its_error_until_it_is_ended() {
    testing::isolated(async {
        testing::refuse("report", 7 * SECOND);
        assert_eq!(wait_of(report("alice").await), 7 * SECOND);
        testing::exhaust("report");
        assert_eq!(wait_of(report("alice").await), 3_600 * SECOND);
        testing::busy("report");
        assert!(matches!(report("alice").await, Err(RateLimitError::Busy(_))));
        testing::unavailable("report");
        let Err(RateLimitError::Unavailable(lost)) = report("alice").await else { panic!() };
        assert_eq!(lost.reason(), UnavailableReason::Disconnected);
        // No other limit is concerned, and no unit was taken.
        pairs("acme", 1).await.unwrap();
        testing::restore("report");
        report("alice").await.unwrap();
        report("alice").await.unwrap();
    })
    .await;
    testing::isolated(report("alice")).await.unwrap();
}

/// As in production: the kill switch and a `deny` come first, and a call of 0 units is never refused.
#[tokio::test]
async fn a_planned_refusal_is_behind_the_switches_of_an_operator() {
    testing::isolated(async {
        testing::exhaust("report");
        let here = limiter().overrides().here();
        here.set("report", Override::new().enforcement(Enforcement::Off)).unwrap();
        report("alice").await.unwrap();
        here.remove("report");
        here.set(("report", "alice"), Override::new().deny()).unwrap();
        assert!(matches!(report("alice").await, Err(RateLimitError::Denied(_))));
        here.remove(("report", "alice"));
        assert_eq!(wait_of(report("alice").await), 3_600 * SECOND);
        let by_hand = Policy::sliding_window("report", HOUR, 2);
        limiter().peek(&by_hand, "alice").cost(0).await.unwrap();
        limiter().peek(&by_hand, "alice").await.unwrap_err();
    })
    .await;
}

#[tokio::test]
async fn a_plan_for_one_caller_comes_before_that_for_all() {
    testing::isolated(async {
        testing::refuse_for("report", "alice", SECOND);
        assert_eq!(wait_of(report("alice").await), SECOND);
        report("bob").await.unwrap();
        testing::exhaust("report");
        assert_eq!(wait_of(report("alice").await), SECOND);
        assert_eq!(wait_of(report("bob").await), 3_600 * SECOND);
        testing::exhaust_for("report", "alice");
        assert_eq!(wait_of(report("alice").await), 3_600 * SECOND);
        testing::busy_for("pairs", Caller::from("acme").and(7));
        assert!(matches!(pairs("acme", 7).await, Err(RateLimitError::Busy(_))));
        pairs("acme", 8).await.unwrap();
        testing::unavailable_for("pairs", Caller::from("acme").and(8));
        assert!(matches!(pairs("acme", 8).await, Err(RateLimitError::Unavailable(_))));
    })
    .await;
}

#[tokio::test]
async fn a_plan_for_a_value_is_one_for_its_digest() {
    testing::isolated(async {
        for key in ["sk-live-4711", "sk/live 4711", &"sk-live".repeat(40)] {
            testing::exhaust_for("by identity", key);
            assert!(caller::scope(Caller::digest(key), by_identity()).await.is_err(), "{key}");
            testing::restore("by identity");
            caller::scope(Caller::digest(key), by_identity()).await.unwrap();
            testing::exhaust_for("by identity", Caller::digest(key));
            assert!(caller::scope(Caller::digest(key), by_identity()).await.is_err(), "{key}");
            caller::scope(Caller::digest("another"), by_identity()).await.unwrap();
        }
    })
    .await;
}

#[tokio::test]
async fn a_policy_is_planned_for_checks_by_hand_of_any_limiter() {
    let limiter = Limiter::in_memory();
    testing::isolated(async {
        testing::refuse(&BY_HAND, 9 * SECOND);
        let check = limiter.check(&BY_HAND, "alice");
        assert_eq!(wait_of(check.await.map(drop)), 9 * SECOND);
        let check = limiter.check(&BY_HAND, "alice").cost(2).max_wait(60 * SECOND);
        assert_eq!(wait_of(check.await.map(drop)), 9 * SECOND);
        testing::restore(&BY_HAND);
        limiter.check(&BY_HAND, "alice").await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_limit_is_named_with_all_its_plans_or_by_one_of_them() {
    testing::isolated(async {
        let refused = async || {
            [by_plan("free", "alice").await, by_plan("pro", "alice").await].map(|it| it.is_err())
        };
        testing::exhaust("by plan");
        assert_eq!(refused().await, [true, true]);
        testing::restore("by plan");
        assert_eq!(refused().await, [false, false]);
        testing::busy("by plan@pro");
        testing::unavailable_for(PLANS.of("free"), "bob");
        assert_eq!(refused().await, [false, true]);
        testing::restore(&policies_of(&by_plan)[1]);
        assert_eq!(refused().await, [false, false]);
        by_plan("free", "bob").await.unwrap_err();
        by_plan("pro", "bob").await.unwrap();
        // That of the plan comes before that of the limit, and ends with it.
        testing::exhaust("by plan@pro");
        testing::refuse("by plan", SECOND);
        assert_eq!(wait_of(by_plan("pro", "alice").await), HOUR);
        assert_eq!(wait_of(by_plan("free", "alice").await), SECOND);
        testing::restore("by plan");
        assert_eq!(refused().await, [false, false]);
        by_plan("free", "bob").await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn an_error_about_a_limit_with_plans_names_them() {
    let usage = async |limit| limiter().usage(limit, "alice").await;
    let error = usage("by plan").await.unwrap_err().to_string();
    let expected = "rate limit `by plan` has plans with other numbers; name one of `by plan@free`, `by plan@pro`";
    assert_eq!(error, expected);
    assert_eq!(usage("by plan@pro").await.unwrap().tiers()[0].quota(), 99);
    let unknown = testing::isolated(async { testing::exhaust("by plan@por") });
    let unknown = failure_of(unknown).await;
    assert!(unknown.ends_with("named `by plan@por`; `by plan@pro` is one"), "{unknown}");
}

#[tokio::test]
async fn a_plan_in_the_wrong_place_says_where_it_belongs() {
    let outside = failure_of(async { testing::busy("report") }).await;
    assert!(outside.contains("inside `testing::isolated(..)`"), "{outside}");
    let spawned =
        testing::isolated(async { failure_of(async { testing::exhaust("report") }).await });
    let spawned = spawned.await;
    assert!(spawned.contains("wrap its future, too"), "{spawned}");
    let misspelt = testing::isolated(async { testing::exhaust("reprot") });
    let misspelt = failure_of(misspelt).await;
    assert!(misspelt.contains("`report`"), "{misspelt}");
}

/// As in production, a refusal names the tier that has its wait.
#[tokio::test]
async fn a_refusal_is_that_of_a_tier_with_such_a_wait() {
    const SEVERAL: Policy =
        Policy::sliding_window("several", Duration::from_secs(60), 2).tier(HOUR, 9);
    testing::isolated(async {
        testing::exhaust(&SEVERAL);
        let refused = limiter().check(&SEVERAL, "alice").await.unwrap_err();
        let text = "rate limit `several` exceeded: at most 9 per 3600s, retry after 3600s";
        assert_eq!(refused.to_string(), text);
        for (wait, threshold) in [(7, 2), (60, 2), (61, 9), (7_200, 9)] {
            testing::refuse(&SEVERAL, wait * SECOND);
            let answer = limiter().check(&SEVERAL, "alice").await;
            let Err(RateLimitError::Exceeded(refused)) = answer else { panic!() };
            assert_eq!((refused.threshold(), refused.quota()), (threshold, threshold), "{wait}");
            assert_eq!(refused.retry_after(), wait * SECOND);
        }
    })
    .await;
}
