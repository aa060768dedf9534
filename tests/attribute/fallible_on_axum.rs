//! `fallible` limits axum handlers of every public shape in one line.
#![deny(
    warnings,
    clippy::all,
    clippy::pedantic,
    clippy::nursery,
    unused,
    rust_2018_idioms,
    missing_docs
)]
#![allow(clippy::redundant_pub_crate, reason = "`unreachable_pub` asks for the contrary")]

use std::{convert::Infallible, fmt};

use axum::{
    Json, Router,
    body::{Body, Bytes, to_bytes},
    extract::{Path, Request, State},
    http::{HeaderMap, StatusCode, header},
    middleware::{self, Next},
    response::{AppendHeaders, Html, IntoResponse, NoContent, Redirect, Response, Sse, sse::Event},
    routing::{MethodRouter, get},
};
use ratelimit_runtime::rate_limit;
use tonic::codegen::tokio_stream::{self as stream, Stream};
use tower::ServiceExt;

#[rate_limit(threshold = 1, fallible)]
async fn nothing() {}

#[rate_limit(threshold = 1, fallible)]
async fn text() -> &'static str {
    "text"
}

#[rate_limit(threshold = 1, fallible)]
async fn string(State(name): State<String>) -> String {
    name
}

#[rate_limit(threshold = 1, fallible)]
async fn html() -> Html<&'static str> {
    Html("<p>html</p>")
}

#[rate_limit(threshold = 1, fallible)]
async fn json() -> Json<Vec<u32>> {
    Json(vec![1])
}

#[rate_limit(threshold = 1, fallible)]
async fn pair() -> (StatusCode, Json<&'static str>) {
    (StatusCode::CREATED, Json("pair"))
}

#[rate_limit(threshold = 1, fallible)]
async fn pair_of_impl() -> (StatusCode, impl IntoResponse) {
    (StatusCode::CREATED, [(header::ETAG, "\"1\"")])
}

#[rate_limit(threshold = 1, fallible)]
async fn headers() -> (HeaderMap, String) {
    (HeaderMap::new(), String::from("headers"))
}

#[rate_limit(threshold = 1, fallible)]
async fn appended() -> (AppendHeaders<[(header::HeaderName, &'static str); 1]>, Vec<u8>) {
    (AppendHeaders([(header::ETAG, "\"1\"")]), vec![1])
}

#[rate_limit(threshold = 1, fallible)]
async fn bytes(body: Bytes) -> Bytes {
    body
}

#[rate_limit(threshold = 1, fallible)]
async fn body() -> Body {
    Body::from("body")
}

#[rate_limit(threshold = 1, fallible)]
async fn redirect() -> Redirect {
    Redirect::to("/")
}

#[rate_limit(threshold = 1, fallible)]
async fn no_content() -> NoContent {
    NoContent
}

#[rate_limit(threshold = 1, fallible)]
async fn events() -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    Sse::new(stream::once(Ok(Event::default().data("event"))))
}

#[rate_limit(threshold = 1, fallible)]
async fn any_response(Path(name): Path<String>) -> impl IntoResponse {
    if name.is_empty() {
        return (StatusCode::BAD_REQUEST, String::new());
    }
    (StatusCode::OK, name)
}

#[rate_limit(threshold = 1, fallible)]
async fn any_json() -> impl IntoResponse {
    Json([1, 2])
}

/// An application's error without a conversion from refusals.
#[derive(Debug)]
struct AppError;

impl From<fmt::Error> for AppError {
    fn from(_: fmt::Error) -> Self {
        Self
    }
}

impl IntoResponse for AppError {
    fn into_response(self) -> Response {
        StatusCode::INTERNAL_SERVER_ERROR.into_response()
    }
}

#[rate_limit(threshold = 1, fallible)]
async fn own_error() -> Result<Json<u32>, AppError> {
    Err(fmt::Error)?;
    Ok(Json(1))
}

#[rate_limit(threshold = 1, fallible)]
async fn own_error_beside_any() -> Result<impl IntoResponse, AppError> {
    if false {
        Err(fmt::Error)?;
    }
    Ok("any")
}

#[rate_limit(threshold = 1, fallible)]
async fn no_error_beside_any() -> Result<impl IntoResponse, Infallible> {
    Ok("any")
}

#[rate_limit(threshold = 1, fallible)]
async fn status_and_json_error() -> Result<String, (StatusCode, Json<u32>)> {
    Err((StatusCode::IM_A_TEAPOT, Json(1)))
}

/// A return type that needs no flag.
#[rate_limit(threshold = 1)]
async fn status() -> StatusCode {
    StatusCode::ACCEPTED
}

#[rate_limit(threshold = 1)]
async fn status_as_error() -> Result<Json<u32>, StatusCode> {
    Ok(Json(1))
}

#[rate_limit(threshold = 1)]
async fn status_and_text_as_error() -> Result<Json<u32>, (StatusCode, String)> {
    Ok(Json(1))
}

#[rate_limit(threshold = 1)]
async fn status_and_reason() -> (StatusCode, &'static str) {
    (StatusCode::OK, "fine")
}

#[rate_limit(threshold = 1)]
async fn status_and_reason_as_error() -> Result<Json<u32>, (StatusCode, &'static str)> {
    Ok(Json(1))
}

#[rate_limit(threshold = 1)]
async fn response() -> Response {
    "response".into_response()
}

#[rate_limit(threshold = 1)]
async fn any_of_response() -> impl IntoResponse {
    "any".into_response()
}

#[rate_limit(threshold = 1)]
async fn response_as_error() -> Result<(), Response> {
    Ok(())
}

/// As services of hyper and tower are written.
#[rate_limit(threshold = 1)]
async fn response_without_error() -> Result<Response<String>, Infallible> {
    Ok(Response::new(String::from("response")))
}

#[rate_limit(threshold = 1)]
async fn layer(request: Request, next: Next) -> Result<Response, StatusCode> {
    Ok(next.run(request).await)
}

#[rate_limit(threshold = 1, fallible)]
#[axum::debug_handler(state = String)]
async fn above_the_check() -> Html<String> {
    Html(String::from("checked"))
}

mod checked {
    #![allow(
        unused_braces,
        clippy::diverging_sub_expression,
        clippy::unused_async,
        reason = "the copies of a handler that axum makes for its checks"
    )]

    use super::{Html, rate_limit};

    #[axum::debug_handler(state = String)]
    #[rate_limit(threshold = 1, fallible)]
    pub(super) async fn below_the_check() -> Html<String> {
        Html(String::from("checked"))
    }
}

