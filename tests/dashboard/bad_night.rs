//! Actions hold, tell their history, and are undone one by one.

use std::time::{Duration, SystemTime};

use axum::http::{HeaderValue, request::Parts};
use harness::{RedisServer, until};
use ratelimit_dashboard::{Access, NamedAccess};
use ratelimit_runtime::{
    Caller, Enforcement, Limiter, Override, RateLimitError, overrides::OverrideSource, rate_limit,
};
use serde_json::{Value, json};

use crate::operator::{Operator, authorize, serve};

#[rate_limit(name = "night", period = "1h", threshold = 1, key = (tenant, user), limiter = limiter)]
async fn night(limiter: &Limiter, tenant: &str, user: u32) -> Result<(), RateLimitError> {
    Ok(())
}

/// An operator whom the hook knows.
async fn named(limiter: &Limiter, name: &'static str) -> Operator {
    let hook = move |request: &Parts| -> NamedAccess {
        match request.headers.get("x-operator").map(HeaderValue::as_bytes) {
            Some(b"act") => Access::Act.named(name),
            _ => authorize(request).into(),
        }
    };
    Operator::at(serve(ratelimit_dashboard::router(limiter.clone(), hook)).await).await
}

async fn view(operator: &Operator) -> Value {
    operator.events().await.next("limits").await
}

fn enforce(word: &str, scope: &str) -> Value {
    json!({ "limit": "night", "enforcement": word, "scope": scope })
}

#[tokio::test]
async fn an_action_of_this_process_is_in_effect_in_no_other_and_before_the_fleet() {
    let server = RedisServer::start();
    let (here, there) = (server.limiter().await, server.limiter().await);
    let operator = named(&here, "alice").await;
    let (_, told) = operator.act("enforcement", enforce("dry_run", "fleet")).await;
    assert!(told["done"].as_str().unwrap().contains("whole fleet"), "{told}");
    for limiter in [&here, &there] {
        until("the fleet", async || limiter.overrides().get("night").map(drop)).await;
    }
    let (_, told) = operator.act("enforcement", enforce("off", "process")).await;
    assert_eq!(told["done"], "in effect in this process");
    let enforced = |limiter: &Limiter| limiter.overrides().get("night").unwrap().enforcement;
    assert_eq!(enforced(&here), Some(Enforcement::Off));
    assert_eq!(enforced(&there), Some(Enforcement::DryRun));
    // An action on the fleet takes the place of that of this process.
    operator.act("enforcement", enforce("on", "fleet")).await;
    assert_eq!(here.overrides().source("night"), Some(OverrideSource::Redis));
    assert_eq!(enforced(&here), Some(Enforcement::On));

    let alone = named(&Limiter::in_memory(), "alice").await;
    let (status, told) = alone.act("enforcement", enforce("off", "fleet")).await;
    assert_eq!(status, 409, "{told}");
    assert!(told["error"].as_str().unwrap().contains("choose this process"), "{told}");
}

#[tokio::test]
async fn with_redis_dead_an_action_of_this_process_beats_what_redis_has_said_last() {
    let mut server = RedisServer::start();
    let () = server.command("HSET ratelimit:overrides night {\"enforcement\":\"on\"} * on");
    let limiter = server.limiter().await;
    let operator = named(&limiter, "alice").await;
    server.kill();
    until("the failure", async || limiter.overrides().redis_failure()).await;
    let (status, _) = operator.act("enforcement", enforce("off", "fleet")).await;
    assert_eq!(status, 422);
    let (status, told) = operator.act("enforcement", enforce("off", "process")).await;
    assert_eq!(status, 200, "{told}");
    assert_eq!(limiter.overrides().get("night").unwrap().enforcement, Some(Enforcement::Off));
    operator.act("enforcement", json!({ "limit": "*", "enforcement": "off" })).await;
    for _ in 0..3 {
        night(&limiter, "acme", 1).await.unwrap();
    }
    let shown = view(&operator).await;
    assert_eq!(shown["changes"][0]["operator"], "alice");
    assert_eq!(shown["enforcement"]["what"]["by"], "alice");
}

