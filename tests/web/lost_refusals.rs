//! Refusals that an error type loses: the layer adds the headers that a response lacks, logs the loss, and
//! responds itself with `answer_refusals`.

use std::time::Duration;

use axum::{
    Router,
    extract::{Path, State},
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::get,
};
use harness::{Lines, RedisServer, listen};
use ratelimit_runtime::web::OnMissing;
use ratelimit_runtime::{
    Limiter, OnStoreError, Policy, RateLimitError, limiter, rate_limit,
    web::{
        self, PROBLEM_JSON,
        tower::{self, IdentityLayer, RateLimitLayer},
    },
};
use serde_json::Value;
use tokio::net::TcpListener;
use tonic::{Code, Status, transport::server::TcpIncoming};
use tonic_types::StatusExt;

use crate::{
    on_tonic::greeter::{
        HelloReply, HelloRequest,
        greeter_client::GreeterClient,
        greeter_server::{Greeter, GreeterServer},
    },
    support::{by_user, serve},
    without_a_wait::{ask, field},
};

const MINUTE: Duration = Duration::from_secs(60);
const NEVER: Policy = Policy::sliding_window("never", MINUTE, 0);

/// The error type of axum's example `anyhow-error-response`.
struct AppError(anyhow::Error);

impl IntoResponse for AppError {
    fn into_response(self) -> Response {
        let text = format!("Something went wrong: {}", self.0);
        (StatusCode::INTERNAL_SERVER_ERROR, [("x-app", "1")], text).into_response()
    }
}

impl<E: Into<anyhow::Error>> From<E> for AppError {
    fn from(error: E) -> Self {
        Self(error.into())
    }
}

async fn url_of(router: Router, layer: IdentityLayer) -> String {
    format!("http://{}", serve(router.layer(layer)).await)
}

