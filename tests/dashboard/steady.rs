//! The page replaces and moves nothing that an operator is at.

use harness::{Browser, ran_in_own_process};
use ratelimit_dashboard::Access;
use ratelimit_runtime::{Limiter, Override};
use serde_json::json;

use crate::page::{Service, click, fill, is_clean, open, until_said};

/// Changes an override, which sends the view of all limits again, and waits until the page shows it.
async fn tell(service: &Service, browser: &Browser, threshold: u32) {
    service.limiter.overrides().here().set("paced", Override::new().threshold(threshold)).unwrap();
    until_said(browser, "#change-rows li", &format!("→ threshold {threshold}")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn news_replace_and_move_nothing_that_an_operator_is_at() {
    // The order is that of all refusals of the process.
    if ran_in_own_process("steady::news_replace_and_move_nothing_that_an_operator_is_at") {
        return;
    }
    let service = Service::of(Limiter::builder().show_callers().in_memory(), || Access::Act).await;
    for _ in 0..4 {
        service.greet("mallory").await;
    }
    let browser = open(&service).await;
    browser.until("document.querySelector('#rows li').dataset.limit === 'hello'").await;
    click(&browser, "[data-limit=hello] .row").await;
    until_said(&browser, ".refusedmost li", "2 refused").await;

    // Rows and facts are the same elements with other numbers: a click on them is not lost.
    tell(&service, &browser, 5).await;
    let elements = "['.refusedmost [data-choose]', '.more .facts dd', '#change-rows li']
        .map(it => document.querySelector(it))";
    browser.value(&format!("(window.pressed = {elements}, true)")).await;
    for _ in 0..2 {
        service.greet("mallory").await;
    }
    until_said(&browser, ".refusedmost li", "4 refused").await;
    until_said(&browser, ".more .facts", "4 in the last minute").await;
    service.limiter.overrides().here().set("hello", Override::new().threshold(2)).unwrap();
    until_said(&browser, "#change-rows li", "hello: none → threshold 2").await;
    let kept = "window.pressed.map(it => it !== null && it.isConnected)";
    assert_eq!(browser.value(kept).await, json!([true, true, true]));

    // Another limit refuses more by now, and does not push away the one below the pointer.
    let refused = "document.querySelector('[data-limit=paced] .sum .number').textContent";
    browser.until(&format!("Number({refused}) > 4")).await;
    tell(&service, &browser, 6).await;
    let first = "document.querySelector('#rows li').dataset.limit";
    assert_eq!(browser.value(first).await, "hello");

    // The form shows what holds, but not in place of what is written.
    fill(&browser, ".numbers [name=threshold]", "4").await;
    click(&browser, ".numbers [type=submit]").await;
    until_said(&browser, ".card .answer", "in effect in this process").await;
    fill(&browser, ".numbers [name=threshold]", "7").await;
    tell(&service, &browser, 8).await;
    let written = "document.querySelector('.numbers [name=threshold]').value";
    assert_eq!(browser.value(written).await, "7");
    is_clean(&browser, &service).await;
}
