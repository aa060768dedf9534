//! The page for operators, over HTTP: who may do what, what it tells, and what it changes.

use std::{net::SocketAddr, time::Duration};

use axum::{
    Router,
    http::{HeaderValue, StatusCode, request::Parts},
    response::IntoResponse,
};
use harness::{Lines, RedisServer, until};
use ratelimit_runtime::{
    Caller, Enforcement, Limiter, Override, Policy, RateLimitError, caller, rate_limit,
    web::dashboard::{self, Access},
};
use reqwest::{Method, RequestBuilder, Response};
use serde_json::{Value, json};
use tokio::{net::TcpListener, sync::oneshot};

const MINUTE: Duration = Duration::from_secs(60);

/// What there is, by how it is asked for.
const ASSETS: [&str; 12] = [
    "api.js",
    "caller.js",
    "detail.js",
    "elements.js",
    "format.js",
    "icon.svg",
    "main.js",
    "plots.js",
    "style.css",
    "trial.js",
    "uplot.css",
    "uplot.js",
];
const ACTIONS: [&str; 7] =
    ["enforcement", "numbers", "override", "all", "caller", "reset", "trial"];

fn authorize(request: &Parts) -> Access {
    match request.headers.get("x-operator").map(HeaderValue::as_bytes) {
        Some(b"act") => Access::Act,
        Some(b"view") => Access::View,
        Some(_) => Access::Instead((StatusCode::UNAUTHORIZED, "who are you?").into_response()),
        None => Access::Denied,
    }
}

async fn serve(router: Router) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async { axum::serve(listener, router).await });
    format!("http://{address}/")
}

/// An operator at the page of a limiter.
struct Operator {
    url: String,
    client: reqwest::Client,
    cookie: String,
    token: String,
}

impl Operator {
    async fn of(limiter: &Limiter) -> Self {
        Self::at(serve(dashboard::router(limiter.clone(), authorize)).await).await
    }

    async fn at(url: String) -> Self {
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let page = client.get(&url).header("x-operator", "act").send().await.unwrap();
        assert_eq!(page.status(), 200);
        let cookie = page.headers()["set-cookie"].to_str().unwrap();
        let cookie = cookie.split(';').next().unwrap().to_owned();
        let token = token_of(&page.text().await.unwrap());
        Self { url, client, cookie, token }
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.client.request(method, format!("{}{path}", self.url))
    }

    /// As the page sends it.
    fn action(&self, path: &str, body: &Value) -> RequestBuilder {
        self.request(Method::POST, path)
            .header("x-operator", "act")
            .header("cookie", &self.cookie)
            .header("x-ratelimit-token", &self.token)
            .header("sec-fetch-site", "same-origin")
            .json(body)
    }

    async fn act(&self, path: &str, body: Value) -> (u16, Value) {
        let response = self.action(path, &body).send().await.unwrap();
        (response.status().as_u16(), response.json().await.unwrap())
    }

    fn ask_events(&self) -> RequestBuilder {
        let request = self.request(Method::GET, "events").header("x-operator", "view");
        request.header("cookie", &self.cookie)
    }

    async fn events(&self) -> Events {
        Events::of(self.ask_events().send().await.unwrap())
    }

    /// What the page is told of a limit at its first event.
    async fn told_of(&self, name: &str) -> Value {
        let view = self.events().await.next("limits").await;
        let limits = view["limits"].as_array().unwrap();
        limits.iter().find(|limit| limit["name"] == name).cloned().unwrap_or_default()
    }
}

fn token_of(page: &str) -> String {
    let (_, token) = page.split_once("name=\"token\" content=\"").unwrap();
    token.split('"').next().unwrap().to_owned()
}

/// A stream of events as a browser reads it.
struct Events {
    response: Response,
    text: String,
    last_id: String,
}

impl Events {
    fn of(response: Response) -> Self {
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Self { response, text: String::new(), last_id: String::new() }
    }

