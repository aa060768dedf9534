//! Mistakes that the page does not make: in another process, for another operator, or too late.

use std::time::{Duration, SystemTime};

use harness::{RedisServer, ran_in_own_process, until};
use ratelimit_runtime::{
    Enforcement, Limiter, Override, RateLimitError, overrides::OverrideSource, rate_limit,
};
use serde_json::{Value, json};

use crate::operator::Operator;

#[rate_limit(name = "kept", period = "1h", threshold = 1, key = user, limiter = limiter)]
async fn kept(limiter: &Limiter, user: &str) -> Result<(), RateLimitError> {
    Ok(())
}

async fn view(operator: &Operator) -> Value {
    operator.events().await.next("limits").await
}

/// Acts as a page that shows the process of this number.
async fn act_from(operator: &Operator, process: &str, path: &str, body: Value) -> (u16, Value) {
    let action = operator.action(path, &body).header("x-ratelimit-process", process);
    let response = action.send().await.unwrap();
    (response.status().as_u16(), response.json().await.unwrap())
}

#[tokio::test]
async fn an_action_for_one_process_does_nothing_in_another() {
    let limiter = Limiter::in_memory();
    let operator = Operator::of(&limiter).await;
    limiter.overrides().by("alice").here().set("kept", Override::new().threshold(5)).unwrap();
    let shown = view(&operator).await;
    let (here, number) = (shown["process_id"].as_str().unwrap(), &shown["changes"][0]["number"]);
    for (path, body) in [
        ("undo", json!({ "number": number })),
        ("override", json!({ "limit": "kept", "scope": "process" })),
        ("reset", json!({ "limit": "kept", "caller": [{ "text": "alice" }] })),
    ] {
        let (status, told) = act_from(&operator, "another", path, body.clone()).await;
        assert_eq!(status, 409, "{path}: {told}");
        assert!(told["error"].as_str().unwrap().contains("another process"), "{told}");
        assert!(limiter.overrides().get("kept").is_some(), "{path}");
    }
    let (status, told) = act_from(&operator, here, "undo", json!({ "number": number })).await;
    assert_eq!((status, limiter.overrides().get("kept")), (200, None), "{told}");

    // The fleet is one, whichever process answers.
    let server = RedisServer::start();
    let fleet = Operator::of(&server.limiter().await).await;
    let off = json!({ "limit": "kept", "enforcement": "off", "scope": "fleet" });
    let (status, told) = act_from(&fleet, "another", "enforcement", off).await;
    assert_eq!(status, 200, "{told}");
}

#[tokio::test]
async fn an_override_that_has_ended_by_itself_cannot_be_undone() {
    let limiter = Limiter::in_memory();
    let operator = Operator::of(&limiter).await;
    let end = SystemTime::now() + Duration::from_millis(300);
    let off = Override::new().enforcement(Enforcement::Off).until(end);
    limiter.overrides().by("alice").here().set("kept", off).unwrap();
    let change = until("its end", async || {
        let change = view(&operator).await["changes"][0].clone();
        change["after"].is_null().then_some(change)
    })
    .await;
    assert_eq!(change["is_last"], false, "{change}");
    let (status, told) = operator.act("undo", json!({ "number": change["number"] })).await;
    assert_eq!(status, 409, "{told}");
}

#[tokio::test]
async fn an_end_is_not_given_to_what_another_operator_has_set() {
    let limiter = Limiter::in_memory();
    let operator = Operator::of(&limiter).await;
    let overrides = limiter.overrides().by("bob");
    let bobs = Override::new().threshold(40);
    overrides.here().set("kept", bobs.clone()).unwrap();
    let later = "2999-11-27T18:00:00Z";
    let mut off = json!({ "limit": "kept", "enforcement": "off", "until": later });
    let (status, told) = operator.act("enforcement", off.clone()).await;
    assert_eq!(status, 422, "{told}");
    let error = told["error"].as_str().unwrap();
    assert!(error.contains("threshold 40") && error.contains("end"), "{error}");
    assert_eq!(limiter.overrides().get("kept"), Some(bobs.by("bob")));
    off["ends_whole"] = json!(true);
    let (status, told) = operator.act("enforcement", off.clone()).await;
    assert_eq!(status, 200, "{told}");
    assert!(told["done"].as_str().unwrap().contains("threshold 40"), "{told}");
    // What already ends then, and what one's own action replaces, need no answer.
    off["ends_whole"] = json!(false);
    assert_eq!(operator.act("enforcement", off.clone()).await.0, 200);
    overrides.here().set("kept", Override::new().enforcement(Enforcement::DryRun)).unwrap();
    assert_eq!(operator.act("enforcement", off).await.0, 200);
}

