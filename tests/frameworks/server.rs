//! Functions of a server that a page calls: the second call of a limit of one is refused.

use axum::{
    Router,
    body::{Body, to_bytes},
    http::{Method, Request, StatusCode},
};
use ratelimit_runtime::{RateLimitError, rate_limit};
use tower::ServiceExt;

use crate::REFUSED;

async fn ask(app: &Router, method: Method, path: &str, body: &str) -> (StatusCode, String) {
    let request = Request::builder().method(method).uri(path);
    let request = request.header("content-type", "application/x-www-form-urlencoded");
    let request = request.body(Body::from(body.to_owned())).unwrap();
    let (head, body) = app.clone().oneshot(request).await.unwrap().into_parts();
    let body = to_bytes(body, usize::MAX).await.unwrap();
    (head.status, String::from_utf8_lossy(&body).into_owned())
}

mod by_leptos {
    use axum::routing::post;
    use leptos::prelude::*;
    use leptos_axum::{ResponseOptions, handle_server_fns};
    use ratelimit_runtime::limits::policies;

    use super::*;

    #[rate_limit(period = 30, threshold = 1, key = &user)]
    #[server(endpoint = "above")]
    async fn above(user: String) -> Result<String, ServerFnError> {
        Ok(user)
    }

    #[server(endpoint = "below")]
    #[rate_limit(period = 30, threshold = 1, key = &user)]
    async fn below(user: String) -> Result<String, ServerFnError> {
        Ok(user)
    }

    fn refused(error: RateLimitError) -> ServerFnError {
        if let Some(response) = use_context::<ResponseOptions>() {
            response.set_status(StatusCode::TOO_MANY_REQUESTS);
        }
        error.into()
    }

    #[rate_limit(period = 30, threshold = 1, key = &user, otherwise = |it| Err(refused(it)))]
    #[server(endpoint = "with_status")]
    async fn with_status(user: String) -> Result<String, ServerFnError> {
        Ok(user)
    }

    #[tokio::test]
    async fn a_refusal_is_the_error_of_the_function() {
        let app = Router::new().route("/api/{name}", post(handle_server_fns));
        for (path, status) in [("/api/above", 500), ("/api/below", 500), ("/api/with_status", 429)]
        {
            let (first, _) = ask(&app, Method::POST, path, "user=alice").await;
            let (second, body) = ask(&app, Method::POST, path, "user=alice").await;
            assert_eq!(first, 200);
            assert!(second == status && body.contains(REFUSED), "{path} {second} {body}");
        }
        // Below the macro there is one more limit, of the calls that the server makes itself.
        let limits = |end| policies().into_iter().filter(|it| it.name().ends_with(end)).count();
        assert_eq!((limits("by_leptos::above"), limits("by_leptos::below")), (0, 1));
        assert!(above("alice".into()).await.is_err());
        assert!(below("bob".into()).await.is_ok());
        assert!(below("bob".into()).await.unwrap_err().to_string().contains("by_leptos::below"));
    }
}

mod by_dioxus {
    use dioxus::{prelude::*, server::FullstackState};

    use super::*;

    fn refused(error: RateLimitError) -> ServerFnError {
        ServerFnError::ServerError { message: error.to_string(), code: 429, details: None }
    }

    #[get("/below/{user}")]
    #[rate_limit(period = 30, threshold = 1, key = &user)]
    async fn below(user: String) -> Result<String> {
        Ok(user)
    }

    #[rate_limit(period = 30, threshold = 1, key = &user, otherwise = |it| Err(refused(it)))]
    #[get("/above/{user}")]
    async fn above(user: String) -> Result<String, ServerFnError> {
        Ok(user)
    }

    #[tokio::test]
    async fn a_refusal_is_the_error_of_the_function() {
        let app = Router::new().register_server_functions();
        let app: axum::Router = app.with_state(FullstackState::headless());
        for (path, status) in [("/below/alice", 500), ("/above/alice", 429)] {
            let (first, _) = ask(&app, Method::GET, path, "").await;
            let (second, body) = ask(&app, Method::GET, path, "").await;
            assert_eq!(first, 200);
            assert!(second == status && body.contains(REFUSED), "{path} {second} {body}");
        }
    }
}

mod by_loco {
    use loco_rs::prelude::*;

    use super::*;

    #[debug_handler]
    #[rate_limit(period = 30, threshold = 1, key = &user, otherwise = |it| Ok(it.into_response()))]
    async fn hello(Path(user): Path<String>) -> Result<Response> {
        format::text(&user)
    }

    #[tokio::test]
    async fn a_refusal_is_a_429() {
        let app = axum::Router::new().route("/{user}", get(hello));
        for status in [200, 429] {
            assert_eq!(ask(&app, Method::GET, "/alice", "").await.0, status);
        }
    }
}