    /// The next event, by its name and data; none when the stream has ended.
    async fn any(&mut self) -> Option<(String, Value)> {
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

    async fn next(&mut self, wanted: &str) -> Value {
        loop {
            let (name, data) = self.any().await.expect("the stream goes on");
            if name == wanted {
                return data;
            }
        }
    }
}

#[tokio::test]
async fn nothing_is_answered_to_whom_the_hook_does_not_let_in() {
    let limiter = Limiter::in_memory();
    let operator = Operator::of(&limiter).await;
    let gets = ["", "events", "no-such-file"].into_iter().chain(ASSETS);
    let posts = ACTIONS.into_iter().map(|path| (Method::POST, path));
    for (method, path) in gets.map(|path| (Method::GET, path)).chain(posts) {
        let mut request = operator.action(path, &json!({})).build().unwrap();
        *request.method_mut() = method;
        request.headers_mut().remove("x-operator");
        let response = operator.client.execute(request.try_clone().unwrap()).await.unwrap();
        assert_eq!(response.status(), 403, "{path}");
        for (name, value) in [
            ("x-content-type-options", "nosniff"),
            ("x-frame-options", "DENY"),
            ("referrer-policy", "no-referrer"),
            ("cache-control", "no-store"),
        ] {
            assert_eq!(response.headers()[name], value, "{path}");
        }
        let policy = response.headers()["content-security-policy"].to_str().unwrap();
        assert!(
            policy.starts_with("default-src 'none'; ") && !policy.contains("unsafe"),
            "{policy}"
        );
        assert!(policy.ends_with("frame-ancestors 'none'"), "{policy}");

        request.headers_mut().insert("x-operator", "someone".parse().unwrap());
        let response = operator.client.execute(request).await.unwrap();
        assert_eq!(response.status(), 401, "{path}");
        assert_eq!(response.text().await.unwrap(), "who are you?");
    }
}

#[tokio::test]
async fn whoever_may_look_gets_the_whole_page_and_cannot_act() {
    let limiter = Limiter::in_memory();
    let operator = Operator::of(&limiter).await;
    for path in ASSETS {
        let file = operator.request(Method::GET, path).header("x-operator", "view");
        let file = file.send().await.unwrap();
        assert_eq!(file.status(), 200, "{path}");
        let kind = file.headers()["content-type"].to_str().unwrap().to_owned();
        let extension = path.rsplit_once('.').unwrap().1;
        let expected = [("js", "javascript"), ("css", "css"), ("svg", "svg+xml")];
        let (_, expected) = expected.iter().find(|(it, _)| *it == extension).unwrap();
        assert!(kind.contains(expected), "{path}: {kind}");
        assert!(file.headers().contains_key("content-security-policy"), "{path}");
    }
    for (access, shown) in [("view", "content=\"view\""), ("act", "content=\"act\"")] {
        let page = operator.request(Method::GET, "").header("x-operator", access);
        let page = page.send().await.unwrap().text().await.unwrap();
        assert!(page.contains(shown) && !page.contains("{{"), "{page}");
    }
    let missing = operator.request(Method::GET, "no-such-file").header("x-operator", "act");
    assert_eq!(missing.send().await.unwrap().status(), 404);
    for path in ACTIONS {
        let request = operator.action(path, &json!({ "enforcement": "off" }));
        let mut request = request.build().unwrap();
        request.headers_mut().insert("x-operator", "view".parse().unwrap());
        let response = operator.client.execute(request).await.unwrap();
        assert_eq!(response.status(), 403, "{path}");
        let answer: Value = response.json().await.unwrap();
        assert_eq!(answer["error"], "you may look at limits, but not act on them");
    }
    assert_eq!(limiter.overrides().enforcement(), None);
}

#[tokio::test]
async fn an_action_that_the_page_has_not_sent_is_refused() {
    let limiter = Limiter::in_memory();
    let operator = Operator::of(&limiter).await;
    let another = Operator::of(&limiter).await;
    assert_ne!(operator.token, another.token);
    let long = json!({ "enforcement": null, "more": "x".repeat(17 * 1024) }).to_string();
    for (name, value, expected) in [
        ("x-ratelimit-token", None, 403),
        ("x-ratelimit-token", Some(""), 403),
        ("x-ratelimit-token", Some(another.token.as_str()), 403),
        ("cookie", None, 403),
        ("cookie", Some("ratelimit-session="), 403),
        ("cookie", Some(another.cookie.as_str()), 403),
        ("sec-fetch-site", Some("cross-site"), 403),
        ("sec-fetch-site", Some("same-site"), 403),
        ("sec-fetch-site", Some("none"), 403),
        ("content-type", None, 415),
        ("content-type", Some("text/plain"), 415),
        ("content-type", Some("application/x-www-form-urlencoded"), 415),
        // A body.
        ("", Some(long.as_str()), 413),
        ("", Some("{\"enforcement\": \"on\""), 400),
        ("", Some("{\"enforcement\": \"perhaps\"}"), 400),
        ("", Some("{\"enforcement\": \"off\", \"also\": 1}"), 400),
    ] {
        let mut request = operator.action("all", &json!({ "enforcement": "off" })).build().unwrap();
        match (name, value) {
            ("", body) => *request.body_mut() = Some(body.unwrap().to_owned().into()),
            (name, Some(value)) => {
                let name: reqwest::header::HeaderName = name.parse().unwrap();
                request.headers_mut().insert(name, value.parse().unwrap());
            }
            (name, None) => drop(request.headers_mut().remove(name)),
        }
        // The length of the body that was there is no longer it.
        request.headers_mut().remove("content-length");
        let response = operator.client.execute(request).await.unwrap();
        assert_eq!(response.status(), expected, "{name}: {value:.40?}");
    }
    // Where browsers tell no more than the origin.
    for (origin, expected) in
        [("https://evil.example", 403), (operator.url.trim_end_matches('/'), 200)]
    {
        let mut request = operator.action("all", &json!({ "enforcement": null })).build().unwrap();
        request.headers_mut().remove("sec-fetch-site");
        request.headers_mut().insert("origin", origin.parse().unwrap());
        assert_eq!(operator.client.execute(request).await.unwrap().status(), expected, "{origin}");
    }
    assert_eq!(limiter.overrides().enforcement(), None);
    assert_eq!(operator.act("all", json!({ "enforcement": "off" })).await.0, 200);
    assert!(matches!(limiter.overrides().enforcement(), Some((Enforcement::Off, _))));
}

#[tokio::test]
async fn it_is_found_at_its_path_with_a_slash_and_without() {
    let router = || dashboard::router(Limiter::in_memory(), authorize);
    let service = serve(Router::new().nest_service("/ops/limits", router())).await;
    let nested = serve(Router::new().nest("/ops/limits", router())).await;
    let root = serve(Router::new().merge(router())).await;
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    for (page, base) in [
        (format!("{service}ops/limits"), "./limits/"),
        (format!("{service}ops/limits/"), "./"),
        (format!("{nested}ops/limits"), "./limits/"),
        (root, "./"),
    ] {
        let response = client.get(&page).header("x-operator", "view").send().await.unwrap();
        assert_eq!(response.status(), 200, "{page}");
        let cookie = response.headers()["set-cookie"].to_str().unwrap().to_owned();
        let text = response.text().await.unwrap();
        assert!(text.contains(&format!("<base href=\"{base}\">")), "{page}: {text}");
        let session = cookie.strip_suffix("; HttpOnly; SameSite=Strict").unwrap().to_owned();
        assert!(session.starts_with("ratelimit-session="), "{session}");
        let base = reqwest::Url::parse(&page).unwrap().join(base).unwrap();
        for file in ["main.js", "style.css", "uplot.js"] {
            assert!(text.contains(&format!("\"{file}\"")), "{text}");
            let file = client.get(base.join(file).unwrap()).header("x-operator", "view");
            assert_eq!(file.send().await.unwrap().status(), 200, "{base}");
        }
        // Another tab goes on with the token, and TLS in front of the service is known.
        let again = client.get(&page).header("x-operator", "view");
        let again = again.header("cookie", format!("a=b; {session}"));
        let again = again.header("x-forwarded-proto", "https").send().await.unwrap();
        let cookie = again.headers()["set-cookie"].to_str().unwrap();
        assert_eq!(cookie, format!("{session}; HttpOnly; SameSite=Strict; Secure"));
    }
}

#[rate_limit(name = "greet", period = 60, threshold = 3, key = (tenant, user), limiter = limiter)]
async fn greet(limiter: &Limiter, tenant: &str, user: Option<&str>) -> Result<(), RateLimitError> {
    Ok(())
}

#[rate_limit(name = "ambient", period = 60, threshold = 1, limiter = limiter)]
async fn ambient(limiter: &Limiter) -> Result<(), RateLimitError> {
    Ok(())
}

#[rate_limit(name = "by plan", period = 60, threshold = plan, key = 1, limiter = limiter)]
async fn by_plan(limiter: &Limiter, plan: u32) -> Result<(), RateLimitError> {
    Ok(())
}

#[tokio::test]
async fn a_caller_is_looked_up_and_reset_and_never_named() {
    let lines = Lines::default();
    let _listening = tracing::subscriber::set_default(lines.clone());
    let server = RedisServer::start();
    for limiter in [Limiter::in_memory(), server.limiter().await] {
        let operator = Operator::of(&limiter).await;
        for _ in 0..4 {
            let _ = greet(&limiter, "acme", Some("secret-name")).await;
            let _ = greet(&limiter, "acme", None).await;
            let _ = ambient(&limiter).await;
        }
        for (limit, caller, remaining) in [
            ("greet", json!([{ "text": "acme" }, { "text": "secret-name" }]), 0),
            ("greet", json!([{ "text": "acme" }, "none"]), 0),
            ("greet", json!([{ "text": "acme" }, { "text": "another" }]), 3),
            ("greet", json!([{ "text": "acme/secret-name" }]), 3),
            ("ambient", json!(["shared"]), 0),
        ] {
            // An event that another test was the first to meet may be taken for one nobody listens to.
            tracing::callsite::rebuild_interest_cache();
            let question = json!({ "limit": limit, "caller": caller });
            let (status, told) = operator.act("caller", question.clone()).await;
            assert_eq!((status, &told["remaining"]), (200, &json!(remaining)), "{caller}: {told}");
            let wait = told["next"].as_f64().unwrap();
            assert_eq!(wait > 0.0, remaining == 0, "{told}");
            assert!(wait <= 60e3 && told["reset"].as_f64().unwrap() <= 60e3, "{told}");
            assert!(!told.to_string().contains("secret-name"), "{told}");
            let (status, told) = operator.act("reset", question).await;
            assert_eq!((status, &told["next"]), (200, &json!(0.0)), "{told}");
            assert_eq!(told["remaining"], told["threshold"], "{told}");
        }
        greet(&limiter, "acme", Some("secret-name")).await.unwrap();
    }
    let said = lines.all().join("\n");
    assert!(said.contains("policy=\"greet\" action=\"look up\""), "{said}");
    assert!(said.contains("policy=\"greet\" action=\"reset\""), "{said}");
    assert!(!said.contains("secret-name"), "{said}");
}

#[tokio::test]
async fn a_caller_above_a_lowered_limit_is_looked_up() {
    let server = RedisServer::start();
    for limiter in [Limiter::in_memory(), server.limiter().await] {
        let operator = Operator::of(&limiter).await;
        for _ in 0..3 {
            greet(&limiter, "acme", Some("alice")).await.unwrap();
        }
        limiter.overrides().set("greet", Override::new().threshold(1)).unwrap();
        let caller = json!([{ "text": "acme" }, { "text": "alice" }]);
        let question = json!({ "limit": "greet", "caller": caller });
        let (status, told) = operator.act("caller", question).await;
        assert_eq!((status, &told["remaining"]), (200, &json!(0)), "{told}");
        assert_eq!(told["threshold"], json!(1), "{told}");
        assert!(told["next"].as_f64().unwrap() > 0.0, "{told}");
    }
}

#[tokio::test]
async fn a_caller_that_an_identity_found_is_looked_up_by_what_it_sent() {
    let limiter = Limiter::in_memory();
    let operator = Operator::of(&limiter).await;
    let caller = Caller::alternative(Caller::digest("sk-live-4711"));
    caller::scope(caller, ambient(&limiter)).await.unwrap();
    for (parts, remaining) in [
        (json!(["or", { "digest": "sk-live-4711" }]), 0),
        (json!([{ "digest": "sk-live-4711" }]), 1),
        (json!([{ "text": "or" }, { "digest": "sk-live-4711" }]), 1),
        (json!(["or", { "text": "sk-live-4711" }]), 1),
    ] {
        let (status, answer) =
            operator.act("caller", json!({ "limit": "ambient", "caller": parts })).await;
        assert_eq!((status, &answer["remaining"]), (200, &json!(remaining)), "{parts}");
    }
}

#[tokio::test]
async fn what_cannot_be_looked_up_is_told_in_words() {
    let limiter = Limiter::in_memory();
    let operator = Operator::of(&limiter).await;
    let caller = json!([{ "text": "1" }]);
    let parts: Vec<_> = (0..17).map(|part| json!({ "text": part.to_string() })).collect();
    for (limit, caller, status, why) in [
        ("no such", caller.clone(), 404, "there is no such limit"),
        ("greet", json!([]), 422, "a caller has 1 to 16 parts"),
        ("greet", json!(parts), 422, "a caller has 1 to 16 parts"),
        ("greet", json!(["some"]), 400, "unknown variant `some`"),
        ("by plan", caller.clone(), 409, "this process has seen none yet"),
    ] {
        let question = json!({ "limit": limit, "caller": caller });
        let (answered, told) = operator.act("caller", question).await;
        assert_eq!(answered, status, "{told}");
        assert!(told["error"].as_str().unwrap().contains(why), "{told}");
    }
    // Its counts can be forgotten without its numbers, and its numbers are known after a call.
    let question = json!({ "limit": "by plan", "caller": caller });
    assert_eq!(operator.act("reset", question.clone()).await, (200, json!({})));
    by_plan(&limiter, 7).await.unwrap();
    let told = until("a sample of the call", async || {
        let (status, told) = operator.act("caller", question.clone()).await;
        (status == 200).then_some(told)
    })
    .await;
    assert_eq!((&told["remaining"], &told["threshold"]), (&json!(6), &json!(7)));

    let mut server = RedisServer::start();
    let limiter = Limiter::builder().connect(&server.url()).await.unwrap();
    let operator = Operator::of(&limiter).await;
    server.kill();
    let question = json!({ "limit": "greet", "caller": [{ "text": "a" }, { "text": "b" }] });
    for action in ["caller", "reset"] {
        let (status, told) = operator.act(action, question.clone()).await;
        assert_eq!(status, 503, "{told}");
        assert!(told["error"].as_str().unwrap().contains("could not be decided"), "{told}");
    }
}

#[rate_limit(name = "reply", period = "30s", threshold = 1, key = user, limiter = limiter)]
async fn reply(limiter: &Limiter, user: &str) -> Result<(), RateLimitError> {
    Ok(())
}

#[tokio::test]
async fn a_limit_is_steered_or_its_page_says_why_not() {
    let lines = Lines::default();
    let _listening = tracing::subscriber::set_default(lines.clone());
    let limiter = Limiter::in_memory();
    let operator = Operator::of(&limiter).await;
    let done = |(status, told): (u16, Value)| {
        assert_eq!((status, &told["done"]), (200, &json!("it holds in this process")), "{told}");
    };
    reply(&limiter, "alice").await.unwrap();
    reply(&limiter, "alice").await.unwrap_err();

    done(operator.act("enforcement", json!({ "limit": "reply", "enforcement": "dry_run" })).await);
    reply(&limiter, "alice").await.unwrap();
    let numbers = json!({ "threshold": 3, "period": "1m" });
    done(operator.act("numbers", json!({ "limit": "reply", "numbers": numbers })).await);
    let told = operator.told_of("reply").await;
    assert_eq!(told["enforcement"], "dry_run");
    assert_eq!(told["enforced_by"], "the program");
    assert_eq!(told["written"]["tiers"], json!([{ "period": 30e3, "threshold": 1 }]));
    assert_eq!(told["now"]["tiers"], json!([{ "period": 60e3, "threshold": 3 }]));
    assert_eq!(told["key"], json!(["user"]));
    assert!(told["places"][0].as_str().unwrap().contains("http.rs:"), "{told}");

    // Neither was taken back by the other.
    done(operator.act("enforcement", json!({ "limit": "reply", "enforcement": null })).await);
    let expected = Override::new().threshold(3).period(MINUTE);
    assert_eq!(limiter.overrides().list()["reply"], expected);
    for (numbers, why) in [
        (
            json!({ "threshold": 0 }),
            "invalid override of rate limit `reply`: `threshold` must be at least 1",
        ),
        (json!({ "period": "30" }), "`period` needs a unit after `30`"),
        (json!({ "threshold": "many" }), "invalid type: string \"many\", expected u32"),
        (json!({ "threshold": 100_001 }), "at most 100000"),
        (json!({ "burst": 3 }), "a `sliding_window` has none"),
        (json!({ "tiers": [{ "period": 60, "threshold": 1 }], "period": 60 }), "give one"),
        (json!({ "enforcement": "off" }), "`enforcement` is none of period, threshold"),
    ] {
        let action = json!({ "limit": "reply", "numbers": numbers });
        let (status, told) = operator.act("numbers", action).await;
        assert!(status == 422 || status == 400, "{status}: {told}");
        let error = told["error"].as_str().unwrap();
        assert!(error.contains(why) && !error.contains(" line "), "{error}");
    }
    assert_eq!(limiter.overrides().list()["reply"], expected);
    done(operator.act("override", json!({ "limit": "reply" })).await);
    assert!(limiter.overrides().list().is_empty());
    let (status, told) = operator.act("override", json!({ "limit": "no such" })).await;
    assert_eq!((status, &told["error"]), (404, &json!("there is no such limit")));

    done(operator.act("all", json!({ "enforcement": "off" })).await);
    reply(&limiter, "alice").await.unwrap();
    let told = operator.told_of("reply").await;
    assert_eq!(told["enforced_by"], "the program, of all limits");
    done(operator.act("all", json!({ "enforcement": null })).await);
    reply(&limiter, "alice").await.unwrap_err();

    let said = lines.all().join("\n");
    for line in [
        "INFO message=an operator acted on a rate limit policy=\"reply\" action=\"enforcement dry_run\"",
        "policy=\"reply\" action=\"numbers {\"period\":\"1m\",\"threshold\":3}\"",
        "policy=\"reply\" action=\"override taken back\"",
        "message=an operator acted on all rate limits policy=\"*\" action=enforcement off",
    ] {
        assert!(said.replace("\\\"", "\"").contains(line), "{line} in {said}");
    }
}

#[tokio::test]
async fn where_another_source_says_otherwise_the_page_says_so() {
    let limiter = Limiter::in_memory();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "[limits]\nreply = { threshold = 2 }\n").unwrap();
    limiter.overrides().follow_file(file.path()).unwrap();
    let operator = Operator::of(&limiter).await;
    let action = json!({ "limit": "reply", "numbers": { "threshold": 9 } });
    let (status, told) = operator.act("numbers", action).await;
    let expected = "said, but the file of overrides says otherwise, and holds before it";
    assert_eq!((status, &told["done"]), (200, &json!(expected)));
    let told = operator.told_of("reply").await;
    assert_eq!(told["now"]["tiers"][0]["threshold"], 2);
    let by: Vec<_> = told["overrides"].as_array().unwrap().iter().map(|it| &it["by"]).collect();
    assert_eq!(by, ["the file of overrides", "the program"]);
    // Of the enforcement the file says nothing.
    let action = json!({ "limit": "reply", "enforcement": "off" });
    let (_, told) = operator.act("enforcement", action).await;
    assert_eq!(told["done"], "it holds in this process");
}