#[tokio::test]
async fn nothing_is_said_to_be_removed_where_nothing_was() {
    let limiter = Limiter::in_memory();
    let operator = Operator::of(&limiter).await;
    let (status, told) = operator.act("override", json!({ "limit": "kept" })).await;
    assert_eq!((status, &told["done"]), (200, &json!("there was no override in this process")));
    limiter.overrides().here().set("kept", Override::new().threshold(2)).unwrap();
    let (_, told) = operator.act("override", json!({ "limit": "kept" })).await;
    let done = told["done"].as_str().unwrap();
    assert!(done.contains("there was no override") && done.contains("the program"), "{told}");
}

#[tokio::test]
async fn a_caller_of_the_list_is_shut_out_of_all_limits() {
    let limiter = Limiter::builder().show_callers().in_memory();
    let operator = Operator::of(&limiter).await;
    for _ in 0..3 {
        let _ = kept(&limiter, "mallory").await;
    }
    let seen = json!([{ "refused": { "limit": "kept", "name": "mallory" } }]);
    let deny = json!({ "limit": "*", "caller": seen, "what": { "deny": true } });
    let (status, told) = operator.act("exception", deny).await;
    assert_eq!(status, 200, "{told}");
    let refused = kept(&limiter, "mallory").await;
    assert!(matches!(refused, Err(RateLimitError::Denied(_))), "{refused:?}");
}

#[tokio::test]
async fn a_caller_whose_digest_alone_is_shown_is_looked_up_and_shut_out() {
    #[rate_limit(name = "digested", threshold = 1, key = user, limiter = limiter)]
    async fn digested(limiter: &Limiter, user: &str) -> Result<(), RateLimitError> {
        Ok(())
    }

    let limiter = Limiter::builder().caller_digest("secret").in_memory();
    let operator = Operator::of(&limiter).await;
    for _ in 0..3 {
        let _ = digested(&limiter, "trudy").await;
    }
    let list = json!({ "limit": "digested", "window": "minute" });
    let (_, listed) = operator.act("refused", list).await;
    let name = listed["callers"][0]["name"].as_str().unwrap();
    assert!(!listed.to_string().contains("trudy"), "{listed}");
    let named = json!([{ "refused": { "limit": "digested", "name": name } }]);
    let body = json!({ "limit": "digested", "caller": named });
    let (status, told) = operator.act("caller", body.clone()).await;
    assert_eq!((status, &told["remaining"]), (200, &json!(0)), "{told}");
    assert_eq!(operator.act("reset", body).await.1["remaining"], 1);
    let deny = json!({ "limit": "digested", "caller": named, "what": { "deny": true } });
    let (status, told) = operator.act("exception", deny).await;
    assert_eq!(status, 200, "{told}");
    let refused = digested(&limiter, "trudy").await;
    assert!(matches!(refused, Err(RateLimitError::Denied(_))), "{refused:?}");
}

#[tokio::test]
async fn a_look_up_under_a_dynamic_limit_names_the_call_of_its_numbers() {
    #[rate_limit(name = "kept by plan", period = 60, threshold = plan, key = 1, limiter = limiter)]
    async fn by_plan(limiter: &Limiter, plan: u32) -> Result<(), RateLimitError> {
        Ok(())
    }

    let limiter = Limiter::in_memory();
    let operator = Operator::of(&limiter).await;
    by_plan(&limiter, 7).await.unwrap();
    kept(&limiter, "alice").await.unwrap();
    for (limit, is_by_latest_call) in [("kept by plan", true), ("kept", false)] {
        let body = json!({ "limit": limit, "caller": [{ "text": "1" }] });
        let (status, told) = operator.act("caller", body).await;
        assert_eq!(
            (status, &told["is_by_latest_call"]),
            (200, &json!(is_by_latest_call)),
            "{told}"
        );
    }
}

