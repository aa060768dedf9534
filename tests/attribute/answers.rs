//! `decision`, `soft` and `otherwise`: the body sees the decision, or another value answers a refusal.
#![deny(
    warnings,
    clippy::all,
    clippy::pedantic,
    clippy::nursery,
    unused,
    rust_2018_idioms,
    missing_docs,
    unused_qualifications
)]
#![allow(clippy::redundant_pub_crate, reason = "`unreachable_pub` asks for the contrary")]

use std::{
    fmt::Display,
    future::{Future, ready},
    pin::Pin,
    str::FromStr,
    sync::Arc,
};

use axum::{
    Json, Router,
    body::{Body, to_bytes},
    extract::Path,
    http::{Request, StatusCode},
    response::{IntoResponse, Response},
    routing::get,
};
use ratelimit_runtime::{Decision, Limiter, RateLimitError, rate_limit};
use tower::ServiceExt;

/// The value of an admitted call, or the refusal as a text.
type Told = Result<u32, String>;

#[rate_limit(threshold = 2, decision = quota)]
async fn left() -> Result<u32, RateLimitError> {
    Ok(quota.remaining())
}

#[rate_limit(threshold = 2, key = user, skip = user == "admin", decision = quota)]
async fn counted(user: &str) -> Result<(bool, u32), RateLimitError> {
    Ok((quota.is_counted(), quota.remaining()))
}

#[rate_limit(threshold = 1, decision = quota, soft)]
async fn soft() -> Told {
    match quota {
        Ok(quota) => Ok(quota.remaining()),
        Err(error) => Err(error.to_string()),
    }
}

#[rate_limit(threshold = 1, skip = skip, soft, decision = quota)]
async fn soft_and_skipped(skip: bool) -> bool {
    ready(()).await;
    quota.is_ok_and(|quota| !quota.is_counted())
}

#[rate_limit(threshold = 1, otherwise = 7)]
async fn plain() -> u32 {
    1
}

#[rate_limit(threshold = 1, otherwise = ())]
async fn nothing() {}

/// The answer moves what the body moves.
#[rate_limit(threshold = 1, key = name, otherwise = cached(name).await)]
async fn awaits(name: String) -> String {
    name + "!"
}

async fn cached(name: String) -> String {
    ready(()).await;
    name + "?"
}

#[rate_limit(threshold = threshold, otherwise = |error| Err(error.to_string()))]
async fn told(threshold: u32) -> Told {
    Ok(1)
}

#[rate_limit(threshold = 1, key = text, otherwise = Some(u32::from_str(text.get(1..)?).ok()? + 1))]
async fn tried(text: &str) -> Option<u32> {
    let number = text.strip_prefix('+')?.parse().ok()?;
    Some(number)
}

#[rate_limit(threshold = 1, key = first, otherwise = |error: RateLimitError| (first, error.to_string().len()))]
async fn generic<'a, T, const N: usize>(first: &'a T, _: [&'a u8; N]) -> (&'a T, usize)
where
    T: Display + Sync + ?Sized,
{
    (first, N)
}

#[rate_limit(threshold = 1, otherwise = Box::new("refused"))]
async fn coerced() -> Box<dyn Display + Send> {
    Box::new(1)
}

#[rate_limit(threshold = 1, otherwise = vec![0].into_iter())]
async fn values() -> impl Iterator<Item = u32> + Send {
    vec![1, 2].into_iter()
}

#[rate_limit(threshold = 1, otherwise = panic!("never called"), skip = true, key = 1)]
async fn diverges() -> u32 {
    3
}

#[rate_limit(threshold = 1, decision = quota, fallible)]
async fn fallible() -> u32 {
    quota.threshold()
}

/// The decision is used in an inner future too.
#[rate_limit(threshold = 1, decision = quota, otherwise = None)]
#[tracing::instrument]
async fn instrumented() -> Option<Decision> {
    ready(()).await;
    Some(quota)
}

#[tracing::instrument]
#[rate_limit(threshold = 1, otherwise = |error| error.to_string(), decision = quota)]
async fn instrumented_above() -> String {
    quota.policy().to_owned()
}

#[rate_limit(threshold = 1, decision = quota, otherwise = Box::pin(ready(0)).await)]
fn boxed(step: u32) -> Pin<Box<dyn Future<Output = u32> + Send>> {
    Box::pin(async move { quota.threshold() + step })
}