#[tokio::test]
async fn on_redis_the_whole_fleet_follows() {
    let server = RedisServer::start();
    let (one, other) = (server.limiter().await, server.limiter().await);
    // A limiter that follows nothing writes nothing.
    let alone = Operator::of(&one).await;
    alone.act("enforcement", json!({ "limit": "reply", "enforcement": "off" })).await;
    assert_eq!(server.keys(), [""; 0]);
    alone.act("override", json!({ "limit": "reply" })).await;

    one.overrides().follow_redis().await.unwrap();
    other.overrides().follow_redis().await.unwrap();
    let operator = Operator::of(&one).await;
    let in_fleet = "written to Redis; it holds in the whole fleet within a second";
    let enforce = |word: Value| json!({ "limit": "reply", "enforcement": word });
    let (status, told) = operator.act("enforcement", enforce("dry_run".into())).await;
    assert_eq!((status, &told["done"]), (200, &json!(in_fleet)), "{told}");
    // At once, before this process has looked: what another has said is kept.
    let numbers = json!({ "limit": "reply", "numbers": { "threshold": 2 } });
    assert_eq!(operator.act("numbers", numbers).await.1["done"], in_fleet);
    let value: String = server.command("HGET ratelimit:overrides reply");
    assert_eq!(value, "{\"enforcement\":\"dry_run\",\"threshold\":2}");
    let expected = Override::new().threshold(2).enforcement(Enforcement::DryRun);
    until("the override in the other process", async || {
        (other.overrides().list().get("reply") == Some(&expected)).then_some(())
    })
    .await;
    let view = operator.events().await.next("limits").await;
    assert_eq!(
        (&view["is_fleet"], &view["target"]),
        (&json!(true), &json!("the overrides on Redis"))
    );

    assert_eq!(operator.act("all", json!({ "enforcement": "off" })).await.1["done"], in_fleet);
    until("the switch in the other process", async || {
        matches!(other.overrides().enforcement(), Some((Enforcement::Off, _))).then_some(())
    })
    .await;
    operator.act("all", json!({ "enforcement": null })).await;
    operator.act("override", json!({ "limit": "reply" })).await;
    assert_eq!(server.keys(), [""; 0]);
    let (status, told) =
        operator.act("numbers", json!({ "limit": "reply", "numbers": { "threshold": 0 } })).await;
    assert_eq!(status, 422, "{told}");
    assert_eq!(server.keys(), [""; 0]);
}

