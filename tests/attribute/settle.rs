//! `settle`: a call is settled at the units that its output tells.
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
    future::ready,
    sync::atomic::{AtomicU32, Ordering::Relaxed},
    time::Duration,
};

use async_trait::async_trait;
use ratelimit_runtime::{Limiter, Policy, RateLimitError, rate_limit};

type Told<T> = Result<T, RateLimitError>;

const DAY: Duration = Duration::from_secs(86_400);
const SHARED: Policy = Policy::token_bucket("settled-shared", DAY, 10);

/// The policy of an annotated function of this name.
const fn log(name: &'static str) -> Policy {
    Policy::sliding_window(name, DAY, 10)
}

#[rate_limit(period = "1d", threshold = 10, name = "rows", key = 1, limiter = limiter, cost = 4,
    settle = |out| out.as_ref().map_or(0, Vec::len))]
async fn rows(limiter: &Limiter, found: &str) -> Told<Vec<u8>> {
    ready(()).await;
    if found.is_empty() {
        return limiter.check(&log("other"), "").cost(11).await.map(|_| Vec::new());
    }
    Ok(found.as_bytes().to_vec())
}

struct Service {
    limiter: Limiter,
    factor: u8,
}

impl Service {
    #[rate_limit(period = "1d", threshold = 10, name = "method", key = 1, limiter = self.limiter,
        settle = |units| *units * self.factor, fallible)]
    async fn method(&self, units: u8) -> u8 {
        units
    }

    #[rate_limit(period = "1d", threshold = 10, name = "consumed", key = 1, limiter = self.limiter,
        settle = |(units, _)| *units, otherwise = (0, self.limiter), algorithm = sliding_counter)]
    async fn consumed(self, units: u32) -> (u32, Limiter) {
        (units, self.limiter)
    }
}

#[rate_limit(period = "1d", threshold = 10, name = "generic", key = &shown, limiter = limiter,
    settle = |text: &String| text.len(), decision = quota, otherwise = String::new())]
async fn generic<T: Display>(limiter: &Limiter, shown: T) -> String {
    let text = shown.to_string();
    drop((shown, quota));
    text
}

#[rate_limit(period = "1d", threshold = 10, name = "soft", key = 1, limiter = limiter, cost = 7,
    settle = |_| 6_u8, soft, decision = quota)]
async fn soft(limiter: &Limiter) -> impl Display {
    u32::from(quota.is_ok())
}

#[rate_limit(period = "1d", threshold = 10, name = "beside", key = 1, limiter = limiter,
    concurrency = 1, settle = |()| 3_u64, fallible)]
async fn beside_concurrency(limiter: &Limiter) {}

#[rate_limit(policy = SHARED, key = 1, limiter = limiter, settle = |out| u32::from(out.is_err()))]
#[rate_limit(name = "second", period = "1d", threshold = 10, key = 1, limiter = limiter, cost = 9,
    skip = *skips, settle = |_| 2)]
async fn stacked(limiter: &Limiter, skips: &bool, fails: bool) -> Told<()> {
    if fails { Err(limiter.check(&log("other"), "").cost(11).await.unwrap_err()) } else { Ok(()) }
}

#[rate_limit(period = "1d", threshold = 1, name = "uncounted", key = 1, limiter = limiter,
    cost = units, settle = |_| tell(told))]
async fn uncounted(limiter: &Limiter, units: u32, told: &AtomicU32) -> Told<()> {
    Ok(())
}

fn tell(told: &AtomicU32) -> u32 {
    told.fetch_add(1, Relaxed) + 1
}

#[async_trait]
trait Store {
    async fn read(&self, units: u32) -> Told<Box<dyn Display + Send>>;
}

#[async_trait]
impl Store for Service {
    #[rate_limit(period = "1d", threshold = 10, name = "boxed", key = 1, limiter = self.limiter,
        settle = |out| u8::from(out.is_ok()) * self.factor)]
    async fn read(&self, units: u32) -> Told<Box<dyn Display + Send>> {
        Ok(Box::new(self.limiter.check(&log("other"), "").cost(units).await?.remaining()))
    }
}

/// Returns the units that are left of 10 in memory.
async fn left(limiter: &Limiter, policy: Policy) -> u32 {
    limiter.peek(&policy, 1).cost(0).await.expect("a peek").remaining()
}

#[tokio::test]
async fn a_call_takes_the_units_that_its_output_tells() {
    let limiter = Limiter::in_memory();
    assert_eq!(rows(&limiter, "ab").await.unwrap(), b"ab");
    assert_eq!(left(&limiter, log("rows")).await, 8);
    rows(&limiter, "").await.unwrap_err();
    assert_eq!(left(&limiter, log("rows")).await, 8);
    rows(&limiter, "more than is left").await.unwrap();
    assert_eq!(left(&limiter, log("rows")).await, 0);
    assert!(matches!(rows(&limiter, "a").await, Err(RateLimitError::Exceeded(_))));
}

#[tokio::test]
async fn functions_of_every_shape_are_settled() {
    let limiter = Limiter::in_memory();
    let service = || Service { limiter: limiter.clone(), factor: 2 };
    assert_eq!(service().method(3).await.unwrap(), 3);
    assert_eq!(left(&limiter, log("method")).await, 4);
    assert_eq!(service().consumed(9).await.0, 9);
    assert_eq!(left(&limiter, Policy::sliding_counter("consumed", DAY, 10)).await, 1);
    assert_eq!(generic(&limiter, 1234).await, "1234");
    let caller = limiter.peek(&log("generic"), "1234").cost(0).await;
    assert_eq!(caller.unwrap().remaining(), 6);
    for expected in ["1", "0"] {
        assert_eq!(soft(&limiter).await.to_string(), expected);
        assert_eq!(left(&limiter, log("soft")).await, 4);
    }
    for expected in [7, 4, 1] {
        beside_concurrency(&limiter).await.unwrap();
        assert_eq!(left(&limiter, log("beside").concurrency(1)).await, expected);
    }
    assert_eq!(service().read(3).await.unwrap().to_string(), "7");
    assert!(service().read(8).await.is_err());
    assert_eq!(left(&limiter, log("boxed")).await, 8);
}

#[tokio::test]
async fn each_of_several_limits_is_settled_for_itself() {
    let limiter = Limiter::in_memory();
    stacked(&limiter, &false, true).await.unwrap_err();
    assert_eq!(left(&limiter, SHARED).await, 9);
    assert_eq!(left(&limiter, log("second")).await, 8);
    stacked(&limiter, &true, false).await.unwrap();
    assert_eq!(left(&limiter, SHARED).await, 9);
    assert_eq!(left(&limiter, log("second")).await, 8);
}

#[tokio::test]
async fn the_closure_runs_for_counted_calls_only() {
    let (limiter, told) = (Limiter::in_memory(), AtomicU32::new(0));
    uncounted(&limiter, 0, &told).await.unwrap();
    assert_eq!(told.load(Relaxed), 0);
    uncounted(&limiter, 1, &told).await.unwrap();
    uncounted(&limiter, 1, &told).await.unwrap_err();
    assert_eq!(told.load(Relaxed), 1);
}
