//! A request id is charged once, and a call may wait until it is admitted.

use std::time::Duration;

use harness::{on_each_store, until};
use ratelimit_runtime::{Limiter, Policy, RateLimitError, rate_limit};
use tokio::time::Instant;

const MINUTE: Duration = Duration::from_secs(60);
const LOG: Policy = Policy::sliding_window("log", MINUTE, 5);

fn fault<T: std::fmt::Debug>(answer: Result<T, RateLimitError>) -> String {
    match answer {
        Err(RateLimitError::InvalidPolicy(error)) => error.fault().to_string(),
        other => panic!("expected an invalid policy, got {other:?}"),
    }
}

#[tokio::test]
async fn one_id_is_charged_once() {
    on_each_store(async |limiter| {
        let job = |id: u32| limiter.check(&LOG, "alice").cost(2).request_id(id);
        for _ in 0..3 {
            assert_eq!(job(1).await.unwrap().remaining(), 3);
        }
        assert_eq!(job(2).await.unwrap().remaining(), 1);
        // Admitted once, admitted again, also without room for another call.
        assert!(job(3).await.is_err());
        assert_eq!(job(1).await.unwrap().remaining(), 1);
        // A refused call was not charged, and may be admitted later.
        limiter.reset(&LOG, "alice").await.unwrap();
        assert_eq!(job(3).await.unwrap().remaining(), 3);
        // The ids of one caller are not those of another.
        let bob = limiter.check(&LOG, "bob").request_id(3);
        assert_eq!(bob.await.unwrap().remaining(), 4);
    })
    .await;
}

#[tokio::test]
async fn a_refunded_id_is_free_again() {
    on_each_store(async |limiter| {
        let job = || limiter.check(&LOG, "alice").cost(2).request_id("job");
        let first = job().await.unwrap();
        let again = job().await.unwrap();
        limiter.refund(&again).await.unwrap();
        assert_eq!(limiter.peek(&LOG, "alice").cost(0).await.unwrap().remaining(), 5);
        limiter.refund(&first).await.unwrap();
        assert_eq!(limiter.peek(&LOG, "alice").cost(0).await.unwrap().remaining(), 5);
        assert_eq!(job().await.unwrap().remaining(), 3);
    })
    .await;
}