#[tokio::test]
async fn every_shape_is_served_once_and_then_refused_as_a_problem() {
    let shapes: [(MethodRouter<String>, u16); 22] = [
        (get(nothing), 200),
        (get(text), 200),
        (get(string), 200),
        (get(html), 200),
        (get(json), 200),
        (get(pair), 201),
        (get(pair_of_impl), 201),
        (get(headers), 200),
        (get(appended), 200),
        (get(bytes), 200),
        (get(body), 200),
        (get(redirect), 303),
        (get(no_content), 204),
        (get(events), 200),
        (get(any_response), 200),
        (get(any_json), 200),
        (get(own_error), 500),
        (get(own_error_beside_any), 200),
        (get(no_error_beside_any), 200),
        (get(status_and_json_error), 418),
        (get(above_the_check), 200),
        (get(checked::below_the_check), 200),
    ];
    for (number, (handler, expected)) in shapes.into_iter().enumerate() {
        let responses = twice(handler).await;
        assert_eq!(responses[0].status(), expected, "{number}");
        assert_eq!(responses[1].status(), 429, "{number}");
        assert_eq!(responses[1].headers()["content-type"], "application/problem+json");
        assert_eq!(responses[1].headers()["retry-after"], "60");
    }
}

#[tokio::test]
async fn statuses_and_responses_carry_a_refusal_without_the_flag() {
    let shapes: [(MethodRouter<String>, u16, &str); 10] = [
        (get(response), 200, "limit"),
        (get(any_of_response), 200, "limit"),
        (get(response_as_error), 200, "limit"),
        (get(response_without_error), 200, "limit"),
        (get(status_and_reason), 200, "Too Many Requests"),
        (get(status_and_reason_as_error), 200, "Too Many Requests"),
        (get(status), 202, ""),
        (get(status_as_error), 200, ""),
        (get(status_and_text_as_error), 200, "limit"),
        (get(async || "next").layer(middleware::from_fn(layer)), 200, ""),
    ];
    for (number, (handler, expected, text)) in shapes.into_iter().enumerate() {
        let [served, refused] = twice(handler).await;
        assert_eq!((served.status().as_u16(), refused.status().as_u16()), (expected, 429));
        let body = to_bytes(refused.into_body(), 1_000).await.unwrap();
        assert_eq!(body.is_empty(), text.is_empty(), "{number}");
        assert!(String::from_utf8_lossy(&body).contains(text), "{number}");
    }
}

async fn twice(handler: MethodRouter<String>) -> [Response; 2] {
    let router = Router::new().route("/{name}", handler).with_state(String::from("state"));
    let call = || {
        let request = Request::get("/name").body(Body::empty()).unwrap();
        router.clone().oneshot(request)
    };
    [call().await.unwrap(), call().await.unwrap()]
}
