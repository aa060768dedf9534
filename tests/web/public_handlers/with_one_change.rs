//! Handlers that do not compile with the attribute alone, and the change that the compile error names first.

use std::convert::Infallible;

use axum::{
    Form, Json,
    body::Body,
    extract::{FromRequest, Multipart, Path, State, rejection::JsonRejection},
    http::StatusCode,
    response::{Html, IntoResponse, Response, Sse, sse::Event},
};
use ratelimit_runtime::{RateLimitError, rate_limit};
use tonic::codegen::tokio_stream::{self as stream, Stream};

use super::{Db, Todo, todo};

// Of the example `error-handling`.

pub(super) enum AppError {
    JsonRejection(JsonRejection),
    Limited(RateLimitError),
}

impl From<RateLimitError> for AppError {
    fn from(error: RateLimitError) -> Self {
        Self::Limited(error)
    }
}

impl From<JsonRejection> for AppError {
    fn from(rejection: JsonRejection) -> Self {
        Self::JsonRejection(rejection)
    }
}

impl IntoResponse for AppError {
    fn into_response(self) -> Response {
        match self {
            Self::JsonRejection(rejection) => rejection.into_response(),
            Self::Limited(error) => error.into_response(),
        }
    }
}

#[derive(FromRequest)]
#[from_request(via(Json), rejection(AppError))]
pub(super) struct AppJson<T>(T);

impl<T> IntoResponse for AppJson<T>
where
    Json<T>: IntoResponse,
{
    fn into_response(self) -> Response {
        Json(self.0).into_response()
    }
}

#[rate_limit(threshold = 1)]
pub(super) async fn users_create(
    State(_): Db,
    AppJson(todo): AppJson<Todo>,
) -> Result<AppJson<Todo>, AppError> {
    Ok(AppJson(todo))
}

// Of `jwt`.

/// An error that drops the refusal, and answers a status with a body of its own.
pub(super) enum AuthError {
    WrongCredentials,
    TooManyRequests,
}

impl From<RateLimitError> for AuthError {
    fn from(_: RateLimitError) -> Self {
        Self::TooManyRequests
    }
}

impl IntoResponse for AuthError {
    fn into_response(self) -> Response {
        let (status, error) = match self {
            Self::WrongCredentials => (StatusCode::UNAUTHORIZED, "Wrong credentials"),
            Self::TooManyRequests => (StatusCode::TOO_MANY_REQUESTS, "Too many requests"),
        };
        (status, Json(serde_json::json!({ "error": error }))).into_response()
    }
}

#[rate_limit(threshold = 1)]
pub(super) async fn protected(Path(name): Path<String>) -> Result<String, AuthError> {
    if name.is_empty() { Err(AuthError::WrongCredentials) } else { Ok(name) }
}

#[rate_limit(threshold = 1)]
pub(super) async fn authorize(Json(payload): Json<Todo>) -> Result<Json<Todo>, AuthError> {
    Ok(Json(payload))
}

// Of `hello-world`, `form`, `compression`, `dependency-injection`, `key-value-store`, `readme`.

#[rate_limit(threshold = 1, fallible)]
pub(super) async fn index() -> Html<&'static str> {
    Html("<h1>Hello, World!</h1>")
}

#[rate_limit(threshold = 1, fallible)]
pub(super) async fn accept_form(Form(input): Form<Todo>) -> Html<String> {
    Html(input.text)
}

#[rate_limit(threshold = 1, fallible)]
pub(super) async fn json(Json(value): Json<serde_json::Value>) -> Json<serde_json::Value> {
    Json(value)
}

#[rate_limit(threshold = 1, fallible)]
pub(super) async fn create_user_dyn(State(_): Db, Json(params): Json<Todo>) -> Json<Todo> {
    Json(params)
}

#[rate_limit(threshold = 1, fallible)]
pub(super) async fn kv_set(Path(_): Path<String>, State(_): Db, _: String) {}

#[rate_limit(threshold = 1, fallible)]
pub(super) async fn list_keys(State(db): Db) -> String {
    db.to_owned()
}

#[rate_limit(threshold = 1, fallible)]
pub(super) async fn root() -> &'static str {
    "Hello, World!"
}

#[rate_limit(threshold = 1, fallible)]
pub(super) async fn create_user(Json(payload): Json<Todo>) -> impl IntoResponse {
    (StatusCode::CREATED, Json(payload))
}

// Of `todos`, `sse`, `multipart-form`, `reqwest-response`, `templates`.

#[rate_limit(threshold = 1, fallible)]
pub(super) async fn todos_index(State(_): Db) -> impl IntoResponse {
    Json(vec![todo()])
}

#[rate_limit(threshold = 1, fallible)]
pub(super) async fn todos_create(State(_): Db, Json(input): Json<Todo>) -> impl IntoResponse {
    (StatusCode::CREATED, Json(input))
}

#[rate_limit(threshold = 1, fallible)]
pub(super) async fn sse_handler() -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    Sse::new(stream::once(Ok(Event::default().data("hi!"))))
}

#[rate_limit(threshold = 1, fallible)]
pub(super) async fn multipart_form(mut multipart: Multipart) {
    while let Some(field) = multipart.next_field().await.unwrap() {
        field.bytes().await.unwrap();
    }
}

#[rate_limit(threshold = 1, fallible)]
pub(super) async fn stream_some_data() -> Body {
    Body::from_stream(stream::once(Ok::<_, Infallible>("data")))
}

#[rate_limit(threshold = 1, fallible)]
pub(super) async fn greet(Path(name): Path<String>) -> impl IntoResponse {
    Html(format!("<h1>Hello, {name}!</h1>"))
}
