//! A caller is looked up and reset, and is never named.

use harness::{Lines, RedisServer, listen, until};
use ratelimit_runtime::{Caller, Limiter, Override, RateLimitError, caller, rate_limit};
use serde_json::{Value, json};

use crate::operator::Operator;

#[rate_limit(name = "greet", period = 60, threshold = 3, key = (tenant, user), limiter = limiter)]
async fn greet(limiter: &Limiter, tenant: &str, user: Option<&str>) -> Result<(), RateLimitError> {
    Ok(())
}

#[rate_limit(name = "ambient", period = 60, threshold = 1, limiter = limiter)]
async fn ambient(limiter: &Limiter) -> Result<(), RateLimitError> {
    Ok(())
}

#[rate_limit(name = "by plan", period = 60, threshold = plan, key = 1, limiter = limiter)]
async fn by_plan(limiter: &Limiter, plan: u32) -> Result<(), RateLimitError> {
    Ok(())
}

#[tokio::test]
async fn a_caller_is_looked_up_and_reset_and_never_named() {
    let lines = Lines::default();
    let _listening = listen(lines.clone());
    let server = RedisServer::start();
    for limiter in [Limiter::in_memory(), server.limiter().await] {
        let operator = Operator::of(&limiter).await;
        for _ in 0..4 {
            let _ = greet(&limiter, "acme", Some("secret-name")).await;
            let _ = greet(&limiter, "acme", None).await;
            let _ = ambient(&limiter).await;
        }
        for (limit, caller, remaining) in [
            ("greet", json!([{ "text": "acme" }, { "text": "secret-name" }]), 0),
            ("greet", json!([{ "text": "acme" }, "none"]), 0),
            ("greet", json!([{ "text": "acme" }, { "text": "another" }]), 3),
            ("greet", json!([{ "text": "acme/secret-name" }]), 3),
            ("ambient", json!(["shared"]), 0),
        ] {
            // An event that another test was the first to meet may be taken for one nobody listens to.
            tracing::callsite::rebuild_interest_cache();
            let question = json!({ "limit": limit, "caller": caller });
            let (status, told) = operator.act("caller", question.clone()).await;
            assert_eq!((status, &told["remaining"]), (200, &json!(remaining)), "{caller}: {told}");
            let wait = told["next"].as_f64().unwrap();
            assert_eq!(wait > 0.0, remaining == 0, "{told}");
            assert!(wait <= 60e3 && told["reset"].as_f64().unwrap() <= 60e3, "{told}");
            assert!(!told.to_string().contains("secret-name"), "{told}");
            let (status, told) = operator.act("reset", question).await;
            assert_eq!((status, &told["next"]), (200, &json!(0.0)), "{told}");
            assert_eq!(told["remaining"], told["threshold"], "{told}");
        }
        greet(&limiter, "acme", Some("secret-name")).await.unwrap();
    }
    let said = lines.all().join("\n");
    assert!(said.contains("policy=\"greet\" action=\"look up\""), "{said}");
    assert!(said.contains("policy=\"greet\" action=\"reset\""), "{said}");
    assert!(!said.contains("secret-name"), "{said}");
}

#[tokio::test]
async fn a_caller_above_a_lowered_limit_is_looked_up() {
    let server = RedisServer::start();
    for limiter in [Limiter::in_memory(), server.limiter().await] {
        let operator = Operator::of(&limiter).await;
        for _ in 0..3 {
            greet(&limiter, "acme", Some("alice")).await.unwrap();
        }
        limiter.overrides().here().set("greet", Override::new().threshold(1)).unwrap();
        let caller = json!([{ "text": "acme" }, { "text": "alice" }]);
        let question = json!({ "limit": "greet", "caller": caller });
        let (status, told) = operator.act("caller", question).await;
        assert_eq!((status, &told["remaining"]), (200, &json!(0)), "{told}");
        assert_eq!(told["threshold"], json!(1), "{told}");
        assert!(told["next"].as_f64().unwrap() > 0.0, "{told}");
    }
}