#[tokio::test]
async fn an_override_of_this_process_stays_until_that_of_the_fleet_is_here() {
    let server = RedisServer::start();
    let limiter = server.limiter().await;
    let operator = Operator::of(&limiter).await;
    // Changes of other limits, all the time.
    let others = limiter.overrides().clone();
    let changing = tokio::spawn(async move {
        for threshold in (1..1_000).cycle() {
            others.here().set("kept by plan", Override::new().threshold(threshold)).unwrap();
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    for scope in ["process", "fleet"] {
        for body in [
            json!({ "limit": "kept", "enforcement": "off", "scope": scope }),
            json!({ "limit": "kept", "caller": [{ "text": "bob" }], "what": { "deny": true }, "scope": scope }),
        ] {
            let path = if body["what"].is_null() { "enforcement" } else { "exception" };
            let (status, told) = operator.act(path, body).await;
            assert_eq!(status, 200, "{told}");
        }
        assert!(limiter.overrides().get("kept").is_some(), "{scope}");
        assert_eq!(limiter.overrides().list_for("kept").len(), 1, "{scope}");
    }
    changing.abort();
    let source = limiter.overrides().source("kept");
    assert_eq!(source, Some(OverrideSource::Redis));
}

#[tokio::test]
async fn refused_calls_do_not_send_the_view_again() {
    // The view is that of all limits of the process.
    if ran_in_own_process("undo::refused_calls_do_not_send_the_view_again") {
        return;
    }
    let limiter = Limiter::in_memory();
    let operator = Operator::of(&limiter).await;
    let _ = kept(&limiter, "alice").await;
    let mut events = operator.events().await;
    let first = events.next("limits").await;
    let mut refused = 0;
    while refused < 3 {
        let _ = kept(&limiter, "alice").await;
        let Some((name, data)) = events.any().await else {
            events = operator.events().await;
            events.next("limits").await;
            continue;
        };
        assert_ne!(name, "limits", "{data}\n{first}");
        if name == "counts" {
            refused = data["kept"]["refused"][0].as_u64().unwrap_or(0);
        }
    }
}

#[tokio::test]
async fn an_override_of_a_caller_that_another_process_has_changed_since_is_not_undone() {
    const FIELD: &str = "kept/bob";
    const THEIRS: &str = r#"{"threshold":9,"by":"carol"}"#;
    let server = RedisServer::start();
    let limiter = server.limiter().await;
    limiter.overrides().follow_redis().await.unwrap();
    let operator = Operator::of(&limiter).await;
    let bob = json!([{ "text": "bob" }]);
    let change = async |threshold: u32| {
        let what = json!({ "threshold": threshold });
        let body = json!({ "limit": "kept", "caller": bob, "what": what, "scope": "fleet" });
        let (status, told) = operator.act("exception", body).await;
        assert_eq!(status, 200, "{told}");
        until("the change", async || {
            let change = view(&operator).await["changes"][0].clone();
            (change["after"]["threshold"] == threshold).then_some(change["number"].clone())
        })
        .await
    };
    let (_, number) = (change(5).await, change(7).await);
    // Without a new revision this process does not read it yet.
    let mut connection = server.connection();
    let mut hash = redis::cmd("HSET");
    hash.arg("ratelimit:overrides:callers").arg(FIELD).arg(THEIRS).exec(&mut connection).unwrap();
    let (status, told) = operator.act("undo", json!({ "number": number })).await;
    assert_eq!(status, 409, "{told}");
    assert!(told["error"].as_str().unwrap().contains("changed since"), "{told}");
    let mut get = redis::cmd("HGET");
    get.arg("ratelimit:overrides:callers").arg(FIELD);
    assert_eq!(get.query::<String>(&mut connection).unwrap(), THEIRS);

    // What nobody has changed since is undone.
    let number = change(8).await;
    let (status, told) = operator.act("undo", json!({ "number": number })).await;
    assert_eq!(status, 200, "{told}");
    let before: String = get.query(&mut connection).unwrap();
    assert!(before.contains("\"threshold\":9") || before.contains("\"threshold\":7"), "{before}");
}
