//! What an annotated function does when it runs, and which calls are counted together.

#![allow(
    clippy::items_after_statements,
    reason = "a limited function stands where its test uses it"
)]

use std::{
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use ratelimit_runtime::{Limiter, Policy, RateLimitError, caller, observe, rate_limit};

type Done = Result<(), RateLimitError>;

fn is_exceeded<T>(answer: &Result<T, RateLimitError>) -> bool {
    matches!(answer, Err(RateLimitError::Exceeded(_)))
}

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
async fn a_named_limiter_decides_whatever_it_is_held_in() {
    struct Service {
        limiter: std::sync::Arc<Limiter>,
    }

    impl Service {
        #[rate_limit(threshold = 1, limiter = self.limiter)]
        async fn call(&self) -> Done {
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
async fn the_same_limit_by_attribute_and_by_call() {
    let limiter = Limiter::in_memory();

    #[rate_limit(period = 60, threshold = 2, name = "mail", key = user, limiter = limiter)]
    async fn mail(limiter: &Limiter, user: &str) -> Done {
        Ok(())
    }

    const MAIL: Policy = Policy::sliding_window("mail", Duration::from_secs(60), 2);
    mail(&limiter, "alice").await.unwrap();
    assert_eq!(limiter.check(&MAIL, "alice").await.unwrap().remaining(), 0);
    assert!(is_exceeded(&mail(&limiter, "alice").await));
}

fn fault(answer: Done) -> String {
    match answer {
        Err(RateLimitError::InvalidPolicy(error)) => error.fault().to_string(),
        Err(RateLimitError::TooLarge(error)) => error.fault().to_string(),
        other => panic!("expected an invalid policy, got {other:?}"),
    }
}

#[tokio::test]
async fn values_of_a_call_obey_the_same_rules_and_never_panic() {
    #[rate_limit(period = period, threshold = threshold, cost = cost)]
    async fn call(period: Duration, threshold: u32, cost: u32) -> Done {
        Ok(())
    }

    const MINUTE: Duration = Duration::from_secs(60);
    call(MINUTE, 1, 1).await.unwrap();
    for (period, threshold, cost, expected) in [
        (Duration::ZERO, 1, 1, "`period` must be at least 1 ms, but is 0"),
        (Duration::from_micros(999), 1, 1, "`period` must be at least 1 ms, but is 999 µs"),
        (Duration::MAX, 1, 1, "`period` must be at most 366 days"),
        (MINUTE, 0, 1, "`threshold` must be at least 1"),
        (MINUTE, 2, 3, "`cost` is 3, which can never pass a threshold of 2"),
    ] {
        assert_eq!(fault(call(period, threshold, cost).await), expected);
    }
    assert!(fault(call(MINUTE, u32::MAX, 1).await).contains("at most 100000, but is 4294967295"));
}

#[tokio::test]
async fn tiers_of_expressions_obey_the_same_rules() {
    #[rate_limit(
        tier(period = "1m", threshold = minute),
        tier(period = "1h", threshold = hour),
        key = 1
    )]
    async fn call(minute: u32, hour: u32) -> Done {
        Ok(())
    }

    call(1, 2).await.unwrap();
    assert!(is_exceeded(&call(1, 2).await));
    assert!(fault(call(1, 60).await).contains("this tier can never refuse"));
}

#[tokio::test]
async fn a_plan_may_set_the_threshold() {
    #[rate_limit(threshold = plan, key = user)]
    async fn call(user: &str, plan: u32) -> Done {
        Ok(())
    }

    call("free", 1).await.unwrap();
    assert!(is_exceeded(&call("free", 1).await));
    for _ in 0..5 {
        call("pro", 5).await.unwrap();
    }
    assert!(is_exceeded(&call("pro", 5).await));
    // A raised threshold goes on with the same history.
    call("free", 2).await.unwrap();
    assert!(is_exceeded(&call("free", 2).await));
}

#[tokio::test]
async fn tiers_of_literals_are_decided_together() {
    let limiter = Limiter::in_memory();

    #[rate_limit(
        tier(period = 60, threshold = 1),
        tier(period = "1h", threshold = 5),
        tier(period = "1d", threshold = 10),
        name = "mail",
        key = mailbox,
        limiter = limiter
    )]
    async fn mail(limiter: &Limiter, mailbox: &str) -> Done {
        Ok(())
    }

    mail(&limiter, "a").await.unwrap();
    let Err(RateLimitError::Exceeded(refused)) = mail(&limiter, "a").await else { panic!() };
    assert_eq!((refused.threshold(), refused.period()), (1, Duration::from_secs(60)));
    mail(&limiter, "b").await.unwrap();
}