/// Expects the answer that a handler gives which returns the refusal itself.
pub(crate) async fn assert_answered(response: reqwest::Response, policy: &str) {
    assert_eq!(response.status(), 429);
    let headers = response.headers().clone();
    assert_eq!(field(&headers, "content-type"), Some(PROBLEM_JSON));
    assert_eq!(field(&headers, "cache-control"), Some("no-store"));
    assert_eq!(field(&headers, "x-app"), None, "the headers are those of the refusal alone");
    let wait = field(&headers, "retry-after").unwrap();
    assert_eq!(field(&headers, "ratelimit"), Some(&*format!(r#""{policy}";r=0;t={wait}"#)));
    let problem: Value = response.json().await.unwrap();
    assert_eq!(problem["violated-policies"], serde_json::json!([policy]));
}

/// Returns the warnings about a limit.
fn warnings(lines: &Lines, policy: &str) -> Vec<String> {
    let of_it = |line: &String| line.contains("WARN") && line.contains(&format!("`{policy}`"));
    lines.all().into_iter().filter(of_it).collect()
}

#[tokio::test]
async fn a_lost_refusal_is_logged_once_or_answered() {
    #[rate_limit(name = "anyhow", period = 3600, threshold = 1)]
    async fn hello() -> Result<&'static str, AppError> {
        Ok("hello")
    }

    let lines = Lines::default();
    let _listening = listen(lines.clone());
    let router = Router::new().route("/", get(hello));
    let url = url_of(router.clone(), by_user()).await;
    assert_eq!(ask(&url).await.status(), 200);
    for _ in 0..2 {
        let lost = ask(&url).await;
        assert_eq!(
            (lost.status(), field(lost.headers(), "x-app")),
            (500.try_into().unwrap(), Some("1"))
        );
        assert_eq!(field(lost.headers(), "retry-after"), None);
    }
    let [warning] = &warnings(&lines, "anyhow")[..] else { panic!("{:?}", lines.all()) };
    for part in ["status 500", "From<RateLimitError>", "FromRejection", ".answer_refusals()"] {
        assert!(warning.contains(part), "{part} in {warning}");
    }
    let url = url_of(router, by_user().answer_refusals()).await;
    assert_answered(ask(&url).await, "anyhow").await;
}

/// The error type of a service that answers every error with 400.
struct BadRequest(anyhow::Error);

impl<E: Into<anyhow::Error>> From<E> for BadRequest {
    fn from(error: E) -> Self {
        Self(error.into())
    }
}

impl IntoResponse for BadRequest {
    fn into_response(self) -> Response {
        (StatusCode::BAD_REQUEST, self.0.to_string()).into_response()
    }
}

#[tokio::test]
async fn a_refusal_lost_in_a_400_is_logged_once_and_stays() {
    #[rate_limit(name = "blanket", period = 3600, threshold = 1)]
    async fn hello() -> Result<&'static str, BadRequest> {
        Ok("hello")
    }

    let lines = Lines::default();
    let _listening = listen(lines.clone());
    let router = Router::new().route("/", get(hello));
    let url = url_of(router, by_user().answer_refusals()).await;
    for status in [200, 400, 400] {
        assert_eq!(ask(&url).await.status(), status);
    }
    let [warning] = &warnings(&lines, "blanket")[..] else { panic!("{:?}", lines.all()) };
    assert!(warning.contains("status 400") && warning.contains("its own status"), "{warning}");
    assert!(!warning.contains("answer_refusals"), "{warning}");
}

#[tokio::test]
async fn a_bare_429_gets_the_headers_that_it_lacks() {
    #[rate_limit(name = "bare", period = 3600, threshold = 1, key = account)]
    async fn bare(Path(account): Path<u8>) -> Result<(), StatusCode> {
        let _ = account;
        Ok(())
    }

    struct Later;

    impl From<RateLimitError> for Later {
        fn from(_: RateLimitError) -> Self {
            Self
        }
    }

    impl IntoResponse for Later {
        fn into_response(self) -> Response {
            let headers = [("retry-after", "77"), ("ratelimit", r#""mine";r=0"#)];
            (StatusCode::TOO_MANY_REQUESTS, headers, "later").into_response()
        }
    }

    #[rate_limit(name = "own headers", period = 3600, threshold = 1, key = "all")]
    async fn own() -> Result<(), Later> {
        Ok(())
    }

    let router = Router::new().route("/bare/{account}", get(bare)).route("/own", get(own));
    let url = url_of(router.clone(), by_user()).await;
    let admitted = ask(&format!("{url}/bare/1")).await;
    // The numbers of a limit by an explicit key are shown on its refusals only.
    assert_eq!((admitted.status().as_u16(), field(admitted.headers(), "ratelimit")), (200, None));
    let refused = ask(&format!("{url}/bare/1")).await;
    assert_eq!(refused.status(), 429);
    let wait = field(refused.headers(), "retry-after").unwrap();
    assert_eq!(field(refused.headers(), "ratelimit"), Some(&*format!(r#""bare";r=0;t={wait}"#)));
    assert_eq!(field(refused.headers(), "ratelimit-policy"), Some(r#""bare";q=1;w=3600"#));
    assert_eq!(refused.text().await.unwrap(), "");

    assert_eq!(ask(&format!("{url}/own")).await.status(), 200);
    let answering = url_of(router, by_user().answer_refusals()).await;
    for url in [&url, &answering] {
        let refused = ask(&format!("{url}/own")).await;
        assert_eq!(refused.status(), 429);
        assert_eq!(field(refused.headers(), "retry-after"), Some("77"));
        assert_eq!(field(refused.headers(), "ratelimit"), Some(r#""mine";r=0"#));
        assert_eq!(field(refused.headers(), "ratelimit-policy"), None);
        assert_eq!(refused.text().await.unwrap(), "later");
    }
    // Nothing is lost by another body.
    assert_answered(ask(&format!("{answering}/bare/1")).await, "bare").await;
}

/// Answers with a status after a refused call, and perhaps an admitted one.
async fn answer(Path((status, goes_on)): Path<(u16, bool)>) -> Response {
    const WIDE: Policy = Policy::sliding_window("wide", MINUTE, 1_000);
    limiter().check(&NEVER, "someone").await.unwrap_err();
    if goes_on {
        limiter().check(&WIDE, "someone").await.unwrap();
    }
    (StatusCode::from_u16(status).unwrap(), "its own").into_response()
}

#[tokio::test]
async fn an_answer_that_the_handler_means_stays() {
    #[rate_limit(name = "dry", threshold = 1, key = "all", dry_run)]
    async fn dry() -> Result<(), AppError> {
        Err(anyhow::anyhow!("the disk is full").into())
    }

    let lines = Lines::default();
    let _listening = listen(lines.clone());
    let router = Router::new().route("/{status}/{goes_on}", get(answer)).route("/dry", get(dry));
    let url = url_of(router, by_user().answer_refusals()).await;
    for (status, goes_on, expected) in [
        (200, false, 200),
        (404, false, 404),
        (422, false, 422),
        (429, false, 429),
        (500, true, 500),
        (500, false, 422),
        (503, false, 422),
    ] {
        let response = ask(&format!("{url}/{status}/{goes_on}")).await;
        assert_eq!(response.status(), expected, "{status} {goes_on}");
        let text = response.text().await.unwrap();
        assert_eq!(text == "its own", status == expected, "{text}");
    }
    for _ in 0..2 {
        assert_eq!(ask(&format!("{url}/dry")).await.status(), 500);
    }
    assert_eq!(warnings(&lines, "dry"), [""; 0]);
    // It may also be lost.
    let [warning] = &warnings(&lines, "never")[..] else { panic!("{:?}", lines.all()) };
    assert!(warning.contains("status 404"), "{warning}");
}

#[tokio::test]
async fn a_503_answers_a_store_that_cannot_decide() {
    #[rate_limit(name = "undecided", threshold = 1, key = "all", limiter = limiter)]
    async fn call(limiter: &Limiter) -> Result<(), RateLimitError> {
        Ok(())
    }

    let mut redis = RedisServer::start();
    let builder = Limiter::builder().on_store_error(OnStoreError::Deny);
    let limiter = builder.connect(&redis.url()).await.unwrap();
    redis.kill();
    let lines = Lines::default();
    let _listening = listen(lines.clone());
    let handler = async |State(limiter): State<Limiter>, Path(status): Path<u16>| {
        call(&limiter).await.unwrap_err();
        (StatusCode::from_u16(status).unwrap(), "its own")
    };
    let router = Router::new().route("/{status}", get(handler)).with_state(limiter);
    let url = url_of(router.clone(), by_user()).await;
    let own = ask(&format!("{url}/503")).await;
    assert_eq!(own.status(), 503);
    assert!(matches!(field(own.headers(), "retry-after"), Some("1" | "2")));
    assert_eq!(warnings(&lines, "undecided"), [""; 0]);
    assert_eq!(ask(&format!("{url}/500")).await.status(), 500);
    assert_eq!(warnings(&lines, "undecided").len(), 1);
    let url = url_of(router, by_user().answer_refusals()).await;
    for (status, is_own) in [(503, true), (500, false)] {
        let response = ask(&format!("{url}/{status}")).await;
        assert_eq!(response.status(), 503);
        assert_eq!(response.text().await.unwrap() == "its own", is_own);
    }
}

#[tokio::test]
async fn a_response_that_is_replaced_frees_its_permits() {
    const ONE: Policy = Policy::concurrency_limit("one at a time", 1);

    let stream = || async {
        limiter().check(&NEVER, "someone").await.unwrap_err();
        let endless = futures_util::stream::pending::<Result<String, std::io::Error>>();
        (StatusCode::BAD_GATEWAY, axum::body::Body::from_stream(endless))
    };
    let gate = RateLimitLayer::new(ONE).on_missing(OnMissing::Shared).limiter(Limiter::in_memory());
    let router = Router::new().route("/", get(stream)).layer(gate);
    let url = url_of(router, by_user().answer_refusals()).await;
    for _ in 0..2 {
        let refused = ask(&url).await;
        assert_eq!(refused.status(), 422);
        let problem: Value = refused.json().await.unwrap();
        assert_eq!(problem["violated-policies"], serde_json::json!(["never"]));
    }
}

/// A service whose errors lose refusals.
struct Loses;

#[tonic::async_trait]
impl Greeter for Loses {
    async fn say_hello(
        &self,
        request: tonic::Request<HelloRequest>,
    ) -> Result<tonic::Response<HelloReply>, Status> {
        #[rate_limit(name = "grpc", period = 3600, threshold = 1)]
        async fn greet() -> Result<(), RateLimitError> {
            Ok(())
        }

        let message = request.into_inner().name;
        match (greet().await, &*message) {
            (Ok(()), _) => Ok(tonic::Response::new(HelloReply { message })),
            (Err(_), "bare") => Err(Status::resource_exhausted("later")),
            (Err(_), _) => Err(Status::internal("something went wrong")),
        }
    }
}

#[tokio::test]
async fn on_tonic() {
    let greet = async |answers: bool, name: &str| {
        let mut layer = IdentityLayer::new(tower::Identity::peer()).respond(web::tonic::respond);
        if answers {
            layer = layer.answer_refusals();
        }
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let mut server = tonic::transport::Server::builder().layer(layer);
        let server = server.add_service(GreeterServer::new(Loses));
        tokio::spawn(server.serve_with_incoming(TcpIncoming::from(listener)));
        let mut client = GreeterClient::connect(url).await.unwrap();
        client.say_hello(HelloRequest { name: name.to_owned() }).await
    };
    let lines = Lines::default();
    let _listening = listen(lines.clone());
    assert_eq!(greet(false, "you").await.unwrap().into_inner().message, "you");
    let lost = greet(false, "you").await.unwrap_err();
    assert_eq!((lost.code(), lost.message()), (Code::Internal, "something went wrong"));
    assert!(lost.metadata().get("retry-after").is_none());
    assert_eq!(warnings(&lines, "grpc").len(), 1);
    for answers in [false, true] {
        let bare = greet(answers, "bare").await.unwrap_err();
        assert_eq!((bare.code(), bare.message()), (Code::ResourceExhausted, "later"));
        assert!(bare.metadata().get("retry-after").is_some());
    }
    let answered = greet(true, "you").await.unwrap_err();
    assert_eq!(answered.code(), Code::ResourceExhausted);
    assert!(answered.get_details_retry_info().unwrap().retry_delay.is_some());
}
