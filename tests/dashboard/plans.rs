//! Plans of a limit: an override of the limit is that of each plan, and is made on the page too.

use harness::until;
use ratelimit_runtime::{
    Enforcement, Limiter, Override, Plans, Policy, RateLimitError, rate_limit,
};
use serde_json::{Value, json};

use crate::operator::{MINUTE, Operator};

const TIERED: Plans = Plans::new("tiered", "free", Policy::sliding_window("free", MINUTE, 1))
    .plan("pro", Policy::sliding_window("pro", MINUTE, 3));

#[rate_limit(policy = TIERED, plan = plan, key = user, limiter = limiter)]
pub(crate) async fn tiered(
    limiter: &Limiter,
    plan: &str,
    user: &str,
) -> Result<(), RateLimitError> {
    Ok(())
}

#[tokio::test]
async fn an_override_of_the_limit_is_shown_at_each_plan_and_is_made_there() {
    let limiter = Limiter::in_memory();
    let operator = Operator::of(&limiter).await;
    let threshold = |told: &Value| told["now"]["tiers"][0]["threshold"].clone();
    limiter
        .overrides()
        .here()
        .set("tiered", Override::new().enforcement(Enforcement::Off))
        .unwrap();
    for _ in 0..3 {
        tiered(&limiter, "free", "alice").await.unwrap();
    }
    let free = operator.told_of("tiered@free").await;
    assert_eq!(
        (&free["enforcement"], &free["enforced_by"]),
        (&json!("off"), &json!("the program"))
    );
    assert_eq!(free["overrides"][0]["limit"], "tiered", "{free}");
    limiter.overrides().here().remove("tiered");

    let numbers = json!({ "limit": "tiered", "numbers": { "threshold": 9 } });
    let (status, told) = operator.act("numbers", numbers).await;
    assert_eq!(status, 200, "{told}");
    for plan in ["tiered@free", "tiered@pro"] {
        assert_eq!(threshold(&operator.told_of(plan).await), 9, "{plan}");
    }
    // That of the plan comes first.
    let numbers = json!({ "limit": "tiered@free", "numbers": { "threshold": 2 } });
    operator.act("numbers", numbers).await;
    let free = operator.told_of("tiered@free").await;
    assert_eq!((threshold(&free), free["limit"].clone()), (json!(2), json!("tiered")));
    let limits = free["overrides"].as_array().unwrap().iter().map(|it| it["limit"].clone());
    assert_eq!(limits.collect::<Vec<_>>(), ["tiered@free", "tiered"]);
    operator.act("override", json!({ "limit": "tiered" })).await;
    assert_eq!(threshold(&operator.told_of("tiered@pro").await), 3);

    let deny = json!({
        "limit": "tiered", "caller": [{ "text": "mallory" }], "what": { "deny": true },
    });
    let (status, told) = operator.act("exception", deny).await;
    assert_eq!(status, 200, "{told}");
    until("the exception", async || {
        let answer = tiered(&limiter, "pro", "mallory").await;
        matches!(answer, Err(RateLimitError::Denied(_))).then_some(())
    })
    .await;
    let (_, listed) =
        operator.act("exceptions", json!({ "limit": "tiered@pro", "find": "" })).await;
    assert_eq!((&listed["found"], &listed["callers"][0]["limit"]), (&json!(1), &json!("tiered")));
}
