//! `fallible` without a framework returns the value in `Ok`, and the refusal in `Err` as a response.
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

use std::{fmt::Display, future::Future, sync::Arc};

use harness::exceeded;
use ratelimit_runtime::{Limiter, RateLimitError, rate_limit};

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
async fn borrowed(words: &[String; 1]) -> &impl Display {
    &words[0]
}

#[rate_limit(threshold = 1, fallible)]
async fn values() -> impl Iterator<Item = u32> + Send {
    1..4
}

#[rate_limit(threshold = 1, fallible)]
async fn boxed_values() -> Box<dyn Iterator<Item = impl Into<u32>> + Send> {
    Box::new([1_u8, 2].into_iter())
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
    assert_eq!(once(boxed_values).await.map(Into::into).sum::<u32>(), 3);
    let words = ["seven".to_owned()];
    assert_eq!(once(|| borrowed(&words)).await.to_string(), "seven");
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
