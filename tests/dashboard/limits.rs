//! Limits are changed from the page, or the page has the reason why not.

use harness::{Lines, RedisServer, listen, until};
use ratelimit_runtime::{Enforcement, Limiter, Override, RateLimitError, rate_limit};
use serde_json::{Value, json};

use crate::operator::{MINUTE, Operator};

#[rate_limit(name = "reply", period = "30s", threshold = 1, key = user, limiter = limiter)]
async fn reply(limiter: &Limiter, user: &str) -> Result<(), RateLimitError> {
    Ok(())
}

#[tokio::test]
async fn a_limit_is_steered_or_its_page_says_why_not() {
    let lines = Lines::of_target("ratelimit_dashboard");
    let _listening = listen(lines.clone());
    let limiter = Limiter::in_memory();
    let operator = Operator::of(&limiter).await;
    let done = |(status, told): (u16, Value)| {
        assert_eq!((status, &told["done"]), (200, &json!("in effect in this process")), "{told}");
    };
    reply(&limiter, "alice").await.unwrap();
    reply(&limiter, "alice").await.unwrap_err();

    done(operator.act("enforcement", json!({ "limit": "reply", "enforcement": "dry_run" })).await);
    reply(&limiter, "alice").await.unwrap();
    let numbers = json!({ "threshold": 3, "period": "1m" });
    done(operator.act("numbers", json!({ "limit": "reply", "numbers": numbers })).await);
    let told = operator.told_of("reply").await;
    assert_eq!(told["enforcement"], "dry_run");
    assert_eq!(told["enforced_by"], "an operator of this process");
    assert_eq!(told["written"]["tiers"], json!([{ "period": 30e3, "threshold": 1 }]));
    assert_eq!(told["now"]["tiers"], json!([{ "period": 60e3, "threshold": 3 }]));
    assert_eq!(told["key"], json!(["user"]));
    assert!(told["places"][0].as_str().unwrap().contains("limits.rs:"), "{told}");

    // Neither was taken back by the other.
    done(operator.act("enforcement", json!({ "limit": "reply", "enforcement": null })).await);
    let expected = Override::new().threshold(3).period(MINUTE);
    assert_eq!(limiter.overrides().list()["reply"], expected);
    for (numbers, why) in [
        (json!({ "threshold": 0 }), "Threshold must be a whole number from 1 to 1 000 000 000"),
        (json!({ "period": "30" }), "`period` needs a unit after `30`"),
        (
            json!({ "threshold": "many" }),
            "Threshold must be a whole number from 1 to 1 000 000 000",
        ),
        (
            json!({ "threshold": 1_000_000_001 }),
            "Threshold must be a whole number from 1 to 1 000 000 000",
        ),
        (json!({ "threshold": 1.5 }), "Threshold must be a whole number from 1 to 1 000 000 000"),
        (
            json!({ "tiers": [{ "period": 60, "threshold": 0 }] }),
            "Threshold must be a whole number from 1 to 1 000 000 000",
        ),
        (json!({ "concurrency": "" }), "In flight must be a whole number from 1 on"),
        (json!({ "burst": 3 }), "a `sliding_window` has none"),
        (json!({ "tiers": [{ "period": 60, "threshold": 1 }], "period": 60 }), "give one"),
        (json!({ "enforcement": "off" }), "`enforcement` is none of period, threshold"),
    ] {
        let action = json!({ "limit": "reply", "numbers": numbers });
        let (status, told) = operator.act("numbers", action).await;
        assert!(status == 422 || status == 400, "{status}: {told}");
        let error = told["error"].as_str().unwrap();
        assert!(error.contains(why) && !error.contains(" line "), "{error}");
    }
    assert_eq!(limiter.overrides().list()["reply"], expected);
    done(operator.act("override", json!({ "limit": "reply" })).await);
    assert!(limiter.overrides().list().is_empty());
    let (status, told) = operator.act("override", json!({ "limit": "no such" })).await;
    assert_eq!((status, &told["error"]), (404, &json!("there is no such limit")));

    done(operator.act("enforcement", json!({ "limit": "*", "enforcement": "off" })).await);
    reply(&limiter, "alice").await.unwrap();
    let told = operator.told_of("reply").await;
    assert_eq!(told["enforced_by"], "an operator of this process, for all limits");
    done(operator.act("enforcement", json!({ "limit": "*", "enforcement": null })).await);
    reply(&limiter, "alice").await.unwrap_err();

    let said = lines.all().join("\n");
    for line in [
        "INFO message=an operator acted on a rate limit policy=\"reply\" action=\"enforcement dry_run\" source=an operator of this process",
        "policy=\"reply\" action=\"numbers {\"period\":\"1m\",\"threshold\":3}\"",
        "policy=\"reply\" action=\"override removed\"",
        "policy=\"*\" action=\"enforcement off\"",
    ] {
        assert!(said.replace("\\\"", "\"").contains(line), "{line} in {said}");
    }
}