#[tokio::test]
async fn a_repeated_call_is_given_back_also_after_its_turn_has_moved() {
    const HOUR: Duration = Duration::from_secs(3_600);
    const LINE: Policy = Policy::sliding_window("line", HOUR, 2);
    on_each_store(async |limiter| {
        let left = async || limiter.peek(&LINE, "alice").cost(0).await.unwrap();
        let job = || limiter.check(&LINE, "alice").cost(2).request_id("job").max_wait(2 * HOUR);
        let before = limiter.check(&LINE, "alice").cost(2).await.unwrap();
        let refund = async {
            let is_ahead = async || left().await.reset_after() > HOUR;
            until("a turn that lies ahead", async || is_ahead().await.then_some(())).await;
            limiter.refund(&before).await.unwrap();
        };
        let (first, ()) = tokio::join!(job().into_future(), refund);
        assert_eq!(first.unwrap().remaining(), 0);
        let again = job().await.unwrap();
        limiter.refund(&again).await.unwrap();
        assert_eq!(left().await.remaining(), 2);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn calls_of_one_instant_are_refunded_by_their_ids() {
    let limiter = Limiter::in_memory();
    let job = |id: u32| limiter.check(&LOG, "alice").request_id(id);
    let (first, again) = (job(1).await.unwrap(), job(1).await.unwrap());
    job(2).await.unwrap();
    limiter.check(&LOG, "alice").await.unwrap();
    // One call, regardless of how many of its decisions are refunded; the others stay charged.
    for decision in [&first, &again] {
        limiter.refund(decision).await.unwrap();
        assert_eq!(limiter.peek(&LOG, "alice").cost(0).await.unwrap().remaining(), 3);
    }
    // The other one is still known by its id.
    assert_eq!(job(2).await.unwrap().remaining(), 3);
}

#[tokio::test(start_paused = true)]
async fn an_id_is_kept_for_the_longest_period() {
    let limiter = Limiter::in_memory();
    let job = || limiter.check(&LOG, "alice").request_id("job");
    job().await.unwrap();
    tokio::time::advance(Duration::from_micros(59_999_999)).await;
    limiter.check(&LOG, "alice").await.unwrap();
    assert_eq!(job().await.unwrap().remaining(), 3);
    tokio::time::advance(Duration::from_micros(1)).await;
    assert_eq!(job().await.unwrap().remaining(), 3);
    assert_eq!(job().await.unwrap().remaining(), 3);
}

#[tokio::test]
async fn many_tasks_with_one_id_are_one_call() {
    on_each_store(async |limiter| {
        let calls: Vec<_> = (0..32)
            .map(|_| {
                let limiter = limiter.clone();
                tokio::spawn(async move {
                    limiter.check(&LOG, "alice").request_id("one").await.map(drop)
                })
            })
            .collect();
        for call in calls {
            call.await.unwrap().unwrap();
        }
        assert_eq!(limiter.peek(&LOG, "alice").cost(0).await.unwrap().remaining(), 4);
    })
    .await;
}

#[tokio::test]
async fn an_id_needs_a_log_without_refusals() {
    let limiter = Limiter::in_memory();
    for policy in [
        Policy::fixed_window("p", MINUTE, 5),
        Policy::sliding_counter("p", MINUTE, 5),
        Policy::token_bucket("p", MINUTE, 5),
    ] {
        let answer = limiter.check(&policy, "alice").request_id(1).await;
        assert!(fault(answer).starts_with("a request id needs a `sliding_window`"));
    }
    let penalty = LOG.count_rejected();
    let answer = limiter.check(&penalty, "alice").request_id(1).await;
    assert!(fault(answer).starts_with("a request id does not go with `count_rejected`"));
}

const BRIEF: Duration = Duration::from_millis(200);

#[tokio::test]
async fn a_call_waits_until_it_is_admitted() {
    const POLICY: Policy = Policy::sliding_window("wait", BRIEF, 2);
    on_each_store(async |limiter| {
        let start = Instant::now();
        for _ in 0..5 {
            limiter.check(&POLICY, "alice").max_wait(MINUTE).await.unwrap();
        }
        // Two at once, two after a period, the fifth after two.
        assert!(start.elapsed() >= BRIEF * 2, "{:?}", start.elapsed());
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_could_not_be_enough_is_refused_at_once() {
    let limiter = Limiter::in_memory();
    let once = Policy::sliding_window("once", MINUTE, 1);
    let start = Instant::now();
    limiter.check(&once, "alice").await.unwrap();
    let wait = |max_wait| limiter.check(&once, "alice").max_wait(max_wait);
    let Err(RateLimitError::Exceeded(refused)) = wait(Duration::from_micros(59_999_999)).await
    else {
        panic!("refused");
    };
    assert_eq!((refused.retry_after(), start.elapsed()), (MINUTE, Duration::ZERO));
    wait(MINUTE).await.unwrap();
    assert_eq!(start.elapsed(), MINUTE);
}

#[tokio::test(start_paused = true)]
async fn waiting_calls_are_admitted_at_the_limits_pace_and_no_faster() {
    let limiter = Limiter::in_memory();
    let start = Instant::now();
    let calls: Vec<_> = (0..10)
        .map(|_| {
            let limiter = limiter.clone();
            tokio::spawn(async move {
                let paced = Policy::token_bucket("paced", Duration::from_secs(1), 1).burst(1);
                let request = limiter.check(&paced, "all").max_wait(MINUTE);
                request.await.unwrap();
                start.elapsed()
            })
        })
        .collect();
    let mut times = Vec::new();
    for call in calls {
        times.push(call.await.unwrap().as_secs());
    }
    times.sort_unstable();
    assert_eq!(times, (0..10).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn a_call_dropped_while_it_waits_takes_nothing() {
    let limiter = Limiter::in_memory();
    let once = Policy::sliding_window("once", MINUTE, 1);
    limiter.check(&once, "alice").await.unwrap();
    let waiting = limiter.check(&once, "alice").max_wait(MINUTE);
    assert!(tokio::time::timeout(MINUTE / 2, waiting).await.is_err());
    tokio::time::advance(MINUTE / 2).await;
    assert_eq!(limiter.peek(&once, "alice").cost(0).await.unwrap().remaining(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_annotated_call_waits_and_a_dry_run_does_not() {
    #[rate_limit(threshold = 1, period = "10s", max_wait = "1m", key = 1)]
    async fn outbound() -> Result<(), RateLimitError> {
        Ok(())
    }

    #[rate_limit(threshold = 1, period = "10s", max_wait = wait, key = 1, dry_run)]
    async fn dry(wait: Duration) -> Result<(), RateLimitError> {
        Ok(())
    }

    let start = Instant::now();
    for seconds in [0, 10, 20] {
        outbound().await.unwrap();
        assert_eq!(start.elapsed().as_secs(), seconds);
    }
    for _ in 0..3 {
        dry(MINUTE).await.unwrap();
    }
    assert_eq!(start.elapsed().as_secs(), 20);
}

#[tokio::test(start_paused = true)]
async fn a_log_of_single_units_gets_a_line_with_the_first_call_that_waits() {
    for policy in [LOG, LOG.tier(MINUTE * 60, 9), LOG.concurrency(9)] {
        let (limiter, start) = (Limiter::in_memory(), Instant::now());
        while let Ok(_taken) = limiter.check(&policy, "alice").await {}
        assert!(limiter.check(&policy, "alice").max_wait(MINUTE / 2).await.is_err());
        assert_eq!(start.elapsed(), Duration::ZERO);
        let waited = limiter.check(&policy, "alice").max_wait(MINUTE).await.unwrap();
        assert_eq!((start.elapsed(), waited.waited()), (MINUTE, MINUTE));
        // The call that has waited is a call like others.
        let left = waited.remaining();
        assert_eq!(limiter.check(&policy, "alice").await.unwrap().remaining(), left - 1);
    }
    let none = Policy::concurrency_limit("flight", 1);
    Limiter::in_memory().check(&none, "alice").max_wait(MINUTE).await.unwrap();
}
