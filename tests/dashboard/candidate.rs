//! The page starts, shows, applies and ends the trial of numbers.

use harness::{RedisServer, until};
use ratelimit_runtime::{Limiter, Override, RateLimitError, overrides::OverrideSource, rate_limit};
use serde_json::{Value, json};

use crate::operator::Operator;

#[rate_limit(name = "tried here", period = "1h", threshold = 3, key = user, limiter = limiter)]
async fn tried(limiter: &Limiter, user: &str) -> Result<(), RateLimitError> {
    Ok(())
}

async fn act(operator: &Operator, path: &str, body: Value) -> Value {
    let (status, told) = operator.act(path, body).await;
    assert_eq!(status, 200, "{told}");
    told
}

#[tokio::test]
async fn a_candidate_is_tried_and_applied_by_one_action_each() {
    let limiter = Limiter::in_memory();
    let operator = Operator::of(&limiter).await;
    let overrides = limiter.overrides().by("bob");
    overrides.here().set("tried here", Override::new().threshold(5)).unwrap();
    let body = json!({ "limit": "tried here", "numbers": { "threshold": 2 } });
    act(&operator, "candidate", body).await;
    let candidate = Override::new().threshold(2);
    let set = limiter.overrides().get("tried here").unwrap();
    let set_candidate = set.candidate.unwrap();
    let since = set_candidate.since.unwrap();
    assert_eq!((set.threshold, *set_candidate), (Some(5), candidate.since(since)));
    for user in ["alice", "alice", "alice", "dave"] {
        tried(&limiter, user).await.unwrap();
    }
    let counts = operator.events().await.next("counts").await["tried here"]["candidate"].clone();
    assert!(counts["since"].as_u64().is_some(), "{counts}");
    let expected = [
        ("calls", 4),
        ("refused", 1),
        ("newly_refused", 1),
        ("newly_admitted", 0),
        ("refused_otherwise", 0),
        ("callers", 2),
        ("refused_callers", 1),
    ];
    for (count, expected) in expected {
        assert_eq!(counts[count], expected, "{count}: {counts}");
    }
    act(&operator, "apply-candidate", json!({ "limit": "tried here" })).await;
    let applied = limiter.overrides().get("tried here").unwrap();
    assert_eq!((applied.threshold, applied.candidate), (Some(2), None));
    assert!(tried(&limiter, "alice").await.is_err());
    let counts = operator.events().await.next("counts").await["tried here"]["candidate"].clone();
    assert!(counts.is_null(), "{counts}");
    // It is a change as any other: it can be undone.
    let view = operator.events().await.next("limits").await;
    let last = &view["changes"][0];
    assert_eq!(last["before"]["candidate"]["threshold"], 2, "{last}");
    act(&operator, "undo", json!({ "number": last["number"] })).await;
    assert_eq!(limiter.overrides().get("tried here").unwrap().threshold, Some(5));
    act(&operator, "candidate", json!({ "limit": "tried here", "numbers": null })).await;
    assert_eq!(limiter.overrides().candidates(), []);
    assert_eq!(limiter.overrides().get("tried here").unwrap().threshold, Some(5));
}

#[tokio::test]
async fn a_candidate_that_does_not_fit_is_refused_in_words() {
    let limiter = Limiter::in_memory();
    let operator = Operator::of(&limiter).await;
    for (numbers, why) in [
        (json!({ "threshold": "abc" }), "Threshold must be a whole number"),
        (json!({ "burst": 5 }), "`burst` is the size of a `token_bucket`"),
        (json!({}), "takes nothing but"),
    ] {
        let body = json!({ "limit": "tried here", "numbers": numbers });
        let (status, told) = operator.act("candidate", body).await;
        assert_eq!(status, 422, "{told}");
        assert!(told["error"].as_str().unwrap().contains(why), "{told}");
    }
    assert_eq!(limiter.overrides().get("tried here"), None);
}

#[tokio::test]
async fn a_candidate_of_the_fleet_is_applied_in_the_fleet() {
    let server = RedisServer::start();
    let limiter = server.limiter().await;
    limiter.overrides().follow_redis().await.unwrap();
    let operator = Operator::of(&limiter).await;
    let numbers = json!({ "threshold": 2 });
    let body = json!({ "limit": "tried here", "numbers": numbers, "scope": "fleet" });
    act(&operator, "candidate", body).await;
    until("the candidate", async || limiter.overrides().candidates().pop()).await;
    let body = json!({ "limit": "tried here", "scope": "fleet" });
    act(&operator, "apply-candidate", body).await;
    until("the numbers", async || {
        let by_source = limiter.overrides().by_source("tried here");
        let (source, what) = by_source.first()?;
        (what.threshold == Some(2)).then(|| assert_eq!(*source, OverrideSource::Redis))
    })
    .await;
    assert_eq!(limiter.overrides().candidates(), []);
}
