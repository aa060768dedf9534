//! Return types that cannot carry a refusal: one error each, at the type.

use std::convert::Infallible;

use axum::{
    Json,
    response::{Html, IntoResponse, Sse, sse::Event},
};
use ratelimit_runtime::rate_limit;
use tonic::codegen::tokio_stream::{self as stream, Stream};

struct AppError;

#[rate_limit(period = 30, threshold = 2)]
async fn no_result() -> String {
    String::new()
}

#[rate_limit(period = 30, threshold = 2)]
async fn nothing() {}

#[rate_limit(period = 30, threshold = 2)]
async fn error_without_from() -> Result<String, AppError> {
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
async fn events() -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    Sse::new(stream::once(Ok(Event::default())))
}

#[rustfmt::skip]
#[rate_limit(period = 30, threshold = 2)]
async fn on_one_line() -> Json<u32> { Json(1) }

fn main() {}
