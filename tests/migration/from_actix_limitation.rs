//! `actix-limitation`: five a minute in a fixed window on Redis, for each user.

use std::time::Duration;

use actix_limitation::RateLimiter;
use actix_web::{
    App,
    test::{TestRequest, init_service},
    web::{self, Data},
};
use harness::{RedisServer, limiter_on};
use ratelimit_runtime::{
    OnStoreError, Policy,
    web::actix::{Identity, IdentityMiddleware, RateLimitMiddleware},
};

use crate::{first_five_each, from_actix_governor::statuses, traffic};

const MINUTE: Duration = Duration::from_secs(60);
const API: Policy = Policy::fixed_window("actix-limitation", MINUTE, 5);

fn theirs(url: &str) -> Data<actix_limitation::Limiter> {
    let mut limiter = actix_limitation::Limiter::builder(url);
    let limiter = limiter.limit(5).period(MINUTE).key_by(|request| {
        request.headers().get("x-user").and_then(|user| Some(user.to_str().ok()?.to_owned()))
    });
    Data::new(limiter.build().unwrap())
}

macro_rules! their_app {
    ($url:expr) => {
        init_service(
            App::new()
                .app_data(theirs($url))
                .route("/", web::get().to(async || "hello"))
                .wrap(RateLimiter::default()),
        )
        .await
    };
}

macro_rules! our_app {
    ($limiter:expr) => {
        init_service(
            App::new()
                .route("/", web::get().to(async || "hello"))
                .wrap(RateLimitMiddleware::new(API).limiter($limiter))
                .wrap(IdentityMiddleware::new(Identity::header("x-user"))),
        )
        .await
    };
}

fn request(user: usize) -> TestRequest {
    anonymous().insert_header(("x-user", user.to_string()))
}

fn anonymous() -> TestRequest {
    TestRequest::get().uri("/")
}

#[actix_web::test]
async fn each_user_has_the_same_count_and_who_is_nobody_is_refused() {
    let server = RedisServer::start();
    let theirs = their_app!(&server.url());
    assert_eq!(statuses(&theirs, traffic().map(request)).await, first_five_each());
    assert_eq!(statuses(&theirs, (0..9).map(|_| anonymous())).await, [200; 9]);

    let ours = our_app!(server.limiter().await);
    assert_eq!(statuses(&ours, traffic().map(request)).await, first_five_each());
    assert_eq!(statuses(&ours, (0..9).map(|_| anonymous())).await, [400; 9]);
}

#[actix_web::test]
async fn a_refusal_has_a_wait_and_a_body_here_alone() {
    let server = RedisServer::start();
    let theirs = their_app!(&server.url());
    let ours = our_app!(server.limiter().await);
    assert_eq!(statuses(&theirs, (0..5).map(|_| request(1))).await, [200; 5]);
    assert_eq!(statuses(&ours, (0..5).map(|_| request(1))).await, [200; 5]);

    let refused = actix_web::test::call_service(&theirs, request(1).to_request()).await;
    assert_eq!((refused.status().as_u16(), refused.headers().len()), (429, 0));
    assert!(actix_web::test::read_body(refused).await.is_empty());
    let refused = actix_web::test::call_service(&ours, request(1).to_request()).await;
    assert_eq!(refused.status(), 429);
    for name in ["retry-after", "ratelimit", "ratelimit-policy"] {
        assert!(refused.headers().contains_key(name), "{name}");
    }
    assert!(!actix_web::test::read_body(refused).await.is_empty());
}

#[actix_web::test]
async fn without_redis_requests_fail_there_and_are_counted_by_the_process_here() {
    let mut server = RedisServer::start();
    let local = limiter_on(&server.url(), OnStoreError::Local).await;
    let (theirs, ours) = (their_app!(&server.url()), our_app!(local));
    server.kill();
    assert_eq!(statuses(&theirs, (0..7).map(|_| request(1))).await, [500; 7]);
    let counted = [200, 200, 200, 200, 200, 429, 429];
    assert_eq!(statuses(&ours, (0..7).map(|_| request(1))).await, counted);
}
