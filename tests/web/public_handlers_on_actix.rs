//! Handlers in the shapes of actix-web's own examples, and of applications with diesel, are limited by one line
//! each: refused over HTTP under the identity middleware, they answer 429 with `Retry-After`.

use std::fmt;

use actix_web::{
    Either, Error, HttpRequest, HttpResponse, Responder, ResponseError, body::BoxBody, delete,
    error, get, middleware, post, put, web,
};
use ratelimit_runtime::{
    RateLimitError,
    limits::policies,
    rate_limit,
    web::actix::{Identity, IdentityMiddleware},
};

use crate::{on_actix::Server, support::client};

#[derive(serde::Deserialize, serde::Serialize)]
struct Todo {
    id: u32,
}

/// Handlers that have nothing more than the attribute.
mod as_written {
    use super::*;

    #[get("/todos")]
    #[rate_limit(threshold = 1)]
    pub(super) async fn get_todos() -> impl Responder {
        HttpResponse::Ok().json([Todo { id: 1 }])
    }

    #[rate_limit(threshold = 1)]
    #[post("/todos")]
    pub(super) async fn create_todo(todo: web::Json<Todo>) -> impl Responder {
        HttpResponse::Created().json(todo.into_inner())
    }

    #[delete("/todos/{id}", wrap = "middleware::NormalizePath::trim()")]
    #[rate_limit(threshold = 1)]
    pub(super) async fn delete_todo(id: web::Path<u32>) -> HttpResponse {
        HttpResponse::Ok().body(id.to_string())
    }

    /// As in `databases/diesel`: the work of a thread, and an error by a constructor.
    #[get("/user/{id}")]
    #[rate_limit(threshold = 1)]
    pub(super) async fn get_user(id: web::Path<u32>) -> actix_web::Result<impl Responder> {
        let id = id.into_inner();
        let user = web::block(move || id.checked_add(1))
            .await?
            .ok_or_else(|| error::ErrorNotFound("no user"))?;
        Ok(HttpResponse::Ok().json(user))
    }

    #[rate_limit(threshold = 1)]
    pub(super) async fn index(request: HttpRequest) -> Result<HttpResponse, Error> {
        Ok(HttpResponse::Ok().body(request.path().to_owned()))
    }

    #[rate_limit(threshold = 1)]
    pub(super) async fn json(todo: web::Json<Todo>) -> Result<web::Json<Todo>, Error> {
        Ok(todo)
    }
}

/// Handlers with the change that the compile error names first.
mod with_one_change {
    use super::*;

    #[derive(Debug)]
    pub(super) enum AppError {
        NotFound,
        Limited(RateLimitError),
    }

    impl From<RateLimitError> for AppError {
        fn from(error: RateLimitError) -> Self {
            Self::Limited(error)
        }
    }

    impl fmt::Display for AppError {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("application error")
        }
    }

    impl ResponseError for AppError {
        fn error_response(&self) -> HttpResponse {
            match self {
                Self::NotFound => HttpResponse::NotFound().finish(),
                Self::Limited(error) => error.error_response(),
            }
        }
    }

    #[put("/todos/{id}")]
    #[rate_limit(threshold = 1)]
    pub(super) async fn update_todo(
        id: web::Path<u32>,
        todo: web::Json<Todo>,
    ) -> Result<HttpResponse, AppError> {
        if *id == 0 {
            return Err(AppError::NotFound);
        }
        Ok(HttpResponse::Ok().json(todo.into_inner()))
    }

    #[rate_limit(threshold = 1, fallible)]
    pub(super) async fn hello() -> &'static str {
        "Hello world!"
    }

    #[get("/redirect")]
    #[rate_limit(threshold = 1, fallible)]
    pub(super) async fn redirect() -> impl Responder {
        web::Redirect::to("/hello")
    }

    pub(super) struct Events(&'static str);

    impl Responder for Events {
        type Body = BoxBody;

        fn respond_to(self, _: &HttpRequest) -> HttpResponse {
            HttpResponse::Ok().content_type("text/event-stream").body(self.0)
        }
    }

    #[rate_limit(threshold = 1, fallible)]
    pub(super) async fn events() -> impl Responder {
        Events("data: 1\n\n")
    }

    #[rate_limit(threshold = 1, fallible)]
    pub(super) async fn either() -> Either<HttpResponse, web::Json<Todo>> {
        Either::Right(web::Json(Todo { id: 1 }))
    }
}

#[tokio::test]
async fn handlers_of_public_applications() {
    let identity = IdentityMiddleware::new(Identity::header("x-user"));
    let server = Server::serve(identity, |app| {
        app.service(as_written::get_todos)
            .service(as_written::create_todo)
            .service(as_written::delete_todo)
            .service(as_written::get_user)
            .service(with_one_change::update_todo)
            .service(with_one_change::redirect)
            .route("/index", web::get().to(as_written::index))
            .route("/json", web::post().to(as_written::json))
            .route("/hello", web::get().to(with_one_change::hello))
            .route("/events", web::get().to(with_one_change::events))
            .route("/either", web::get().to(with_one_change::either));
    });
    let client = client();
    for (method, path, status) in [
        ("GET", "/todos", 200),
        ("POST", "/todos", 201),
        ("DELETE", "/todos/1", 200),
        ("GET", "/user/1", 200),
        ("PUT", "/todos/1", 200),
        ("GET", "/redirect", 200),
        ("GET", "/index", 200),
        ("POST", "/json", 200),
        ("GET", "/events", 200),
        ("GET", "/either", 200),
    ] {
        let ask = || {
            let request = client.request(method.parse().unwrap(), server.url(path));
            request.header("x-user", "alice").json(&Todo { id: 1 }).send()
        };
        assert_eq!(ask().await.unwrap().status(), status, "{method} {path}");
        let refused = ask().await.unwrap();
        assert_eq!(refused.status(), 429, "{method} {path}");
        let wait: u32 = refused.headers()["retry-after"].to_str().unwrap().parse().unwrap();
        assert!((1..=60).contains(&wait), "{method} {path}: {wait}");
    }
    // A name is the function's path, below a route macro too.
    let names: Vec<_> = policies().into_iter().map(|policy| policy.name()).collect();
    for name in ["as_written::get_todos", "as_written::create_todo", "with_one_change::update_todo"]
    {
        let name = format!("web::public_handlers_on_actix::{name}");
        assert!(names.contains(&name.as_str()), "{name} in {names:?}");
    }
}