#[tokio::test]
async fn a_cost_takes_as_many_units() {
    #[rate_limit(threshold = 10, cost = units, key = 1)]
    async fn call(units: u32) -> Done {
        Ok(())
    }

    call(7).await.unwrap();
    assert!(is_exceeded(&call(4).await));
    call(3).await.unwrap();
    assert!(is_exceeded(&call(1).await));
}

#[tokio::test]
async fn units_are_of_any_unsigned_type_and_saturate() {
    #[rate_limit(threshold = threshold, cost = body.len(), key = 1)]
    async fn by_length(threshold: u8, body: &str) -> Done {
        Ok(())
    }

    #[rate_limit(
        algorithm = token_bucket,
        threshold = threshold,
        burst = burst,
        cost = match plan { "free" => 2, _ => 60_000 },
        key = 1
    )]
    async fn many(threshold: u64, burst: u128, plan: &str) -> Done {
        Ok(())
    }

    by_length(10, "seven..").await.unwrap();
    assert!(is_exceeded(&by_length(10, "four").await));
    by_length(10, "3..").await.unwrap();
    // Not a threshold of 0, as `as u32` would make of it.
    for plan in ["free", "pro"] {
        many(1 << 32, 70_000, plan).await.unwrap();
    }
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
async fn a_dry_run_decides_and_tells_but_never_refuses() {
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

#[tokio::test(start_paused = true)]
async fn a_bucket_paces_calls() {
    #[rate_limit(
        algorithm = token_bucket,
        period = "1s",
        threshold = 10,
        burst = 1,
        key = 1,
        limiter = limiter
    )]
    async fn paced(limiter: &Limiter) -> Done {
        Ok(())
    }

    let limiter = Limiter::in_memory();
    paced(&limiter).await.unwrap();
    let Err(RateLimitError::Exceeded(refused)) = paced(&limiter).await else { panic!("refused") };
    assert_eq!(refused.retry_after(), Duration::from_millis(100));
    tokio::time::advance(refused.retry_after()).await;
    paced(&limiter).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn under_the_penalty_a_caller_who_keeps_on_stays_shut_out() {
    #[rate_limit(period = 10, threshold = 2, count_rejected, key = user)]
    async fn login(user: &str) -> Done {
        Ok(())
    }

    for user in ["keeps on", "waits"] {
        login(user).await.unwrap();
        login(user).await.unwrap();
    }
    for _ in 0..5 {
        tokio::time::advance(Duration::from_secs(4)).await;
        assert!(is_exceeded(&login("keeps on").await));
    }
    login("waits").await.unwrap();
    tokio::time::advance(Duration::from_secs(10)).await;
    login("keeps on").await.unwrap();
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

#[test]
fn a_limited_future_is_small() {
    #[rate_limit(threshold = 1, key = (user, 1))]
    async fn limited(user: &str) -> Done {
        Ok(())
    }

    let size = size_of_val(&limited("alice"));
    assert!(size < 4096, "{size} bytes");
    // What is put around it adds little.
    let around = size_of_val(&observe(caller::scope("alice", limited("alice"))));
    assert!(around < size + 256, "{around} bytes");
}
