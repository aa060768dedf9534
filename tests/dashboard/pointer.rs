//! The page as a person has it who sees it and has a pointer.

use std::time::Duration;

use harness::until;
use ratelimit_dashboard::Access;
use ratelimit_runtime::{Enforcement, Override};
use serde_json::json;
use tokio::sync::oneshot;

use crate::{
    page::{FAINT, Service, click, fill, is_clean, open, painted, several, until_said, upload},
    strangers::different,
};

#[tokio::test(flavor = "multi_thread")]
async fn plots_move_in_both_colours_and_on_a_phone() {
    let service = Service::start(|| Access::Act).await;
    let browser = open(&service).await;
    browser.until("Number(document.querySelector('#totals .value').textContent) > 1").await;
    browser
        .until("document.querySelector('[data-limit=paced] .rate .number').textContent !== '0'")
        .await;
    for canvas in ["#overview canvas", "[data-limit=paced] canvas"] {
        browser.until(&format!("{} > 100", painted(canvas))).await;
        let picture = format!("document.querySelector({}).toDataURL()", json!(canvas));
        let before = browser.value(&picture).await;
        browser.until(&format!("{picture} !== {before}")).await;
    }
    // A picture asks for no style of the page: what it costs grows with the limits, and not with their bars.
    let count = "window.asked = 0; const styles = getComputedStyle;
        window.getComputedStyle = (...it) => (window.asked += 1, styles(...it));
        return true;";
    browser.page.execute(count, Vec::new()).await.unwrap();
    for _ in 0..2 {
        let picture = "document.querySelector('[data-limit=paced] canvas').toDataURL()";
        let before = browser.value(picture).await;
        browser.until(&format!("{picture} !== {before}")).await;
    }
    let asked = browser.value("window.asked").await.as_u64().unwrap();
    assert!(asked < 20, "{asked}");
    // A limit that nobody calls has a floor and no bars.
    let idle = browser.value(&painted("[data-limit=hello] canvas")).await.as_u64().unwrap();
    let busy = browser.value(&painted("[data-limit=paced] canvas")).await.as_u64().unwrap();
    assert!(idle < busy, "{idle} {busy}");

    let ground = "getComputedStyle(document.body).backgroundColor";
    browser.prefer("prefers-color-scheme", "light").await;
    let light = browser.value(ground).await;
    browser.prefer("prefers-color-scheme", "dark").await;
    browser.until(&format!("{ground} !== {light}")).await;
    assert_eq!(browser.value(FAINT).await, json!([]));
    // By hand, whatever the system says; and it stays so.
    click(&browser, "#theme").await;
    until_said(&browser, "#theme", "light").await;
    assert_eq!(browser.value(ground).await, light);
    assert_eq!(browser.value(FAINT).await, json!([]));
    browser.page.refresh().await.unwrap();
    browser.until("document.querySelectorAll('#rows li').length >= 2").await;
    assert_eq!(browser.value(ground).await, light);

    browser.resize(360, 740).await;
    click(&browser, "[data-limit=paced] .row").await;
    browser.until("document.querySelectorAll('.more canvas').length === 1").await;
    let wide = "[...document.querySelectorAll('body *')].filter(it => \
                it.getBoundingClientRect().right > 360.5 && !it.closest('svg, .u-wrap')).map(it => \
                it.className || it.tagName)";
    browser
        .until("document.querySelector('#overview canvas').getBoundingClientRect().right <= 360")
        .await;
    browser
        .until("document.querySelector('.more canvas').getBoundingClientRect().right <= 360")
        .await;
    assert_eq!(browser.value(wide).await, json!([]));
    assert_eq!(browser.value("document.documentElement.scrollWidth").await, 360);
    is_clean(&browser, &service).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_done_on_the_page_changes_what_callers_get() {
    let service = Service::start(|| Access::Act).await;
    let browser = open(&service).await;
    let greet = async || service.greet("secret-name").await;
    assert_eq!([greet().await, greet().await, greet().await], [200, 200, 429]);
    click(&browser, "[data-limit=hello] .row").await;
    fill(&browser, ".caller [name=part]", "secret-name").await;
    click(&browser, ".caller [type=submit]").await;
    until_said(&browser, "[data-is=left]", "0").await;
    until_said(&browser, "[data-is=limit]", "2 per 1m").await;
    until_said(&browser, "[data-is=next]", "free in ").await;
    click(&browser, ".caller [data-reset]").await;
    until_said(&browser, "[data-is=left]", "2").await;
    until_said(&browser, "[data-is=next]", "free now").await;
    assert_eq!([greet().await, greet().await, greet().await], [200, 200, 429]);

    click(&browser, "[data-enforce=dry_run]").await;
    until_said(&browser, "[data-limit=hello] .chip", "dry run").await;
    assert_eq!(greet().await, 200);
    until_said(&browser, ".more .facts", "dry run (an operator of this process)").await;
    click(&browser, "[data-enforce=on]").await;
    until("the limit is enforced again", async || (greet().await == 429).then_some(())).await;

    // The numbers of the code are no override.
    click(&browser, ".numbers [type=submit]").await;
    until_said(&browser, ".card .answer", "No number was changed.").await;
    fill(&browser, ".numbers [name=threshold]", "0").await;
    click(&browser, ".numbers [type=submit]").await;
    until_said(
        &browser,
        ".card .answer.bad",
        "Threshold must be a whole number from 1 to 1 000 000 000",
    )
    .await;
    fill(&browser, ".numbers [name=threshold]", "4").await;
    fill(&browser, ".numbers [name=period]", "1h 30m").await;
    click(&browser, ".numbers [type=submit]").await;
    until_said(&browser, "[data-limit=hello] .said", "4 per 1h 30m · overridden").await;
    assert_eq!([greet().await, greet().await, greet().await], [200, 200, 429]);
    let expected = Override::new()
        .threshold(4)
        .period(Duration::from_secs(5_400))
        .enforcement(Enforcement::On);
    assert_eq!(service.limiter.overrides().list()["hello"], expected);
    browser.until("!document.querySelector('[data-take-back]').disabled").await;
    click(&browser, "[data-take-back]").await;
    browser.until("document.querySelector('.numbers [name=threshold]').value === '2'").await;
    assert!(service.limiter.overrides().list().is_empty());

    click(&browser, "#kill").await;
    click(&browser, "dialog [value=off]").await;
    assert_eq!(greet().await, 429, "nothing holds before it is confirmed");
    click(&browser, "#dialog-confirm").await;
    until_said(&browser, "#all", "all limits: off, until ").await;
    assert_eq!(greet().await, 200);
    until_said(&browser, "#all-answer", "All limits: in effect in this process").await;
    until_said(&browser, "#totals .value", "not counted").await;
    // A switch that is forgotten ends.
    let end = service.limiter.overrides().by_source("*")[0].1.until;
    assert!(end.is_some());
    click(&browser, "#kill").await;
    click(&browser, "dialog [value='']").await;
    click(&browser, "#dialog-confirm").await;
    browser.until("document.querySelector('#all').hidden").await;
    assert_eq!(greet().await, 429);

    // The one refused action was answered with 422, which a browser logs.
    let errors = browser.log("browser").await;
    assert!(errors.iter().all(|it| it["message"].as_str().unwrap().contains("422")), "{errors:?}");
    is_clean(&browser, &service).await;

    // A script without the token, on the page itself.
    for (token, status) in
        [("'0'.repeat(64)", 403), ("document.querySelector('meta[name=token]').content", 200)]
    {
        let script = format!(
            "fetch('enforcement', {{ method: 'POST', body: '{{\"limit\":\"*\",\"enforcement\":null}}', headers: {{ \
             'content-type': 'application/json', 'x-ratelimit-token': {token} }} }}).then(it => it.status)"
        );
        assert_eq!(browser.value(&format!("await {script}")).await, status);
    }
    // No script of another origin, and none within the page.
    let inline = "(() => { const it = document.createElement('script'); \
                  it.textContent = 'window.inlined = true'; document.body.append(it); \
                  return window.inlined === true; })()";
    assert_eq!(browser.value(inline).await, false);
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_in_flight_are_told_and_their_number_is_changed() {
    let service = Service::start(|| Access::Act).await;
    let limiter = service.limiter.clone();
    let (end, ended) = oneshot::channel();
    let first = tokio::spawn(async move { upload(&limiter, "alice", ended).await });
    let browser = open(&service).await;
    until_said(&browser, "[data-limit=upload] .said", "1 in flight").await;
    click(&browser, "[data-limit=upload] .row").await;
    fill(&browser, ".caller [name=part]", "alice").await;
    click(&browser, ".caller [type=submit]").await;
    until_said(&browser, "[data-is=left]", "0").await;
    until_said(&browser, "[data-is=limit]", "1 in flight").await;
    until_said(&browser, "[data-is=next]", "free as soon as a call in flight ends").await;

    fill(&browser, ".numbers [name=concurrency]", "2").await;
    click(&browser, ".numbers [type=submit]").await;
    until_said(&browser, "[data-limit=upload] .said", "2 in flight · overridden").await;
    until_said(&browser, ".more .facts", "override by an operator of this process2 in flight")
        .await;
    assert_eq!(service.limiter.overrides().list()["upload"], Override::new().concurrency(2));
    click(&browser, ".caller [type=submit]").await;
    until_said(&browser, "[data-is=left]", "1").await;
    until_said(&browser, "[data-is=next]", "free now").await;
    end.send(()).unwrap();
    first.await.unwrap().unwrap();
    click(&browser, ".caller [type=submit]").await;
    until_said(&browser, "[data-is=left]", "2").await;
    is_clean(&browser, &service).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn callers_that_share_one_bucket_are_shown() {
    let service = Service::start(|| Access::View).await;
    different(&service.limiter, 3).await.unwrap();
    let browser = open(&service).await;
    until_said(&browser, "[data-limit=different] .said", "callers share one bucket").await;
    let other = "document.querySelector('[data-limit=hello] .said').textContent";
    let other = browser.value(other).await;
    assert!(!other.as_str().unwrap().contains("share one bucket"), "{other}");
    click(&browser, "[data-limit=different] .row").await;
    until_said(&browser, ".more .facts", "outside an identity layer, and share one bucket").await;
    is_clean(&browser, &service).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn several_tiers_and_several_parts_have_a_field_each() {
    let service = Service::start(|| Access::Act).await;
    for _ in 0..2 {
        several(&service.limiter, "acme", None).await.unwrap();
    }
    let browser = open(&service).await;
    click(&browser, "[data-limit=several] .row").await;
    let labels = "[...document.querySelectorAll('.part label')].map(it => it.textContent)";
    assert_eq!(browser.value(labels).await, json!(["tenant", "user"]));
    fill(&browser, ".part:nth-child(1) input", "acme").await;
    fill(&browser, ".part:nth-child(2) input", "7").await;
    click(&browser, ".caller [type=submit]").await;
    until_said(&browser, "[data-is=left]", "2").await;
    click(&browser, ".part:nth-child(2) option[value=none]").await;
    click(&browser, ".caller [type=submit]").await;
    until_said(&browser, "[data-is=left]", "0").await;
    // As of a trait's default method, whose first part is the type.
    click(&browser, ".caller .buttons button:last-child").await;
    fill(&browser, ".part:nth-child(3) input", "more").await;
    click(&browser, ".caller [type=submit]").await;
    until_said(&browser, "[data-is=left]", "2").await;

    let tiers = "[...document.querySelectorAll('.tiers input')].map(it => it.value)";
    assert_eq!(browser.value(tiers).await, json!(["2", "1m", "5", "1h"]));
    fill(&browser, ".tiers > :nth-child(1) [name=threshold]", "3").await;
    click(&browser, ".numbers [data-try] + button").await;
    fill(&browser, ".tiers > :nth-child(3) [name=threshold]", "9").await;
    fill(&browser, ".tiers > :nth-child(3) [name=period]", "1d").await;
    click(&browser, ".numbers [type=submit]").await;
    until_said(&browser, "[data-limit=several] .said", "3 per 1m, 5 per 1h, 9 per 1d").await;
    until_said(&browser, ".card .answer", "in effect in this process").await;
    let seconds = Duration::from_secs;
    let expected =
        Override::new().tier(seconds(60), 3).tier(seconds(3_600), 5).tier(seconds(86_400), 9);
    assert_eq!(service.limiter.overrides().list()["several"], expected);
    several(&service.limiter, "acme", None).await.unwrap();
    is_clean(&browser, &service).await;
}
