//! Calls are counted together if they are of one function, one caller and one limiter.

#![allow(
    clippy::items_after_statements,
    reason = "a limited function stands where its test uses it"
)]

use std::time::Duration;

use ratelimit_runtime::{Policy, RateLimitError, caller, limiter, rate_limit};

use crate::is_exceeded;

type Done = Result<(), RateLimitError>;
#[tokio::test]
async fn two_callers_never_share() {
    #[rate_limit(threshold = 1, key = user)]
    async fn by_key(user: &str) -> Done {
        Ok(())
    }

    #[rate_limit(threshold = 1)]
    async fn by_scope() -> Done {
        Ok(())
    }

    for user in ["alice", "bob", ""] {
        by_key(user).await.unwrap();
        assert!(is_exceeded(&by_key(user).await));
        caller::scope(user, by_scope()).await.unwrap();
        assert!(is_exceeded(&caller::scope(user, by_scope()).await));
    }
    // Calls without a caller share a limit of their own.
    by_scope().await.unwrap();
    assert!(is_exceeded(&by_scope().await));
}

#[tokio::test]
async fn none_is_a_caller_of_its_own() {
    #[rate_limit(threshold = 1, key = user)]
    async fn optional(user: Option<&str>) -> Done {
        Ok(())
    }

    #[rate_limit(threshold = 1, key = user)]
    #[expect(clippy::ref_option, reason = "handlers have such parameters")]
    async fn borrowed(user: &Option<String>) -> Done {
        Ok(())
    }

    for user in [None, Some(""), Some("none"), Some("%none")] {
        optional(user).await.unwrap();
        assert!(is_exceeded(&optional(user).await));
        let user = user.map(str::to_owned);
        borrowed(&user).await.unwrap();
        assert!(is_exceeded(&borrowed(&user).await));
    }
}

#[tokio::test]
async fn a_check_by_hand_shares_the_limit_of_a_function_by_its_name_and_key() {
    #[rate_limit(name = "shared by hand", threshold = 2, key = (tenant, user, device))]
    async fn limited(tenant: &str, user: u64, device: Option<&str>) -> Done {
        Ok(())
    }

    const POLICY: Policy = Policy::sliding_window("shared by hand", Duration::from_secs(1), 2);
    for (tenant, user, device) in [
        ("acme", 7, None),
        ("acme", u64::MAX, Some("")),
        ("a/b", 7, Some("a device whose name is longer than all that is kept in place")),
    ] {
        let caller = caller!(tenant, user, device);
        limiter().check(&POLICY, &caller).await.unwrap();
        limited(tenant, user, device).await.unwrap();
        assert!(is_exceeded(&limited(tenant, user, device).await));
        assert!(limiter().check(&POLICY, caller).await.is_err());
    }
}

#[tokio::test]
async fn parts_of_a_tuple_do_not_run_together() {
    #[rate_limit(threshold = 1, key = (tenant, user))]
    async fn tuple(tenant: &str, user: &str) -> Done {
        Ok(())
    }

    for (tenant, user) in [("a", "bc"), ("ab", "c"), ("a/b", "c"), ("a", "b/c"), ("", "abc")] {
        tuple(tenant, user).await.unwrap();
        assert!(is_exceeded(&tuple(tenant, user).await));
    }
}

mod one {
    use super::*;

    #[rate_limit(threshold = 1)]
    pub(crate) async fn get() -> Done {
        Ok(())
    }
}

mod two {
    use super::*;

    #[rate_limit(threshold = 1)]
    pub(crate) async fn get() -> Done {
        Ok(())
    }
}

struct Cats;
struct Dogs;
struct Pets<T>(T);

impl Cats {
    #[rate_limit(threshold = 1)]
    async fn get(&self) -> Done {
        Ok(())
    }

    #[rate_limit(threshold = 1)]
    async fn make() -> Done {
        Ok(())
    }
}

impl Dogs {
    #[rate_limit(threshold = 1)]
    async fn get(&self) -> Done {
        Ok(())
    }

    #[rate_limit(threshold = 1)]
    async fn make() -> Done {
        Ok(())
    }
}

impl<T> Pets<T> {
    #[rate_limit(threshold = 1)]
    async fn get(&self) -> Done {
        let _ = &self.0;
        Ok(())
    }
}

