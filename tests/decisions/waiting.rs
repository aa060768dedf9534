//! A waiting call is refused only when it gives up, and a change of its limit reaches it at once.

use std::time::Duration;

use harness::{RedisServer, on_each_store, patient};
use ratelimit_runtime::{
    Decision, Enforcement, Limiter, Override, Policy, RateLimitError, observe, rate_limit,
};
use tokio::{task::JoinHandle, time::Instant};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3_600);

type Answer = Result<Decision, RateLimitError>;

fn wait_for(
    limiter: &Limiter,
    policy: Policy,
    cost: u32,
    max_wait: Duration,
) -> JoinHandle<Answer> {
    let limiter = limiter.clone();
    tokio::spawn(async move { limiter.check(&policy, "alice").cost(cost).max_wait(max_wait).await })
}

/// Starts calls one after the other, each before the previous one is admitted. All are admitted.
async fn all_are_admitted(limiter: &Limiter, policy: Policy) {
    let mut calls = Vec::new();
    for _ in 0..4 {
        calls.push(wait_for(limiter, policy, 1, policy.tiers()[0].period() * 20));
        tokio::time::sleep(policy.tiers()[0].period() / 3).await;
    }
    for call in calls {
        assert!(call.await.unwrap().is_ok(), "{policy:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn calls_that_wait_under_a_penalty_do_not_starve_one_another() {
    for policy in [
        Policy::sliding_window("log", SECOND, 1).count_rejected(),
        Policy::sliding_counter("counter", SECOND, 1).count_rejected(),
        Policy::token_bucket("bucket", SECOND, 1).count_rejected(),
    ] {
        all_are_admitted(&Limiter::in_memory(), policy).await;
    }
}

#[tokio::test]
async fn calls_that_wait_for_redis_under_a_penalty_do_not_starve_one_another() {
    let period = Duration::from_millis(600);
    let server = RedisServer::start();
    let limiter = patient(&server.url()).await;
    let log = Policy::sliding_window("log", period, 1).count_rejected();
    all_are_admitted(&limiter, log).await;
}

#[tokio::test]
async fn a_call_that_gives_up_is_one_refusal() {
    const POLICY: Policy = Policy::sliding_window("penalty", HOUR, 9).count_rejected();
    on_each_store(async |limiter| {
        limiter.check(&POLICY, "alice").cost(8).await.unwrap();
        let refused = wait_for(limiter, POLICY, 2, SECOND).await.unwrap();
        assert!(matches!(refused, Err(RateLimitError::Exceeded(_))), "{refused:?}");
        // The units that the refusal has recorded fill the log.
        assert_eq!(limiter.peek(&POLICY, "alice").cost(0).await.unwrap().remaining(), 0);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_call_is_recorded_as_refused_only_if_it_does_not_wait() {
    const POLICY: Policy = Policy::token_bucket("bucket", MINUTE, 6).count_rejected();
    let limiter = Limiter::in_memory();
    limiter.check(&POLICY, "alice").cost(4).await.unwrap();
    // A token comes back every ten seconds, and there are two.
    let waiting = wait_for(&limiter, POLICY, 3, SECOND * 15);
    assert_eq!(waiting.await.unwrap().unwrap().waited(), SECOND * 10);
    tokio::time::sleep(SECOND * 10).await;
    assert_eq!(limiter.peek(&POLICY, "alice").cost(0).await.unwrap().remaining(), 1);
    assert!(wait_for(&limiter, POLICY, 3, SECOND * 15).await.unwrap().is_err());
    assert_eq!(limiter.peek(&POLICY, "alice").cost(0).await.unwrap().remaining(), 0);
}

/// Fills the limit, and starts a call that has to wait for most of an hour.
async fn one_waits(limiter: &Limiter, policy: Policy, cost: u32) -> JoinHandle<Answer> {
    limiter.check(&policy, "alice").cost(4).await.unwrap();
    let call = wait_for(limiter, policy, cost, HOUR);
    tokio::time::sleep(SECOND / 2).await;
    assert!(!call.is_finished());
    call
}

async fn soon(call: JoinHandle<Answer>) -> Answer {
    tokio::time::timeout(MINUTE / 2, call).await.expect("the change reaches the call").unwrap()
}

#[tokio::test]
async fn a_change_by_operators_reaches_a_waiting_call() {
    const POLICY: Policy = Policy::sliding_window("reply", HOUR, 4);
    let server = RedisServer::start();
    for limiter in [Limiter::in_memory(), patient(&server.url()).await] {
        let overrides = limiter.overrides();
        // The kill switch, of all limits and of one.
        let call = one_waits(&limiter, POLICY, 1).await;
        overrides.here().set("*", Enforcement::Off).unwrap();
        soon(call).await.unwrap();
        overrides.here().remove("*");
        limiter.reset(&POLICY, "alice").await.unwrap();

        for enforcement in [Enforcement::Off, Enforcement::DryRun] {
            let call = one_waits(&limiter, POLICY, 1).await;
            overrides.here().set("reply", Override::new().enforcement(enforcement)).unwrap();
            soon(call).await.unwrap();
            overrides.here().remove("reply");
            limiter.reset(&POLICY, "alice").await.unwrap();
        }

        // More room.
        let call = one_waits(&limiter, POLICY, 2).await;
        overrides.here().set("reply", Override::new().threshold(6)).unwrap();
        assert_eq!(soon(call).await.unwrap().threshold(), 6);
        overrides.here().remove("reply");
        limiter.reset(&POLICY, "alice").await.unwrap();

        // A wait that is too long now.
        let call = one_waits(&limiter, POLICY, 1).await;
        overrides.here().set("reply", Override::new().period(HOUR * 2)).unwrap();
        let Err(RateLimitError::Exceeded(refused)) = soon(call).await else {
            panic!("it cannot be admitted within its hour");
        };
        assert_eq!(refused.period(), HOUR * 2);
        overrides.here().remove("reply");
        limiter.reset(&POLICY, "alice").await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_tells_how_long_it_has_waited_whatever_lets_it_pass() {
    const POLICY: Policy = Policy::sliding_window("told", HOUR, 4);
    for change in [Enforcement::Off, Enforcement::DryRun, Enforcement::On] {
        let limiter = Limiter::in_memory();
        limiter.check(&POLICY, "alice").cost(4).await.unwrap();
        let calls = async || limiter.check(&POLICY, "alice").max_wait(HOUR).await;
        let switched = async {
            tokio::time::sleep(SECOND).await;
            limiter.overrides().here().set("*", change).unwrap();
        };
        let (observed, ()) = tokio::join!(observe(calls()), switched);
        let (call, copies) = observed;
        let call = call.unwrap();
        let waited = if change == Enforcement::On { HOUR } else { SECOND };
        assert_eq!((call.waited(), call.has_permit()), (waited, false), "{change:?}");
        // In a dry run observers are told of the refusal, and without enforcement of nothing.
        let told: Vec<_> = copies.iter().flatten().map(Decision::waited).collect();
        let expected = if change == Enforcement::On { vec![HOUR] } else { vec![] };
        assert_eq!(told, expected, "{change:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_copy_of_an_observer_tells_the_wait_and_holds_no_permit() {
    let policy = Policy::sliding_window("copied", MINUTE, 1).concurrency(1);
    let limiter = Limiter::in_memory();
    drop(limiter.check(&policy, "alice").await.unwrap());
    let wait = limiter.check(&policy, "alice").max_wait(HOUR).into_future();
    let (call, copies) = observe(wait).await;
    let (call, copy) = (call.unwrap(), copies.into_iter().next().unwrap().unwrap());
    assert_eq!((call.waited(), call.has_permit()), (MINUTE, true));
    assert_eq!((copy.waited(), copy.has_permit()), (MINUTE, false));
    drop(call);
    tokio::time::sleep(MINUTE).await;
    // The copy is still there, and the permit is free.
    assert!(limiter.check(&policy, "alice").await.unwrap().has_permit());
}

#[tokio::test(start_paused = true)]
async fn a_change_of_another_limit_leaves_a_call_waiting() {
    const POLICY: Policy = Policy::sliding_window("reply", MINUTE, 4);
    let limiter = Limiter::in_memory();
    let start = Instant::now();
    let call = one_waits(&limiter, POLICY, 1).await;
    limiter.overrides().here().set("other", Override::new().threshold(6)).unwrap();
    limiter.overrides().here().set("*", Enforcement::On).unwrap();
    tokio::time::sleep(SECOND).await;
    assert!(!call.is_finished());
    call.await.unwrap().unwrap();
    assert_eq!(start.elapsed(), MINUTE);
}

#[tokio::test(start_paused = true)]
async fn an_annotated_call_that_waits_passes_when_its_limit_is_switched_off() {
    #[rate_limit(
        name = "outbound",
        threshold = 1,
        period = "1h",
        max_wait = "1h",
        key = 1,
        limiter = limiter
    )]
    async fn outbound(limiter: Limiter) -> Result<(), RateLimitError> {
        Ok(())
    }

    let limiter = Limiter::in_memory();
    let start = Instant::now();
    outbound(limiter.clone()).await.unwrap();
    let waiting = tokio::spawn(outbound(limiter.clone()));
    tokio::time::sleep(SECOND).await;
    limiter.overrides().here().set("*", Enforcement::Off).unwrap();
    waiting.await.unwrap().unwrap();
    assert_eq!(start.elapsed(), SECOND);
}
