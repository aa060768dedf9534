//! A service with limits and its page, in a real browser.

use std::time::Duration;

use axum::{
    Router,
    extract::{Path, State},
    routing::get,
};
use fantoccini::{
    Locator,
    elements::Element,
    error::{CmdError, ErrorStatus},
};
use harness::{Browser, until};
use ratelimit_dashboard::{Access, NamedAccess};
use ratelimit_runtime::{Limiter, RateLimitError, rate_limit};
use serde_json::{Value, json};
use tokio::{net::TcpListener, sync::oneshot};

#[rate_limit(name = "hello", period = 60, threshold = 2, key = user, limiter = limiter)]
pub(crate) async fn hello(
    State(limiter): State<Limiter>,
    Path(user): Path<String>,
) -> Result<&'static str, RateLimitError> {
    Ok("hello")
}

#[rate_limit(name = "paced", algorithm = token_bucket, period = 1, threshold = 50, burst = 60, key = tenant, limiter = limiter)]
pub(crate) async fn paced(limiter: &Limiter, tenant: u32) -> Result<(), RateLimitError> {
    Ok(())
}

#[rate_limit(
    name = "several",
    tier(period = "1m", threshold = 2),
    tier(period = "1h", threshold = 5),
    key = (tenant, user),
    limiter = limiter
)]
pub(crate) async fn several(
    limiter: &Limiter,
    tenant: &str,
    user: Option<u32>,
) -> Result<(), RateLimitError> {
    Ok(())
}

/// Stays in flight until the end.
#[rate_limit(name = "upload", concurrency = 1, key = user, limiter = limiter)]
pub(crate) async fn upload(
    limiter: &Limiter,
    user: &str,
    end: oneshot::Receiver<()>,
) -> Result<(), RateLimitError> {
    end.await.unwrap();
    Ok(())
}

/// A service with limits, its page, and calls that do not end.
pub(crate) struct Service {
    pub(crate) limiter: Limiter,
    pub(crate) url: String,
}

impl Service {
    pub(crate) async fn start(access: impl Fn() -> Access + Send + Sync + 'static) -> Self {
        Self::of(Limiter::in_memory(), access).await
    }

    pub(crate) async fn of<A: Into<NamedAccess>>(
        limiter: Limiter,
        access: impl Fn() -> A + Send + Sync + 'static,
    ) -> Self {
        let router = Router::new()
            .route("/hello/{user}", get(hello))
            .with_state(limiter.clone())
            .nest_service(
                "/ops/limits",
                ratelimit_dashboard::router(limiter.clone(), move |_| access()),
            );
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

    pub(crate) fn page(&self) -> String {
        format!("{}/ops/limits", self.url)
    }

    /// Returns the status that a customer receives over HTTP.
    pub(crate) async fn greet(&self, user: &str) -> u16 {
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let asked = client.get(format!("{}/hello/{user}", self.url)).send().await;
        asked.unwrap().status().as_u16()
    }
}

/// The page, opened and told what there is.
pub(crate) async fn open(service: &Service) -> Browser {
    let browser = Browser::start().await;
    browser.page.goto(&service.page()).await.unwrap();
    browser.until("document.querySelector('#live').textContent === 'live'").await;
    browser.until("document.querySelectorAll('#rows li').length >= 2").await;
    browser
}

pub(crate) async fn find(browser: &Browser, selector: &str) -> Element {
    browser.page.find(Locator::Css(selector)).await.expect(selector)
}

/// Clicks where the element stands, until the click has reached it.
///
/// News may move the element, or draw it anew, between the two: the click then hits what stands
/// there by that time. A click on an option is one on its list.
pub(crate) async fn click(browser: &Browser, selector: &str) {
    // In the middle, where no bar covers it.
    let prepare = format!(
        "(() => {{
            window.reached = false;
            const reach = ({{ target }}) =>
                window.reached = (target.tagName === 'SELECT' || target.closest({0}) !== null);
            document.addEventListener('click', reach, {{ capture: true, once: true }});
            document.querySelector({0})?.scrollIntoView({{ block: 'center' }});
        }})()",
        json!(selector)
    );
    until(selector, async || {
        browser.value(&prepare).await;
        let clicked = find(browser, selector).await.click().await;
        if is_covered(&clicked) {
            return None;
        }
        clicked.expect(selector);
        // A page that the click has led to has no such variable.
        (browser.value("window.reached").await != json!(false)).then_some(())
    })
    .await;
}

fn is_covered(clicked: &Result<(), CmdError>) -> bool {
    let Err(CmdError::Standard(error)) = clicked else { return false };
    error.error == ErrorStatus::ElementClickIntercepted
}

pub(crate) async fn fill(browser: &Browser, selector: &str, text: &str) {
    let field = find(browser, selector).await;
    field.clear().await.expect(selector);
    field.send_keys(text).await.expect(selector);
}

/// Waits until the element's text is, or has in it, what is expected.
pub(crate) async fn until_said(browser: &Browser, selector: &str, expected: &str) {
    let said = format!("document.querySelector({})?.textContent", json!(selector));
    let mut last = Value::Null;
    let waited = tokio::time::timeout(Duration::from_secs(30), async {
        while !last.as_str().is_some_and(|text| text.contains(expected)) {
            last = browser.look(&said).await;
        }
    });
    assert!(waited.await.is_ok(), "{selector} says {last}, and not {expected}");
}

/// Fails if the page has logged an error, or has asked anyone else for anything.
pub(crate) async fn is_clean(browser: &Browser, service: &Service) {
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
            // The browser's own pictures in its fields.
            if url.starts_with("data:") {
                continue;
            }
            assert!(url.starts_with(&service.page()), "{url}");
            assert!(!url.contains("secret-name"), "{url}");
            asked += 1;
        }
    }
    assert!(asked > 10, "{asked}");
}

/// How many points of a canvas have a colour.
pub(crate) fn painted(selector: &str) -> String {
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
pub(crate) const FAINT: &str = "(() => {
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
    const compare = (text, ground, least) => {
        const [high, low] = [light(text), light(ground)].sort((a, b) => b - a);
        const contrast = (high + 0.05) / (low + 0.05);
        if (!(contrast >= least)) faint.push(`${text} on ${ground}: ${contrast.toFixed(2)}`);
    };
    for (const ground of ['panel', 'sunken', 'bg']) {
        for (const text of ['text', 'muted', 'bad', 'good', 'refused', 'dry-run']) compare(text, ground, 4.5);
        for (const line of ['admitted', 'repeated', 'degraded', 'undecided', 'edge', 'focus']) compare(line, ground, 3);
    }
    compare('primary-text', 'accent', 4.5);
    sample.remove();
    return faint;
})()";
