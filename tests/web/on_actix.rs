//! actix-web services under limits answer real clients on loopback as documented.

use std::{fmt, net::SocketAddr, sync::mpsc, thread};

use actix_web::{
    App, HttpMessage, HttpResponse, HttpServer,
    dev::{ServerHandle, Service as _},
    get,
    http::StatusCode,
    middleware::from_fn,
    post, test,
    test::TestRequest,
    web::{Bytes, Data, ServiceConfig},
};
use harness::RedisServer;
use ratelimit_runtime::{
    Limiter, OnStoreError, RateLimitError, rate_limit,
    web::{
        ClientAddress, HeaderSyntax, Refusal,
        actix::{Identity, IdentityMiddleware, paths},
    },
};

use crate::support::client;

type Limited<T> = Result<T, RateLimitError>;

fn by_user() -> IdentityMiddleware {
    IdentityMiddleware::new(Identity::header("x-user"))
}

#[get("/response")]
#[rate_limit(name = "actix response", period = 3600, threshold = 1)]
async fn as_response() -> HttpResponse {
    HttpResponse::Ok().body("hello")
}

#[get("/result")]
#[rate_limit(name = "actix result", period = 3600, threshold = 1)]
async fn as_result() -> actix_web::Result<&'static str> {
    Ok("hello")
}

#[post("/own")]
#[rate_limit(name = "actix own", period = 3600, threshold = 1, limiter = limiter.get_ref())]
async fn own(limiter: Data<Limiter>, body: Bytes) -> Limited<String> {
    Ok(body.len().to_string())
}

#[get("/several")]
#[rate_limit(name = "actix several", period = 3600, threshold = 5)]
async fn several() -> Limited<&'static str> {
    #[rate_limit(name = "actix inner", period = 1, threshold = 5, key = "constant")]
    async fn inner() -> Limited<()> {
        Ok(())
    }
    // The ambient caller and the observer are the task's, also after it has waited.
    tokio::task::yield_now().await;
    inner().await?;
    Ok("hello")
}

/// A server on a port of its own, stopped when it is dropped.
pub(crate) struct Server {
    address: SocketAddr,
    handle: ServerHandle,
}

impl Server {
    fn start(identity: IdentityMiddleware, limiter: Limiter) -> Self {
        Self::serve(identity, move |config| {
            let limiter = Data::new(limiter.clone());
            config.app_data(limiter).service((as_response, as_result, own, several));
        })
    }

    pub(crate) fn serve(
        identity: IdentityMiddleware,
        configure: impl Fn(&mut ServiceConfig) + Clone + Send + 'static,
    ) -> Self {
        let (send, receive) = mpsc::channel();
        thread::spawn(move || {
            actix_web::rt::System::new().block_on(async move {
                let app = move || App::new().wrap(identity.clone()).configure(configure.clone());
                let server = HttpServer::new(app).workers(2).disable_signals();
                // A client that has gone is noticed at once.
                let server = server.h1_allow_half_closed(false);
                let server = server.bind("127.0.0.1:0").unwrap();
                let address = server.addrs()[0];
                let server = server.run();
                send.send(Self { address, handle: server.handle() }).ok().unwrap();
                server.await.unwrap();
            });
        });
        receive.recv().expect("the server starts")
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.handle.stop(false));
    }
}

