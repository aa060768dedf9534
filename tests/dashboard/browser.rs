//! The page for operators as a person has it: in a real browser, by pointer and by keyboard.

use std::time::Duration;

use axum::{
    Router,
    extract::{Path, State},
    routing::get,
};
use fantoccini::{Locator, elements::Element, key::Key};
use harness::{Browser, until};
use ratelimit_runtime::{
    Enforcement, Limiter, Override, Policy, RateLimitError, rate_limit,
    web::dashboard::{self, Access},
};
use serde_json::{Value, json};
use tokio::net::TcpListener;

#[rate_limit(name = "hello", period = 60, threshold = 2, key = user, limiter = limiter)]
async fn hello(
    State(limiter): State<Limiter>,
    Path(user): Path<String>,
) -> Result<&'static str, RateLimitError> {
    Ok("hello")
}

#[rate_limit(name = "paced", algorithm = token_bucket, period = 1, threshold = 50, burst = 60, key = tenant, limiter = limiter)]
async fn paced(limiter: &Limiter, tenant: u32) -> Result<(), RateLimitError> {
    Ok(())
}

#[rate_limit(
    name = "several",
    tier(period = "1m", threshold = 2),
    tier(period = "1h", threshold = 5),
    key = (tenant, user),
    limiter = limiter
)]
async fn several(limiter: &Limiter, tenant: &str, user: Option<u32>) -> Result<(), RateLimitError> {
    Ok(())
}

/// A service with limits, its page, and calls that do not end.
struct Service {
    limiter: Limiter,
    url: String,
}

impl Service {
    async fn start(access: impl Fn() -> Access + Send + Sync + 'static) -> Self {
        let limiter = Limiter::in_memory();
        let router = Router::new()
            .route("/hello/{user}", get(hello))
            .with_state(limiter.clone())
            .nest_service("/ops/limits", dashboard::router(limiter.clone(), move |_| access()));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async { axum::serve(listener, router).await });
        let calling = limiter.clone();
        tokio::spawn(async move {
            for call in 0_u64.. {
                let _ = paced(&calling, 1).await;
                // More and fewer from second to second, so that a plot is no straight line.
                tokio::time::sleep(Duration::from_millis(5 + call % 100 / 2)).await;
            }
        });
        Self { limiter, url }
    }

    fn page(&self) -> String {
        format!("{}/ops/limits", self.url)
    }

    /// What a customer gets, over HTTP.
    async fn greet(&self, user: &str) -> u16 {
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let asked = client.get(format!("{}/hello/{user}", self.url)).send().await;
        asked.unwrap().status().as_u16()
    }
}

/// The page, opened and told what there is.
async fn open(service: &Service) -> Browser {
    let browser = Browser::start().await;
    browser.page.goto(&service.page()).await.unwrap();
    browser.until("document.querySelector('#live').textContent === 'live'").await;
    browser.until("document.querySelectorAll('#rows li').length >= 2").await;
    browser
}

async fn find(browser: &Browser, selector: &str) -> Element {
    browser.page.find(Locator::Css(selector)).await.expect(selector)
}

async fn click(browser: &Browser, selector: &str) {
    find(browser, selector).await.click().await.expect(selector);
}

async fn fill(browser: &Browser, selector: &str, text: &str) {
    let field = find(browser, selector).await;
    field.clear().await.expect(selector);
    field.send_keys(text).await.expect(selector);
}

/// Waits until the element's text is, or has in it, what is expected.
async fn until_said(browser: &Browser, selector: &str, expected: &str) {
    let said = format!("document.querySelector({})?.textContent", json!(selector));
    let mut last = Value::Null;
    let waited = tokio::time::timeout(Duration::from_secs(30), async {
        while !last.as_str().is_some_and(|text| text.contains(expected)) {
            tokio::time::sleep(Duration::from_millis(20)).await;
            last = browser.value(&said).await;
        }
    });
    assert!(waited.await.is_ok(), "{selector} says {last}, and not {expected}");
}

/// Fails if the page has logged an error, or has asked anyone else for anything.
async fn is_clean(browser: &Browser, service: &Service) {
    let mut errors = browser.log("browser").await;
    errors.retain(|entry| entry["level"] == "SEVERE");
    assert_eq!(errors, Vec::<Value>::new());
    let mut asked = 0;
    for entry in browser.log("performance").await {
        let entry: Value = serde_json::from_str(entry["message"].as_str().unwrap()).unwrap();
        let (method, parameters) = (&entry["message"]["method"], &entry["message"]["params"]);
        // The browser's own first page is none of ours.
        let is_ours = !parameters["documentURL"].as_str().unwrap_or_default().starts_with("chrome");
        if method == "Network.requestWillBeSent" && is_ours {
            let url = parameters["request"]["url"].as_str().unwrap();
            assert!(url.starts_with(&service.page()), "{url}");
            assert!(!url.contains("secret-name"), "{url}");
            asked += 1;
        }
    }
    assert!(asked > 10, "{asked}");
}