#[tokio::test]
async fn samples_count_each_call_once_and_go_on_where_a_page_left_off() {
    const PLAIN: Policy = Policy::sliding_window("sampled", MINUTE, 4);
    let limiter = Limiter::in_memory();
    let operator = Operator::of(&limiter).await;
    let mut events = operator.events().await;
    events.next("history").await;
    let (mut counts, mut least) = ([0; 6], 1.0_f64);
    let mut add = |samples: &Value| {
        for sample in samples.as_array().unwrap() {
            let seen = &sample["limits"]["sampled"];
            for (sum, count) in
                counts.iter_mut().zip(seen["counts"].as_array().into_iter().flatten())
            {
                *sum += count.as_u64().unwrap();
            }
            least = least.min(seen["left"].as_f64().unwrap_or(1.0));
        }
        (counts, least)
    };
    for _ in 0..3 {
        limiter.check(&PLAIN, "alice").await.unwrap();
    }
    while add(&events.next("samples").await).0[0] < 3 {}
    let last_id = events.last_id.clone();
    drop(events);
    for _ in 0..3 {
        let _ = limiter.check(&PLAIN, "alice").await;
    }
    limiter.overrides().set("sampled", Override::new().enforcement(Enforcement::DryRun)).unwrap();
    let _ = limiter.check(&PLAIN, "alice").await.unwrap();

    // As a browser asks again.
    let resumed = operator.ask_events();
    let mut resumed = Events::of(resumed.header("last-event-id", last_id).send().await.unwrap());
    let (mut sums, mut left) = ([0; 6], 1.0);
    while sums.iter().sum::<u64>() < 7 {
        let (name, data) = resumed.any().await.expect("the stream goes on");
        assert_ne!(name, "history");
        if name == "samples" {
            (sums, left) = add(&data);
        }
    }
    assert_eq!(sums, [4, 2, 0, 1, 0, 0]);
    assert!(left.abs() < f64::EPSILON, "{left}");

    // What another process has told means nothing here; a page that comes later has all at once.
    let strange = operator.ask_events();
    let mut strange = Events::of(strange.header("last-event-id", "0-1").send().await.unwrap());
    let history = strange.next("history").await;
    let of_it = history.as_array().unwrap().iter().flat_map(|sample| {
        sample["limits"]["sampled"]["counts"].as_array().cloned().unwrap_or_default()
    });
    assert_eq!(of_it.filter_map(|count| count.as_u64()).sum::<u64>(), 7);
    // Nor does a number that no sample has end the stream.
    let (process, _) = strange.last_id.split_once('-').unwrap();
    for number in [u64::MAX, u64::MAX - 1] {
        let forged = operator.ask_events();
        let forged = forged.header("last-event-id", format!("{process}-{number}"));
        Events::of(forged.send().await.unwrap()).next("limits").await;
    }
    // The limit of which no attribute tells.
    let told = operator.told_of("sampled").await;
    assert_eq!(told["written"]["tiers"], json!([{ "period": 60e3, "threshold": 4 }]));
    assert_eq!((&told["key"], &told["enforcement"]), (&Value::Null, &json!("dry_run")));
}

