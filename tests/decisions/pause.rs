//! Nobody under a paused key is admitted before the pause is over, in no process, and calls that wait keep their
//! order and distances.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use harness::{RedisServer, exceeded, on_each_store, patient, uncached, until};
use ratelimit_runtime::{
    DecidedBy, Decision, Enforcement, Limiter, Override, Policy, RateLimitError,
};
use tokio::{
    task::{JoinHandle, JoinSet},
    time::{Instant, advance, sleep},
};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3_600);

/// One unit a minute.
const PACE: Policy = Policy::sliding_window("pace", MINUTE, 1);

type Answer = Result<Decision, RateLimitError>;

/// Starts a call that may wait, and lets it take its turn.
async fn arrive(limiter: &Limiter, max_wait: Duration) -> JoinHandle<Answer> {
    let limiter = limiter.clone();
    let call = tokio::spawn(async move { limiter.check(&PACE, "all").max_wait(max_wait).await });
    tokio::task::yield_now().await;
    call
}

/// Returns the seconds that an admitted call has waited.
async fn waited(call: JoinHandle<Answer>) -> u64 {
    call.await.unwrap().unwrap().waited().as_secs()
}

#[tokio::test]
async fn a_paused_key_refuses_for_the_exact_rest_grows_and_is_free_after_a_reset() {
    on_each_store(async |limiter| {
        limiter.pause(&PACE, "all", 25 * HOUR).await.unwrap();
        // The longest pause is 24 hours, and a shorter one changes nothing.
        limiter.pause(&PACE, "all", SECOND).await.unwrap();
        let refused = exceeded(limiter.check(&PACE, "all").await);
        let rest = refused.retry_after();
        assert!(rest <= 24 * HOUR && rest + SECOND > 24 * HOUR, "{rest:?}");
        assert_eq!(refused.remaining(), 0);
        // Other callers are not paused.
        limiter.check(&PACE, "other").await.unwrap();
        // Who may wait for it does.
        exceeded(limiter.check(&PACE, "all").max_wait(9 * MINUTE).await);
        limiter.reset(&PACE, "all").await.unwrap();
        assert_eq!(limiter.check(&PACE, "all").await.unwrap().waited(), Duration::ZERO);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_pause_ends_by_itself_and_a_longer_one_extends_it() {
    let limiter = Limiter::in_memory();
    limiter.pause(&PACE, "all", 10 * SECOND).await.unwrap();
    advance(5 * SECOND).await;
    limiter.pause(&PACE, "all", 10 * SECOND).await.unwrap();
    advance(Duration::from_micros(9_999_999)).await;
    let refused = exceeded(limiter.check(&PACE, "all").await);
    assert_eq!(refused.retry_after(), Duration::from_micros(1));
    advance(Duration::from_micros(1)).await;
    limiter.check(&PACE, "all").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn calls_in_line_move_behind_the_pause_at_their_distances() {
    let limiter = Limiter::in_memory();
    limiter.check(&PACE, "all").await.unwrap();
    let line = [arrive(&limiter, HOUR).await, arrive(&limiter, HOUR).await];
    let impatient = arrive(&limiter, 4 * MINUTE).await;
    let last = arrive(&limiter, HOUR).await;
    // The first turn is after a minute, and moves by four.
    limiter.pause(&PACE, "all", 5 * MINUTE).await.unwrap();
    // The turn of this one is after seven minutes now.
    let refused = exceeded(impatient.await.unwrap());
    assert!(refused.retry_after() > 4 * MINUTE);
    let late = arrive(&limiter, HOUR).await;
    let [first, second] = line;
    assert_eq!([waited(first).await, waited(second).await], [300, 360]);
    // What the impatient call has left is theirs.
    assert_eq!([waited(last).await, waited(late).await], [420, 480]);
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_pause_stays_when_the_last_turn_behind_it_is_given_back() {
    let limiter = Limiter::in_memory();
    limiter.pause(&PACE, "all", 2 * MINUTE).await.unwrap();
    let only = arrive(&limiter, HOUR).await;
    only.abort();
    only.await.unwrap_err();
    assert_eq!(exceeded(limiter.check(&PACE, "all").await).retry_after(), 2 * MINUTE);
    assert_eq!(waited(arrive(&limiter, HOUR).await).await, 120);
}

#[tokio::test]
async fn no_enforcement_and_a_dry_run_pass_a_pause() {
    on_each_store(async |limiter| {
        limiter.pause(&PACE, "all", MINUTE).await.unwrap();
        let set = |enforcement| {
            limiter
                .overrides()
                .here()
                .set("pace", Override::new().enforcement(enforcement))
                .unwrap();
        };
        set(Enforcement::Off);
        limiter.check(&PACE, "all").await.unwrap();
        set(Enforcement::DryRun);
        assert!(limiter.check(&PACE, "all").max_wait(HOUR).await.unwrap().is_dry_run());
        set(Enforcement::On);
        exceeded(limiter.check(&PACE, "all").await);
    })
    .await;
}

#[tokio::test]
async fn policies_without_a_line_of_calls_are_refused_with_what_to_write() {
    let limiter = Limiter::in_memory();
    let units = Policy::sliding_window("pace", MINUTE, 1);
    for (policy, hint) in [
        (Policy::concurrency_limit("pace", 1), "sliding_window(..)"),
        (units.count_rejected(), "without `count_rejected`"),
        (Policy::token_bucket("pace", MINUTE, 1), "sliding_window(..)"),
        (units.lease(SECOND), "under `lease`"),
        (Policy::sliding_window("pace", Duration::ZERO, 1), "`period`"),
    ] {
        let error = limiter.pause(&policy, "all", SECOND).await.unwrap_err();
        assert!(matches!(error, RateLimitError::InvalidPolicy(_)), "{policy:?}");
        assert!(error.to_string().contains(hint), "{error}");
    }
}

/// Three limiters stand for three processes, of which one pauses the key.
#[tokio::test]
async fn a_pause_reaches_the_line_of_every_process_and_nobody_overtakes() {
    const PERIOD: Duration = Duration::from_millis(150);
    const FAST: Policy = Policy::sliding_window("fast", PERIOD, 1);
    let server = RedisServer::start();
    let mut limiters = Vec::new();
    for _ in 0..3 {
        limiters.push(patient(&server.url()).await);
    }
    let passed = Arc::new(Mutex::new(Vec::new()));
    let mut calls = JoinSet::new();
    for number in 0..15 {
        let (limiter, log) = (limiters[number % 3].clone(), Arc::clone(&passed));
        calls.spawn(async move {
            limiter.check(&FAST, "all").max_wait(MINUTE).await.unwrap();
            log.lock().unwrap().push((number, Instant::now()));
        });
        sleep(Duration::from_millis(5)).await;
    }
    let start = Instant::now();
    limiters[0].pause(&FAST, "all", 3 * SECOND).await.unwrap();
    let told = Instant::now();
    calls.join_all().await;
    let passed = passed.lock().unwrap();
    for process in 0..3 {
        assert!(
            passed.iter().map(|(number, _)| number).filter(|it| *it % 3 == process).is_sorted()
        );
    }
    let inside = |from: Instant, number: &usize, at: &Instant| {
        *at > from && *at < start + 3 * SECOND && (number.is_multiple_of(3) || from > told)
    };
    let of_told = passed.iter().filter(|(number, at)| inside(told, number, at)).count();
    let learnt = told + SECOND + Duration::from_millis(200);
    let of_others = passed.iter().filter(|(number, at)| inside(learnt, number, at)).count();
    assert_eq!((of_told, of_others), (0, 0), "{passed:?}");
    let after: Vec<_> = passed.iter().filter(|(_, at)| *at >= start + 3 * SECOND).collect();
    assert!(after.len() > 5 && after.iter().map(|it| it.0).is_sorted(), "{passed:?}");
    // A line that came as a burst would pass within a few milliseconds.
    let took = after[after.len() - 1].1 - after[0].1;
    assert!(took > PERIOD * (u32::try_from(after.len()).unwrap() - 2), "{took:?} {passed:?}");
}

#[tokio::test]
async fn a_pause_that_redis_cannot_write_holds_for_calls_that_this_process_decides() {
    let mut server = RedisServer::start();
    let limiter = server.limiter().await;
    server.kill();
    assert!(limiter.pause(&PACE, "all", MINUTE).await.is_err());
    let refused = exceeded(limiter.check(&PACE, "all").await);
    assert!(refused.retry_after() + 10 * SECOND > MINUTE);
}

#[tokio::test]
async fn a_pause_that_another_process_has_reset_is_over_in_an_outage() {
    let mut server = RedisServer::start();
    let (limiter, other) = (server.limiter().await, server.limiter().await);
    let refused = || async { exceeded(limiter.check(&PACE, "all").await).retry_after() };
    for caller in ["all", "kept"] {
        limiter.pause(&PACE, caller, MINUTE).await.unwrap();
        exceeded(limiter.check(&PACE, caller).await);
        // It takes nothing, and passes a pause.
        limiter.peek(&PACE, caller).cost(0).await.unwrap();
    }
    assert!(refused().await + 10 * SECOND > MINUTE);
    other.reset(&PACE, "all").await.unwrap();
    until("the end of the refusal", async || limiter.check(&PACE, "all").await.ok()).await;
    server.kill();
    let decision = limiter.check(&PACE, "all").await.unwrap();
    assert_eq!(decision.decided_by(), DecidedBy::Fallback);
    exceeded(limiter.check(&PACE, "kept").await);
}

/// The other process pauses the key just before the turn, so that this one has not learnt of it.
#[tokio::test]
async fn a_call_with_a_request_id_that_a_pause_has_moved_is_settled() {
    const HOURLY: Policy =
        Policy::sliding_window("hourly", Duration::from_millis(700), 10).tier(HOUR, 1_000);
    let server = RedisServer::start();
    let (one, other) = (patient(&server.url()).await, uncached(&server.url()).await);
    for (caller, actual) in [("raised", 14), ("lowered", 2), ("given back", 0)] {
        other.check(&HOURLY, caller).cost(10).await.unwrap();
        let call = {
            let one = one.clone();
            tokio::spawn(async move {
                one.check(&HOURLY, caller).cost(10).request_id(7).max_wait(MINUTE).await
            })
        };
        until("the turn", async || {
            let refused = exceeded(other.peek(&HOURLY, caller).await);
            (refused.retry_after() > Duration::from_millis(700)).then_some(())
        })
        .await;
        other.pause(&HOURLY, caller, 2 * SECOND).await.unwrap();
        let decision = call.await.unwrap().unwrap();
        one.settle(&decision, actual).await.unwrap();
        // A second settle does nothing.
        one.settle(&decision, 9).await.unwrap();
        until("the end of the pause", async || other.peek(&HOURLY, caller).await.ok()).await;
        let usage = other.usage(&HOURLY, caller).await.unwrap();
        assert_eq!(usage.tiers()[1].used(), 10 + actual, "{caller}");
    }
}
