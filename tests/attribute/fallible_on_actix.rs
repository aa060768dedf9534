//! `fallible` limits actix-web handlers of every public shape in one line.
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

use std::fmt::{self, Display};

use actix_web::{App, Either, HttpResponse, Responder, ResponseError, http::StatusCode, test, web};
use ratelimit_runtime::rate_limit;

#[rate_limit(threshold = 1, fallible)]
async fn text() -> &'static str {
    "text"
}

#[rate_limit(threshold = 1, fallible)]
async fn string(name: web::Path<String>) -> String {
    name.into_inner()
}

#[rate_limit(threshold = 1, fallible)]
async fn json() -> web::Json<Vec<u32>> {
    web::Json(vec![1])
}

#[rate_limit(threshold = 1, fallible)]
async fn redirect() -> web::Redirect {
    web::Redirect::to("/").see_other()
}

#[rate_limit(threshold = 1, fallible)]
async fn either() -> Either<String, HttpResponse> {
    Either::Right(HttpResponse::Accepted().finish())
}

#[rate_limit(threshold = 1, fallible)]
async fn any() -> impl Responder {
    ("any", StatusCode::CREATED)
}

#[rate_limit(threshold = 1, fallible)]
async fn customized() -> impl Responder {
    web::Json(1).customize().with_status(StatusCode::CREATED)
}

#[derive(Debug)]
struct AppError;

impl Display for AppError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an error that knows nothing of limits")
    }
}

impl ResponseError for AppError {}

impl From<fmt::Error> for AppError {
    fn from(_: fmt::Error) -> Self {
        Self
    }
}

#[rate_limit(threshold = 1, fallible)]
async fn own_error() -> Result<HttpResponse, AppError> {
    Err(fmt::Error)?;
    Ok(HttpResponse::Ok().finish())
}

#[rate_limit(threshold = 1, fallible)]
async fn own_error_beside_any() -> Result<impl Responder, AppError> {
    Ok("any")
}

#[actix_web::get("/below/{name}")]
#[rate_limit(threshold = 1, fallible)]
async fn below_the_route() -> web::Json<u32> {
    web::Json(1)
}

#[rate_limit(threshold = 1, fallible)]
#[actix_web::get("/above/{name}")]
async fn above_the_route() -> impl Responder {
    "above"
}

#[actix_web::test]
async fn every_shape_is_served_once_and_then_refused_as_a_problem() {
    let app = App::new()
        .service(below_the_route)
        .service(above_the_route)
        .route("/text/{name}", web::get().to(text))
        .route("/string/{name}", web::get().to(string))
        .route("/json/{name}", web::get().to(json))
        .route("/redirect/{name}", web::get().to(redirect))
        .route("/either/{name}", web::get().to(either))
        .route("/any/{name}", web::get().to(any))
        .route("/customized/{name}", web::get().to(customized))
        .route("/own_error/{name}", web::get().to(own_error))
        .route("/own_error_beside_any/{name}", web::get().to(own_error_beside_any));
    let app = test::init_service(app).await;
    for (path, expected) in [
        ("below", 200),
        ("above", 200),
        ("text", 200),
        ("string", 200),
        ("json", 200),
        ("redirect", 303),
        ("either", 202),
        ("any", 201),
        ("customized", 201),
        ("own_error", 500),
        ("own_error_beside_any", 200),
    ] {
        let uri = format!("/{path}/name");
        let request = || test::TestRequest::get().uri(&uri).to_request();
        assert_eq!(test::call_service(&app, request()).await.status(), expected, "{path}");
        let refused = test::call_service(&app, request()).await;
        assert_eq!(refused.status(), 429, "{path}");
        assert_eq!(refused.headers().get("content-type").unwrap(), "application/problem+json");
    }
}

#[rate_limit(threshold = 1)]
async fn status_as_error() -> Result<(), (StatusCode, String)> {
    Ok(())
}

#[rate_limit(threshold = 1)]
async fn status() -> StatusCode {
    StatusCode::ACCEPTED
}

#[rate_limit(threshold = 1)]
async fn response_as_error() -> Result<(), HttpResponse> {
    Ok(())
}

#[actix_web::test]
async fn statuses_and_responses_carry_a_refusal_without_the_flag() {
    assert!(response_as_error().await.is_ok());
    assert_eq!(response_as_error().await.unwrap_err().status(), 429);
    assert_eq!((status().await.as_u16(), status().await.as_u16()), (202, 429));
    assert_eq!(status_as_error().await, Ok(()));
    let (status, text) = status_as_error().await.unwrap_err();
    assert_eq!(status, 429);
    assert!(text.starts_with("rate limit"), "{text}");
}