#[rate_limit(name = "bill", algorithm = calendar_window, period = "day", threshold = 9, key = user, limiter = limiter)]
async fn bill(limiter: &Limiter, user: &str) -> Result<(), RateLimitError> {
    Ok(())
}

#[tokio::test]
async fn another_period_of_a_window_of_the_calendar_is_an_error_that_names_it() {
    let limiter = Limiter::in_memory();
    let operator = Operator::of(&limiter).await;
    for path in ["numbers", "candidate"] {
        for numbers in
            [json!({ "period": "7d" }), json!({ "tiers": [{ "period": "7d", "threshold": 3 }] })]
        {
            let action = json!({ "limit": "bill", "numbers": numbers });
            let (status, told) = operator.act(path, action).await;
            assert_eq!(status, 422, "{path}: {told}");
            let why = "`period` does not go with a `calendar_window`";
            assert!(told["error"].as_str().unwrap().contains(why), "{path}: {told}");
        }
    }
    assert!(limiter.overrides().list().is_empty());
    bill(&limiter, "alice").await.unwrap();
    let numbers = json!({ "limit": "bill", "numbers": { "threshold": 1 } });
    assert_eq!(operator.act("numbers", numbers).await.0, 200);
    bill(&limiter, "alice").await.unwrap_err();
}

#[tokio::test]
async fn an_operator_comes_before_a_file_which_applies_again_afterwards() {
    let limiter = Limiter::in_memory();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "[limits]\nreply = { threshold = 2 }\n").unwrap();
    limiter.overrides().follow_file(file.path()).unwrap();
    let operator = Operator::of(&limiter).await;
    let action = json!({ "limit": "reply", "numbers": { "threshold": 9 } });
    let (status, told) = operator.act("numbers", action).await;
    assert_eq!((status, &told["done"]), (200, &json!("in effect in this process")));
    let told = operator.told_of("reply").await;
    assert_eq!(told["now"]["tiers"][0]["threshold"], 9);
    let by: Vec<_> = told["overrides"].as_array().unwrap().iter().map(|it| &it["by"]).collect();
    assert_eq!(by, ["an operator of this process", "the file of overrides"]);
    let (status, told) = operator.act("override", json!({ "limit": "reply" })).await;
    let removed = "removed; from now on the file of overrides applies";
    assert_eq!((status, &told["done"]), (200, &json!(removed)));
    assert_eq!(operator.told_of("reply").await["now"]["tiers"][0]["threshold"], 2);
}

