//! Several limits of one function, each with a name, are exact and decided together.
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

use std::{fmt::Display, time::Duration};

use harness::{exceeded, on_each_store};
use ratelimit_runtime::{Limiter, Policy, RateLimitError, limits::policies, rate_limit};

type Done = Result<(), RateLimitError>;

#[rate_limit(name = "by-user", threshold = 3, key = user, limiter = limiter)]
#[rate_limit(name = "by-tenant", threshold = 5, key = tenant, limiter = limiter)]
async fn order(limiter: &Limiter, tenant: &str, user: &str) -> Done {
    Ok(())
}

#[tokio::test]
async fn a_caller_of_one_drains_nothing_of_the_other() {
    on_each_store(async |limiter| {
        // A tenant with the name of a user.
        for _ in 0..3 {
            order(limiter, "alice", "bob").await.unwrap();
        }
        for _ in 0..2 {
            order(limiter, "acme", "alice").await.unwrap();
        }
        let refused = exceeded(order(limiter, "acme", "bob").await);
        assert_eq!((refused.policy(), refused.threshold()), ("by-user", 3));
        for user in ["carol", "dave", "frank"] {
            order(limiter, "acme", user).await.unwrap();
        }
        // All or none: the tenant's limit refuses, and nothing is taken from eve's.
        for _ in 0..4 {
            let refused = exceeded(order(limiter, "acme", "eve").await);
            assert_eq!((refused.policy(), refused.threshold()), ("by-tenant", 5));
        }
        for tenant in ["b", "c", "d"] {
            order(limiter, tenant, "eve").await.unwrap();
        }
        assert_eq!(exceeded(order(limiter, "e", "eve").await).policy(), "by-user");
    })
    .await;
}

#[rate_limit(name = "a-minute", period = "1m", threshold = 1, key = user, limiter = limiter)]
#[rate_limit(name = "an-hour", period = "1h", threshold = 3, key = user, limiter = limiter)]
async fn mail(limiter: &Limiter, user: &str) -> Done {
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn the_smaller_limit_leaves_the_larger_its_calls() {
    let limiter = Limiter::in_memory();
    for _ in 0..3 {
        mail(&limiter, "alice").await.unwrap();
        tokio::time::advance(Duration::from_secs(60)).await;
    }
    let refused = exceeded(mail(&limiter, "alice").await);
    assert_eq!((refused.policy(), refused.retry_after()), ("an-hour", Duration::from_secs(3420)));
    let here = policies().into_iter().filter(|policy| policy.file() == file!());
    let names: Vec<_> = here.map(|policy| policy.name()).collect();
    for name in ["a-minute", "above", "an-hour", "below", "by-tenant", "by-user"] {
        assert!(names.contains(&name), "{names:?}");
    }
}

const SHARED: Policy = Policy::sliding_window("stacked-shared", Duration::from_secs(60), 2);

/// Each answers its own refusal, and the body sees both decisions.
#[rate_limit(
    name = "stacked-soft",
    threshold = 1,
    key = user,
    decision = own,
    soft,
    limiter = limiter
)]
#[tracing::instrument(skip_all)]
#[ratelimit_runtime::rate_limit(
    policy = SHARED,
    skip = user == "admin",
    key = user,
    decision = shared,
    otherwise = |error| Err(error.to_string()),
    limiter = limiter
)]
/// The last one has no name for its decision.
#[rate_limit(
    name = "stacked-last",
    threshold = threshold,
    key = "all",
    otherwise = Ok(last(user).await),
    limiter = limiter
)]
async fn answered(limiter: &Limiter, user: &str, threshold: u32) -> Result<(bool, u32), String> {
    let is_soft = own.is_err();
    Ok((is_soft, if shared.is_counted() { shared.remaining() } else { 100 }))
}

async fn last(user: &str) -> (bool, u32) {
    std::future::ready((user.is_empty(), 1000)).await
}

#[tokio::test]
async fn each_limit_answers_its_own_refusal() {
    on_each_store(async |limiter| {
        assert_eq!(answered(limiter, "alice", 5).await, Ok((false, 1)));
        assert_eq!(answered(limiter, "alice", 5).await, Ok((true, 0)));
        assert!(answered(limiter, "alice", 5).await.unwrap_err().contains("stacked-shared"));
        assert_eq!(answered(limiter, "admin", 5).await, Ok((false, 100)));
        assert_eq!(answered(limiter, "bob", 3).await, Ok((false, 1000)));
        // The refusal of the last one gave back what the others took.
        assert_eq!(answered(limiter, "bob", 5).await, Ok((false, 1)));
    })
    .await;
}

