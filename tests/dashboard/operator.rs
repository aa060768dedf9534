//! An operator at the page, over HTTP.

use std::time::Duration;

use axum::{
    Router,
    http::{HeaderValue, StatusCode, request::Parts},
    response::IntoResponse,
};
use ratelimit_dashboard::Access;
use ratelimit_runtime::Limiter;
use reqwest::{Method, RequestBuilder, Response};
use serde_json::Value;
use tokio::net::TcpListener;

pub(crate) const MINUTE: Duration = Duration::from_secs(60);

/// The paths of all assets.
pub(crate) const ASSETS: [&str; 18] = [
    "api.js",
    "caller.js",
    "candidate.js",
    "confirm.js",
    "detail.js",
    "elements.js",
    "exceptions.js",
    "fleet.js",
    "format.js",
    "history.js",
    "icon.svg",
    "main.js",
    "plots.js",
    "refused.js",
    "scope.js",
    "style.css",
    "uplot.css",
    "uplot.js",
];
pub(crate) const ACTIONS: [&str; 13] = [
    "enforcement",
    "numbers",
    "candidate",
    "apply-candidate",
    "override",
    "field",
    "undo",
    "exception",
    "end-exception",
    "exceptions",
    "refused",
    "caller",
    "reset",
];

pub(crate) fn authorize(request: &Parts) -> Access {
    match request.headers.get("x-operator").map(HeaderValue::as_bytes) {
        Some(b"act") => Access::Act,
        Some(b"view") => Access::View,
        Some(_) => Access::Instead((StatusCode::UNAUTHORIZED, "who are you?").into_response()),
        None => Access::Denied,
    }
}

pub(crate) async fn serve(router: Router) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async { axum::serve(listener, router).await });
    format!("http://{address}/")
}

/// An operator at the page of a limiter.
pub(crate) struct Operator {
    pub(crate) url: String,
    pub(crate) client: reqwest::Client,
    pub(crate) cookie: String,
    pub(crate) token: String,
}

impl Operator {
    pub(crate) async fn of(limiter: &Limiter) -> Self {
        Self::at(serve(ratelimit_dashboard::router(limiter.clone(), authorize)).await).await
    }

    pub(crate) async fn at(url: String) -> Self {
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let page = client.get(&url).header("x-operator", "act").send().await.unwrap();
        assert_eq!(page.status(), 200);
        let cookie = page.headers()["set-cookie"].to_str().unwrap();
        let cookie = cookie.split(';').next().unwrap().to_owned();
        let token = token_of(&page.text().await.unwrap());
        Self { url, client, cookie, token }
    }

    pub(crate) fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.client.request(method, format!("{}{path}", self.url))
    }

    /// As the page sends it.
    pub(crate) fn action(&self, path: &str, body: &Value) -> RequestBuilder {
        self.request(Method::POST, path)
            .header("x-operator", "act")
            .header("cookie", &self.cookie)
            .header("x-ratelimit-token", &self.token)
            .header("sec-fetch-site", "same-origin")
            .json(body)
    }

    pub(crate) async fn act(&self, path: &str, body: Value) -> (u16, Value) {
        let response = self.action(path, &body).send().await.unwrap();
        (response.status().as_u16(), response.json().await.unwrap())
    }

    pub(crate) fn ask_events(&self) -> RequestBuilder {
        let request = self.request(Method::GET, "events").header("x-operator", "view");
        request.header("cookie", &self.cookie)
    }

    pub(crate) async fn events(&self) -> Events {
        Events::of(self.ask_events().send().await.unwrap())
    }

    /// Returns the counts of a limit in the page's first events.
    pub(crate) async fn counts_of(&self, name: &str) -> Value {
        self.events().await.next("counts").await[name].clone()
    }

    /// Returns the entry of a limit in the page's first event.
    pub(crate) async fn told_of(&self, name: &str) -> Value {
        let view = self.events().await.next("limits").await;
        let limits = view["limits"].as_array().unwrap();
        limits.iter().find(|limit| limit["name"] == name).cloned().unwrap_or_default()
    }
}

pub(crate) fn token_of(page: &str) -> String {
    let (_, token) = page.split_once("name=\"token\" content=\"").unwrap();
    token.split('"').next().unwrap().to_owned()
}

/// A stream of events as a browser reads it.
pub(crate) struct Events {
    pub(crate) response: Response,
    pub(crate) text: String,
    pub(crate) last_id: String,
}

impl Events {
    pub(crate) fn of(response: Response) -> Self {
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Self { response, text: String::new(), last_id: String::new() }
    }

    /// The next event, by its name and data; none when the stream has ended.
    pub(crate) async fn any(&mut self) -> Option<(String, Value)> {
        loop {
            if let Some((event, rest)) = self.text.split_once("\n\n") {
                let (event, rest) = (event.to_owned(), rest.to_owned());
                self.text = rest;
                let field = |name: &str| {
                    event.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
                };
                if let Some(id) = field("id") {
                    id.clone_into(&mut self.last_id);
                }
                // What only keeps the connection alive has no data.
                let Some(data) = field("data") else { continue };
                let name = field("event").unwrap_or("message").to_owned();
                return Some((name, serde_json::from_str(data).unwrap()));
            }
            let piece = self.response.chunk().await.unwrap()?;
            self.text.push_str(std::str::from_utf8(&piece).unwrap());
        }
    }

    pub(crate) async fn next(&mut self, wanted: &str) -> Value {
        loop {
            let (name, data) = self.any().await.expect("the stream goes on");
            if name == wanted {
                return data;
            }
        }
    }
}
