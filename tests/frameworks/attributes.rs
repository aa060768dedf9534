//! Attributes that rewrite a function, above `#[rate_limit]` and below it.

use ratelimit_runtime::{RateLimitError, rate_limit, testing};

type Answer = Result<u32, RateLimitError>;

/// Returns for each call, of these arguments, if it was admitted.
async fn admitted(arguments: &[u32], call: impl AsyncFn(u32) -> Answer) -> Vec<bool> {
    testing::isolated(async {
        let mut answers = Vec::new();
        for argument in arguments {
            answers.push(call(*argument).await.is_ok());
        }
        answers
    })
    .await
}

mod above {
    use super::{Answer, RateLimitError, rate_limit};

    #[async_recursion::async_recursion]
    #[rate_limit(period = 30, threshold = 2)]
    pub(super) async fn recursive(n: u32) -> Answer {
        if n == 0 { Ok(0) } else { recursive(n - 1).await }
    }

    #[autometrics::autometrics]
    #[rate_limit(period = 30, threshold = 2)]
    pub(super) async fn measured(n: u32) -> Answer {
        Ok(n)
    }

    #[fastrace::trace]
    #[rate_limit(period = 30, threshold = 2, key = n)]
    pub(super) async fn traced(n: u32) -> Answer {
        Ok(n)
    }

    #[cached::proc_macro::cached]
    #[rate_limit(period = 30, threshold = 2)]
    pub(super) async fn cached(n: u32) -> Result<u32, RateLimitError> {
        Ok(n)
    }
}

mod below {
    use super::{Answer, RateLimitError, rate_limit};

    #[rate_limit(period = 30, threshold = 2)]
    #[async_recursion::async_recursion]
    pub(super) async fn recursive(n: u32) -> Answer {
        if n == 0 { Ok(0) } else { recursive(n - 1).await }
    }

    #[rate_limit(period = 30, threshold = 2)]
    #[autometrics::autometrics]
    pub(super) async fn measured(n: u32) -> Answer {
        Ok(n)
    }

    #[rate_limit(period = 30, threshold = 2, key = n)]
    #[fastrace::trace]
    pub(super) async fn traced(n: u32) -> Answer {
        Ok(n)
    }

    #[rate_limit(period = 30, threshold = 2)]
    #[cached::proc_macro::cached]
    pub(super) async fn cached(n: u32) -> Result<u32, RateLimitError> {
        Ok(n)
    }
}

#[tokio::test(start_paused = true)]
async fn both_orders_of_a_recursion_count_each_of_its_calls() {
    assert_eq!(admitted(&[1, 0], above::recursive).await, [true, false]);
    assert_eq!(admitted(&[1, 0], below::recursive).await, [true, false]);
}

#[tokio::test(start_paused = true)]
async fn measured_and_traced_functions_are_limited_in_both_orders() {
    assert_eq!(admitted(&[1, 1, 1], above::measured).await, [true, true, false]);
    assert_eq!(admitted(&[1, 1, 1], below::measured).await, [true, true, false]);
    assert_eq!(admitted(&[1, 1, 1], above::traced).await, [true, true, false]);
    assert_eq!(admitted(&[1, 1, 1], below::traced).await, [true, true, false]);
}

/// A cache above the limit leaves each call to it, also those that the cache answers; one below it does not.
#[tokio::test(start_paused = true)]
async fn a_cache_is_asked_before_or_after_the_limit() {
    assert_eq!(admitted(&[1, 1, 1], above::cached).await, [true, true, false]);
    assert_eq!(admitted(&[1, 1, 1, 2, 3], below::cached).await, [true, true, true, true, false]);
    // By another limiter: the refusal is not in the cache. That of an alias of `Result` would be.
    assert_eq!(admitted(&[3], below::cached).await, [true]);
}

#[trait_variant::make(SendStore: Send)]
#[mockall::automock]
pub trait Store {
    async fn get(&self) -> Answer;
}

struct Limited;

impl SendStore for Limited {
    #[rate_limit(period = 30, threshold = 1)]
    async fn get(&self) -> Answer {
        Ok(1)
    }
}

#[tokio::test(start_paused = true)]
async fn a_trait_with_a_variant_or_a_mock_is_limited_by_its_implementation() {
    let limited = admitted(&[1, 1], async |_| SendStore::get(&Limited).await).await;
    assert_eq!(limited, [true, false]);
    let mut mock = MockStore::new();
    mock.expect_get().returning(|| Ok(2));
    assert_eq!(admitted(&[1, 1], async |_| Store::get(&mock).await).await, [true, true]);
}