#[tokio::test]
async fn on_redis_the_whole_fleet_follows() {
    let server = RedisServer::start();
    // A limiter that follows nothing writes nothing.
    let deaf = Limiter::builder().deadline(MINUTE).follow_overrides(false);
    let alone = Operator::of(&deaf.connect(&server.url()).await.unwrap()).await;
    alone.act("enforcement", json!({ "limit": "reply", "enforcement": "off" })).await;
    assert_eq!(server.keys(), [""; 0]);
    alone.act("override", json!({ "limit": "reply" })).await;

    let (one, other) = (server.limiter().await, server.limiter().await);
    let operator = Operator::of(&one).await;
    let in_fleet = "written to Redis; in effect in the whole fleet within a second";
    let enforce = |word: Value| json!({ "limit": "reply", "enforcement": word });
    let (status, told) = operator.act("enforcement", enforce("dry_run".into())).await;
    assert_eq!((status, &told["done"]), (200, &json!(in_fleet)), "{told}");
    // At once, before this process has looked: what another has said is kept.
    let numbers = json!({ "limit": "reply", "numbers": { "threshold": 2 } });
    assert_eq!(operator.act("numbers", numbers).await.1["done"], in_fleet);
    let value: String = server.command("HGET ratelimit:overrides reply");
    assert_eq!(value, "{\"enforcement\":\"dry_run\",\"threshold\":2}");
    let expected = Override::new().threshold(2).enforcement(Enforcement::DryRun);
    until("the override in the other process", async || {
        (other.overrides().list().get("reply") == Some(&expected)).then_some(())
    })
    .await;
    let view = operator.events().await.next("limits").await;
    assert_eq!(
        (&view["is_fleet"], &view["target"]),
        (&json!(true), &json!("the overrides on Redis"))
    );

    assert_eq!(
        operator.act("enforcement", json!({ "limit": "*", "enforcement": "off" })).await.1["done"],
        in_fleet
    );
    until("the switch in the other process", async || {
        matches!(other.overrides().enforcement(), Some((Enforcement::Off, _))).then_some(())
    })
    .await;
    operator.act("enforcement", json!({ "limit": "*", "enforcement": null })).await;
    operator.act("override", json!({ "limit": "reply" })).await;
    assert_eq!(server.keys(), [""; 0]);
    let (status, told) =
        operator.act("numbers", json!({ "limit": "reply", "numbers": { "threshold": 0 } })).await;
    assert_eq!(status, 422, "{told}");
    assert_eq!(server.keys(), [""; 0]);
}

#[tokio::test]
async fn with_redis_dead_an_action_takes_effect_in_this_process_and_is_taken_back_later() {
    let mut server = RedisServer::start();
    let () = server.command("HSET ratelimit:overrides repyl off reply {\"threshold\":0}");
    let limiter = server.limiter().await;
    let operator = Operator::of(&limiter).await;
    let view = async |wanted: &dyn Fn(&Value) -> bool| {
        until("the view", async || {
            let view = operator.events().await.next("limits").await;
            wanted(&view).then_some(view)
        })
        .await
    };
    let shown = view(&|_| true).await;
    let problems = shown["problems"].as_array().unwrap();
    assert!(problems[0].as_str().unwrap().contains("`threshold` must be at least 1"), "{shown}");
    assert!(problems[1].as_str().unwrap().contains("`repyl`; `reply` is"), "{shown}");
    let () = server.command("DEL ratelimit:overrides");
    let () = server.command("HSET ratelimit:overrides reply {\"threshold\":9}");
    view(&|view| view["problems"] == json!([])).await;

    server.kill();
    let dead = view(&|view| view["is_fleet"] == false).await;
    assert_eq!(dead["target"], "an operator of this process");
    assert!(dead["fleet_failure"].is_string(), "{dead}");
    let off = json!({ "limit": "reply", "enforcement": "off" });
    let (status, told) = operator.act("enforcement", off).await;
    let done = told["done"].as_str().unwrap();
    assert!(
        status == 200 && done.contains("in this process alone; Redis cannot be used"),
        "{told}"
    );
    operator.act("enforcement", json!({ "limit": "*", "enforcement": "off" })).await;
    for _ in 0..10 {
        reply(&limiter, "alice").await.unwrap();
    }

    server.restart();
    let lost = view(&|view| view["is_fleet"] == true).await;
    let problem = lost["problems"][0].as_str().unwrap();
    assert!(problem.starts_with("Redis has lost `ratelimit:overrides`"), "{lost}");
    operator.act("enforcement", json!({ "limit": "*", "enforcement": null })).await;
    assert_eq!(limiter.overrides().enforcement(), None);
    until("no override", async || {
        // Again if Redis was slow: the change was then of this process alone.
        let (status, told) = operator.act("override", json!({ "limit": "reply" })).await;
        assert_eq!(status, 200, "{told}");
        limiter.overrides().list().is_empty().then_some(())
    })
    .await;
    let view = view(&|view| view["problems"] == json!([])).await;
    assert_eq!(view["enforcement"], json!(null));
}