struct Service {
    limiter: Limiter,
    name: String,
}

trait Count {
    async fn count(&mut self) -> Result<u32, RateLimitError>;

    #[rate_limit(threshold = 1, otherwise = 0)]
    async fn provided(&self) -> u32 {
        3
    }
}

impl Service {
    #[rate_limit(threshold = 1, limiter = self.limiter, otherwise = &self.name)]
    async fn by_reference(&self) -> &str {
        "admitted"
    }

    #[rate_limit(threshold = 1, limiter = self.limiter, decision = quota, soft)]
    async fn by_arc(self: Arc<Self>) -> bool {
        quota.is_ok()
    }

    #[rate_limit(threshold = 1, limiter = self.limiter, otherwise = self.name)]
    async fn by_value(self) -> String {
        self.name + "!"
    }
}

impl Count for Service {
    #[rate_limit(threshold = 1, limiter = self.limiter, decision = quota, skip = self.name == "admin")]
    async fn count(&mut self) -> Result<u32, RateLimitError> {
        self.name.push('x');
        Ok(u32::from(quota.is_counted()))
    }
}

#[async_trait::async_trait]
trait Greet {
    async fn greet(&self, name: String) -> String;
    async fn told(&mut self, pair: (u32, u32)) -> Option<u32>;
    async fn soft(self: Arc<Self>) -> bool;
}

#[async_trait::async_trait]
impl Greet for Service {
    #[rate_limit(threshold = 1, limiter = self.limiter, otherwise = |error| self.refused(name, &error).await)]
    async fn greet(&self, name: String) -> String {
        format!("hi, {name}")
    }

    #[rate_limit(threshold = 1, limiter = self.limiter, decision = quota, otherwise = Some(first))]
    async fn told(&mut self, (first, second): (u32, u32)) -> Option<u32> {
        self.name.clear();
        quota.is_counted().then_some(first + second)
    }

    #[rate_limit(threshold = 1, limiter = self.limiter, decision = quota, soft)]
    async fn soft(self: Arc<Self>) -> bool {
        quota.is_err()
    }
}

impl Service {
    async fn refused(&self, name: String, error: &RateLimitError) -> String {
        ready(()).await;
        format!("{}, {name}, {}", self.name, error.to_string().contains("greet"))
    }
}

/// A handler of a type that cannot carry a refusal.
#[rate_limit(threshold = 1, key = user, decision = quota, otherwise = Json(vec![]))]
async fn json(Path(user): Path<u32>) -> Json<Vec<u32>> {
    Json(vec![user, quota.remaining()])
}

#[rate_limit(threshold = 1, decision = quota, soft)]
#[axum::debug_handler]
async fn page() -> Response {
    let status =
        if quota.is_ok() { StatusCode::OK } else { StatusCode::NON_AUTHORITATIVE_INFORMATION };
    (status, "page").into_response()
}

#[rate_limit(threshold = 1, otherwise = |error| (StatusCode::ACCEPTED, error.to_string()))]
async fn any_response() -> impl IntoResponse {
    (StatusCode::OK, String::from("page"))
}

#[tokio::test]
async fn the_body_sees_the_decision() {
    assert_eq!(left().await.unwrap(), 1);
    assert_eq!(left().await.unwrap(), 0);
    assert!(matches!(left().await, Err(RateLimitError::Exceeded(_))));
    assert_eq!(counted("alice").await.unwrap(), (true, 1));
    assert_eq!(counted("admin").await.unwrap(), (false, 2));
    assert_eq!(fallible().await.unwrap(), 1);
    assert!(matches!(fallible().await, Err(RateLimitError::Exceeded(_))));
    assert!(instrumented().await.is_some_and(|quota| quota.is_counted()));
    assert!(instrumented().await.is_none());
    assert!(instrumented_above().await.ends_with("::instrumented_above"));
    assert!(instrumented_above().await.contains("exceeded"));
}

#[tokio::test]
async fn a_soft_limit_runs_the_body_of_a_refused_call() {
    assert_eq!(soft().await, Ok(0));
    assert!(soft().await.unwrap_err().contains("exceeded"));
    assert!(soft_and_skipped(true).await);
    assert!(!soft_and_skipped(false).await);
    assert!(!soft_and_skipped(false).await);
}

