//! Handlers that have nothing more than the attribute.

use std::{fmt::Display, net::SocketAddr};

use axum::{
    Json,
    body::{Body, Bytes, to_bytes},
    extract::{ConnectInfo, Multipart, Path, Request, State, WebSocketUpgrade},
    http::{Method, StatusCode},
    middleware::Next,
    response::{Html, IntoResponse, Redirect, Response},
};
use ratelimit_runtime::rate_limit;

use super::{Db, Todo, todo};

// Of the examples `key-value-store`, `diesel-postgres`, `mongodb`, `sqlx-postgres`, `dependency-injection`.

#[rate_limit(threshold = 1)]
pub(super) async fn kv_get(Path(key): Path<String>, State(db): Db) -> Result<Bytes, StatusCode> {
    if key.is_empty() { Err(StatusCode::NOT_FOUND) } else { Ok(db.into()) }
}

#[rate_limit(threshold = 1)]
pub(super) async fn create_user(
    State(_): Db,
    Json(new_user): Json<Todo>,
) -> Result<Json<Todo>, (StatusCode, String)> {
    Ok(Json(new_user))
}

#[rate_limit(threshold = 1)]
pub(super) async fn list_users(State(_): Db) -> Result<Json<Vec<Todo>>, (StatusCode, String)> {
    Ok(Json(vec![todo()]))
}

#[rate_limit(threshold = 1)]
pub(super) async fn read_member(State(_): Db) -> Result<Json<Option<Todo>>, (StatusCode, String)> {
    Ok(Json(Some(todo())))
}

#[rate_limit(threshold = 1)]
pub(super) async fn using_connection_extractor(
    State(db): Db,
) -> Result<String, (StatusCode, String)> {
    db.parse().map_err(internal_error)
}

fn internal_error(error: impl Display) -> (StatusCode, String) {
    (StatusCode::INTERNAL_SERVER_ERROR, error.to_string())
}

#[rate_limit(threshold = 1)]
pub(super) async fn get_user(
    State(_): Db,
    Path(_): Path<String>,
) -> Result<Json<Todo>, StatusCode> {
    Ok(Json(todo()))
}

#[rate_limit(threshold = 1)]
pub(super) async fn get_user_generic<T>(State(state): State<T>) -> Result<Json<String>, StatusCode>
where
    T: Clone + Display + Send + Sync + 'static,
{
    Ok(Json(state.to_string()))
}

// Of `stream-to-file`, `templates-minijinja`, `todos`, `reverse-proxy`, `handle-head-request`,
// `reqwest-response`.

#[rate_limit(threshold = 1)]
pub(super) async fn save_request_body(
    Path(_): Path<String>,
    request: Request,
) -> Result<(), (StatusCode, String)> {
    to_bytes(request.into_body(), 1_000).await.map_err(internal_error).map(drop)
}

#[rate_limit(threshold = 1)]
pub(super) async fn accept_form(
    mut multipart: Multipart,
) -> Result<Redirect, (StatusCode, String)> {
    while let Some(field) = multipart.next_field().await.map_err(internal_error)? {
        field.bytes().await.map_err(internal_error)?;
    }
    Ok(Redirect::to("/"))
}

#[rate_limit(threshold = 1)]
pub(super) async fn handler_home(State(template): Db) -> Result<Html<String>, StatusCode> {
    Ok(Html(template.to_owned()))
}

#[rate_limit(threshold = 1)]
pub(super) async fn todos_update(
    Path(_): Path<String>,
    State(_): Db,
    Json(input): Json<Todo>,
) -> Result<impl IntoResponse, StatusCode> {
    if input.text.is_empty() {
        return Err(StatusCode::NOT_FOUND);
    }
    Ok(Json(input))
}

#[rate_limit(threshold = 1)]
pub(super) async fn proxy(State(_): Db, mut request: Request) -> Result<Response, StatusCode> {
    *request.uri_mut() = "/".parse().map_err(|_| StatusCode::BAD_REQUEST)?;
    Ok(request.uri().to_string().into_response())
}

#[rate_limit(threshold = 1)]
pub(super) async fn get_head_handler(method: Method) -> Response {
    if method == Method::HEAD {
        return ([("x-some-header", "header from HEAD")]).into_response();
    }
    ([("x-some-header", "header from GET")], "body from GET").into_response()
}

