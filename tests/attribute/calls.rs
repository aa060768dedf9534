//! An annotated function checks each call before its body runs, and returns a refusal as its own error type.

#![allow(
    clippy::items_after_statements,
    reason = "a limited function stands where its test uses it"
)]

use std::{
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use ratelimit_runtime::{Limiter, RateLimitError, caller, observe, rate_limit};

use crate::is_exceeded;

type Done = Result<(), RateLimitError>;
#[tokio::test]
async fn third_call_in_window_is_refused_and_its_body_does_not_run() {
    static RUNS: AtomicU32 = AtomicU32::new(0);

    #[rate_limit(period = 30, threshold = 2)]
    async fn say_hi(name: &str) -> Result<String, RateLimitError> {
        RUNS.fetch_add(1, Ordering::Relaxed);
        Ok(format!("hi, {name}"))
    }

    assert_eq!(say_hi("a").await.unwrap(), "hi, a");
    assert_eq!(say_hi("b").await.unwrap(), "hi, b");
    let Err(RateLimitError::Exceeded(refused)) = say_hi("c").await else { panic!("refused") };
    assert_eq!(RUNS.load(Ordering::Relaxed), 2);
    assert_eq!((refused.threshold(), refused.period()), (2, Duration::from_secs(30)));
    assert!(refused.policy().ends_with("::say_hi"), "{}", refused.policy());
    assert!(
        refused.policy().starts_with("attribute::calls::third_call_in_window"),
        "{}",
        refused.policy()
    );
}

#[tokio::test]
async fn without_arguments_three_calls_a_minute_are_admitted() {
    #[rate_limit]
    async fn bare() -> Done {
        Ok(())
    }

    for _ in 0..3 {
        bare().await.unwrap();
    }
    let Err(RateLimitError::Exceeded(refused)) = bare().await else { panic!("refused") };
    assert_eq!((refused.threshold(), refused.period()), (3, Duration::from_secs(60)));
}

#[tokio::test(start_paused = true)]
async fn time_is_tokios_in_memory() {
    let limiter = Limiter::in_memory();

    #[rate_limit(period = 30, threshold = 1, limiter = limiter)]
    async fn once(limiter: &Limiter) -> Done {
        Ok(())
    }

    once(&limiter).await.unwrap();
    tokio::time::advance(Duration::from_micros(29_999_999)).await;
    assert!(is_exceeded(&once(&limiter).await));
    tokio::time::advance(Duration::from_micros(1)).await;
    once(&limiter).await.unwrap();
}

#[tokio::test]
async fn a_named_limiter_decides_through_any_pointer() {
    struct Service {
        limiter: std::sync::Arc<Limiter>,
    }

    impl Service {
        #[rate_limit(threshold = 1, limiter = self.limiter)]
        async fn call(&self) -> Done {
            Ok(())
        }

        #[rate_limit(
            threshold = 1,
            limiter = if let Some(other) = other { other } else { &self.limiter }
        )]
        async fn call_by(&self, other: Option<&Limiter>) -> Done {
            Ok(())
        }
    }

    #[rate_limit(threshold = 1, limiter = Limiter::in_memory())]
    async fn anew() -> Done {
        Ok(())
    }

    let service = || Service { limiter: Limiter::in_memory().into() };
    let (first, second) = (service(), service());
    first.call().await.unwrap();
    second.call().await.unwrap();
    assert!(is_exceeded(&first.call().await));
    first.call_by(None).await.unwrap();
    first.call_by(Some(&second.limiter)).await.unwrap();
    assert!(is_exceeded(&second.call_by(None).await));
    for _ in 0..3 {
        anew().await.unwrap();
    }
}

#[tokio::test]
async fn an_expression_is_evaluated_once_and_may_return_early() {
    static EVALUATIONS: AtomicU32 = AtomicU32::new(0);

    #[derive(Debug)]
    struct Oops;

    impl From<RateLimitError> for Oops {
        fn from(_: RateLimitError) -> Self {
            Self
        }
    }

    fn identity(user: &str) -> Result<&str, Oops> {
        EVALUATIONS.fetch_add(1, Ordering::Relaxed);
        if user.is_empty() { Err(Oops) } else { Ok(user) }
    }

    #[rate_limit(threshold = 1, key = identity(&user)?)]
    async fn call(user: String) -> Result<String, Oops> {
        Ok(user)
    }

    assert_eq!(call("alice".into()).await.unwrap(), "alice");
    assert_eq!(EVALUATIONS.load(Ordering::Relaxed), 1);
    call(String::new()).await.unwrap_err();
}

#[tokio::test]
async fn an_observer_sees_every_answer_of_its_future() {
    #[rate_limit(threshold = 1, name = "observed", key = user)]
    async fn limited(user: &str) -> Done {
        Ok(())
    }

    let ((), answers) = observe(async {
        let _ = limited("alice").await;
        let _ = limited("alice").await;
    })
    .await;
    assert_eq!(answers.len(), 2);
    assert_eq!(answers[0].as_ref().unwrap().remaining(), 0);
    assert!(is_exceeded(&answers[1]));
}

#[tokio::test]
async fn errors_convert_as_the_question_mark_would() {
    #[rate_limit(threshold = 1, key = 1)]
    async fn any() -> anyhow::Result<()> {
        Ok(())
    }

    #[rate_limit(threshold = 1, key = 1)]
    async fn boxed() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        Ok(())
    }

    any().await.unwrap();
    assert!(any().await.unwrap_err().downcast_ref::<RateLimitError>().is_some());
    boxed().await.unwrap();
    assert!(boxed().await.unwrap_err().is::<RateLimitError>());
}

#[tokio::test]
async fn a_skipped_call_is_not_checked_and_not_counted() {
    static EVALUATIONS: AtomicU32 = AtomicU32::new(0);

    fn counted(user: &str) -> &str {
        EVALUATIONS.fetch_add(1, Ordering::Relaxed);
        user
    }

    #[rate_limit(threshold = 1, skip = user == "admin", key = counted(user))]
    async fn call(user: &str) -> Done {
        Ok(())
    }

    for _ in 0..5 {
        call("admin").await.unwrap();
    }
    assert_eq!(EVALUATIONS.load(Ordering::Relaxed), 0);
    call("alice").await.unwrap();
    assert!(is_exceeded(&call("alice").await));
}

#[tokio::test]
async fn a_dry_run_decides_and_is_observed_but_never_refuses() {
    #[rate_limit(threshold = 1, dry_run, key = 1)]
    async fn call() -> Done {
        Ok(())
    }

    let ((), answers) = observe(async {
        for _ in 0..3 {
            call().await.unwrap();
        }
    })
    .await;
    assert!(answers[0].is_ok() && is_exceeded(&answers[1]) && is_exceeded(&answers[2]));
}

#[test]
fn a_limited_future_is_small() {
    #[rate_limit(threshold = 1, key = (user, 1))]
    async fn limited(user: &str) -> Done {
        Ok(())
    }

    let size = size_of_val(&limited("alice"));
    assert!(size < 4096, "{size} bytes");
    // The wrappers add little.
    let around = size_of_val(&observe(caller::scope("alice", limited("alice"))));
    assert!(around < size + 256, "{around} bytes");
}