#[tokio::test]
async fn another_value_answers_a_refused_call() {
    assert_eq!((plain().await, plain().await), (1, 7));
    nothing().await;
    nothing().await;
    assert_eq!((awaits("a".into()).await, awaits("a".into()).await), ("a!".into(), "a?".into()));
    assert_eq!(told(1).await, Ok(1));
    assert!(told(1).await.unwrap_err().contains("exceeded"));
    // It answers every error.
    assert!(told(2_000_000_000).await.unwrap_err().contains("invalid"));
    assert_eq!((tried("-").await, tried("-").await), (None, None));
    assert_eq!((tried("-7").await, tried("-7").await), (None, Some(8)));
    let (first, length) = generic("a", [&0; 3]).await;
    assert_eq!((first, length), ("a", 3));
    assert!(generic("a", [&0; 3]).await.1 > 3);
    assert_eq!(
        (coerced().await.to_string(), coerced().await.to_string()),
        ("1".into(), "refused".into())
    );
    assert_eq!((values().await.sum::<u32>(), values().await.sum::<u32>()), (3, 0));
    assert_eq!(diverges().await, 3);
    assert_eq!((boxed(1).await, boxed(1).await), (2, 0));
}

#[tokio::test]
async fn methods_are_answered_too() {
    let new = |name: &str| Service { limiter: Limiter::in_memory(), name: name.to_owned() };
    let service = Arc::new(new("service"));
    assert_eq!(
        (service.by_reference().await, service.by_reference().await),
        ("admitted", "service")
    );
    assert!(Arc::clone(&service).by_arc().await && !Arc::clone(&service).by_arc().await);
    assert_eq!((service.provided().await, service.provided().await), (3, 0));
    let limiter = service.limiter.clone();
    for expected in ["a!", "a"] {
        let service = Service { limiter: limiter.clone(), name: "a".to_owned() };
        assert_eq!(service.by_value().await, expected);
    }
    let mut admin = new("admin");
    assert_eq!(admin.count().await.unwrap(), 0);
    assert_eq!(admin.count().await.unwrap(), 1);
    assert!(admin.count().await.is_err());
    assert_eq!(service.greet("bob".into()).await, "hi, bob");
    assert_eq!(service.greet("bob".into()).await, "service, bob, true");
    assert!(!Greet::soft(Arc::clone(&service)).await && Greet::soft(Arc::clone(&service)).await);
    let mut service = new("service");
    assert_eq!((service.told((1, 2)).await, service.told((1, 2)).await), (Some(3), Some(1)));
}

#[tokio::test]
async fn handlers_answer_with_their_own_type() {
    let router: Router = Router::new()
        .route("/json/{user}", get(json))
        .route("/page", get(page))
        .route("/any", get(any_response));
    for (path, status, text) in [
        ("/json/7", 200, "[7,0]"),
        ("/json/7", 200, "[]"),
        ("/page", 200, "page"),
        ("/page", 203, "page"),
        ("/any", 200, "page"),
        ("/any", 202, "rate limit"),
    ] {
        let request = Request::get(path).body(Body::empty()).unwrap();
        let response = router.clone().oneshot(request).await.unwrap();
        assert_eq!(response.status().as_u16(), status, "{path}");
        let body = to_bytes(response.into_body(), 1_000).await.unwrap();
        let body = String::from_utf8(body.to_vec()).unwrap();
        assert!(body.contains(text), "{path}: {body}");
    }
}

const fn assert_send<T: Send>(_: &T) {}

#[test]
fn futures_stay_send_and_small() {
    let name = || "a".to_owned();
    let (plain, left, soft, awaits, told) = (plain(), left(), soft(), awaits(name()), told(1));
    assert_send(&left);
    assert_send(&soft);
    assert_send(&awaits);
    assert_send(&told);
    for (what, size) in [
        ("otherwise", size_of_val(&plain)),
        ("decision", size_of_val(&left)),
        ("soft", size_of_val(&soft)),
        ("otherwise, awaiting", size_of_val(&awaits)),
        ("otherwise, with the error", size_of_val(&told)),
    ] {
        println!("{what}: {size} bytes");
        assert!(size < 1024, "{what}: {size} bytes");
    }
}
