//! `policy` and `request_id`: functions that name one policy share its counts, and a repeated id is charged
//! once.
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

use std::{fmt::Display, sync::Arc, time::Duration};

use harness::{exceeded, on_each_store};
use ratelimit_runtime::{Limiter, Policy, RateLimitError, limits::policies, rate_limit};

type Done = Result<(), RateLimitError>;

const MINUTE: Duration = Duration::from_secs(60);
const LOGIN: Policy = Policy::sliding_window("shared-login", MINUTE, 2);

mod limits {
    use super::{MINUTE, Policy};

    pub(super) static SEARCH: Policy = Policy::token_bucket("shared-search", MINUTE, 3).burst(2);
    pub(super) static TIERS: Policy =
        Policy::sliding_window("shared-tiers", MINUTE, 1).tier(MINUTE.saturating_mul(60), 5);
}

#[rate_limit(policy = LOGIN, key = user, limiter = limiter)]
async fn by_password(limiter: &Limiter, user: &str) -> Done {
    Ok(())
}

#[rate_limit(limiter = limiter, key = user, policy = LOGIN)]
async fn by_token(limiter: &Limiter, user: &str) -> Done {
    Ok(())
}

#[rate_limit(policy = limits::SEARCH, cost = words, skip = words == 0, key = module_path!(), fallible)]
async fn search(words: u32) -> u32 {
    words
}

#[rate_limit(policy = limits::TIERS, key = module_path!(), decision = quota, otherwise = 0)]
async fn tiers() -> u32 {
    quota.threshold()
}

struct Service<T> {
    limiter: Limiter,
    user: T,
}

impl Service<u8> {
    const LIMIT: Policy = LOGIN.named("shared-by-a-type");
}

impl<T: Display + Send + Sync> Service<T> {
    #[rate_limit(policy = Service::<u8>::LIMIT, key = self.user, limiter = self.limiter)]
    async fn limited(&self) -> Done {
        Ok(())
    }

    #[rate_limit(threshold = 1, key = self.user, request_id = (id), limiter = self.limiter)]
    async fn charged_once(&self, id: String) -> Result<String, RateLimitError> {
        Ok(id)
    }
}

#[async_trait::async_trait]
trait Job {
    async fn run(self: Arc<Self>, id: u64) -> Done;
}

#[async_trait::async_trait]
impl Job for Service<&'static str> {
    #[rate_limit(policy = LOGIN, request_id = format!("{}-{id}", self.user), limiter = self.limiter)]
    async fn run(self: Arc<Self>, id: u64) -> Done {
        Ok(())
    }
}

#[rate_limit(threshold = limit, key = "all", request_id = id, limiter = limiter)]
async fn dynamic(limiter: &Limiter, limit: u32, id: &str) -> Done {
    Ok(())
}

#[tokio::test]
async fn functions_that_name_one_policy_share_its_counts() {
    on_each_store(async |limiter| {
        by_password(limiter, "alice").await.unwrap();
        by_token(limiter, "alice").await.unwrap();
        for answer in [by_password(limiter, "alice").await, by_token(limiter, "alice").await] {
            assert_eq!(exceeded(answer).policy(), "shared-login");
        }
        exceeded(limiter.check(&LOGIN, "alice").await.map(drop));
        by_token(limiter, "bob").await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn the_whole_policy_is_taken() {
    assert_eq!(search(0).await.unwrap(), 0);
    assert_eq!(search(2).await.unwrap(), 2);
    assert_eq!(exceeded(search(1).await.map(drop)).policy(), "shared-search");
    assert_eq!((tiers().await, tiers().await), (1, 0));
    let service = Service { limiter: Limiter::in_memory(), user: "alice" };
    service.limited().await.unwrap();
    service.limited().await.unwrap();
    assert_eq!(exceeded(service.limited().await).policy(), "shared-by-a-type");
    let shared = policies().into_iter().filter(|it| it.name() == "shared-login");
    let shared: Vec<_> = shared.filter(|it| it.file() == file!()).collect();
    assert!(shared.len() >= 2, "{shared:?}");
    assert!(shared.iter().all(|it| it.policy() == Some(&LOGIN)), "{shared:?}");
    let conflicts = ratelimit_runtime::limits::conflicts();
    let is_here =
        |it: &ratelimit_runtime::limits::RegisteredPolicy| it.name().starts_with("shared-");
    assert!(!conflicts.iter().any(|(first, _)| is_here(first)), "{conflicts:?}");
}

#[tokio::test]
async fn a_repeated_id_is_charged_once() {
    on_each_store(async |limiter| {
        let service = Service { limiter: limiter.clone(), user: "alice" };
        for _ in 0..3 {
            assert_eq!(service.charged_once("a".to_owned()).await.unwrap(), "a");
        }
        exceeded(service.charged_once("b".to_owned()).await.map(drop));
        let service = Arc::new(service);
        for id in [1, 1, 2, 2] {
            Arc::clone(&service).run(id).await.unwrap();
        }
        exceeded(service.run(3).await);
        dynamic(limiter, 1, "a").await.unwrap();
        dynamic(limiter, 1, "a").await.unwrap();
        exceeded(dynamic(limiter, 1, "b").await);
    })
    .await;
}