#[tokio::test]
async fn an_admitted_and_a_refused_request() {
    let server = Server::start(by_user(), Limiter::in_memory());
    for (path, name) in [("/response", "actix response"), ("/result", "actix result")] {
        let ask = || client().get(server.url(path)).header("x-user", "alice").send();
        let admitted = ask().await.unwrap();
        assert_eq!(admitted.status(), 200);
        assert_eq!(admitted.headers()["ratelimit-policy"], format!(r#""{name}";q=1;w=3600"#));
        assert_eq!(admitted.headers()["ratelimit"], format!(r#""{name}";r=0;t=3600"#));
        assert_eq!(admitted.text().await.unwrap(), "hello");

        let refused = ask().await.unwrap();
        assert_eq!(refused.status(), 429);
        let wait = refused.headers()["retry-after"].to_str().unwrap().to_owned();
        assert!((1..=3600).contains(&wait.parse::<u32>().unwrap()), "{wait}");
        assert_eq!(refused.headers()["ratelimit"], format!(r#""{name}";r=0;t={wait}"#));
        assert_eq!(refused.headers().get_all("ratelimit").iter().count(), 1);
        assert_eq!(refused.headers()["cache-control"], "no-store");
        assert_eq!(refused.headers()["content-type"], "application/problem+json");
        let problem: serde_json::Value = refused.json().await.unwrap();
        assert_eq!(problem["violated-policies"], serde_json::json!([name]));
    }
    let listed = client().get(server.url("/several")).header("x-user", "alice");
    let listed = listed.send().await.unwrap();
    // Not that of an explicit key.
    assert_eq!(listed.headers()["ratelimit"], r#""actix several";r=4;t=3600"#);
    let with_all = Server::start(by_user().explicit_keys(true), Limiter::in_memory());
    let listed = client().get(with_all.url("/several")).header("x-user", "bob");
    let listed = listed.send().await.unwrap();
    let ratelimit = listed.headers()["ratelimit"].to_str().unwrap();
    assert!(
        ratelimit.starts_with(r#""actix several";r=4;t=3600, "actix inner";r="#),
        "{ratelimit}"
    );
}

#[tokio::test]
async fn clients_are_known_by_address_behind_proxies() {
    let behind = ClientAddress::behind_proxies(["127.0.0.0/8"]).unwrap();
    let identity = IdentityMiddleware::new(Identity::address(behind));
    let server = Server::start(identity, Limiter::in_memory());
    let ask = |lines: &'static [&'static str]| {
        let request = client().post(server.url("/own"));
        let request =
            lines.iter().fold(request, |request, line| request.header("x-forwarded-for", *line));
        async { request.send().await.unwrap().status().as_u16() }
    };
    assert_eq!(ask(&["203.0.113.1"]).await, 200);
    assert_eq!(ask(&["1.1.1.1, 203.0.113.1"]).await, 429);
    assert_eq!(ask(&["1.1.1.1", "203.0.113.1"]).await, 429);
    assert_eq!(ask(&["203.0.113.2"]).await, 200);
    assert_eq!(ask(&[]).await, 200);
    assert_eq!(ask(&["unknown"]).await, 429);
}

#[tokio::test]
async fn a_malformed_identity_header_is_refused_and_makes_no_second_quota() {
    let identity = Identity::header("x-api-key").or(Identity::peer());
    let server = Server::start(IdentityMiddleware::new(identity), Limiter::in_memory());
    let ask = async |keys: &[&[u8]]| {
        let mut request = client().post(server.url("/own"));
        for key in keys {
            request = request.header("x-api-key", *key);
        }
        request.send().await.unwrap()
    };
    assert_eq!(ask(&[b"mine"]).await.status(), 200);
    assert_eq!(ask(&[b"mine"]).await.status(), 429);
    for malformed in [&[&b"mine"[..], b"mine"][..], &[b"mine", b""], &[b""], &[b"\xff"]] {
        let refused = ask(malformed).await;
        assert_eq!(refused.status(), 400, "{malformed:?}");
        assert_eq!(refused.headers()["content-type"], "application/problem+json");
    }
    assert_eq!(ask(&[]).await.status(), 200);
    assert_eq!(ask(&[]).await.status(), 429);
}

#[tokio::test]
async fn a_store_that_cannot_decide_is_a_503() {
    let mut redis = RedisServer::start();
    let builder = Limiter::builder().on_store_error(OnStoreError::Deny);
    let limiter = builder.connect(&redis.url()).await.unwrap();
    redis.kill();
    let server = Server::start(by_user(), limiter);
    let request = client().post(server.url("/own")).header("x-user", "alice");
    let response = request.send().await.unwrap();
    assert_eq!(response.status(), 503);
    assert!(["1", "2"].contains(&response.headers()["retry-after"].to_str().unwrap()));
    let problem: serde_json::Value = response.json().await.unwrap();
    assert_eq!(
        problem["type"],
        "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"
    );
}

#[actix_web::test]
async fn health_checks_are_skipped_and_requests_that_resemble_preflights_are_not() {
    let identity = IdentityMiddleware::new(Identity::peer()).skip(paths(["/healthz"]));
    let any = || actix_web::web::to(|| async { "ok" });
    let app = App::new().wrap(identity).route("/", any()).route("/healthz", any());
    let app = test::init_service(app).await;
    let preflight = TestRequest::with_uri("/")
        .method(actix_web::http::Method::OPTIONS)
        .insert_header(("origin", "https://a.example"))
        .insert_header(("access-control-request-method", "POST"));
    for (request, expected) in [
        (TestRequest::with_uri("/healthz"), 200),
        // These have no peer.
        (preflight, 400),
        (TestRequest::with_uri("/"), 400),
        (TestRequest::with_uri("/").peer_addr(([192, 0, 2, 1], 1).into()), 200),
    ] {
        let response = test::call_service(&app, request.to_request()).await;
        assert_eq!(response.status(), expected);
    }
}

#[actix_web::test]
async fn an_authenticated_principal_is_found_in_the_extensions() {
    struct User(u64);

    impl fmt::Display for User {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            self.0.fmt(f)
        }
    }

    let authentication = from_fn(async |request, next| {
        let request: actix_web::dev::ServiceRequest = request;
        let next: actix_web::middleware::Next<_> = next;
        let user = request.headers().get("x-id").unwrap().to_str().unwrap().parse().unwrap();
        request.extensions_mut().insert(User(user));
        next.call(request).await
    });
    let app = App::new()
        .app_data(Data::new(Limiter::in_memory()))
        .wrap(IdentityMiddleware::new(Identity::extension::<User>()))
        .wrap(authentication)
        .service(own);
    let app = test::init_service(app).await;
    for (user, expected) in [("1", 200), ("1", 429), ("2", 200)] {
        let request = TestRequest::post().uri("/own").insert_header(("x-id", user));
        assert_eq!(app.call(request.to_request()).await.unwrap().status(), expected);
    }
}

#[actix_web::test]
async fn responses_to_refused_requests_can_be_replaced() {
    let say_so = |refusal: &Refusal| {
        let busy = matches!(refusal, Refusal::Limit(RateLimitError::Exceeded(_)));
        let status = if busy { StatusCode::IM_A_TEAPOT } else { StatusCode::UNAUTHORIZED };
        HttpResponse::build(status).body("come back later")
    };
    let identity = Identity::header("x-user");
    let app = App::new()
        .app_data(Data::new(Limiter::in_memory()))
        .wrap(IdentityMiddleware::new(identity).headers(HeaderSyntax::Legacy).respond(say_so))
        .service(own);
    let app = test::init_service(app).await;
    for expected in [200, 418] {
        let request = TestRequest::post().uri("/own").insert_header(("x-user", "alice"));
        let response = test::call_service(&app, request.to_request()).await;
        assert_eq!(response.status(), expected);
        assert_eq!(response.headers().get("x-ratelimit-remaining").unwrap(), "0");
        assert_eq!(response.headers().contains_key("retry-after"), expected == 418);
        assert!(!response.headers().contains_key("ratelimit"));
        let body = test::read_body(response).await;
        assert_eq!(body, if expected == 200 { "0" } else { "come back later" });
    }
    let response = test::call_service(&app, TestRequest::post().uri("/own").to_request()).await;
    assert_eq!(response.status(), 401);
}

#[actix_web::test]
async fn fields_are_those_of_the_syntax() {
    for (syntax, draft, legacy) in [
        (HeaderSyntax::Draft11, true, false),
        (HeaderSyntax::Legacy, false, true),
        (HeaderSyntax::Both, true, true),
        (HeaderSyntax::Off, false, false),
    ] {
        let app = App::new()
            .app_data(Data::new(Limiter::in_memory()))
            .wrap(by_user().headers(syntax))
            .service(own);
        let app = test::init_service(app).await;
        for expected in [200, 429] {
            let request = TestRequest::post().uri("/own").insert_header(("x-user", "alice"));
            let response = test::call_service(&app, request.to_request()).await;
            assert_eq!(response.status(), expected);
            let has = |name| response.headers().contains_key(name);
            assert_eq!((has("ratelimit"), has("ratelimit-policy")), (draft, draft), "{syntax:?}");
            assert_eq!(has("x-ratelimit-limit"), legacy, "{syntax:?}");
            assert_eq!(has("retry-after"), expected == 429);
        }
    }
}