/// How many points of a canvas have a colour.
fn painted(selector: &str) -> String {
    format!(
        "(() => {{
            const canvas = document.querySelector({});
            const pen = canvas.getContext('2d');
            const {{ data }} = pen.getImageData(0, 0, canvas.width, canvas.height);
            let painted = 0;
            for (let at = 3; at < data.length; at += 4) if (data[at] > 0) painted += 1;
            return painted;
        }})()",
        json!(selector)
    )
}

/// The colours of texts that stand out too little from a ground that they stand on (WCAG 2, AA).
const FAINT: &str = "(() => {
    const sample = document.body.appendChild(document.createElement('i'));
    const light = (name) => {
        sample.style.color = `var(--${name})`;
        const parts = getComputedStyle(sample).color.match(/[0-9.]+/g).slice(0, 3);
        const [r, g, b] = parts.map((part) => {
            const value = part / 255;
            return value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
        });
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const faint = [];
    const judge = (text, ground, least) => {
        const [high, low] = [light(text), light(ground)].sort((a, b) => b - a);
        const contrast = (high + 0.05) / (low + 0.05);
        if (!(contrast >= least)) faint.push(`${text} on ${ground}: ${contrast.toFixed(2)}`);
    };
    for (const ground of ['panel', 'sunken', 'bg']) {
        for (const text of ['text', 'muted', 'bad', 'good', 'refused', 'rehearsed']) judge(text, ground, 4.5);
        for (const line of ['admitted', 'repeated', 'degraded', 'undecided', 'left', 'edge', 'focus']) judge(line, ground, 3);
    }
    judge('primary-text', 'accent', 4.5);
    sample.remove();
    return faint;
})()";

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
    browser.until("document.querySelectorAll('.more canvas').length === 2").await;
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
    click(&browser, "#tab-trial").await;
    until_said(&browser, ".free", "free now").await;
    assert_eq!(browser.value(wide).await, json!([]));
    assert_eq!(browser.value("document.documentElement.scrollWidth").await, 360);
    is_clean(&browser, &service).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_burst_is_refused_from_the_sixth_call_on_by_each_algorithm() {
    let service = Service::start(|| Access::Act).await;
    let browser = open(&service).await;
    click(&browser, "#tab-trial").await;
    fill(&browser, ".controls div:nth-of-type(2) input", "60").await;
    click(&browser, "#burst").await;
    let algorithms = ["sliding_window", "sliding_counter", "fixed_window", "token_bucket"];
    for algorithm in algorithms {
        let lane = format!("[data-algorithm={algorithm}]");
        until_said(&browser, &format!("{lane} .summary"), "5 admitted, 3 refused").await;
        until_said(&browser, &format!("{lane} .left"), "0 of 5 left").await;
        until_said(&browser, &format!("{lane} .free"), "free in ").await;
        for (kind, count) in [("admitted", 5), ("refused", 3)] {
            let entries = format!("document.querySelectorAll('{lane} .entry.{kind}').length");
            assert_eq!(browser.value(&entries).await, count, "{algorithm}");
        }
    }
    until_said(&browser, "[role=status].answer", "Sliding window: 5 of 8 admitted").await;
    // Another threshold meets the same history.
    fill(&browser, ".controls div:nth-of-type(1) input", "7").await;
    click(&browser, "#one").await;
    until_said(&browser, "[data-algorithm=sliding_window] .summary", "6 admitted, 3 refused").await;
    until_said(&browser, "[data-algorithm=sliding_window] .left", "1 of 7 left").await;

    // The entries go to the left, out of the window, and then calls are free again.
    click(&browser, "#anew").await;
    fill(&browser, ".controls div:nth-of-type(1) input", "5").await;
    fill(&browser, ".controls div:nth-of-type(2) input", "2").await;
    click(&browser, "#burst").await;
    let lane = "[data-algorithm=sliding_window]";
    until_said(&browser, &format!("{lane} .summary"), "5 admitted, 3 refused").await;
    let place = format!("document.querySelector('{lane} .entry').getBoundingClientRect().left");
    let first = browser.value(&place).await.as_f64().unwrap();
    browser.until(&format!("{place} < {}", first - 40.0)).await;
    browser.until(&format!("document.querySelectorAll('{lane} .entry.gone').length === 8")).await;
    until_said(&browser, &format!("{lane} .free"), "free now").await;
    click(&browser, "#burst").await;
    until_said(&browser, &format!("{lane} .summary"), "10 admitted, 6 refused").await;
    // What is wrong is said as the service says it.
    fill(&browser, ".controls div:nth-of-type(1) input", "51").await;
    click(&browser, "#one").await;
    until_said(&browser, "[role=status].answer", "the threshold is between 1 and 50").await;

    // Who would rather have no motion sees it go on by the second, and not by the frame.
    fill(&browser, ".controls div:nth-of-type(1) input", "5").await;
    fill(&browser, ".controls div:nth-of-type(2) input", "60").await;
    click(&browser, "#anew").await;
    click(&browser, "#burst").await;
    until_said(&browser, &format!("{lane} .summary"), "5 admitted, 3 refused").await;
    let watch = format!(
        "void new MutationObserver(() => {{ window.moves += 1; }})\
         .observe(document.querySelector('{lane} .entry'), {{ attributeFilter: ['transform'] }})"
    );
    browser.value(&watch).await;
    let moves_of_two_seconds = "await new Promise(tell => { window.moves = 0; \
                                setTimeout(() => tell(window.moves), 2000); })";
    browser.value("window.moves = 0").await;
    browser.until("window.moves > 10").await;
    browser.prefer("prefers-reduced-motion", "reduce").await;
    browser.until("matchMedia('(prefers-reduced-motion: reduce)').matches").await;
    let moves = browser.value(moves_of_two_seconds).await.as_u64().unwrap();
    assert!((1..=6).contains(&moves), "{moves}");
    let errors = browser.log("browser").await;
    assert!(errors.iter().all(|it| it["message"].as_str().unwrap().contains("422")), "{errors:?}");
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
    until_said(&browser, ".more .facts", "dry run, says the program").await;
    click(&browser, "[data-enforce=on]").await;
    until("the limit is enforced again", async || (greet().await == 429).then_some(())).await;

    fill(&browser, ".numbers [name=threshold]", "0").await;
    click(&browser, ".numbers [type=submit]").await;
    until_said(&browser, ".card .answer.bad", "`hello`: `threshold` must be at least 1").await;
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
    until_said(&browser, "#all", "all limits: off, says the program").await;
    assert_eq!(greet().await, 200);
    click(&browser, "#kill").await;
    click(&browser, "dialog input").await;
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
            "fetch('all', {{ method: 'POST', body: '{{\"enforcement\":null}}', headers: {{ \
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
    click(&browser, ".numbers .buttons :nth-child(2)").await;
    fill(&browser, ".tiers > :nth-child(3) [name=threshold]", "9").await;
    fill(&browser, ".tiers > :nth-child(3) [name=period]", "1d").await;
    click(&browser, ".numbers [type=submit]").await;
    until_said(&browser, "[data-limit=several] .said", "3 per 1m, 5 per 1h, 9 per 1d").await;
    until_said(&browser, ".card .answer", "it holds in this process").await;
    let seconds = Duration::from_secs;
    let expected =
        Override::new().tier(seconds(60), 3).tier(seconds(3_600), 5).tier(seconds(86_400), 9);
    assert_eq!(service.limiter.overrides().list()["several"], expected);
    several(&service.limiter, "acme", None).await.unwrap();
    is_clean(&browser, &service).await;
}

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
    let (enter, escape, right) = (
        char::from(Key::Enter).to_string(),
        char::from(Key::Escape).to_string(),
        char::from(Key::Right).to_string(),
    );
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
    until_said(&browser, "[data-limit=hello] .row .chip", "on").await;
    tab_to(&browser, "[data-limit=hello] .caller [name=part]").await;
    press(&browser, &format!("alice{enter}")).await;
    until_said(&browser, "[data-is=left]", "1").await;
    tab_to(&browser, "[data-limit=hello] .caller [data-reset]").await;
    press(&browser, &enter).await;
    until_said(&browser, "[data-is=left]", "2").await;

    browser.value("document.querySelector('#tab-limits').focus()").await;
    press(&browser, &right).await;
    browser
        .until(
            "document.activeElement.id === 'tab-trial' && !document.querySelector('#trial').hidden",
        )
        .await;
    tab_to(&browser, "#burst").await;
    press(&browser, &enter).await;
    until_said(&browser, "[data-algorithm=fixed_window] .summary", "5 admitted, 3 refused").await;

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
    browser.until("document.querySelectorAll('.more canvas').length === 2").await;
    until_said(&browser, ".more .facts", "50 per 1s, burst 60").await;
    let acting = "document.querySelectorAll('[data-act], .acts, .more button, #trial').length";
    assert_eq!(browser.value(acting).await, 0);
    // The names of limits are text, whatever is in them.
    let nasty = Policy::sliding_window(NASTY, Duration::from_secs(60), 1);
    service.limiter.check(&nasty, 1).await.unwrap();
    until_said(&browser, "#rows li:first-child .name", NASTY).await;
    assert_eq!(browser.value("document.querySelectorAll('img').length").await, 0);
    is_clean(&browser, &service).await;
}
