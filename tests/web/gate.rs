//! A gate decides in front of a service, at any place of the stack.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use crate::support::{Limited, ask, by_user, client, header, request, serve};
use axum::{
    Router,
    body::{Body, Bytes},
    extract::State,
    http::{HeaderName, Method, Request, StatusCode},
    response::{IntoResponse, Response},
    routing::{any, get, post},
};
use ratelimit_runtime::web::OnMissing;
use ratelimit_runtime::{
    Caller, Limiter, Policy, rate_limit,
    web::{
        HeaderSyntax,
        tower::{Identity, IdentityLayer, RateLimitLayer, paths},
    },
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use tower::{Service, ServiceBuilder, ServiceExt, limit::ConcurrencyLimitLayer, service_fn};
use tower_http::cors::CorsLayer;

const MINUTE: Duration = Duration::from_secs(60);

/// Returns the first line of the response to the head of a request without its body.
async fn first_line_before_the_body(address: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: {address}\r\nx-user: someone\r\ncontent-length: 1000000\r\n\
         expect: 100-continue\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut line = Vec::new();
    while !line.contains(&b'\n') {
        let mut some = [0; 1];
        assert_eq!(stream.read(&mut some).await.unwrap(), 1, "the server responds");
        line.push(some[0]);
    }
    String::from_utf8(line).unwrap()
}

/// Returns the seconds of `Retry-After` and the items of `RateLimit`.
fn waits(response: &Response) -> (u64, &str) {
    assert_eq!(response.status(), 429);
    (
        header(response, "retry-after").unwrap().parse().unwrap(),
        header(response, "ratelimit").unwrap(),
    )
}

#[tokio::test]
async fn a_refused_client_is_not_sent_into_an_exhausted_limit() {
    const HOURLY: Policy = Policy::fixed_window("hourly", Duration::from_secs(3_600), 1);
    const BRIEF: Policy = Policy::fixed_window("brief", Duration::from_secs(5), 1);
    let limiter = Limiter::in_memory();
    let layer = |policy| RateLimitLayer::new(policy).limiter(limiter.clone());
    let brief = Router::new().route("/", get("hello")).layer(layer(BRIEF));
    let router = brief.clone().layer(layer(HOURLY)).layer(by_user());
    assert_eq!(ask(&brief.layer(by_user()), request("/", "alice")).await.status(), 200);
    // The request has used up the limit further out.
    let refused = ask(&router, request("/", "alice")).await;
    let (retry_after, items) = waits(&refused);
    assert!(items.starts_with(r#""hourly";r=0;t=3600, "brief";r=0"#), "{items}");
    assert_eq!(retry_after, 3_600);
}

#[tokio::test]
async fn a_refusal_shows_what_is_left_after_the_refund() {
    const FIRST: Policy = Policy::sliding_window("first", MINUTE, 1);
    const SECOND: Policy = Policy::sliding_window("second", Duration::from_secs(5), 1);
    let limiter = Limiter::in_memory();
    let router = |layer: RateLimitLayer| {
        let layer = layer.limiter(limiter.clone());
        Router::new().route("/", get("hello")).layer(layer).layer(by_user())
    };
    let second = router(RateLimitLayer::new(SECOND));
    assert_eq!(ask(&second, request("/", "alice")).await.status(), 200);
    let router = router(RateLimitLayer::new(FIRST).and(SECOND));
    let refused = ask(&router, request("/", "alice")).await;
    let (retry_after, items) = waits(&refused);
    assert!(
        items.starts_with(r#""second";r=0;t="#) && items.ends_with(r#", "first";r=1"#),
        "{items}"
    );
    assert!(retry_after <= 5, "{retry_after}");
}

/// The handler has made a 429 of its own of the refusal.
#[tokio::test]
async fn a_gate_further_out_leaves_the_limit_of_a_refusal_on_its_response() {
    #[rate_limit(name = "orders", period = "1h", threshold = 1)]
    async fn limited() -> Limited<()> {
        Ok(())
    }
    async fn orders() -> StatusCode {
        limited().await.map_or(StatusCode::TOO_MANY_REQUESTS, |()| StatusCode::OK)
    }

    let by_host = Policy::sliding_window("by host", MINUTE, 900);
    let gate = RateLimitLayer::new(by_host).identity(Identity::header("host"));
    let router = Router::new().route("/", get(orders)).layer(by_user()).layer(gate);
    let ask_once = async || {
        let mut request = request("/", "someone with orders");
        request.headers_mut().insert("host", "example.com".parse().unwrap());
        ask(&router, request).await
    };
    assert_eq!(ask_once().await.status(), 200);
    let refused = ask_once().await;
    let (wait, items) = waits(&refused);
    assert!(wait > 3_500, "{wait}");
    assert!(items.contains(r#""orders";r=0;t="#) && items.contains(r#""by host""#), "{items}");
}

#[tokio::test]
async fn a_gate_refuses_before_the_body_is_read_and_an_attribute_after() {
    #[rate_limit(name = "upload in the body", threshold = 1)]
    async fn limited(body: Bytes) -> Limited<String> {
        Ok(body.len().to_string())
    }

    const UPLOAD: Policy = Policy::sliding_window("upload", MINUTE, 1);
    let router = Router::new()
        .route(
            "/gate",
            post(|body: Bytes| async move { body.len().to_string() })
                .layer(RateLimitLayer::new(UPLOAD).on_missing(OnMissing::Shared)),
        )
        .route("/attribute", post(limited))
        .layer(by_user());
    let address = serve(router).await;
    for path in ["/gate", "/attribute"] {
        let request = client().post(format!("http://{address}{path}")).header("x-user", "someone");
        let response = request.body(vec![0; 1_000]).send().await.unwrap();
        assert_eq!(response.text().await.unwrap(), "1000");
    }
    let refused = first_line_before_the_body(address, "/gate").await;
    assert_eq!(refused, "HTTP/1.1 429 Too Many Requests\r\n");
    // The extractor reads the body, and only then the limit is checked.
    let asks = first_line_before_the_body(address, "/attribute").await;
    assert_eq!(asks, "HTTP/1.1 100 Continue\r\n");
}

#[tokio::test]
async fn a_gate_shares_limiter_and_key_with_a_function_of_its_name() {
    #[rate_limit(name = "shared", period = 60, threshold = 2, limiter = limiter)]
    async fn reply(State(limiter): State<Limiter>) -> Response {
        "reply".into_response()
    }

    const SHARED: Policy = Policy::sliding_window("shared", MINUTE, 2);
    let limiter = Limiter::in_memory();
    let gate = RateLimitLayer::new(SHARED).on_missing(OnMissing::Shared).limiter(limiter.clone());
    let router = Router::new()
        .route("/attribute", get(reply))
        .route("/gate", get(|| async {}).layer(gate))
        .with_state(limiter.clone())
        .layer(by_user());
    assert_eq!(ask(&router, request("/attribute", "alice")).await.status(), 200);
    assert_eq!(ask(&router, request("/gate", "alice")).await.status(), 200);
    assert_eq!(ask(&router, request("/attribute", "alice")).await.status(), 429);
    assert_eq!(ask(&router, request("/gate", "alice")).await.status(), 429);
    assert!(limiter.check(&SHARED, Caller::digest("alice")).await.is_err());
    assert_eq!(ask(&router, request("/gate", "bob")).await.status(), 200);
}

#[tokio::test]
async fn a_layer_is_one_limit_wherever_it_is_cloned_to() {
    const EACH: Policy = Policy::sliding_window("each", MINUTE, 4);
    let gate =
        RateLimitLayer::new(EACH).on_missing(OnMissing::Shared).limiter(Limiter::in_memory());
    let stack = ServiceBuilder::new().layer(by_user()).layer(gate.clone());
    let router = Router::new()
        .route("/stack", get(|| async {}).layer(stack))
        .route("/route", get(|| async {}))
        .route_layer(gate.identity(Identity::header("x-user")));
    let router = Router::new().nest("/nested", router.clone()).merge(router);
    // Each request of `/stack` passes two gates.
    for (path, expected) in
        [("/stack", 200), ("/nested/route", 200), ("/route", 200), ("/route", 429), ("/stack", 429)]
    {
        assert_eq!(ask(&router, request(path, "alice")).await.status(), expected, "{path}");
    }
    assert_eq!(ask(&router, request("/missing", "alice")).await.status(), 404);
}

#[tokio::test]
async fn readiness_of_the_service_is_honoured_and_released() {
    const ONE: Policy = Policy::sliding_window("ready", MINUTE, 1);
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let inner = service_fn(move |_: Request<Body>| {
        counted.fetch_add(1, Ordering::Relaxed);
        async { Ok::<_, std::convert::Infallible>(Response::new(Body::empty())) }
    });
    // The service panics if it is called without having been polled ready. It has one permit.
    let mut service = ServiceBuilder::new()
        .layer(by_user())
        .layer(RateLimitLayer::new(ONE).on_missing(OnMissing::Shared).limiter(Limiter::in_memory()))
        .layer(ConcurrencyLimitLayer::new(1))
        .service(inner);

    // A refusal releases the permit that readiness took.
    for (user, expected) in [("alice", 200), ("alice", 429), ("alice", 429), ("bob", 200)] {
        let ready = tokio::time::timeout(MINUTE, service.ready()).await.expect("a free permit");
        let response = ready.unwrap().call(request("/", user)).await.unwrap();
        assert_eq!(response.status(), expected, "{user}");
    }
    // Never polled ready, neither the service nor its clones.
    let response = service.call(request("/", "carol")).await.unwrap();
    assert_eq!(response.status(), 200);
    let response = service.clone().call(request("/", "dave")).await.unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(calls.load(Ordering::Relaxed), 4);

    // While the permit is taken, it is not ready.
    let taken = service.ready().await.unwrap().call(request("/", "erin"));
    let mut other = service.clone();
    let mut waiting = readiness_of(&mut other);
    assert!(!waiting());
    assert_eq!(taken.await.unwrap().status(), 200);
    assert!(waiting());
}

/// Polls for readiness once per call.
fn readiness_of<S: Service<Request<Body>>>(service: &mut S) -> impl FnMut() -> bool {
    move || {
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        service.poll_ready(&mut context).is_ready()
    }
}

#[tokio::test]
async fn health_checks_are_skipped_and_preflights_are_answered_by_an_outer_layer() {
    const NARROW: Policy = Policy::sliding_window("narrow", MINUTE, 1);
    let gate = RateLimitLayer::new(NARROW)
        .on_missing(OnMissing::Shared)
        .limiter(Limiter::in_memory())
        .skip(paths(["/healthz"]));
    let identity = IdentityLayer::new(Identity::header("x-user")).skip(paths(["/healthz"]));
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let work = any(async move || {
        counted.fetch_add(1, Ordering::Relaxed);
    });
    let router = Router::new()
        .route("/", work)
        .route("/healthz", get(async || {}))
        .layer(gate)
        .layer(identity);
    let preflight = |path: &str| {
        let request = Request::builder().method(Method::OPTIONS).uri(path);
        let request = request.header("origin", "https://a.example");
        request.header("access-control-request-method", "POST").body(Body::empty()).unwrap()
    };
    // A request that resembles a preflight is counted like any other.
    for _ in 0..3 {
        assert_eq!(ask(&router, preflight("/")).await.status(), 400);
        let health = Request::get("/healthz").body(Body::empty()).unwrap();
        assert_eq!(ask(&router, health).await.status(), 200);
    }
    // An outer CORS layer answers it.
    let cors = CorsLayer::new()
        .allow_origin(tower_http::cors::Any)
        .expose_headers(HeaderSyntax::ALL.map(HeaderName::from_static));
    let router = router.layer(cors);
    for _ in 0..3 {
        let response = ask(&router, preflight("/")).await;
        assert_eq!((response.status(), header(&response, "ratelimit")), (StatusCode::OK, None));
    }
    assert_eq!(calls.load(Ordering::Relaxed), 0);
    // And scripts of other origins can read a refusal.
    assert_eq!(ask(&router, request("/", "alice")).await.status(), 200);
    let refused = ask(&router, request("/", "alice")).await;
    assert_eq!(refused.status(), 429);
    assert_eq!(header(&refused, "access-control-allow-origin"), Some("*"));
    assert!(header(&refused, "access-control-expose-headers").unwrap().contains("ratelimit"));
    assert_eq!(calls.load(Ordering::Relaxed), 1);
}
