//! The page for operators against those who are none: sites that have a browser ask for them, and viewers
//! who take all the room.

use axum::{Router, http::request::Parts};
use harness::until;
use ratelimit_dashboard::Access;
use ratelimit_runtime::{Enforcement, Limiter, RateLimitError, rate_limit};
use reqwest::{Method, RequestBuilder, Response, StatusCode};
use serde_json::{Value, json};
use tokio::net::TcpListener;

/// As a hook that decides by the peer's address answers everyone on this machine.
fn authorize(request: &Parts) -> Access {
    match request.headers.get("x-operator") {
        Some(_) => Access::View,
        None => Access::Act,
    }
}

async fn serve(router: Router) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async { axum::serve(listener, router).await });
    format!("http://{address}/")
}

/// A browser at the page.
struct Browser {
    url: String,
    client: reqwest::Client,
    cookie: String,
    token: String,
}

impl Browser {
    async fn open(url: &str) -> Self {
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let page = client.get(url).send().await.unwrap();
        assert_eq!(page.status(), 200);
        let cookie = page.headers()["set-cookie"].to_str().unwrap();
        let cookie = cookie.split(';').next().unwrap().to_owned();
        let text = page.text().await.unwrap();
        let (_, token) = text.split_once("name=\"token\" content=\"").unwrap();
        let token = token.split('"').next().unwrap().to_owned();
        Self { url: url.to_owned(), client, cookie, token }
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let request = self.client.request(method, format!("{}{path}", self.url));
        request.header("cookie", &self.cookie)
    }

    fn switch_off(&self) -> RequestBuilder {
        let request =
            self.request(Method::POST, "enforcement").header("x-ratelimit-token", &self.token);
        request.json(&json!({ "limit": "*", "enforcement": "off" }))
    }

    async fn events(&self) -> Response {
        self.request(Method::GET, "events").send().await.unwrap()
    }
}

async fn status(request: RequestBuilder) -> u16 {
    request.send().await.unwrap().status().as_u16()
}

#[tokio::test]
async fn a_name_that_another_site_leads_here_gets_nothing() {
    let limiter = Limiter::in_memory();
    let url = serve(ratelimit_dashboard::router(limiter.clone(), authorize)).await;
    let port = url.trim_end_matches('/').rsplit_once(':').unwrap().1.to_owned();
    let browser = Browser::open(&url).await;
    for host in ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "", "[::1"] {
        for host in [host.to_owned(), format!("{host}:{port}")] {
            for path in ["", "events", "main.js", "no-such-file"] {
                let request = browser.request(Method::GET, path).header("host", &host);
                assert_eq!(status(request).await, 421, "{host} {path}");
            }
            // As the page of that name sends it, with all that it has read here.
            let origin = format!("http://{host}");
            let request = browser.switch_off().header("host", &host).header("origin", origin);
            assert_eq!(
                status(request.header("sec-fetch-site", "same-origin")).await,
                421,
                "{host}"
            );
        }
    }
    assert_eq!(limiter.overrides().enforcement(), None);
    // Names that lead to this machine wherever they are asked for, and addresses, which nobody leads
    // elsewhere.
    for host in ["localhost", "LocalHost", "ops.localhost", "127.0.0.1", "[::1]", "192.0.2.1"] {
        for host in [host.to_owned(), format!("{host}:{port}")] {
            let request = browser.request(Method::GET, "").header("host", &host);
            assert_eq!(status(request).await, 200, "{host}");
        }
    }
    // Another site's script, to the address itself.
    for origin in ["http://evil.example", "http://192.0.2.1", "null", "http://127.0.0.1:1"] {
        for path in ["", "events"] {
            let request = browser.request(Method::GET, path).header("origin", origin);
            assert_eq!(status(request).await, 403, "{origin} {path}");
        }
        assert_eq!(status(browser.switch_off().header("origin", origin)).await, 403, "{origin}");
    }
    assert_eq!(limiter.overrides().enforcement(), None);
    let own = browser.switch_off().header("origin", url.trim_end_matches('/'));
    assert_eq!(status(own).await, 200);
    assert!(matches!(limiter.overrides().enforcement(), Some((Enforcement::Off, _))));
}

#[tokio::test]
async fn behind_a_proxy_the_page_is_served_under_its_names_and_by_any_replica() {
    let limiter = Limiter::in_memory();
    let replica = || {
        let builder = ratelimit_dashboard::builder(limiter.clone(), authorize);
        serve(builder.hosts(["ops.example", "backend"]).secret("of the fleet").router())
    };
    let browser = Browser::open(&replica().await).await;
    let another = Browser { url: replica().await, ..browser };
    for (host, origin, expected) in [
        ("ops.example", "https://ops.example", 200),
        ("OPS.example:443", "https://ops.example", 200),
        // The proxy asks for it under a name of its own.
        ("backend:8080", "https://ops.example", 200),
        ("ops.example", "https://evil.example", 403),
        ("evil.example", "https://ops.example", 421),
    ] {
        let request = another.switch_off().header("host", host).header("origin", origin);
        assert_eq!(status(request).await, expected, "{host} {origin}");
    }
}