trait Feed {
    #[rate_limit(threshold = 1)]
    async fn feed(&self) -> Done {
        Ok(())
    }

    async fn walk(&self) -> Done;
}

impl Feed for Cats {
    #[rate_limit(threshold = 1)]
    async fn walk(&self) -> Done {
        Ok(())
    }
}

impl Feed for Dogs {
    #[rate_limit(threshold = 1)]
    async fn walk(&self) -> Done {
        Ok(())
    }
}

#[tokio::test]
async fn functions_of_one_name_do_not_share() {
    one::get().await.unwrap();
    two::get().await.unwrap();
    Cats.get().await.unwrap();
    Dogs.get().await.unwrap();
    Cats::make().await.unwrap();
    Dogs::make().await.unwrap();
    Cats.walk().await.unwrap();
    Dogs.walk().await.unwrap();
    assert!(is_exceeded(&one::get().await));
    assert!(is_exceeded(&two::get().await));
    assert!(is_exceeded(&Cats.get().await));
    assert!(is_exceeded(&Dogs::make().await));
    assert!(is_exceeded(&Cats.walk().await));
}

#[tokio::test]
async fn a_default_method_is_counted_for_each_type() {
    Cats.feed().await.unwrap();
    Dogs.feed().await.unwrap();
    assert!(is_exceeded(&Cats.feed().await));
}

impl Feed for Pets<u8> {
    async fn walk(&self) -> Done {
        Ok(())
    }
}

#[tokio::test]
async fn arguments_of_a_generic_type_make_no_difference() {
    Pets(1_u8).get().await.unwrap();
    assert!(is_exceeded(&Pets("a").get().await));
    Pets(1_u8).feed().await.unwrap();
}

#[tokio::test]
async fn a_name_replaces_the_path() {
    #[rate_limit(threshold = 1, name = "shared-name", key = 1)]
    async fn first() -> Done {
        Ok(())
    }

    #[rate_limit(threshold = 1, name = "shared-name", key = 1)]
    async fn second() -> Done {
        Ok(())
    }

    first().await.unwrap();
    let error = second().await.unwrap_err();
    assert!(error.to_string().starts_with("rate limit `shared-name` exceeded"), "{error}");
}

#[tokio::test]
async fn algorithms_never_meet_in_one_key() {
    #[rate_limit(threshold = 1, name = "same", key = 1)]
    async fn window() -> Done {
        Ok(())
    }

    #[rate_limit(threshold = 1, name = "same", key = 1, algorithm = fixed_window)]
    async fn fixed() -> Done {
        Ok(())
    }

    window().await.unwrap();
    fixed().await.unwrap();
    assert!(is_exceeded(&window().await) && is_exceeded(&fixed().await));
}

#[tokio::test]
async fn functions_share_counts_whatever_their_calls_cost_and_whether_they_wait() {
    const CALLS: Policy = Policy::sliding_window("one log", Duration::from_secs(60), 2);

    #[rate_limit(name = "one log", threshold = 2, key = user)]
    async fn plain(user: &str) -> Done {
        Ok(())
    }

    #[rate_limit(name = "one log", threshold = 2, key = user, cost = 1, max_wait = 0)]
    async fn defaults(user: &str) -> Done {
        Ok(())
    }

    #[rate_limit(name = "one log", threshold = 2, key = user, cost = 2)]
    async fn several(user: &str) -> Done {
        Ok(())
    }

    #[rate_limit(name = "one log", threshold = 2, key = user, max_wait = "1ms")]
    async fn waits(user: &str) -> Done {
        Ok(())
    }

    #[rate_limit(policy = CALLS, key = user, cost = units)]
    async fn shared(user: &str, units: u32) -> Done {
        Ok(())
    }

    plain("a").await.unwrap();
    defaults("a").await.unwrap();
    assert!(is_exceeded(&plain("a").await) && is_exceeded(&defaults("a").await));
    assert!(is_exceeded(&several("a").await) && is_exceeded(&shared("a", 1).await));
    waits("b").await.unwrap();
    shared("b", 1).await.unwrap();
    assert!(is_exceeded(&several("b").await) && is_exceeded(&plain("b").await));
    let conflicts = ratelimit_runtime::limits::conflicts();
    assert!(conflicts.iter().all(|(first, _)| first.name() != "one log"), "{conflicts:?}");
}
