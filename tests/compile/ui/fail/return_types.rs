//! Return types that cannot carry a refusal: one error each, at the type, with the ways out for it.

use std::{convert::Infallible, io};

use actix_web::Responder;
use axum::{
    Json,
    http::StatusCode,
    response::{Html, IntoResponse, Sse, sse::Event},
};
use ratelimit_runtime::rate_limit;
use tonic::codegen::tokio_stream::{self as stream, Stream};

struct AppError;

type AppResult<T> = Result<T, AppError>;

struct Reply;

#[rate_limit(period = 30, threshold = 2)]
async fn no_result() -> String {
    String::new()
}

#[rate_limit(period = 30, threshold = 2)]
async fn nothing() {}

#[rate_limit(period = 30, threshold = 2)]
async fn unit() -> () {}

#[rate_limit(period = 30, threshold = 2)]
async fn never_returns() -> ! {
    std::future::pending().await
}

#[rate_limit(period = 30, threshold = 2)]
async fn text() -> &'static str {
    "text"
}

#[rate_limit(period = 30, threshold = 2)]
async fn own_type() -> Reply {
    Reply
}

#[rate_limit(period = 30, threshold = 2)]
async fn error_without_from() -> Result<String, AppError> {
    Ok(String::new())
}

#[rate_limit(period = 30, threshold = 2)]
async fn alias() -> AppResult<String> {
    Ok(String::new())
}

#[rate_limit(period = 30, threshold = 2)]
async fn error_of_another_crate() -> Result<Json<u32>, (StatusCode, Json<u32>)> {
    Ok(Json(1))
}

#[rate_limit(period = 30, threshold = 2)]
async fn error_behind_an_alias() -> io::Result<String> {
    Ok(String::new())
}

#[rate_limit(period = 30, threshold = 2)]
async fn no_error() -> Result<String, Infallible> {
    Ok(String::new())
}

#[rate_limit(period = 30, threshold = 2)]
async fn option() -> Option<String> {
    None
}

#[rate_limit(period = 30, threshold = 2)]
async fn any_response() -> impl IntoResponse {
    Html("html")
}

#[rate_limit(period = 30, threshold = 2)]
async fn any_responder() -> impl Responder {
    "text"
}

#[rate_limit(period = 30, threshold = 2)]
async fn any_iterator() -> impl Iterator<Item = u32> {
    [1].into_iter()
}

#[rate_limit(period = 30, threshold = 2)]
async fn events() -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    Sse::new(stream::once(Ok(Event::default())))
}

#[rate_limit(period = 30, threshold = 2)]
async fn status_and_value() -> (StatusCode, Json<u32>) {
    (StatusCode::CREATED, Json(1))
}

/// Modules with the names of crates.
mod poem {
    pub struct Error;

    pub type Result<T> = core::result::Result<T, Error>;
}

mod rocket {
    pub mod http {
        pub struct Status;
    }
}

mod salvo {
    pub struct Error;
}

mod warp {
    pub struct Rejection;
}

mod http {
    pub type Result<T> = core::result::Result<T, super::AppError>;
}

#[rate_limit(period = 30, threshold = 2)]
async fn of_poem() -> poem::Result<String> {
    Ok(String::new())
}

#[rate_limit(period = 30, threshold = 2)]
async fn of_rocket() -> Result<String, rocket::http::Status> {
    Ok(String::new())
}

#[rate_limit(period = 30, threshold = 2)]
async fn of_salvo() -> Result<(), salvo::Error> {
    Ok(())
}

#[rate_limit(period = 30, threshold = 2)]
async fn of_warp() -> Result<String, warp::Rejection> {
    Ok(String::new())
}

#[rate_limit(period = 30, threshold = 2)]
async fn without_an_error() -> Result<impl IntoResponse, Infallible> {
    Ok("text")
}

#[rate_limit(period = 30, threshold = 2)]
async fn of_an_own_module() -> http::Result<String> {
    Ok(String::new())
}

macro_rules! handler {
    ($name:ident, $error:ty) => {
        #[rate_limit(period = 30, threshold = 2)]
        async fn $name() -> Result<String, $error> {
            Ok(String::new())
        }
    };
}

handler!(of_a_macro, Infallible);

#[rustfmt::skip]
#[rate_limit(period = 30, threshold = 2)]
async fn on_one_line() -> Json<u32> { Json(1) }

fn main() {}
