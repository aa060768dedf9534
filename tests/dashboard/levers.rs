//! The page sets what begins later, a factor of all numbers, and a share of the callers.

use std::time::{Duration, SystemTime};

use harness::until;
use ratelimit_dashboard::Access;
use ratelimit_runtime::{Enforcement, Limiter, OnStoreError, Override, RateLimitError, rate_limit};
use serde_json::{Value, json};

use crate::{
    operator::Operator,
    page::{Service, click, fill, find, is_clean, open, until_said},
};

#[rate_limit(name = "levered", period = "1h", threshold = 7, key = user, limiter = limiter)]
#[expect(dead_code, reason = "to be in the program is enough")]
async fn levered(limiter: &Limiter, user: &str) -> Result<(), RateLimitError> {
    Ok(())
}

async fn done(operator: &Operator, path: &str, body: Value) {
    let (status, told) = operator.act(path, body).await;
    assert_eq!(status, 200, "{told}");
}

/// Sets the factor of a limit, or of all.
async fn set(operator: &Operator, limit: &str, scale: Value) {
    done(operator, "field", json!({ "limit": limit, "field": "scale", "value": scale })).await;
}

async fn refused(operator: &Operator, path: &str, body: Value) -> String {
    let (status, told) = operator.act(path, body).await;
    assert_eq!(status, 422, "{told}");
    told["error"].as_str().unwrap().to_owned()
}