#[rate_limit(threshold = 1)]
pub(super) async fn stream_reqwest_response(State(text): Db) -> Response {
    Response::builder().body(Body::from(text)).unwrap()
}

// Of `websockets-http2`, `websockets`, `chat`.

#[rate_limit(threshold = 1)]
pub(super) async fn ws_handler(upgrade: WebSocketUpgrade, State(_): Db) -> Response {
    upgrade.on_upgrade(async |_| {})
}

#[rate_limit(threshold = 1)]
pub(super) async fn ws_handler_with_address(
    upgrade: WebSocketUpgrade,
    ConnectInfo(address): ConnectInfo<SocketAddr>,
) -> impl IntoResponse {
    upgrade.on_upgrade(async move |_| assert!(address.ip().is_loopback()))
}

#[rate_limit(threshold = 1)]
pub(super) async fn websocket_handler(
    upgrade: WebSocketUpgrade,
    State(_): Db,
) -> impl IntoResponse {
    upgrade.on_upgrade(async |_| {})
}

// Of `static-file-server`, `global-404-handler`, `todos`, and utoipa's `todo-axum`.

#[rate_limit(threshold = 1)]
pub(super) async fn handle_404() -> (StatusCode, &'static str) {
    (StatusCode::NOT_FOUND, "Not found")
}

#[rate_limit(threshold = 1)]
pub(super) async fn handler_404() -> impl IntoResponse {
    (StatusCode::NOT_FOUND, "nothing to see here")
}

#[rate_limit(threshold = 1)]
pub(super) async fn todos_delete(Path(name): Path<String>, State(_): Db) -> impl IntoResponse {
    if name.is_empty() { StatusCode::NOT_FOUND } else { StatusCode::NO_CONTENT }
}

#[rate_limit(threshold = 1)]
pub(super) async fn mark_done(Path(_): Path<String>, State(_): Db) -> StatusCode {
    StatusCode::OK
}

// Middlewares, of `print-request-response`, `consume-body-in-extractor-or-middleware`,
// `prometheus-metrics`, `error-handling`.

#[rate_limit(threshold = 1)]
pub(super) async fn print_request_response(
    request: Request,
    next: Next,
) -> Result<impl IntoResponse, (StatusCode, String)> {
    let (parts, body) = request.into_parts();
    let bytes = to_bytes(body, 1_000).await.map_err(internal_error)?;
    Ok(next.run(Request::from_parts(parts, Body::from(bytes))).await)
}

#[rate_limit(threshold = 1)]
pub(super) async fn print_request_body(
    request: Request,
    next: Next,
) -> Result<impl IntoResponse, Response> {
    let (parts, body) = request.into_parts();
    let bytes = to_bytes(body, 1_000).await;
    let bytes = bytes.map_err(|error| internal_error(error).into_response())?;
    Ok(next.run(Request::from_parts(parts, Body::from(bytes))).await)
}

#[rate_limit(threshold = 1)]
pub(super) async fn track_metrics(request: Request, next: Next) -> impl IntoResponse {
    next.run(request).await
}

#[rate_limit(threshold = 1)]
pub(super) async fn log_app_errors(request: Request, next: Next) -> Response {
    next.run(request).await
}

// Of `anyhow-error-response` and `oauth`.

/// An error that takes any other.
pub(super) struct AppError(anyhow::Error);

impl IntoResponse for AppError {
    fn into_response(self) -> Response {
        let text = format!("Something went wrong: {}", self.0);
        (StatusCode::INTERNAL_SERVER_ERROR, text).into_response()
    }
}

impl<E: Into<anyhow::Error>> From<E> for AppError {
    fn from(error: E) -> Self {
        Self(error.into())
    }
}

#[rate_limit(threshold = 1)]
pub(super) async fn handler() -> Result<(), AppError> {
    "1".parse::<u32>()?;
    Ok(())
}

#[rate_limit(threshold = 1)]
pub(super) async fn logout(State(_): Db) -> Result<impl IntoResponse, AppError> {
    "1".parse::<u32>()?;
    Ok(Redirect::to("/"))
}

#[rate_limit(threshold = 1)]
pub(super) async fn login_authorized(State(store): Db) -> Result<impl IntoResponse, AppError> {
    let cookie = ("x-cookie", store.parse::<String>()?);
    Ok(([cookie], Redirect::to("/")))
}