#[tokio::test]
async fn a_caller_is_shown_with_its_exemption_from_all_limits_beside_its_numbers_for_one() {
    let server = RedisServer::start();
    for limiter in [Limiter::in_memory(), server.limiter().await] {
        let operator = Operator::of(&limiter).await;
        let (overrides, alice) = (limiter.overrides(), caller!("acme", Some("alice")));
        let parts = json!([{ "text": "acme" }, { "text": "alice" }]);
        for (limit, what) in
            [("greet", json!({ "threshold": 6 })), ("*", json!({ "enforcement": "off" }))]
        {
            let exception =
                json!({ "limit": limit, "caller": parts, "what": what, "scope": "process" });
            let (status, told) = operator.act("exception", exception).await;
            assert_eq!(status, 200, "{told}");
        }
        for _ in 0..9 {
            greet(&limiter, "acme", Some("alice")).await.unwrap();
        }
        let question = json!({ "limit": "greet", "caller": parts });
        let (_, told) = operator.act("caller", question.clone()).await;
        assert_eq!(
            (&told["threshold"], &told["enforcement"]),
            (&json!(6), &json!("off")),
            "{told}"
        );
        let (_, listed) =
            operator.act("exceptions", json!({ "limit": "greet", "find": "alice" })).await;
        let limits: Vec<_> =
            listed["callers"].as_array().unwrap().iter().map(|it| it["limit"].clone()).collect();
        assert_eq!(limits, ["greet", "*"], "{listed}");
        overrides.by("alice").here().remove(("*", &alice));
        let (_, told) = operator.act("caller", question).await;
        assert_eq!((&told["threshold"], &told["enforcement"]), (&json!(6), &json!("on")), "{told}");
    }
}

#[tokio::test]
async fn a_caller_with_calls_in_flight_is_told_no_wait() {
    #[rate_limit(name = "render", period = 60, threshold = 9, cost = 3, concurrency = 1, key = 1, limiter = limiter)]
    async fn render(limiter: &Limiter, page: &Operator) -> Result<Value, RateLimitError> {
        let question = json!({ "limit": "render", "caller": [{ "text": "1" }] });
        Ok(page.act("caller", question).await.1)
    }

    let server = RedisServer::start();
    for limiter in [Limiter::in_memory(), server.limiter().await] {
        let operator = Operator::of(&limiter).await;
        let told = render(&limiter, &operator).await.unwrap();
        assert_eq!((&told["remaining"], &told["threshold"]), (&json!(6), &json!(9)), "{told}");
        assert_eq!(told["next"], Value::Null, "{told}");
        limiter.flush().await.unwrap();
        let question = json!({ "limit": "render", "caller": [{ "text": "1" }] });
        let (status, told) = operator.act("caller", question).await;
        assert_eq!((status, &told["next"]), (200, &json!(0.0)), "{told}");
    }
}

#[tokio::test]
async fn a_blocked_caller_is_shown_as_blocked_until_a_reset() {
    #[rate_limit(name = "sign up", period = 60, threshold = 1, key = 1, limiter = limiter, block = "1h")]
    async fn sign_up(limiter: &Limiter) -> Result<(), RateLimitError> {
        Ok(())
    }

    let server = RedisServer::start();
    for limiter in [Limiter::in_memory(), server.limiter().await] {
        let operator = Operator::of(&limiter).await;
        sign_up(&limiter).await.unwrap();
        let question = json!({ "limit": "sign up", "caller": [{ "text": "1" }] });
        let (status, told) = operator.act("caller", question.clone()).await;
        assert_eq!((status, &told["blocked"]), (200, &Value::Null), "{told}");
        sign_up(&limiter).await.unwrap_err();
        let (status, told) = operator.act("caller", question.clone()).await;
        assert_eq!((status, &told["remaining"]), (200, &json!(0)), "{told}");
        for name in ["blocked", "next"] {
            let wait = told[name].as_f64().unwrap();
            assert!(wait <= 3_600e3 && wait > 3_500e3, "{told}");
        }
        let (status, told) = operator.act("reset", question).await;
        assert_eq!((status, &told["blocked"]), (200, &Value::Null), "{told}");
    }
}

