//! Two limits of one function, each with a name, are both exact.

use std::time::Duration;

use harness::{exceeded, on_each_store};
use ratelimit_runtime::{Limiter, RateLimitError, policies, rate_limit};

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
        for user in ["carol", "dave"] {
            order(limiter, "acme", user).await.unwrap();
        }
        let refused = exceeded(order(limiter, "acme", "eve").await);
        assert_eq!((refused.policy(), refused.threshold()), ("by-tenant", 5));
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
    assert_eq!(names, ["a-minute", "above", "an-hour", "below", "by-tenant", "by-user"]);
}

/// An attribute of another crate with the name of ours, and ours under another name.
mod renamed {
    use ratelimit_runtime::rate_limit as limit;
    use tracing::instrument as rate_limit;

    use super::{Done, exceeded};

    #[limit(name = "above", threshold = 1)]
    #[rate_limit]
    async fn above() -> Done {
        Ok(())
    }

    #[rate_limit]
    #[limit(name = "below", threshold = 1)]
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