#[tokio::test]
async fn the_last_change_alone_is_undone_and_nothing_that_has_changed_since() {
    let server = RedisServer::start();
    let limiter = server.limiter().await;
    let (alice, bob) = (named(&limiter, "alice").await, named(&limiter, "bob").await);
    let numbers = json!({ "limit": "night", "numbers": { "threshold": 5 } });
    alice.act("numbers", numbers).await;
    let changes = async |count: usize| {
        until("the change", async || {
            let changes = view(&alice).await["changes"].clone();
            (changes.as_array().unwrap().len() == count).then_some(changes)
        })
        .await
    };
    changes(1).await;
    bob.act("enforcement", enforce("dry_run", "fleet")).await;
    let list = changes(2).await;
    let told: Vec<_> = list.as_array().unwrap().iter().collect();
    assert_eq!(
        (&told[0]["operator"], &told[0]["is_last"], &told[0]["is_fleet"]),
        (&json!("bob"), &json!(true), &json!(true))
    );
    assert_eq!((&told[1]["operator"], &told[1]["is_last"]), (&json!("alice"), &json!(false)));
    assert_eq!(told[0]["before"], json!({ "threshold": 5, "by": "alice" }));
    let after = json!({ "enforcement": "dry_run", "threshold": 5, "by": "bob" });
    assert_eq!(told[0]["after"], after);

    // Not alice's change from under that of bob.
    let undo = async |number: &Value| alice.act("undo", json!({ "number": number })).await;
    let (status, error) = undo(&told[1]["number"]).await;
    assert_eq!(status, 409, "{error}");
    let (status, done) = undo(&told[0]["number"]).await;
    assert_eq!(status, 200, "{done}");
    changes(3).await;
    let expected = Override::new().threshold(5).by("alice");
    assert_eq!(limiter.overrides().get("night"), Some(expected));
    // Another process writes, and this one has not read it yet or has.
    let number = &changes(3).await[0]["number"];
    let () = server.command("HSET ratelimit:overrides night off");
    let (status, error) = undo(number).await;
    assert_eq!(status, 409, "{error}");
    assert!(error["error"].as_str().unwrap().contains("changed since"), "{error}");
    changes(4).await;
    let () = server.command("DEL ratelimit:overrides");
    changes(5).await;
    let (status, error) = undo(&json!(99)).await;
    assert_eq!(status, 409, "{error}");

    // In this process, and of all limits.
    alice
        .act("enforcement", json!({ "limit": "*", "enforcement": "off", "scope": "process" }))
        .await;
    let list = changes(6).await;
    let (status, _) = bob.act("undo", json!({ "number": list[0]["number"] })).await;
    assert_eq!((status, limiter.overrides().enforcement()), (200, None));
    assert_eq!(view(&alice).await["changes"][0]["operator"], "bob");
}

#[tokio::test]
async fn a_change_of_a_file_is_undone_in_the_file() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "[limits]\nnight = \"off\"\n").unwrap();
    let limiter = Limiter::in_memory();
    limiter.overrides().follow_file(file.path()).unwrap();
    let operator = named(&limiter, "alice").await;
    let change = view(&operator).await["changes"][0].clone();
    assert_eq!((&change["is_last"], &change["operator"]), (&json!(false), &json!(null)));
    let (status, told) = operator.act("undo", json!({ "number": change["number"] })).await;
    assert_eq!(status, 409, "{told}");
}

#[tokio::test]
async fn an_override_ends_at_the_time_that_was_chosen_and_keeps_it_until_another_is() {
    let limiter = Limiter::in_memory();
    let operator = named(&limiter, "alice").await;
    let until_year = |year: u32| format!("{year}-11-27T18:00:00.000Z");
    let kept = || limiter.overrides().get("night").and_then(|it| it.until);
    let mut action = enforce("off", "process");
    action["until"] = json!(until_year(2999));
    operator.act("enforcement", action.clone()).await;
    let end = kept().expect("an end");
    let numbers = json!({ "limit": "night", "numbers": { "threshold": 5 } });
    operator.act("numbers", numbers).await;
    assert_eq!(kept(), Some(end));
    action["until"] = json!("never");
    action["ends_whole"] = json!(true);
    operator.act("enforcement", action.clone()).await;
    assert!(kept().is_none() && limiter.overrides().get("night").is_some());
    action["until"] = json!("soon");
    let (status, told) = operator.act("enforcement", action.clone()).await;
    assert_eq!(status, 422, "{told}");

    let end = SystemTime::now() + Duration::from_secs(1);
    let text = Override::new().until(end).to_string();
    let text: Value = serde_json::from_str(&text).unwrap();
    let all = json!({ "limit": "*", "enforcement": "off", "until": text["until"] });
    operator.act("enforcement", all).await;
    assert!(limiter.overrides().enforcement().is_some());
    until("its end", async || limiter.overrides().enforcement().is_none().then_some(())).await;
    assert!(SystemTime::now() >= end);
}

