//! The page asks before an action reaches further than its button, and sends only what was changed.

use harness::{RedisServer, ran_in_own_process, until};
use ratelimit_dashboard::Access;
use ratelimit_runtime::{Enforcement, Limiter, Override, overrides::OverrideSource};
use serde_json::json;

use crate::{
    page::{Service, click, fill, find, is_clean, open, until_said},
    plans::tiered,
};

#[tokio::test(flavor = "multi_thread")]
async fn a_reset_in_the_fleet_is_asked_for_and_is_in_the_history() {
    let mut server = RedisServer::start();
    let service = Service::of(server.limiter().await, || Access::Act.named("alice")).await;
    for expected in [200, 200, 429] {
        assert_eq!(service.greet("carol").await, expected);
    }
    let browser = open(&service).await;
    // A link to one limit.
    browser.page.goto(&format!("{}#limit=hello", service.page())).await.unwrap();
    browser.until("document.querySelector('[data-limit=hello] .caller') !== null").await;
    fill(&browser, ".caller [name=part]", "carol").await;
    click(&browser, ".caller [data-reset]").await;
    until_said(&browser, "#confirm-text", "hello, caller carol: reset.").await;
    click(&browser, "#confirm-no").await;
    assert_eq!(service.greet("carol").await, 429);
    click(&browser, ".caller [data-reset]").await;
    click(&browser, "#confirm-yes").await;
    until_said(&browser, ".caller ~ .answer [data-is=done]", "Reset. 2 of 2 left.").await;
    until_said(&browser, "#change-rows li", "hello, one caller: reset").await;
    until_said(&browser, "#change-rows .who", "alice").await;
    assert_eq!(service.greet("carol").await, 200);
    until_said(&browser, "[data-limit=hello] .said", "at the limit").await;
    // An exception names its caller in the question.
    click(&browser, "[data-exception=deny]").await;
    until_said(&browser, "#confirm-text", "hello, caller carol: shut out.").await;
    click(&browser, "#confirm-no").await;
    is_clean(&browser, &service).await;

    server.kill();
    service.greet("carol").await;
    until_said(&browser, "#store", "fails since ").await;
    for part in [", since ", " commands failed. Check that Redis runs"] {
        until_said(&browser, "#store-notice", part).await;
    }
    until_said(&browser, "#store-notice", "Redis did not decide ").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_end_for_what_another_operator_has_set_is_asked_for() {
    let service = Service::of(Limiter::in_memory(), || Access::Act.named("alice")).await;
    let overrides = service.limiter.overrides();
    overrides.by("bob").here().set("hello", Override::new().threshold(40)).unwrap();
    let hello = || overrides.by_source("hello").pop().map(|(_, what)| what).unwrap();
    let browser = open(&service).await;
    click(&browser, "[data-limit=hello] .row").await;
    click(&browser, "[data-enforce=off]").await;
    until_said(&browser, "#confirm-text", "Its end is then also that of: threshold 40 (bob).")
        .await;
    click(&browser, "#confirm-no").await;
    assert_eq!(hello(), Override::new().threshold(40).by("bob"));
    click(&browser, "[data-enforce=off]").await;
    click(&browser, "#confirm-yes").await;
    until_said(&browser, ".card .answer", "threshold 40 has the same end").await;
    assert!(hello().until.is_some() && hello().enforcement == Some(Enforcement::Off));

    // Only the number that was changed is overridden.
    click(&browser, "[data-take-back]").await;
    browser.until("document.querySelector('.numbers [name=threshold]').value === '2'").await;
    fill(&browser, ".numbers [name=threshold]", "4").await;
    click(&browser, ".numbers [type=submit]").await;
    until_said(&browser, "[data-limit=hello] .said", "4 per 1m").await;
    assert_eq!(hello(), Override::new().threshold(4).by("alice"));
    is_clean(&browser, &service).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn all_plans_of_a_limit_are_changed_from_the_row_of_one() {
    let service = Service::start(|| Access::Act).await;
    let browser = open(&service).await;
    click(&browser, "[data-limit='tiered@free'] .row").await;
    find(&browser, ".more [name=plans] option[value=tiered]").await.click().await.unwrap();
    click(&browser, "[data-enforce=dry_run]").await;
    for plan in ["free", "pro"] {
        until_said(&browser, &format!("[data-limit='tiered@{plan}'] .row .chip"), "dry run").await;
    }
    until_said(&browser, ".more .facts", "override of tiered by an operator of this process").await;
    for _ in 0..3 {
        tiered(&service.limiter, "free", "alice").await.unwrap();
    }
    let sources = service.limiter.overrides().by_source("tiered");
    assert_eq!(sources[0].0, OverrideSource::Operator);
    assert!(service.limiter.overrides().by_source("tiered@free").is_empty());
    is_clean(&browser, &service).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_switch_of_the_program_is_ended_by_enforced_and_digests_are_shut_out() {
    // The refused callers are those of all limiters of the process.
    if ran_in_own_process(
        "questions::a_switch_of_the_program_is_ended_by_enforced_and_digests_are_shut_out",
    ) {
        return;
    }
    let limiter = Limiter::builder().caller_digest("secret").version("7.1").in_memory();
    let service = Service::of(limiter, || Access::Act).await;
    service.limiter.overrides().here().set("*", Enforcement::Off).unwrap();
    let browser = open(&service).await;
    until_said(&browser, "#process", "version 7.1").await;
    click(&browser, "#kill").await;
    click(&browser, "dialog [value=on]").await;
    click(&browser, "#dialog-confirm").await;
    browser.until("document.querySelector('#all').hidden").await;
    until_said(&browser, "#all-answer", "All limits: in effect in this process").await;
    until("the limit", async || (service.greet("secret-name").await == 429).then_some(())).await;

    click(&browser, "[data-limit=hello] .row").await;
    until_said(&browser, ".refusedmost li", "refused").await;
    click(&browser, ".refusedmost [data-choose]").await;
    until_said(&browser, ".more .caller ~ .answer [data-is=left]", "0").await;
    assert!(!browser.page.source().await.unwrap().contains("secret-name"));
    find(&browser, ".more [name=all-limits]").await.click().await.unwrap();
    click(&browser, "[data-exception=deny]").await;
    until("the exception", async || (service.greet("secret-name").await == 403).then_some(()))
        .await;
    let listed = service.limiter.overrides().list_for("*");
    assert_eq!((listed.len(), json!(listed[0].what.deny)), (1, json!(true)));
    is_clean(&browser, &service).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn all_limits_are_switched_off_beside_a_factor_once_that_is_confirmed() {
    let service = Service::of(Limiter::in_memory(), || Access::Act.named("alice")).await;
    let overrides = service.limiter.overrides();
    overrides.by("bob").here().set("*", Override::new().scale(0.5)).unwrap();
    let browser = open(&service).await;
    click(&browser, "#kill").await;
    click(&browser, "dialog [value=off]").await;
    click(&browser, "#dialog-confirm").await;
    until_said(&browser, "#confirm-text", "scale 0.5").await;
    click(&browser, "#confirm-yes").await;
    until_said(&browser, "#all-answer", "scale 0.5 has the same end").await;
    let (enforcement, _) = overrides.enforcement().unwrap();
    let scale = overrides.scale_in_thousandths();
    assert_eq!((enforcement, scale), (Enforcement::Off, Some(500)));
}
