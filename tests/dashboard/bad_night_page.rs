//! The page of an operator at night: asked before the fleet changes, undone, and in effect without Redis.

use std::time::SystemTime;

use harness::{Browser, RedisServer, until};
use ratelimit_dashboard::Access;
use ratelimit_runtime::{Limiter, Override};
use serde_json::{Value, json};

use crate::page::{Service, click, fill, find, is_clean, open, until_said};

/// The names of all buttons, as a screen reader has them.
async fn names(browser: &Browser) -> Vec<String> {
    let tree = browser.devtools("Accessibility.getFullAXTree", json!({})).await;
    let nodes = tree["nodes"].as_array().expect("a tree").iter();
    let buttons = nodes.filter(|node| node["role"]["value"] == "button");
    buttons.map(|node| node["name"]["value"].as_str().unwrap_or_default().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_fleet_is_changed_after_a_question_and_the_change_is_undone() {
    let mut server = RedisServer::start();
    let service = Service::of(server.limiter().await, || Access::Act.named("alice")).await;
    let is_written = || server.command::<bool>("EXISTS ratelimit:overrides");
    let browser = open(&service).await;
    click(&browser, "[data-limit=hello] .row").await;
    browser.until("document.querySelector('.more [data-scope=fleet]').checked").await;
    click(&browser, "[data-enforce=off]").await;
    until_said(&browser, "#confirm-text", "hello: off, until ").await;
    click(&browser, "#confirm-no").await;
    assert!(!is_written(), "nothing is written before the answer");

    click(&browser, "[data-enforce=off]").await;
    click(&browser, "#confirm-yes").await;
    until_said(&browser, "[data-limit=hello] .row .chip", "off").await;
    until_said(&browser, ".card .answer", "in effect in the whole fleet within a second").await;
    let value: String = server.command("HGET ratelimit:overrides hello");
    assert!(value.starts_with(r#"{"enforcement":"off","until":"#), "{value}");
    until_said(&browser, ".more .facts", "override by the overrides on Redisoff, until ").await;
    until_said(&browser, "#change-rows li", "hello: none → off, until ").await;
    until_said(&browser, "#change-rows .who", "alice").await;

    click(&browser, "[data-undo]").await;
    until_said(&browser, "#confirm-text", "Undo for hello: back to none.").await;
    click(&browser, "#confirm-yes").await;
    until_said(&browser, "[data-limit=hello] .row .chip", "enforced").await;
    until_said(&browser, "#change-answer", "Undone for hello").await;
    assert!(!is_written());

    // What the fleet cannot be told is asked about, and is no choice for later.
    server.kill();
    browser.until("document.querySelector('.more [data-scope=fleet]').disabled").await;
    until_said(&browser, ".more .scope .hint", "Redis cannot be used").await;
    click(&browser, "[data-enforce=dry_run]").await;
    until_said(&browser, "#confirm-title", "Change this process?").await;
    until_said(&browser, "#confirm-text", "hello: dry run. Redis cannot be used").await;
    click(&browser, "#confirm-no").await;
    fill(&browser, ".caller [name=part]", "bob").await;
    click(&browser, "[data-exception=exempt]").await;
    until_said(&browser, "#confirm-text", "hello, caller bob: exempt. Redis cannot be used").await;
    click(&browser, "#confirm-no").await;
    server.restart();
    browser.until("document.querySelector('.more [data-scope=fleet]').checked").await;

    // What the operator has chosen is neither asked about nor ended by a Redis that is well again.
    click(&browser, ".more [data-scope=process]").await;
    server.kill();
    browser.until("document.querySelector('.more [data-scope=fleet]').disabled").await;
    click(&browser, "[data-enforce=off]").await;
    until_said(&browser, "[data-limit=hello] .row .chip", "off").await;
    assert_eq!(service.greet("bob").await, 200);
    server.restart();
    browser.until("!document.querySelector('.more [data-scope=fleet]').disabled").await;
    let process = "document.querySelector('.more [data-scope=process]').checked";
    assert_eq!(browser.value(process).await, true);
    let names = names(&browser).await;
    for part in
        ["hello sliding window", "admitted/s", "refused/s", "Undo: hello, none → off, until "]
    {
        assert!(names.iter().any(|name| name.contains(part)), "{part} in {names:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_caller_is_shut_out_and_exempt_on_the_page_and_found_again_on_a_phone() {
    let service = Service::start(|| Access::Act).await;
    let browser = open(&service).await;
    let wide = "[...document.querySelectorAll('body *')].filter(it => \
                it.getBoundingClientRect().right > 400.5 && !it.closest('svg, .u-wrap')).map(it => \
                it.className || it.tagName)";
    browser.resize(400, 800).await;
    click(&browser, "[data-limit=hello] .row").await;
    fill(&browser, ".caller [name=part]", "mallory").await;
    click(&browser, "[data-exception=deny]").await;
    until_said(&browser, ".exceptions li", "/mallory").await;
    until_said(&browser, ".exceptions li", "shut out").await;
    assert_eq!(service.greet("mallory").await, 403);
    assert_eq!(service.greet("alice").await, 200);
    browser
        .until("document.querySelector('.more canvas').getBoundingClientRect().right <= 400")
        .await;
    assert_eq!(browser.value(wide).await, json!([]));
    assert_eq!(browser.value("document.documentElement.scrollWidth").await, 400);

    fill(&browser, "[name=find-caller]", "nobody").await;
    browser.until("document.querySelectorAll('.exceptions li').length === 0").await;
    fill(&browser, "[name=find-caller]", "mall").await;
    until_said(&browser, ".exceptions li", "/mallory").await;
    click(&browser, "[data-exception=exempt]").await;
    until_said(&browser, ".exceptions li", "off").await;
    for _ in 0..5 {
        assert_eq!(service.greet("mallory").await, 200);
    }
    fill(&browser, "[name=exception-threshold]", "many").await;
    click(&browser, ".exception [type=submit]").await;
    let words = "Threshold must be a whole number from 1 to 1 000 000 000";
    until_said(&browser, ".exception + .answer.bad", words).await;
    click(&browser, ".exceptions [data-end]").await;
    browser.until("document.querySelectorAll('.exceptions li').length === 0").await;
    until("its limit again", async || (service.greet("mallory").await == 429).then_some(())).await;

    // With an end.
    find(&browser, ".more [name=ends] option[value=at]").await.click().await.unwrap();
    click(&browser, "[data-enforce=off]").await;
    until_said(&browser, ".card .answer.bad", "Choose a time to come").await;
    find(&browser, ".more [name=ends] option[value='3600']").await.click().await.unwrap();
    click(&browser, "[data-enforce=off]").await;
    until_said(&browser, "#change-rows li", "hello: none → off, until ").await;
    assert!(service.limiter.overrides().get("hello").unwrap().until.is_some());
    assert_eq!(browser.value(wide).await, json!([]));
    let errors: Vec<Value> = browser.log("browser").await;
    assert!(errors.iter().all(|it| it["message"].as_str().unwrap().contains("422")), "{errors:?}");
    is_clean(&browser, &service).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_is_first_by_the_hour_and_its_caller_is_shut_out_from_the_list() {
    let limiter = Limiter::builder().show_callers().in_memory();
    let service = Service::of(limiter, || Access::Act).await;
    for _ in 0..300 {
        service.greet("mallory-at-night").await;
    }
    let browser = open(&service).await;
    browser.value("document.querySelector('#order').value = 'hour'").await;
    browser.value("document.querySelector('#order').dispatchEvent(new Event('change'))").await;
    browser.until("document.querySelector('#rows li').dataset.limit === 'hello'").await;
    click(&browser, "[data-limit=hello] .row").await;
    until_said(&browser, ".more .facts", "in the last hour").await;
    until_said(&browser, ".more .facts", "refused by60s window").await;
    until_said(&browser, ".refusedmost li", "mallory-at-night").await;
    click(&browser, ".refusedmost [data-choose]").await;
    until_said(&browser, ".more .caller ~ .answer [data-is=left]", "0").await;
    click(&browser, "[data-exception=deny]").await;
    until_said(&browser, ".exceptions li", "shut out").await;
    assert_eq!(service.greet("mallory-at-night").await, 403);
    // A limit that is off does not look like an outage.
    click(&browser, "[data-enforce=off]").await;
    until_said(&browser, "[data-limit=hello] .row .rate", "not counted").await;
    is_clean(&browser, &service).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn after_midnight_the_times_of_yesterday_have_a_date() {
    let service = Service::of(Limiter::in_memory(), || Access::Act).await;
    let denied = Override::new().deny().from(SystemTime::now());
    service.limiter.overrides().here().set(("hello", "mallory"), denied).unwrap();
    let browser = open(&service).await;
    click(&browser, "[data-limit=hello] .row").await;
    until_said(&browser, ".exceptions li", "shut out, from ").await;
    let today = browser.value("new Date().toLocaleDateString()").await;
    let have_date = format!(
        "['#change-rows time', '.exceptions .what']
            .every(it => document.querySelector(it).textContent.includes({today}))"
    );
    assert_eq!(browser.value(&have_date).await, false);
    let tomorrow = "class extends Date {
        constructor(...given) { super(...(given.length > 0 ? given : [Date.now() + 864e5])); }
    }";
    browser.value(&format!("(window.Date = {tomorrow}, true)")).await;
    // The page is told everything anew with each stream, also if nothing changes.
    browser.until(&have_date).await;
    is_clean(&browser, &service).await;
}