#[tokio::test]
async fn a_caller_is_raised_exempt_or_shut_out_listed_searched_and_ended() {
    let server = RedisServer::start();
    for (limiter, scope) in [(Limiter::in_memory(), "process"), (server.limiter().await, "fleet")] {
        let operator = named(&limiter, "alice").await;
        let acme = json!([{ "text": "acme" }, { "text": "42" }]);
        let set = async |limit: &str, what: Value, until: &str| {
            let body = json!({
                "limit": limit, "caller": acme, "what": what, "scope": scope, "until": until,
            });
            operator.act("exception", body).await
        };
        let expected = async |limit: &str, what: Option<Override>| {
            until("the exception", async || {
                let listed = limiter.overrides().list_for(limit).pop().map(|it| it.what);
                (listed == what).then_some(())
            })
            .await;
        };
        let (status, told) = set("night", json!({ "threshold": 3 }), "2999-11-27T18:00:00Z").await;
        assert_eq!(status, 200, "{told}");
        let raised: Override =
            r#"{"threshold":3,"until":"2999-11-27T18:00:00Z","by":"alice"}"#.parse().unwrap();
        expected("night", Some(raised)).await;
        for _ in 0..3 {
            night(&limiter, "acme", 42).await.unwrap();
        }
        night(&limiter, "acme", 42).await.unwrap_err();
        set("*", json!({ "deny": true }), "never").await;
        expected("*", Some(Override::new().deny().by("alice"))).await;
        set("night", json!({ "enforcement": "off" }), "never").await;
        let exempt = Override::new().enforcement(Enforcement::Off).by("alice");
        expected("night", Some(exempt)).await;
        night(&limiter, "acme", 42).await.unwrap();

        let list = async |find: &str| {
            operator.act("exceptions", json!({ "limit": "night", "find": find })).await.1
        };
        let listed = list("me/4").await;
        let limits: Vec<_> =
            listed["callers"].as_array().unwrap().iter().map(|it| &it["limit"]).collect();
        assert_eq!(json!([limits, listed["found"]]), json!([["night", "*"], 2]), "{listed}");
        let first = &listed["callers"][0];
        assert_eq!((&first["caller"], &first["scope"]), (&json!("/acme/42"), &json!(scope)));
        assert_eq!(list("nobody").await["found"], 0);
        // The view that everyone sees has no caller.
        let shown = view(&operator).await.to_string();
        assert!(!shown.contains("acme") && shown.contains("\"is_of_caller\":true"), "{shown}");

        for limit in ["night", "*"] {
            let end = json!({ "limit": limit, "caller": "/acme/42", "scope": scope });
            let (status, told) = operator.act("end-exception", end.clone()).await;
            assert_eq!(status, 200, "{told}");
            expected(limit, None).await;
            assert_eq!(operator.act("end-exception", end).await.0, 404);
        }
        let change = view(&operator).await["changes"][0].clone();
        assert_eq!(
            (&change["operator"], &change["is_of_caller"], &change["is_last"]),
            (&json!("alice"), &json!(true), &json!(true))
        );
        let (status, told) = operator.act("undo", json!({ "number": change["number"] })).await;
        assert_eq!(status, 200, "{told}");
        expected("*", Some(Override::new().deny().by("alice"))).await;
        assert!(night(&limiter, "acme", 42).await.is_err());
        limiter.overrides().by("").here().remove(("*", Caller::from("acme").and(42)));

        let (status, told) = set("nosuch", json!({ "deny": true }), "never").await;
        assert_eq!((status, &told["error"]), (404, &json!("there is no such limit")));
        let (status, told) = set("night", json!({ "threshold": "x" }), "never").await;
        assert_eq!(status, 422, "{told}");
    }
}
