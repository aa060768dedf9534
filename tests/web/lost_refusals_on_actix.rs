//! Refusals that error types of actix-web lose: the middleware adds headers, or responds itself with
//! `answer_refusals`.

use std::{fmt, time::Duration};

use actix_web::{
    HttpResponse, ResponseError,
    body::MessageBody,
    dev::{ServiceRequest, ServiceResponse},
    middleware::{Next, from_fn},
    web::resource,
};
use ratelimit_runtime::{
    Policy, RateLimitError, limiter, rate_limit,
    web::{
        Refusal,
        actix::{Identity, IdentityMiddleware},
    },
};

use crate::{
    lost_refusals::assert_answered,
    on_actix::Server,
    without_a_wait::{ask, field},
};

const NEVER: Policy = Policy::sliding_window("never", Duration::from_secs(60), 0);

/// An error of an actix-web application that has not said how it is answered: 500.
#[derive(Debug)]
struct AppError(String);

impl fmt::Display for AppError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl ResponseError for AppError {}

impl From<RateLimitError> for AppError {
    fn from(error: RateLimitError) -> Self {
        Self(error.to_string())
    }
}

mod handlers {
    use actix_web::{HttpResponse, get};
    use ratelimit_runtime::rate_limit;

    use super::AppError;

    #[get("/lost")]
    #[rate_limit(name = "actix lost", period = 3600, threshold = 1)]
    pub(super) async fn lost() -> Result<&'static str, AppError> {
        Ok("hello")
    }

    #[get("/bare")]
    #[rate_limit(name = "actix bare", period = 3600, threshold = 1, key = "all", otherwise = |_| bare())]
    pub(super) async fn bare_429() -> HttpResponse {
        HttpResponse::Ok().finish()
    }

    fn bare() -> HttpResponse {
        HttpResponse::TooManyRequests().finish()
    }
}

fn by_user() -> IdentityMiddleware {
    IdentityMiddleware::new(Identity::header("x-user"))
}

#[tokio::test]
async fn a_handler_loses_a_refusal() {
    let serve = |identity: IdentityMiddleware| {
        Server::serve(identity, |config| {
            config.service((handlers::lost, handlers::bare_429));
        })
    };
    let (plain, answering) = (serve(by_user()), serve(by_user().answer_refusals()));
    for path in ["/lost", "/bare"] {
        assert_eq!(ask(&plain.url(path)).await.status(), 200);
    }
    let lost = ask(&plain.url("/lost")).await;
    assert_eq!((lost.status().as_u16(), field(lost.headers(), "retry-after")), (500, None));
    assert_answered(ask(&answering.url("/lost")).await, "actix lost").await;

    let bare = ask(&plain.url("/bare")).await;
    assert_eq!(bare.status(), 429);
    let wait = field(bare.headers(), "retry-after").unwrap();
    assert_eq!(field(bare.headers(), "ratelimit"), Some(&*format!(r#""actix bare";r=0;t={wait}"#)));
    assert_eq!(bare.text().await.unwrap(), "");
    assert_answered(ask(&answering.url("/bare")).await, "actix bare").await;
}

#[tokio::test]
async fn a_middleware_loses_a_refusal() {
    #[rate_limit(name = "actix middleware", period = 3600, threshold = 1)]
    async fn limited() -> Result<(), AppError> {
        Ok(())
    }

    async fn guard(
        request: ServiceRequest,
        next: Next<impl MessageBody>,
    ) -> actix_web::Result<ServiceResponse<impl MessageBody>> {
        limited().await?;
        next.call(request).await
    }

    let serve = |identity: IdentityMiddleware| {
        Server::serve(identity, |config| {
            let guarded = resource("/").wrap(from_fn(guard));
            config.service(guarded.to(async || "hello"));
        })
    };
    let (plain, answering) = (serve(by_user()), serve(by_user().answer_refusals()));
    assert_eq!(ask(&plain.url("/")).await.status(), 200);
    let lost = ask(&plain.url("/")).await;
    assert_eq!(lost.status(), 500);
    assert!(field(lost.headers(), "ratelimit").unwrap().starts_with(r#""actix middleware";r=0"#));
    assert!(lost.text().await.unwrap().contains("actix middleware"));
    assert_answered(ask(&answering.url("/")).await, "actix middleware").await;
}

#[tokio::test]
async fn a_lost_refusal_is_answered_as_the_layer_responds() {
    let teapot = |_: &Refusal| HttpResponse::ImATeapot().finish();
    let server = Server::serve(by_user().respond(teapot).answer_refusals(), |config| {
        config.service(resource("/never").to(async || {
            limiter().check(&NEVER, "someone").await.map_err(AppError::from)?;
            Ok::<_, AppError>("never")
        }));
    });
    assert_eq!(ask(&server.url("/never")).await.status(), 418);
}
