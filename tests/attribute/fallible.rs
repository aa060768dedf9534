//! `fallible`: handlers of every public shape take one line. The value comes in `Ok`, a refusal in
//! `Err`, which is a response of its own.
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

use std::{
    fmt::{self, Display},
    future::Future,
    sync::Arc,
};

use harness::exceeded;
use ratelimit_runtime::{Limiter, RateLimitError, rate_limit};

mod on_axum {
    use std::convert::Infallible;

    use axum::{
        Json, Router,
        body::{Body, Bytes, to_bytes},
        extract::{Path, Request, State},
        http::{HeaderMap, StatusCode, header},
        middleware::{self, Next},
        response::{
            AppendHeaders, Html, IntoResponse, NoContent, Redirect, Response, Sse, sse::Event,
        },
        routing::{MethodRouter, get},
    };
    use ratelimit_runtime::rate_limit;
    use tonic::codegen::tokio_stream::{self as stream, Stream};
    use tower::ServiceExt;

    use super::fmt;

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

    /// An application's error that knows nothing of limits.
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
    async fn status_and_json_error() -> Result<String, (StatusCode, Json<u32>)> {
        Err((StatusCode::IM_A_TEAPOT, Json(1)))
    }

    /// What needs no flag.
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
    async fn response() -> Response {
        "response".into_response()
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
        let shapes: [(MethodRouter<String>, u16); 21] = [
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
    async fn a_bare_status_carries_a_refusal_without_the_flag() {
        let shapes: [(MethodRouter<String>, u16, &str); 5] = [
            (get(response), 200, "limit"),
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
}

mod on_actix {
    use actix_web::{
        App, Either, HttpResponse, Responder, ResponseError, http::StatusCode, test, web,
    };

    use super::{Display, fmt, rate_limit};

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

    #[actix_web::test]
    async fn a_bare_status_carries_a_refusal_without_the_flag() {
        assert_eq!((status().await.as_u16(), status().await.as_u16()), (202, 429));
        assert_eq!(status_as_error().await, Ok(()));
        let (status, text) = status_as_error().await.unwrap_err();
        assert_eq!(status, 429);
        assert!(text.starts_with("rate limit"), "{text}");
    }
}

/// Functions that no framework calls.
mod plain {
    use super::{Arc, Display, Future, Limiter, RateLimitError, exceeded, rate_limit};

    /// The limit of one lets the first call pass and refuses the second.
    async fn once<T, F>(mut call: impl FnMut() -> F) -> T
    where
        F: Future<Output = Result<T, RateLimitError>> + Send,
    {
        let value = call().await;
        exceeded(call().await.map(drop));
        value.unwrap_or_else(|error| panic!("{error}"))
    }

    #[rate_limit(threshold = 1, fallible)]
    async fn number() -> u32 {
        7
    }

    /// The written type is what the body is coerced to.
    #[rate_limit(threshold = 1, fallible)]
    async fn coerced(wide: bool) -> Box<dyn Display + Send> {
        if wide {
            return Box::new("wide");
        }
        Box::new(1)
    }

    #[rate_limit(threshold = 1, fallible)]
    async fn inferred(text: &str) -> Option<u8> {
        let number = text.parse().ok()?;
        Some(number)
    }

    #[rate_limit(threshold = 1, fallible, key = first)]
    async fn generic<'a, T, const N: usize>(first: &'a T, _: [u8; N]) -> (&'a T, usize)
    where
        T: Display + Sync + ?Sized,
    {
        (first, N)
    }

    #[rate_limit(threshold = 1, fallible)]
    async fn values() -> impl Iterator<Item = u32> + Send {
        1..4
    }

    #[rate_limit(threshold = 1, fallible)]
    async fn moved((mut first, _): (Vec<u32>, u32), mut second: String) -> (Vec<u32>, String) {
        first.push(1);
        second.push('!');
        (first, second)
    }

    #[rate_limit(threshold = 1, fallible, skip = skip)]
    #[tracing::instrument]
    async fn instrumented_below(skip: bool) -> u32 {
        7
    }

    #[tracing::instrument]
    #[rate_limit(threshold = 1, fallible)]
    async fn instrumented_above() -> u32 {
        7
    }

    #[rate_limit(name = "fallible-first", threshold = 1, fallible, limiter = limiter)]
    #[rate_limit(name = "fallible-second", threshold = 1, limiter = limiter)]
    async fn stacked(limiter: &Limiter) -> u32 {
        7
    }

    struct Service {
        limiter: Limiter,
        calls: u32,
    }

    trait Count {
        async fn count(&mut self) -> Result<u32, RateLimitError>;

        #[rate_limit(threshold = 1, fallible)]
        async fn provided(&self) -> u32 {
            3
        }
    }

    impl Service {
        #[rate_limit(threshold = 1, fallible, limiter = self.limiter)]
        async fn by_reference(&self) -> &u32 {
            &self.calls
        }

        #[rate_limit(threshold = 1, fallible, limiter = self.limiter)]
        async fn by_mutable(&mut self) -> &mut u32 {
            self.calls += 1;
            &mut self.calls
        }

        #[rate_limit(threshold = 1, fallible, limiter = self.limiter)]
        async fn by_arc(self: Arc<Self>) -> Arc<Self> {
            self
        }
    }

    impl Count for Service {
        /// The trait's own method returns the `Result`.
        #[rate_limit(threshold = 1, fallible, limiter = self.limiter)]
        async fn count(&mut self) -> u32 {
            self.calls += 1;
            self.calls
        }
    }

    #[tokio::test]
    async fn values_of_every_kind_come_in_ok() {
        assert_eq!(once(number).await, 7);
        assert_eq!(once(|| coerced(true)).await.to_string(), "wide");
        assert_eq!(once(|| inferred("x")).await, None);
        assert_eq!(once(|| generic("a", [0; 3])).await, ("a", 3));
        assert_eq!(once(values).await.sum::<u32>(), 6);
        let (numbers, text) = once(|| moved((vec![0], 0), String::from("a"))).await;
        assert_eq!((&numbers[..], &text[..]), (&[0, 1][..], "a!"));
        assert_eq!(instrumented_below(true).await.unwrap(), 7);
        assert_eq!(once(|| instrumented_below(false)).await, 7);
        assert_eq!(once(instrumented_above).await, 7);
        let limiter = Limiter::in_memory();
        assert_eq!(once(|| stacked(&limiter)).await, 7);
    }

    #[tokio::test]
    async fn methods_return_what_they_borrow() {
        let new = || Service { limiter: Limiter::in_memory(), calls: 0 };
        let service = Arc::new(new());
        assert_eq!(*once(|| service.by_reference()).await, 0);
        once(|| Arc::clone(&service).by_arc()).await;
        let mut service = new();
        assert_eq!(*service.by_mutable().await.unwrap(), 1);
        exceeded(service.by_mutable().await.map(drop));
        assert_eq!(service.count().await.unwrap(), 2);
        exceeded(service.count().await.map(drop));
        assert_eq!(service.provided().await.unwrap(), 3);
        exceeded(service.provided().await.map(drop));
    }
}