#[tokio::test]
async fn samples_tell_what_redis_did_not_decide() {
    const P: Policy = Policy::sliding_window("lost", MINUTE, 1);
    let mut server = RedisServer::start();
    let limiter = Limiter::connect(&server.url()).await.unwrap();
    let operator = Operator::of(&limiter).await;
    let mut events = operator.events().await;
    events.next("history").await;
    let _ = limiter.check(&P, "alice").await;
    for _ in 0..3 {
        let _ = limiter.check(&P, "alice").await;
    }
    server.kill();
    for _ in 0..10 {
        let _ = limiter.check(&P, "bob").await;
        let bob = limiter.check(&P, "bob").on_store_error(ratelimit_runtime::OnStoreError::Deny);
        let _ = bob.await;
    }
    let (mut counts, mut failure) = ([0_u64; 6], Value::Null);
    let counting = async {
        while counts.iter().sum::<u64>() < 34 || failure.is_null() {
            match events.any().await {
                Some((name, view)) if name == "limits" => {
                    failure = view["servers"][0]["failure"].clone();
                }
                Some((_, samples)) => {
                    for sample in samples.as_array().unwrap() {
                        let seen = sample["limits"]["lost"]["counts"].as_array();
                        for (sum, count) in counts.iter_mut().zip(seen.into_iter().flatten()) {
                            *sum += count.as_u64().unwrap();
                        }
                    }
                }
                // The history has all of it once more.
                None => {
                    counts = [0; 6];
                    events = operator.events().await;
                }
            }
        }
    };
    let counted = tokio::time::timeout(MINUTE, counting).await;
    assert!(counted.is_ok(), "{counts:?}, {failure}");
    let [admitted, refused, repeated, rehearsed, degraded, undecided] = counts;
    // Alice: one, one that Redis refused, two that it was not asked for. Bob: one by the process
    // alone, nine that it refused, and ten that it was not to decide.
    assert_eq!((admitted, refused, repeated, rehearsed), (2, 10, 2, 0));
    assert_eq!((degraded, undecided), (10, 10));
    assert!(failure.is_string(), "{failure}");
}

