//! The page as a person has it who has a keyboard, or may only look.

use std::time::Duration;

use fantoccini::key::Key;
use harness::Browser;
use ratelimit_dashboard::Access;
use ratelimit_runtime::Policy;
use serde_json::json;

use crate::page::{Service, click, is_clean, open, until_said};

/// Goes on by the tabulator until this matches what has the focus.
async fn tab_to(browser: &Browser, selector: &str) {
    for _ in 0..80 {
        let focus = browser.page.active_element().await.expect("something has the focus");
        focus.send_keys(&char::from(Key::Tab).to_string()).await.expect("a key");
        let is_there = format!("document.activeElement.matches({})", json!(selector));
        if browser.value(&is_there).await == true {
            let outline = "getComputedStyle(document.activeElement).outlineStyle";
            assert_eq!(browser.value(outline).await, "solid", "{selector}");
            return;
        }
    }
    panic!("the tabulator leads to no {selector}");
}

async fn press(browser: &Browser, keys: &str) {
    browser.page.active_element().await.expect("a focus").send_keys(keys).await.expect("keys");
}

#[tokio::test(flavor = "multi_thread")]
async fn all_of_it_is_done_without_a_pointer() {
    let service = Service::start(|| Access::Act).await;
    service
        .limiter
        .check(&Policy::sliding_window("by hand", Duration::from_secs(60), 1), 1)
        .await
        .unwrap();
    let browser = open(&service).await;
    let (enter, escape) = (char::from(Key::Enter).to_string(), char::from(Key::Escape).to_string());
    assert_eq!(service.greet("alice").await, 200);

    tab_to(&browser, "#kill").await;
    press(&browser, &enter).await;
    browser.until("document.querySelector('dialog').open").await;
    assert_eq!(
        browser.value("document.querySelector('dialog').contains(document.activeElement)").await,
        true
    );
    press(&browser, &escape).await;
    browser.until("!document.querySelector('dialog').open").await;
    assert_eq!(browser.value("document.activeElement.id").await, "kill");

    tab_to(&browser, "[data-limit=hello] .row").await;
    press(&browser, &enter).await;
    browser.until("document.activeElement.getAttribute('aria-expanded') === 'true'").await;
    tab_to(&browser, "[data-limit=hello] [data-enforce=off]").await;
    press(&browser, " ").await;
    until_said(&browser, "[data-limit=hello] .chip", "off").await;
    tab_to(&browser, "[data-limit=hello] [data-take-back]").await;
    press(&browser, " ").await;
    until_said(&browser, "[data-limit=hello] .row .chip", "enforced").await;
    tab_to(&browser, "[data-limit=hello] .caller [name=part]").await;
    press(&browser, &format!("alice{enter}")).await;
    until_said(&browser, "[data-is=left]", "1").await;
    tab_to(&browser, "[data-limit=hello] .caller [data-reset]").await;
    press(&browser, &enter).await;
    until_said(&browser, "[data-is=left]", "2").await;

    // Everything that can be reached says what it is.
    let nameless = "[...document.querySelectorAll('button, input, select')].filter(it => \
                    !(it.textContent.trim() || it.getAttribute('aria-label') || it.labels?.length)).length";
    assert_eq!(browser.value(nameless).await, 0);
    is_clean(&browser, &service).await;
}

/// A name that would be more than a name, were it not shown as text.
const NASTY: &str = "<img src=x onerror=alert(1)>";

#[tokio::test(flavor = "multi_thread")]
async fn whoever_may_only_look_is_shown_nothing_to_act_with() {
    let service = Service::start(|| Access::View).await;
    let browser = open(&service).await;
    click(&browser, "[data-limit=paced] .row").await;
    browser.until("document.querySelectorAll('.more canvas').length === 1").await;
    until_said(&browser, ".more .facts", "50 per 1s, burst 60").await;
    let acting = "document.querySelectorAll('[data-act], .acts, .more button').length";
    assert_eq!(browser.value(acting).await, 0);
    // The names of limits are text, whatever is in them.
    let nasty = Policy::sliding_window(NASTY, Duration::from_secs(60), 1);
    service.limiter.check(&nasty, 1).await.unwrap();
    browser.value("document.querySelector('#order').value = 'name'").await;
    // The pointer is on the list, which is arranged by hand then.
    let arranged = "document.querySelector('#order').dispatchEvent(new Event('change'))";
    let first = "document.querySelector('#rows li .name').textContent";
    browser.until(&format!("({arranged}, {first} === {})", json!(NASTY))).await;
    assert_eq!(browser.value("document.querySelectorAll('img').length").await, 0);
    is_clean(&browser, &service).await;
}