#[tokio::test]
async fn a_cookie_that_was_planted_needs_the_token_that_only_the_page_has() {
    let limiter = Limiter::in_memory();
    let url = serve(ratelimit_dashboard::router(limiter.clone(), authorize)).await;
    let browser = Browser::open(&url).await;
    let another = Browser::open(&url).await;
    let planted = "5a".repeat(32);
    let (name, session) = browser.cookie.split_once('=').unwrap();
    for (cookie, token) in [
        (planted.as_str(), planted.as_str()),
        (session, session),
        (planted.as_str(), &browser.token),
        (session, &another.token),
        (&browser.token, &browser.token),
    ] {
        let request = browser.client.post(format!("{url}enforcement"));
        let request = request.header("cookie", format!("{name}={cookie}"));
        let request = request.header("x-ratelimit-token", token);
        let request = request.json(&json!({ "limit": "*", "enforcement": "off" }));
        assert_eq!(status(request).await, 403);
    }
    assert_eq!(limiter.overrides().enforcement(), None);
    // Who may only look has no token for anyone's cookie.
    let page = browser.request(Method::GET, "").header("x-operator", "view").send().await.unwrap();
    assert!(page.text().await.unwrap().contains("name=\"token\" content=\"\""));
    assert_eq!(status(browser.switch_off()).await, 200);
}

#[tokio::test]
async fn one_viewer_leaves_room_for_the_others() {
    let named = |request: &Parts| {
        let login = request.headers.get("x-login").and_then(|login| login.to_str().ok());
        authorize(request).named(login.unwrap_or("greedy"))
    };
    let url = serve(ratelimit_dashboard::router(Limiter::in_memory(), named)).await;
    let mut open = Vec::new();
    let refused = loop {
        // Cookies are free: the hook's name counts.
        let events = Browser::open(&url).await.events().await;
        if events.status() != StatusCode::OK {
            break events;
        }
        open.push(events);
    };
    assert!((2..=16).contains(&open.len()), "{}", open.len());
    assert_eq!(refused.status(), 503);
    let answer: Value = refused.json().await.unwrap();
    assert!(answer["error"].as_str().unwrap().contains("close one"), "{answer}");
    let greedy = Browser::open(&url).await;
    let other = greedy.request(Method::GET, "events").header("x-login", "other");
    assert_eq!(status(other).await, 200);
    drop(open);
    until("room again", async || (greedy.events().await.status() == 200).then_some(())).await;
    // Nobody gets events who has not opened the page: another site's script has no cookie.
    let without = greedy.client.get(format!("{url}events"));
    assert_eq!(status(without).await, 403);
}

#[rate_limit(name = "alike", period = 60, threshold = 1, key = "one", limiter = limiter)]
async fn alike(limiter: &Limiter) -> Result<(), RateLimitError> {
    Ok(())
}

#[rate_limit(name = "alike", period = 60, threshold = 1, key = "two", limiter = limiter)]
async fn alike_again(limiter: &Limiter) -> Result<(), RateLimitError> {
    Ok(())
}

#[rate_limit(name = "different", threshold = most, period = 60, limiter = limiter)]
pub(crate) async fn different(limiter: &Limiter, most: u32) -> Result<(), RateLimitError> {
    Ok(())
}

#[rate_limit(name = "different", threshold = most, period = 3600, limiter = limiter)]
async fn different_again(limiter: &Limiter, most: u32) -> Result<(), RateLimitError> {
    Ok(())
}

#[tokio::test]
async fn the_page_shows_the_conflicts_that_the_program_reports() {
    let limiter = Limiter::in_memory();
    alike(&limiter).await.unwrap();
    alike_again(&limiter).await.unwrap();
    different(&limiter, 3).await.unwrap();
    different_again(&limiter, 3).await.unwrap();
    let url = serve(ratelimit_dashboard::router(limiter, authorize)).await;
    let mut events = Browser::open(&url).await.events().await;
    let mut text = String::new();
    while !text.contains("\n\n") {
        text += str::from_utf8(&events.chunk().await.unwrap().unwrap()).unwrap();
    }
    let data = text.lines().find_map(|line| line.strip_prefix("data: ")).unwrap();
    let view: Value = serde_json::from_str(data).unwrap();
    let reported: Vec<_> =
        ratelimit_runtime::limits::conflicts().iter().map(|(limit, _)| limit.name()).collect();
    assert_eq!(reported, ["different"]);
    for limit in view["limits"].as_array().unwrap() {
        let name = limit["name"].as_str().unwrap();
        assert_eq!(limit["is_in_conflict"], reported.contains(&name), "{name}");
        // Of these two, one has no key. Other tests of this program call limits too.
        if ["alike", "different"].contains(&name) {
            assert_eq!(limit["shares_one_bucket"], name == "different", "{name}");
        }
    }
}