#[tokio::test]
async fn a_shutdown_waits_no_longer_than_a_stream_lasts() {
    let (stop, stopped) = oneshot::channel::<()>();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address: SocketAddr = listener.local_addr().unwrap();
    let router = dashboard::router(Limiter::in_memory(), authorize);
    let served = tokio::spawn(async move {
        let served = axum::serve(listener, router);
        served.with_graceful_shutdown(async { drop(stopped.await) }).await
    });
    let operator = Operator::at(format!("http://{address}/")).await;
    let mut events = operator.events().await;
    events.next("history").await;
    stop.send(()).unwrap();
    // It goes on until its end, and then so does the server.
    let ended = tokio::time::timeout(Duration::from_secs(30), async {
        let mut samples = 0;
        while events.any().await.is_some() {
            samples += 1;
        }
        assert!(samples >= 2, "{samples}");
        served.await
    });
    ended.await.expect("the server ends").unwrap().unwrap();
}

#[tokio::test]
async fn what_is_tried_out_is_bounded_and_counts_for_no_limit() {
    let operator = Operator::of(&Limiter::in_memory()).await;
    let ask = |name: &str, period: u64, threshold: u32, calls: u32| json!({ "name": name, "period": period, "threshold": threshold, "calls": calls });
    let (_, told) = operator.act("trial", ask("page", 60_000, 5, 8)).await;
    for algorithm in ["sliding_window", "sliding_counter", "fixed_window", "token_bucket"] {
        let answer = &told[algorithm];
        let expected = [true, true, true, true, true, false, false, false];
        assert_eq!(answer["admitted"], json!(expected), "{algorithm}");
        assert_eq!(answer["remaining"], 0, "{algorithm}");
        assert!(answer["next"].as_f64().unwrap() > 0.0, "{algorithm}");
    }
    let (_, told) = operator.act("trial", ask("page", 60_000, 7, 0)).await;
    assert_eq!(told["sliding_window"]["remaining"], 2);
    for (wrong, why) in [
        (ask("", 1_000, 5, 1), "a name has 1 to 32"),
        (ask(&"x".repeat(33), 1_000, 5, 1), "a name has 1 to 32"),
        (ask("page", 499, 5, 1), "the period is between"),
        (ask("page", 60_001, 5, 1), "the period is between"),
        (ask("page", 1_000, 0, 1), "the threshold is between"),
        (ask("page", 1_000, 51, 1), "the threshold is between"),
        (ask("page", 1_000, 5, 101), "at most 100 calls"),
    ] {
        let (status, told) = operator.act("trial", wrong).await;
        assert_eq!(status, 422, "{told}");
        assert!(told["error"].as_str().unwrap().contains(why), "{told}");
    }
    for page in 1..64 {
        let (status, told) = operator.act("trial", ask(&page.to_string(), 60_000, 5, 1)).await;
        assert_eq!(status, 200, "{page}: {told}");
    }
    let (status, told) = operator.act("trial", ask("one more", 60_000, 5, 1)).await;
    assert_eq!(status, 503, "{told}");
    let view = operator.events().await.next("limits").await;
    let names = view["limits"].as_array().unwrap().iter().map(|limit| limit["name"].clone());
    assert!(!names.collect::<Vec<_>>().contains(&json!("trial")), "{view}");
}

#[test]
fn a_page_that_is_made_outside_a_runtime_counts_from_its_first_request() {
    let router = dashboard::router(Limiter::in_memory(), authorize);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let operator = Operator::at(serve(router).await).await;
        operator.events().await.next("samples").await;
    });
}
