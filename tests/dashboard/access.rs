//! Only those whom the hook lets in get anything of the page, and only those who may act change limits.

use std::{net::SocketAddr, time::Duration};

use axum::Router;
use ratelimit_runtime::{Enforcement, Limiter};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::{net::TcpListener, sync::oneshot};

use crate::operator::{ACTIONS, ASSETS, Operator, authorize, serve};

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
        assert_eq!(answer["error"], "you may view limits, but not act on them");
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
        ("", Some("{\"limit\": \"*\", \"enforcement\": \"on\""), 400),
        ("", Some("{\"limit\": \"*\", \"enforcement\": \"perhaps\"}"), 400),
        ("", Some("{\"limit\": \"*\", \"enforcement\": \"off\", \"also\": 1}"), 400),
    ] {
        let mut request = operator
            .action("enforcement", &json!({ "limit": "*", "enforcement": "off" }))
            .build()
            .unwrap();
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
        let mut request = operator
            .action("enforcement", &json!({ "limit": "*", "enforcement": null }))
            .build()
            .unwrap();
        request.headers_mut().remove("sec-fetch-site");
        request.headers_mut().insert("origin", origin.parse().unwrap());
        assert_eq!(operator.client.execute(request).await.unwrap().status(), expected, "{origin}");
    }
    assert_eq!(limiter.overrides().enforcement(), None);
    assert_eq!(
        operator.act("enforcement", json!({ "limit": "*", "enforcement": "off" })).await.0,
        200
    );
    assert!(matches!(limiter.overrides().enforcement(), Some((Enforcement::Off, _))));
}

#[tokio::test]
async fn it_is_found_at_its_path_with_a_slash_and_without() {
    let router = || ratelimit_dashboard::router(Limiter::in_memory(), authorize);
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
#[tokio::test]
async fn a_shutdown_waits_no_longer_than_a_stream_lasts() {
    let (stop, stopped) = oneshot::channel::<()>();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address: SocketAddr = listener.local_addr().unwrap();
    let router = ratelimit_dashboard::router(Limiter::in_memory(), authorize);
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

#[test]
fn a_page_that_is_made_outside_a_runtime_counts_from_its_first_request() {
    let router = ratelimit_dashboard::router(Limiter::in_memory(), authorize);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let operator = Operator::at(serve(router).await).await;
        operator.events().await.next("samples").await;
    });
}
