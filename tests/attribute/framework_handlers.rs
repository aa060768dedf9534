//! Handlers of axum, actix-web and tonic services compile without a warning and run.
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

use std::collections::HashMap;

use ratelimit_runtime::{RateLimitError, rate_limit};

mod on_axum {
    use axum::{
        Json, Router,
        body::Body,
        extract::{FromRef, Path, Query, State},
        http::{Request, StatusCode},
        response::{IntoResponse, Response},
        routing::{get, post},
    };
    use ratelimit_runtime::Limiter;
    use tower::ServiceExt;

    use super::{HashMap, RateLimitError, rate_limit};

    #[derive(Debug)]
    struct AppError(RateLimitError);

    impl From<RateLimitError> for AppError {
        fn from(error: RateLimitError) -> Self {
            Self(error)
        }
    }

    impl IntoResponse for AppError {
        fn into_response(self) -> Response {
            (StatusCode::TOO_MANY_REQUESTS, self.0.to_string()).into_response()
        }
    }

    #[derive(Clone, FromRef)]
    struct AppState {
        limiter: Limiter,
    }

    /// Handlers that axum checks as well.
    mod checked {
        #![allow(
            unused_braces,
            clippy::diverging_sub_expression,
            clippy::unused_async,
            reason = "the copies of a handler that axum makes for its checks"
        )]

        use super::{
            AppError, AppState, HashMap, IntoResponse, Limiter, Path, Query, State, StatusCode,
            rate_limit,
        };

        /// An extractor destructured in the signature, which the key names.
        #[axum::debug_handler]
        #[rate_limit(threshold = 1, key = user)]
        pub(super) async fn by_path(Path(user): Path<u64>) -> Result<String, AppError> {
            Ok(format!("user {user}"))
        }

        /// The attributes in the other order; the limiter from the state.
        #[rate_limit(threshold = 1, key = query.get("user"), limiter = limiter)]
        #[axum::debug_handler(state = AppState)]
        pub(super) async fn by_query(
            State(limiter): State<Limiter>,
            Query(query): Query<HashMap<String, String>>,
        ) -> Result<impl IntoResponse, AppError> {
            Ok((StatusCode::CREATED, format!("{}", query.len())))
        }
    }

    #[rate_limit(period = "1h", threshold = 1, key = order["item"])]
    async fn by_body(
        State(state): State<AppState>,
        Json(order): Json<HashMap<String, u32>>,
    ) -> Result<Json<HashMap<String, u32>>, AppError> {
        drop(state);
        Ok(Json(order))
    }

    #[tokio::test]
    async fn axum_handlers_are_limited() {
        let router = Router::new()
            .route("/user/{user}", get(checked::by_path))
            .route("/query", get(checked::by_query))
            .route("/order", post(by_body))
            .with_state(AppState { limiter: Limiter::in_memory() });
        let order = |item: u32| {
            Request::post("/order")
                .header("content-type", "application/json")
                .body(Body::from(format!("{{\"item\":{item}}}")))
                .unwrap()
        };
        let get = |path: &str| Request::get(path).body(Body::empty()).unwrap();
        for (request, expected) in [
            (get("/user/1"), 200),
            (get("/user/1"), 429),
            (get("/user/2"), 200),
            (get("/query?user=a"), 201),
            (get("/query?user=a"), 429),
            (get("/query"), 201),
            (get("/query"), 429),
            (order(1), 200),
            (order(1), 429),
            (order(2), 200),
        ] {
            let path = request.uri().clone();
            let response = router.clone().oneshot(request).await.unwrap();
            assert_eq!(response.status().as_u16(), expected, "{path}");
        }
    }
}

mod on_actix {
    use actix_web::{App, HttpResponse, ResponseError, http::StatusCode, test, web};

    use super::{RateLimitError, rate_limit};

    #[derive(Debug)]
    struct AppError(RateLimitError);

    impl std::fmt::Display for AppError {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            self.0.fmt(f)
        }
    }

    impl From<RateLimitError> for AppError {
        fn from(error: RateLimitError) -> Self {
            Self(error)
        }
    }

    impl ResponseError for AppError {
        fn status_code(&self) -> StatusCode {
            StatusCode::TOO_MANY_REQUESTS
        }
    }

    #[actix_web::get("/below/{user}")]
    #[rate_limit(threshold = 1, key = user)]
    async fn below_the_route(user: web::Path<u64>) -> Result<HttpResponse, AppError> {
        Ok(HttpResponse::Ok().body(user.to_string()))
    }

    #[rate_limit(threshold = 1, key = user.as_str())]
    async fn named_in_the_app(user: web::Path<String>) -> Result<String, AppError> {
        Ok(user.into_inner())
    }

    #[actix_web::test]
    async fn actix_handlers_are_limited() {
        let app = App::new()
            .service(below_the_route)
            .route("/named/{user}", web::post().to(named_in_the_app));
        let app = test::init_service(app).await;
        let get = |path: &str| test::TestRequest::get().uri(path).to_request();
        let post = |path: &str| test::TestRequest::post().uri(path).to_request();
        for (request, expected) in [
            (get("/below/1"), 200),
            (get("/below/1"), 429),
            (get("/below/2"), 200),
            (post("/named/a"), 200),
            (post("/named/a"), 429),
        ] {
            assert_eq!(test::call_service(&app, request).await.status(), expected);
        }
    }
}

mod on_tonic {
    use tonic::{Code, Request, Response, Status};

    use super::rate_limit;

    /// As `tonic` generates it from a service definition.
    #[tonic::async_trait]
    trait Greeter: Send + Sync + 'static {
        async fn say_hello(&self, request: Request<String>) -> Result<Response<String>, Status>;
    }

    struct MyGreeter {
        greeting: String,
    }

    #[tonic::async_trait]
    impl Greeter for MyGreeter {
        #[rate_limit(threshold = 1, key = (self.greeting, request.get_ref()))]
        async fn say_hello(&self, request: Request<String>) -> Result<Response<String>, Status> {
            let name = request.into_inner();
            Ok(Response::new(format!("{}, {name}", self.greeting)))
        }
    }

    #[tokio::test]
    async fn tonic_methods_are_limited() {
        let greeter = MyGreeter { greeting: "hello".to_owned() };
        let hello = |name: &str| greeter.say_hello(Request::new(name.to_owned()));
        assert_eq!(hello("alice").await.unwrap().into_inner(), "hello, alice");
        assert_eq!(hello("alice").await.unwrap_err().code(), Code::ResourceExhausted);
        assert_eq!(hello("bob").await.unwrap().into_inner(), "hello, bob");
    }
}