fn text(time: SystemTime) -> String {
    let what = serde_json::to_value(Override::new().until(time)).unwrap();
    what["until"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn numbers_begin_and_end_at_their_times_and_are_shown_before() {
    let limiter = Limiter::in_memory();
    let operator = Operator::of(&limiter).await;
    let now = SystemTime::now();
    let from = text(now + Duration::from_millis(700));
    let body = json!({ "limit": "levered", "numbers": { "threshold": 2 }, "from": from });
    done(&operator, "numbers", body).await;
    let told = operator.told_of("levered").await;
    assert_eq!(told["now"]["tiers"][0]["threshold"], 7);
    assert_eq!(told["overrides"][0]["what"], json!({ "threshold": 2, "from": from }));
    until("the begin", async || {
        let told = operator.told_of("levered").await;
        (told["now"]["tiers"][0]["threshold"] == 2).then_some(())
    })
    .await;
    // A begin is not given to what another has set, unless that is confirmed.
    let later = text(now + Duration::from_secs(60));
    let body = json!({ "limit": "levered", "enforcement": "dry_run", "from": later });
    let why = refused(&operator, "enforcement", body.clone()).await;
    assert_eq!(why, "the times are those of the whole override, also of threshold 2; confirm it");
    let mut confirmed = body;
    confirmed["ends_whole"] = true.into();
    let (_, told) = operator.act("enforcement", confirmed).await;
    assert_eq!(told["done"], "in effect in this process; threshold 2 has the same times");
    let early =
        json!({ "limit": "levered", "numbers": {}, "until": text(now), "ends_whole": true });
    let why = refused(&operator, "numbers", early).await;
    assert!(why.contains("`until` is later than `from`"), "{why}");
    let mut body = json!({ "limit": "levered", "enforcement": "dry_run", "from": "never" });
    body["ends_whole"] = true.into();
    done(&operator, "enforcement", body).await;
    assert_eq!(operator.told_of("levered").await["enforcement"], "dry_run");
}

#[tokio::test]
async fn a_factor_of_all_limits_is_shown_and_one_limit_has_its_own() {
    let limiter = Limiter::in_memory();
    let operator = Operator::of(&limiter).await;
    let threshold = async || {
        let told = operator.told_of("levered").await;
        let of = |view: &Value| view["tiers"][0]["threshold"].as_u64().unwrap();
        (of(&told["unscaled"]), of(&told["now"]))
    };
    done(&operator, "enforcement", json!({ "limit": "*", "enforcement": "dry_run" })).await;
    set(&operator, "*", json!(0.5)).await;
    assert_eq!(threshold().await, (7, 4));
    let view = operator.events().await.next("limits").await;
    let what = json!({ "enforcement": "dry_run", "scale": 0.5 });
    assert_eq!(view["of_all"][0]["what"], what);
    set(&operator, "levered", json!(2)).await;
    assert_eq!(threshold().await, (7, 14));
    set(&operator, "levered", json!(null)).await;
    set(&operator, "*", json!(null)).await;
    assert_eq!(threshold().await, (7, 7));
    assert_eq!(limiter.overrides().enforcement().unwrap().0, Enforcement::DryRun);
    for scale in [json!(0), json!(0.0005), json!(1e6), json!("half")] {
        let why =
            refused(&operator, "field", json!({ "limit": "*", "field": "scale", "value": scale }))
                .await;
        let named = scale.as_f64().is_none_or(|scale| why.contains(&format!("not {scale}")));
        assert!(named && (why.contains("`scale` must be") || why.contains("half")), "{why}");
    }
    set(&operator, "*", json!(1_000)).await;
    let told = operator.told_of("levered").await;
    assert_eq!(
        (&told["fault"], &told["now"]["tiers"][0]["threshold"]),
        (&json!(null), &json!(7_000))
    );
}

#[tokio::test]
async fn the_answer_while_redis_is_away_is_set_and_a_wrong_one_named() {
    let limiter = Limiter::in_memory();
    let operator = Operator::of(&limiter).await;
    let body = |limit: &str, field: &str, value: Value| json!({ "limit": limit, "field": field, "value": value });
    for limit in ["levered", "*"] {
        done(&operator, "field", body(limit, "on_store_error", json!("local(20)"))).await;
        let what = || limiter.overrides().by("act").here().get(limit);
        assert_eq!(what().unwrap().on_store_error, Some(OnStoreError::local::<20>()));
        for wrong in ["local(0)", "local(101)", "local(+20)", "closed"] {
            let body = body(limit, "on_store_error", json!(wrong));
            let why = refused(&operator, "field", body).await;
            assert!(why.contains("`on_store_error` must be `local`, `deny`, `allow`"), "{why}");
            assert!(why.contains(&format!("not \"{wrong}\"")), "{why}");
        }
        done(&operator, "field", body(limit, "on_store_error", json!(null))).await;
        assert_eq!(what(), None);
    }
    let (status, told) = operator.act("field", body("levered", "deny", json!(true))).await;
    assert_eq!((status, &told["error"]), (400, &json!("`deny` is none of scale, on_store_error")));
}

/// A limit that refuses nobody yet.
#[rate_limit(name = "stepped", period = "1h", threshold = 1, key = user, limiter = limiter)]
async fn stepped(limiter: &Limiter, user: u32) -> Result<(), RateLimitError> {
    Ok(())
}

#[tokio::test]
async fn each_step_of_a_share_tells_what_it_would_have_refused() {
    let limiter = Limiter::in_memory();
    let operator = Operator::of(&limiter).await;
    let steps = async || operator.events().await.next("counts").await["stepped"]["steps"].clone();
    limiter.overrides().here().set("stepped", Enforcement::DryRun).unwrap();
    for user in 0..300 {
        for _ in 0..2 {
            stepped(&limiter, user).await.unwrap();
        }
    }
    let expected = steps().await;
    assert_eq!(expected[4], 300);
    for (step, share) in ["1%", "5%", "10%", "25%", "100%"].into_iter().enumerate() {
        let body = json!({ "limit": "stepped", "enforcement": null, "enforce": share });
        done(&operator, "enforcement", body).await;
        let mut refused = 0;
        for user in 0..300 {
            refused += u64::from(stepped(&limiter, user).await.is_err());
        }
        assert_eq!(json!(refused), expected[step], "{share}");
    }
}

#[tokio::test]
async fn a_limit_is_turned_on_step_by_step() {
    let limiter = Limiter::in_memory();
    let operator = Operator::of(&limiter).await;
    for share in ["1%", "10%", "100%"] {
        let body = json!({ "limit": "levered", "enforcement": null, "enforce": share });
        done(&operator, "enforcement", body).await;
        let told = operator.told_of("levered").await;
        assert_eq!(told["overrides"][0]["what"], json!({ "enforce": share }));
        assert_eq!(told["enforcement"], "dry_run");
    }
    done(&operator, "enforcement", json!({ "limit": "levered", "enforcement": "on" })).await;
    assert_eq!(limiter.overrides().get("levered").unwrap().enforce, None);
    for share in ["0%", "101%", "+10%"] {
        let why = refused(
            &operator,
            "enforcement",
            json!({ "limit": "*", "enforcement": null, "enforce": share }),
        )
        .await;
        assert!(why.contains(&format!("not \"{share}\"")), "{why}");
    }
}

#[tokio::test]
async fn several_windows_are_shown_removed_and_undone_as_a_whole() {
    let limiter = Limiter::in_memory();
    let operator = Operator::of(&limiter).await;
    let later = SystemTime::now() + Duration::from_secs(3_600);
    let plan: Override =
        vec![Override::new().threshold(3), Override::new().threshold(4).from(later)].into();
    limiter.overrides().by("ann").here().set("levered", plan).unwrap();
    let written = limiter.overrides().by("act").here().get("levered");
    let told = operator.told_of("levered").await;
    assert_eq!(told["overrides"][0]["what"], json!(written));
    let body = json!({ "limit": "levered", "enforcement": "off" });
    let why = refused(&operator, "enforcement", body).await;
    assert!(why.starts_with("this override has several times; remove it first"), "{why}");
    assert_eq!(limiter.overrides().by("act").here().get("levered"), written);
    done(&operator, "override", json!({ "limit": "levered" })).await;
    assert_eq!(limiter.overrides().get("levered"), None);
    let view = operator.events().await.next("limits").await;
    done(&operator, "undo", json!({ "number": view["changes"][0]["number"] })).await;
    assert_eq!(limiter.overrides().get("levered").unwrap().threshold, Some(3));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_finds_the_three_levers_on_the_page() {
    let service = Service::of(Limiter::in_memory(), || Access::Act.named("alice")).await;
    let overrides = service.limiter.overrides();
    let browser = open(&service).await;
    click(&browser, "[data-limit=hello] .row").await;
    // A part of the callers, and more of them.
    until_said(&browser, "[data-steps]", "").await;
    click(&browser, "[data-share='5%']").await;
    until_said(&browser, ".more .facts", "enforced for 5 % of the callers (alice)").await;
    click(&browser, "[data-share='25%']").await;
    until_said(&browser, "#change-rows li", "enforced for 25 % of the callers").await;
    browser.until("document.querySelector('[data-share=\\'25%\\']').ariaPressed === 'true'").await;
    click(&browser, "[data-take-back]").await;
    until_said(&browser, "[data-limit=hello] .row .chip", "enforced").await;

    // From a time on.
    find(&browser, ".more [name=begins] option[value=at]").await.click().await.unwrap();
    click(&browser, "[data-enforce=dry_run]").await;
    until_said(&browser, ".card .answer.bad", "Choose a time to come: override begins.").await;
    let local = "new Date(Date.now() + 3.6e6 - new Date().getTimezoneOffset() * 6e4)";
    let time = format!("{local}.toISOString().slice(0, 16)");
    browser.value(&format!("document.querySelector('.more [name=from]').value = {time}")).await;
    click(&browser, "[data-enforce=dry_run]").await;
    until_said(&browser, ".more .facts", "dry run, from ").await;
    until_said(&browser, "[data-limit=hello] .row .chip", "enforced").await;
    assert!(overrides.by_source("hello")[0].1.from.unwrap() > SystemTime::now());
    click(&browser, "[data-take-back]").await;
    until_said(&browser, "#change-rows li", "→ none").await;
    // An off ends an hour after its begin.
    click(&browser, "[data-enforce=off]").await;
    until_said(&browser, ".more .facts", "off, from ").await;
    let (_, off) = overrides.by_source("hello").remove(0);
    let hour = Duration::from_secs(3_600);
    assert_eq!(off.until, Some(off.from.unwrap() + hour));
    click(&browser, "[data-take-back]").await;
    until_said(&browser, "#change-rows li", "→ none").await;
    // As does one in the place of an override that begins later.
    let from = off.from.unwrap() + hour;
    let later = Override::new().enforcement(Enforcement::DryRun).from(from);
    let bob = overrides.by("bob");
    bob.here().set("hello", later.clone()).unwrap();
    bob.here().set("*", later).unwrap();
    until_said(&browser, ".more .facts", "dry run, from ").await;
    find(&browser, ".more [name=begins] option[value='']").await.click().await.unwrap();
    click(&browser, "[data-enforce=off]").await;
    until_said(&browser, ".more .facts", "off, from ").await;
    assert_eq!(overrides.by_source("hello")[0].1.until, Some(from + hour));
    until_said(&browser, "#all", "dry run, from ").await;
    click(&browser, "#kill").await;
    click(&browser, "#dialog [name=enforcement][value=off]").await;
    click(&browser, "#dialog-confirm").await;
    until_said(&browser, "#all-answer", "in effect").await;
    assert_eq!(overrides.by_source("*")[0].1.until, Some(from + hour));
    bob.here().remove("*");
    click(&browser, "[data-take-back]").await;

    // All limits, and one of them by itself.
    click(&browser, "#kill").await;
    fill(&browser, "#dialog [name=scale]", "half").await;
    click(&browser, "#dialog [data-scale]").await;
    until_said(&browser, "#dialog-answer", "half").await;
    fill(&browser, "#dialog [name=scale]", "0.5").await;
    click(&browser, "#dialog [data-scale]").await;
    until_said(&browser, "#all", "all limits: scale 0.5 (alice)").await;
    until_said(&browser, ".more .facts", "holds now1 per 1m").await;
    fill(&browser, ".more [name=scale]", "2").await;
    click(&browser, ".more [data-scale]").await;
    until_said(&browser, ".more .facts", "holds now4 per 1m").await;

    // What calls get while Redis is away.
    fill(&browser, ".more [name=on_store_error]", "local(0)").await;
    click(&browser, ".more [data-on_store_error]").await;
    until_said(&browser, ".card .answer.bad", "such as `local(20)`, not \"local(0)\"").await;
    fill(&browser, ".more [name=on_store_error]", "local(20)").await;
    click(&browser, ".more [data-on_store_error]").await;
    until_said(&browser, ".more .facts", "local(20) while Redis is away").await;
    let undo = "[data-undo][aria-label*='→ scale 2, local(20) while Redis is away']";
    click(&browser, undo).await;
    until("the undo", async || {
        let what = overrides.get("hello").filter(|what| what.on_store_error.is_none());
        (what?.scale_in_thousandths == Some(2_000)).then_some(())
    })
    .await;
    let errors: Vec<Value> = browser.log("browser").await;
    assert!(errors.iter().all(|it| it["message"].as_str().unwrap().contains("422")), "{errors:?}");
    is_clean(&browser, &service).await;
}

#[tokio::test]
async fn a_candidate_in_one_of_several_windows_is_not_applied_by_their_removal() {
    let limiter = Limiter::in_memory();
    let operator = Operator::of(&limiter).await;
    let later = SystemTime::now() + Duration::from_secs(3_600);
    let tried = Override::new().threshold(3).candidate(Override::new().threshold(2));
    let plan: Override = vec![tried, Override::new().threshold(4).from(later)].into();
    limiter.overrides().by("ann").here().set("levered", plan).unwrap();
    let written = || limiter.overrides().by("act").here().get("levered");
    let before = written();
    let why = refused(&operator, "apply-candidate", json!({ "limit": "levered" })).await;
    assert!(why.starts_with("this override has several times"), "{why}");
    assert_eq!(written(), before);
}
