//! No operator loses what another has set: at two pages, or at one that was left open.

use std::time::{Duration, SystemTime};

use harness::until;
use ratelimit_dashboard::Access;
use ratelimit_runtime::{Limiter, Override, RateLimitError, rate_limit};
use serde_json::{Value, json};

use crate::{
    operator::Operator,
    page::{Service, click, fill, is_clean, open, until_said},
};

#[rate_limit(name = "mine", period = "1h", threshold = 7, key = user, limiter = limiter)]
#[expect(dead_code, reason = "to be in the program is enough")]
async fn mine(limiter: &Limiter, user: &str) -> Result<(), RateLimitError> {
    Ok(())
}

async fn done(operator: &Operator, path: &str, body: Value) {
    let (status, told) = operator.act(path, body).await;
    assert_eq!(status, 200, "{told}");
}

#[tokio::test]
async fn an_exception_keeps_its_times_under_another_value() {
    let limiter = Limiter::in_memory();
    let operator = Operator::of(&limiter).await;
    let overrides = limiter.overrides().by("ann");
    let place = ("mine", "acme");
    let now = SystemTime::now();
    let (earlier, friday) = (now - Duration::from_secs(60), now + Duration::from_secs(86_400));
    let set =
        |what: Value| json!({ "limit": "mine", "caller": [{ "text": "acme" }], "what": what });
    let until_friday = Override::new().threshold(500).from(earlier).until(friday);
    overrides.here().set(place, until_friday).unwrap();
    done(&operator, "exception", set(json!({ "threshold": 600 }))).await;
    let what = overrides.here().get(place).unwrap();
    assert_eq!((what.threshold, what.from, what.until), (Some(600), Some(earlier), Some(friday)));
    let saturday = friday + Duration::from_secs(86_400);
    let until_saturday = json!(Override::new().threshold(700).until(saturday));
    done(&operator, "exception", set(until_saturday)).await;
    assert_eq!(overrides.here().get(place).unwrap().until, Some(saturday));
    let mut for_ever = set(json!({ "enforcement": "off" }));
    for_ever["until"] = json!("never");
    done(&operator, "exception", for_ever).await;
    let what = overrides.here().get(place).unwrap();
    assert_eq!((what.threshold, what.from, what.until), (None, Some(earlier), None));

    // Several times are not replaced by none.
    let plan = [Override::new().threshold(20), Override::new().threshold(500).from(friday)];
    overrides.here().set(place, plan).unwrap();
    let written = overrides.here().get(place);
    let (status, told) = operator.act("exception", set(json!({ "threshold": 600 }))).await;
    let why = told["error"].as_str().unwrap_or_default();
    assert!(status == 422 && why.starts_with("this override has several times"), "{told}");
    assert_eq!(overrides.here().get(place), written);
}

#[tokio::test]
async fn a_candidate_that_another_operator_has_changed_or_ended_is_not_applied() {
    let limiter = Limiter::in_memory();
    let operator = Operator::of(&limiter).await;
    let tried = |threshold: u32| json!({ "limit": "mine", "numbers": { "threshold": threshold } });
    done(&operator, "candidate", tried(20)).await;
    let seen = operator.told_of("mine").await["overrides"][0]["what"]["candidate"].clone();
    let apply = json!({ "limit": "mine", "seen": seen });
    done(&operator, "candidate", tried(1)).await;
    let (status, told) = operator.act("apply-candidate", apply.clone()).await;
    assert_eq!(status, 409, "{told}");
    assert_eq!(limiter.overrides().get("mine").unwrap().threshold, None);
    let mut ended = tried(1);
    ended["numbers"] = Value::Null;
    done(&operator, "numbers", json!({ "limit": "mine", "numbers": { "threshold": 5 } })).await;
    done(&operator, "candidate", ended).await;
    for body in [apply, json!({ "limit": "mine" })] {
        let (status, told) = operator.act("apply-candidate", body).await;
        assert_eq!(status, 409, "{told}");
    }
    assert_eq!(limiter.overrides().get("mine").unwrap().threshold, Some(5));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_form_that_was_left_open_does_not_undo_what_another_operator_has_set() {
    let service = Service::of(Limiter::in_memory(), || Access::Act.named("alice")).await;
    let bob = service.limiter.overrides().by("bob");
    let browser = open(&service).await;
    click(&browser, "[data-limit=hello] .row").await;
    let threshold = "document.querySelector('.numbers [name=threshold]').value";
    browser.until(&format!("{threshold} === '2'")).await;

    // Nobody has written in it: it shows what holds now.
    bob.here().set("hello", Override::new().threshold(50)).unwrap();
    until_said(&browser, ".more .facts", "holds now50 per 1m").await;
    browser.until(&format!("{threshold} === '50'")).await;
    fill(&browser, ".numbers [name=period]", "2m").await;
    click(&browser, ".numbers [type=submit]").await;
    until_said(&browser, ".more .facts", "holds now50 per 2m").await;

    // Somebody has: it is asked before it replaces what has changed since.
    browser.until("document.querySelector('.numbers [name=period]').value === '2m'").await;
    fill(&browser, ".numbers [name=threshold]", "60").await;
    let minutes = Duration::from_secs(180);
    bob.here().set("hello", Override::new().threshold(50).period(minutes)).unwrap();
    until_said(&browser, ".more .facts", "holds now50 per 3m").await;
    click(&browser, ".numbers [type=submit]").await;
    until_said(&browser, ".card .answer.bad", "The numbers are now 50 per 3m").await;
    assert_eq!(bob.here().get("hello").unwrap().period, Some(minutes));
    click(&browser, ".numbers [type=submit]").await;
    until("the numbers of the form", async || {
        let what = bob.here().get("hello").filter(|what| what.threshold == Some(60))?;
        assert_eq!(what.period, Some(Duration::from_secs(120)));
        Some(())
    })
    .await;
    is_clean(&browser, &service).await;
}