#[tokio::test]
async fn a_caller_that_an_identity_found_is_looked_up_by_what_it_sent() {
    let limiter = Limiter::in_memory();
    let operator = Operator::of(&limiter).await;
    let caller = Caller::fallback(Caller::digest("sk-live-4711"));
    caller::scope(caller, ambient(&limiter)).await.unwrap();
    for (parts, remaining) in [
        (json!(["or", { "digest": "sk-live-4711" }]), 0),
        (json!([{ "digest": "sk-live-4711" }]), 1),
        (json!([{ "text": "or" }, { "digest": "sk-live-4711" }]), 1),
        (json!(["or", { "text": "sk-live-4711" }]), 1),
    ] {
        let (status, answer) =
            operator.act("caller", json!({ "limit": "ambient", "caller": parts })).await;
        assert_eq!((status, &answer["remaining"]), (200, &json!(remaining)), "{parts}");
    }
}

#[tokio::test]
async fn what_cannot_be_looked_up_is_told_in_words() {
    let limiter = Limiter::in_memory();
    let operator = Operator::of(&limiter).await;
    let caller = json!([{ "text": "1" }]);
    let parts: Vec<_> = (0..17).map(|part| json!({ "text": part.to_string() })).collect();
    for (limit, caller, status, why) in [
        ("no such", caller.clone(), 404, "there is no such limit"),
        ("greet", json!([]), 422, "a caller has 1 to 16 parts"),
        ("greet", json!(parts), 422, "a caller has 1 to 16 parts"),
        ("greet", json!(["some"]), 400, "unknown variant `some`"),
        ("by plan", caller.clone(), 409, "this process has seen none yet"),
    ] {
        let question = json!({ "limit": limit, "caller": caller });
        let (answered, told) = operator.act("caller", question).await;
        assert_eq!(answered, status, "{told}");
        assert!(told["error"].as_str().unwrap().contains(why), "{told}");
    }
    // Its counts can be forgotten without its numbers, and its numbers are known after a call.
    let question = json!({ "limit": "by plan", "caller": caller });
    assert_eq!(operator.act("reset", question.clone()).await, (200, json!({})));
    by_plan(&limiter, 7).await.unwrap();
    let told = until("a sample of the call", async || {
        let (status, told) = operator.act("caller", question.clone()).await;
        (status == 200).then_some(told)
    })
    .await;
    assert_eq!((&told["remaining"], &told["threshold"]), (&json!(6), &json!(7)));

    let mut server = RedisServer::start();
    let limiter = Limiter::builder().connect(&server.url()).await.unwrap();
    let operator = Operator::of(&limiter).await;
    server.kill();
    let question = json!({ "limit": "greet", "caller": [{ "text": "a" }, { "text": "b" }] });
    for action in ["caller", "reset"] {
        let (status, told) = operator.act(action, question.clone()).await;
        assert_eq!(status, 503, "{told}");
        assert!(told["error"].as_str().unwrap().contains("could not be decided"), "{told}");
    }
}

#[tokio::test]
async fn a_caller_who_is_shut_out_is_looked_up_and_reset() {
    let server = RedisServer::start();
    for limiter in [Limiter::in_memory(), server.limiter().await] {
        let operator = Operator::of(&limiter).await;
        let here = limiter.overrides();
        let alice = caller!("acme", Some("alice"));
        greet(&limiter, "acme", Some("alice")).await.unwrap();
        here.here().set(("greet", &alice), Override::new().deny()).unwrap();
        let caller = json!([{ "text": "acme" }, { "text": "alice" }]);
        let question = json!({ "limit": "greet", "caller": caller });
        let (status, told) = operator.act("caller", question.clone()).await;
        assert_eq!((status, &told["denied"]), (200, &json!(true)), "{told}");
        let (status, told) = operator.act("reset", question).await;
        assert_eq!((status, &told["denied"]), (200, &json!(true)), "{told}");
        here.here().remove(("greet", &alice));
        let usage = limiter.usage("greet", &alice).await.unwrap();
        assert_eq!(usage.tiers()[0].used(), 0);
    }
}
