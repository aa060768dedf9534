//! axum services under limits answer real clients on loopback as documented, over HTTP/1.1 and HTTP/2.

use std::{fmt, net::SocketAddr, time::Duration};

use crate::support::{Limited, ask, by_user, client, header, request, serve};
use axum::{
    Extension, Router,
    body::Body,
    extract::State,
    http::{Request, StatusCode, Version},
    response::{IntoResponse, Response},
    routing::get,
};
use harness::RedisServer;
use ratelimit_runtime::{
    Limiter, OnStoreError, Policy, RateLimitError, rate_limit,
    web::{
        ClientAddress, HeaderSyntax, OnMalformed, OnMissing, Refusal,
        tower::{Identity, IdentityLayer, RateLimitLayer},
    },
};

const MINUTE: Duration = Duration::from_secs(60);

#[tokio::test]
async fn an_admitted_and_a_refused_request_over_http_1_and_2() {
    // The error of axum's result has no `Display`.
    #[tracing::instrument(err(Debug))]
    #[rate_limit(name = "versions", period = 3600, threshold = 1)]
    async fn hello() -> axum::response::Result<&'static str> {
        Ok("hello")
    }

    let address = serve(Router::new().route("/", get(hello)).layer(by_user())).await;
    let http1 = reqwest::Client::builder().no_proxy().http1_only().build().unwrap();
    let http2 = reqwest::Client::builder().no_proxy().http2_prior_knowledge().build().unwrap();
    for (client, version) in [(http1, Version::HTTP_11), (http2, Version::HTTP_2)] {
        let ask = || async {
            let request = client.get(format!("http://{address}/"));
            request.header("x-user", format!("{version:?}")).send().await.unwrap()
        };
        let admitted = ask().await;
        assert_eq!((admitted.status(), admitted.version()), (StatusCode::OK, version));
        assert_eq!(admitted.headers()["ratelimit-policy"], r#""versions";q=1;w=3600"#);
        assert_eq!(admitted.headers()["ratelimit"], r#""versions";r=0;t=3600"#);
        assert!(!admitted.headers().contains_key("retry-after"));

        let refused = ask().await;
        assert_eq!((refused.status(), refused.version()), (StatusCode::TOO_MANY_REQUESTS, version));
        let wait = refused.headers()["retry-after"].to_str().unwrap().to_owned();
        assert!((1..=3600).contains(&wait.parse::<u32>().unwrap()), "{wait}");
        assert_eq!(refused.headers()["ratelimit"], format!(r#""versions";r=0;t={wait}"#));
        assert_eq!(refused.headers().get_all("ratelimit").iter().count(), 1);
        assert_eq!(refused.headers()["cache-control"], "no-store");
        assert_eq!(refused.headers()["content-type"], "application/problem+json");
        let problem: serde_json::Value = refused.json().await.unwrap();
        assert_eq!(problem["violated-policies"], serde_json::json!(["versions"]));
    }
}

#[tokio::test]
async fn forged_headers_do_not_make_another_client() {
    #[rate_limit(name = "forged", threshold = 1)]
    async fn hello() -> Limited<()> {
        Ok(())
    }

    // The test is the proxy: what it appends is the last entry.
    let behind = ClientAddress::behind_proxies(["127.0.0.0/8"]).unwrap();
    let app = Router::new().route("/", get(hello));
    let proxied = serve(app.clone().layer(IdentityLayer::new(Identity::address(behind)))).await;
    let direct = serve(app.layer(IdentityLayer::new(Identity::peer()))).await;
    let ask = |address: SocketAddr, lines: Vec<String>| async move {
        let mut request = client().get(format!("http://{address}/"));
        for line in lines {
            request = request.header("x-forwarded-for", line);
        }
        request.send().await.unwrap().status().as_u16()
    };
    let filler = "9.9.9.9,".repeat(8 * 1024);
    for (lines, expected) in [
        (vec!["203.0.113.1".to_owned()], 200),
        (vec!["203.0.113.1".to_owned()], 429),
        (vec!["1.1.1.1, 203.0.113.1".to_owned()], 429),
        (vec!["2.2.2.2".to_owned(), "203.0.113.1".to_owned()], 429),
        (vec!["3.3.3.3, 127.0.0.9, 203.0.113.1".to_owned()], 429),
        (vec!["::ffff:203.0.113.1".to_owned()], 429),
        (vec![format!("{filler}203.0.113.1")], 429),
        (vec![filler, "203.0.113.1".to_owned()], 429),
        (vec!["203.0.113.2".to_owned()], 200),
        (vec!["2001:db8::1".to_owned()], 200),
        (vec!["2001:db8::ffff:1".to_owned()], 429),
        (vec!["[2001:db8:0:1::1]:443".to_owned()], 200),
        // No address: the proxy's own.
        (vec!["unknown".to_owned()], 200),
        (vec!["x".repeat(64 * 1024)], 429),
        (vec![], 429),
    ] {
        let shown = format!("{lines:.60?}");
        assert_eq!(ask(proxied, lines).await, expected, "{shown}");
    }
    // A client without a proxy is one client, with any headers; 127.0.0.1 has called above.
    for lines in [vec![], vec!["203.0.113.77".to_owned()], vec!["2001:db8:9::1".to_owned()]] {
        assert_eq!(ask(direct, lines).await, 429);
    }
}

#[tokio::test(start_paused = true)]
async fn all_limits_of_a_request_are_listed() {
    #[rate_limit(name = "outer", period = 60, threshold = 3)]
    async fn outer() -> Limited<&'static str> {
        // Its refusal is no refusal of the request.
        let by_account = inner("alice").await.is_ok();
        let by_address = inner("127.0.0.1").await.is_ok();
        Ok(if by_account && by_address { "both" } else { "not both" })
    }

    #[rate_limit(name = "inner", period = 1, threshold = 4, key = account)]
    async fn inner(account: &str) -> Limited<()> {
        let _ = account;
        Ok(())
    }

    const GATE: Policy = Policy::sliding_window("gate", MINUTE, 3);
    let router = Router::new()
        .route("/", get(outer))
        .layer(RateLimitLayer::new(GATE).on_missing(OnMissing::Shared));
    // Limits with explicit keys are listed on request only.
    let with_identity = router.clone().layer(by_user());
    let response = ask(&with_identity, request("/", "one")).await;
    let policies = header(&response, "ratelimit-policy");
    assert_eq!(policies, Some(r#""gate";q=3;w=60, "outer";q=3;w=60"#));
    let with_identity = router.clone().layer(by_user().explicit_keys(true));
    tokio::time::advance(MINUTE).await;
    let response = ask(&with_identity, request("/", "all")).await;
    assert_eq!(
        header(&response, "ratelimit-policy"),
        Some(r#""gate";q=3;w=60, "outer";q=3;w=60, "inner";q=4;w=1"#)
    );
    assert_eq!(
        header(&response, "ratelimit"),
        Some(r#""gate";r=2;t=60, "outer";r=2;t=60, "inner";r=3;t=1"#)
    );
    // A gate without an outer layer reports its own limits.
    let response = ask(&router, request("/", "all")).await;
    assert!(header(&response, "ratelimit").unwrap().starts_with(r#""gate";r=2;t=60, "outer";r=2"#));
    // On refusals as well.
    for _ in 0..2 {
        ask(&with_identity, request("/", "all")).await;
    }
    let refused = ask(&with_identity, request("/", "all")).await;
    assert_eq!(refused.status(), 429);
    assert!(header(&refused, "ratelimit").unwrap().starts_with(r#""gate";r=0;t="#));
}

#[tokio::test]
async fn a_store_that_cannot_decide_is_a_503() {
    #[rate_limit(name = "down", threshold = 1, limiter = limiter)]
    async fn hello(State(limiter): State<Limiter>) -> Limited<&'static str> {
        Ok("hello")
    }

    const DOWN: Policy = Policy::sliding_window("down too", MINUTE, 1);
    let mut redis = RedisServer::start();
    let builder = Limiter::builder().on_store_error(OnStoreError::Deny);
    let limiter = builder.connect(&redis.url()).await.unwrap();
    redis.kill();
    let router = Router::new()
        .route("/attribute", get(hello))
        .route(
            "/gate",
            get(|| async {}).layer(
                RateLimitLayer::new(DOWN).on_missing(OnMissing::Shared).limiter(limiter.clone()),
            ),
        )
        .with_state(limiter)
        .layer(by_user());
    let address = serve(router).await;
    for path in ["/attribute", "/gate"] {
        let request = client().get(format!("http://{address}{path}")).header("x-user", "alice");
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), 503);
        assert_eq!(response.headers()["cache-control"], "no-store");
        assert!(["1", "2"].contains(&response.headers()["retry-after"].to_str().unwrap()));
        for field in ["ratelimit", "ratelimit-policy"] {
            assert!(!response.headers().contains_key(field), "{field}");
        }
        let text = response.text().await.unwrap();
        let problem: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(
            problem["type"],
            "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"
        );
        assert!(!text.contains("127.0.0.1"), "{text}");
    }
}

#[tokio::test]
async fn callers_are_distinguished_by_key_principal_or_address() {
    #[rate_limit(name = "identity", threshold = 1, limiter = limiter)]
    async fn hello(Extension(limiter): Extension<Limiter>) -> Limited<()> {
        Ok(())
    }

    #[derive(Clone)]
    struct User(u64);

    impl fmt::Display for User {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            self.0.fmt(f)
        }
    }

    let router = |identity: Identity| {
        Router::new()
            .route("/", get(hello))
            .layer(Extension(Limiter::in_memory()))
            .layer(IdentityLayer::new(identity))
    };
    let with = |lines: &[&str]| {
        let request = Request::get("/");
        let add = |request: axum::http::request::Builder, line: &&str| request.header("key", *line);
        lines.iter().fold(request, add).body(Body::empty()).unwrap()
    };

    // A missing or malformed identity is refused.
    let required = router(Identity::header("Key"));
    for (lines, expected) in [
        (&["a"][..], 200),
        (&["a"], 429),
        (&["b"], 200),
        (&[], 400),
        (&[""], 400),
        (&["a", "c"], 400),
        (&["%shared"], 200),
        (&["ü"], 200),
        (&["ä"], 200),
    ] {
        let response = ask(&required, with(lines)).await;
        assert_eq!(response.status(), expected, "{lines:?}");
        if expected == 400 {
            assert_eq!(header(&response, "content-type"), Some("application/problem+json"));
            assert_eq!(header(&response, "cache-control"), Some("no-store"));
        }
    }
    // Or all such requests share one quota without a name.
    let shared = Identity::plain_header("key").on_missing(OnMissing::Shared);
    let shared = router(shared.on_malformed(OnMalformed::Shared));
    for (lines, expected) in
        [(&[][..], 200), (&[""], 429), (&["a", "a"], 429), (&["%shared"], 200), (&["a"], 200)]
    {
        assert_eq!(ask(&shared, with(lines)).await.status(), expected, "{lines:?}");
    }

    // A key that resembles an address is not that address.
    let either = router(Identity::header("key").or(Identity::peer()));
    let from = |lines: &[&str], peer: [u8; 4]| {
        let mut request = with(lines);
        let peer = SocketAddr::from((peer, 1));
        request.extensions_mut().insert(axum::extract::ConnectInfo(peer));
        request
    };
    for (lines, expected) in [(&[][..], 200), (&["192.0.2.1"], 200), (&[], 429), (&["x"], 200)] {
        assert_eq!(ask(&either, from(lines, [192, 0, 2, 1])).await.status(), expected, "{lines:?}");
    }
    assert_eq!(ask(&either, from(&[], [192, 0, 2, 2])).await.status(), 200);

    let principal = router(Identity::extension::<User>());
    for (user, expected) in [(1, 200), (1, 429), (2, 200)] {
        let mut request = with(&[]);
        request.extensions_mut().insert(User(user));
        assert_eq!(ask(&principal, request).await.status(), expected, "{user}");
    }
}

#[tokio::test]
async fn responses_to_refused_requests_can_be_replaced() {
    #[rate_limit(name = "hook", threshold = 1)]
    async fn hello() -> Limited<&'static str> {
        Ok("hello")
    }

    fn say_so(refusal: &Refusal) -> Response {
        let busy = matches!(refusal, Refusal::Limit(RateLimitError::Exceeded(_)));
        let status = if busy { StatusCode::IM_A_TEAPOT } else { StatusCode::UNAUTHORIZED };
        (status, [("retry-after", "7"), ("x-hook", "yes")], "come back later").into_response()
    }

    const ONE: Policy = Policy::sliding_window("hooked gate", MINUTE, 1);
    let identity = Identity::header("x-user");
    let router = Router::new()
        .route("/attribute", get(hello))
        .route(
            "/gate",
            get(|| async { "hello" })
                .layer(RateLimitLayer::new(ONE).on_missing(OnMissing::Shared).respond(say_so)),
        )
        .layer(IdentityLayer::new(identity).headers(HeaderSyntax::Legacy).respond(say_so));
    for path in ["/attribute", "/gate"] {
        let admitted = ask(&router, request(path, "alice")).await;
        assert_eq!(admitted.status(), 200);
        assert_eq!(header(&admitted, "x-ratelimit-remaining"), Some("0"));
        assert_eq!(header(&admitted, "ratelimit"), None);

        let refused = ask(&router, request(path, "alice")).await;
        assert_eq!(refused.status(), 418);
        assert_eq!(header(&refused, "x-hook"), Some("yes"));
        assert_eq!(header(&refused, "retry-after"), Some("7"));
        assert_eq!(header(&refused, "cache-control"), Some("no-store"));
        assert_eq!(header(&refused, "x-ratelimit-remaining"), Some("0"));
        assert_eq!(header(&refused, "ratelimit"), None);
        let body = axum::body::to_bytes(refused.into_body(), 1_000).await.unwrap();
        assert_eq!(body, "come back later");
    }
    let nobody = ask(&router, Request::get("/gate").body(Body::empty()).unwrap()).await;
    assert_eq!(nobody.status(), 401);
}

#[tokio::test]
async fn foreign_fields_stay_unchanged() {
    let upstream = || async { [("ratelimit", r#""upstream";r=1"#)] };
    let router = Router::new().route("/", get(upstream)).layer(by_user());
    let response = ask(&router, request("/", "alice")).await;
    assert_eq!(header(&response, "ratelimit"), Some(r#""upstream";r=1"#));
}

#[tokio::test]
async fn fields_can_be_omitted() {
    #[rate_limit(name = "silent", threshold = 1)]
    async fn hello() -> Limited<()> {
        Ok(())
    }

    let silent = by_user().headers(HeaderSyntax::Off);
    let router = Router::new().route("/", get(hello)).layer(silent);
    for expected in [200, 429] {
        let response = ask(&router, request("/", "alice")).await;
        assert_eq!(response.status(), expected);
        assert_eq!(header(&response, "ratelimit"), None);
        assert_eq!(header(&response, "retry-after").is_some(), expected == 429);
    }
}