struct Service<T> {
    limiter: Limiter,
    name: T,
}

impl<T: Display + Send + Sync> Service<T> {
    #[rate_limit(name = "stacked-method", threshold = 1, key = self.name, limiter = self.limiter, fallible)]
    #[rate_limit(name = "stacked-id", threshold = 5, limiter = self.limiter, request_id = (id))]
    async fn limited(&self, id: u32) -> &T {
        let _ = id;
        &self.name
    }
}

#[async_trait::async_trait]
trait Greet {
    async fn greet(&self, pair: (u32, u32)) -> Option<u32>;
}

#[async_trait::async_trait]
impl Greet for Service<u32> {
    #[rate_limit(name = "stacked-first", threshold = 1, key = (first, self.name), otherwise = None, limiter = self.limiter)]
    #[rate_limit(name = "stacked-second", threshold = 2, decision = quota, otherwise = Some(self.name), limiter = self.limiter)]
    async fn greet(&self, (first, second): (u32, u32)) -> Option<u32> {
        Some(first + second + quota.remaining())
    }
}

#[tokio::test]
async fn methods_have_several_limits_too() {
    let service = Service { limiter: Limiter::in_memory(), name: 7 };
    assert_eq!(service.limited(1).await.unwrap(), &7);
    assert_eq!(exceeded(service.limited(1).await.map(drop)).policy(), "stacked-method");
    assert_eq!(service.greet((1, 10)).await, Some(12));
    assert_eq!(service.greet((1, 10)).await, None);
    assert_eq!(service.greet((2, 10)).await, Some(12));
    assert_eq!(service.greet((3, 10)).await, Some(7));
}

// A `max_wait` of 0 waits for nothing, so that another limit may wait.
#[rate_limit(name = "stacked-now", threshold = 2, key = 1, max_wait = 0, limiter = limiter)]
#[rate_limit(name = "stacked-later", threshold = 1, key = 1, max_wait = "2m", limiter = limiter)]
async fn waits(limiter: &Limiter) -> Done {
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn one_that_waits_is_asked_first() {
    let limiter = Limiter::in_memory();
    let now = Policy::sliding_window("stacked-now", Duration::from_secs(60), 2);
    waits(&limiter).await.unwrap();
    let call = waits(&limiter);
    let mut call = std::pin::pin!(call);
    assert!(tokio::time::timeout(Duration::from_secs(30), &mut call).await.is_err());
    // Nothing is held meanwhile.
    assert_eq!(limiter.peek(&now, "1").cost(0).await.unwrap().remaining(), 1);
    call.await.unwrap();
}

const fn assert_send<T: Send>(_: &T) {}

#[test]
fn futures_of_several_limits_stay_send_and_small() {
    let limiter = Limiter::in_memory();
    let (order, answered) = (order(&limiter, "a", "b"), answered(&limiter, "a", 1));
    assert_send(&order);
    assert_send(&answered);
    println!("two: {} bytes, three: {} bytes", size_of_val(&order), size_of_val(&answered));
    assert!(size_of_val(&order) < 1024 && size_of_val(&answered) < 4096);
}

#[test]
fn each_limit_is_listed_at_its_own_line() {
    let here = policies().into_iter().filter(|policy| policy.file() == file!());
    let mut lines: Vec<_> = here.map(|policy| policy.line()).collect();
    let all = lines.len();
    lines.sort_unstable();
    lines.dedup();
    // On one line there are columns only.
    assert!(lines.len() == all || lines == [1], "{lines:?}");
}

/// An attribute of another crate with the name of ours, and ours under another name.
mod renamed {
    use ratelimit_runtime::rate_limit as limit;
    use tracing::instrument as rate_limit;

    use super::{Done, exceeded};

    #[limit(name = "above", threshold = 1, key = module_path!())]
    #[rate_limit]
    async fn above() -> Done {
        Ok(())
    }

    #[rate_limit]
    #[limit(name = "below", threshold = 1, key = module_path!())]
    async fn below() -> Done {
        Ok(())
    }

    #[tokio::test]
    async fn an_attribute_of_the_same_name_is_no_limit() {
        above().await.unwrap();
        exceeded(above().await);
        below().await.unwrap();
        exceeded(below().await);
    }
}
