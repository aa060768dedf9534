//! Handlers in the shapes of axum's own examples are limited by one line each: refused over HTTP under the
//! identity layer, they answer 429 with `Retry-After`.

mod as_written;
mod with_one_change;

use axum::{
    Router,
    middleware::from_fn,
    routing::{MethodRouter, any},
};
use ratelimit_runtime::web::tower::IdentityLayer;
use reqwest::{
    Client, Method, RequestBuilder,
    header::{self, RETRY_AFTER},
    redirect::Policy,
};

use self::{as_written as written, with_one_change as changed};
use crate::support::{by_user, serve};

/// The state of the examples: a database, a template engine, a client.
type Db = axum::extract::State<&'static str>;

#[derive(Clone, serde::Deserialize, serde::Serialize)]
struct Todo {
    id: u32,
    text: String,
}

fn todo() -> Todo {
    Todo { id: 1, text: "buy milk".to_owned() }
}

/// The request that a handler extracts from.
#[derive(Clone, Copy)]
enum Sent {
    Nothing,
    Json,
    Form,
    Multipart,
    Upgrade,
}

impl Sent {
    fn with(self, request: RequestBuilder) -> RequestBuilder {
        match self {
            Self::Nothing => request,
            Self::Json => request.json(&todo()),
            Self::Form => request
                .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded")
                .body("id=1&text=milk"),
            Self::Multipart => request
                .header(header::CONTENT_TYPE, "multipart/form-data; boundary=x")
                .body("--x\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\nmilk\r\n--x--\r\n"),
            Self::Upgrade => request
                .header(header::CONNECTION, "upgrade")
                .header(header::UPGRADE, "websocket")
                .header(header::SEC_WEBSOCKET_VERSION, "13")
                .header(header::SEC_WEBSOCKET_KEY, "dGhlIHNhbXBsZSBub25jZQ=="),
        }
    }
}

/// Sends two requests to each handler: the first is answered with its status, the second is refused.
async fn are_refused_once_served<const N: usize>(
    layer: IdentityLayer,
    handlers: [(MethodRouter<&'static str>, Sent, u16); N],
) {
    let mut app = Router::new();
    let mut requests = Vec::new();
    for (number, (handler, sent, status)) in handlers.into_iter().enumerate() {
        let path = format!("/{number}/");
        app = app.route(&format!("{path}{{name}}"), handler);
        requests.push((path, sent, status));
    }
    let address = serve(app.layer(layer).with_state("state")).await;
    let client = Client::builder().no_proxy().redirect(Policy::none()).build().unwrap();
    for (path, sent, status) in requests {
        let ask = || {
            let method = if matches!(sent, Sent::Upgrade) { Method::GET } else { Method::POST };
            let request = client.request(method, format!("http://{address}{path}alice"));
            sent.with(request.header("x-user", "alice")).send()
        };
        let served = ask().await.unwrap();
        assert_eq!(served.status(), status, "{path}: {}", served.text().await.unwrap());
        let refused = ask().await.unwrap();
        assert_eq!(refused.status(), 429, "{path}");
        let wait = refused.headers().get(RETRY_AFTER).unwrap_or_else(|| panic!("{path}"));
        let wait: u32 = wait.to_str().unwrap().parse().unwrap();
        assert!((1..=60).contains(&wait), "{path}: {wait}");
    }
}

#[tokio::test]
async fn handlers_as_they_are_written() {
    let next = || any(async || "next");
    let handlers = [
        (any(written::kv_get), Sent::Nothing, 200),
        (any(written::create_user), Sent::Json, 200),
        (any(written::list_users), Sent::Nothing, 200),
        (any(written::read_member), Sent::Nothing, 200),
        (any(written::using_connection_extractor), Sent::Nothing, 200),
        (any(written::get_user), Sent::Nothing, 200),
        (any(written::get_user_generic::<&'static str>), Sent::Nothing, 200),
        (any(written::save_request_body), Sent::Json, 200),
        (any(written::accept_form), Sent::Multipart, 303),
        (any(written::handler_home), Sent::Nothing, 200),
        (any(written::todos_update), Sent::Json, 200),
        (any(written::proxy), Sent::Nothing, 200),
        (any(written::get_head_handler), Sent::Nothing, 200),
        (any(written::stream_reqwest_response), Sent::Nothing, 200),
        (any(written::ws_handler), Sent::Upgrade, 101),
        (any(written::ws_handler_with_address), Sent::Upgrade, 101),
        (any(written::websocket_handler), Sent::Upgrade, 101),
        (any(written::handle_404), Sent::Nothing, 404),
        (any(written::handler_404), Sent::Nothing, 404),
        (any(written::todos_delete), Sent::Nothing, 204),
        (any(written::mark_done), Sent::Nothing, 200),
        (next().layer(from_fn(written::print_request_response)), Sent::Nothing, 200),
        (next().layer(from_fn(written::print_request_body)), Sent::Json, 200),
        (next().layer(from_fn(written::track_metrics)), Sent::Nothing, 200),
        (next().layer(from_fn(written::log_app_errors)), Sent::Nothing, 200),
    ];
    are_refused_once_served(by_user(), handlers).await;
}

/// An error type that takes every error answers 500, which the layer replaces.
#[tokio::test]
async fn handlers_whose_error_takes_any_other() {
    let handlers = [
        (any(written::handler), Sent::Nothing, 200),
        (any(written::logout), Sent::Nothing, 303),
        (any(written::login_authorized), Sent::Nothing, 303),
    ];
    are_refused_once_served(by_user().answer_refusals(), handlers).await;
}

#[tokio::test]
async fn handlers_whose_error_has_the_conversion_that_the_compile_error_names() {
    let handlers = [
        (any(changed::users_create), Sent::Json, 200),
        (any(changed::protected), Sent::Nothing, 200),
        (any(changed::authorize), Sent::Json, 200),
    ];
    are_refused_once_served(by_user(), handlers).await;
}

#[tokio::test]
async fn handlers_with_the_word_that_the_compile_error_names() {
    let handlers = [
        (any(changed::index), Sent::Nothing, 200),
        (any(changed::accept_form), Sent::Form, 200),
        (any(changed::json), Sent::Json, 200),
        (any(changed::create_user_dyn), Sent::Json, 200),
        (any(changed::kv_set), Sent::Json, 200),
        (any(changed::list_keys), Sent::Nothing, 200),
        (any(changed::root), Sent::Nothing, 200),
        (any(changed::create_user), Sent::Json, 201),
        (any(changed::todos_index), Sent::Nothing, 200),
        (any(changed::todos_create), Sent::Json, 201),
        (any(changed::sse_handler), Sent::Nothing, 200),
        (any(changed::multipart_form), Sent::Multipart, 200),
        (any(changed::stream_some_data), Sent::Nothing, 200),
        (any(changed::greet), Sent::Nothing, 200),
    ];
    are_refused_once_served(by_user(), handlers).await;
}
