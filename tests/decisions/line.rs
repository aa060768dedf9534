//! Calls that wait are served in the order of their arrival, and nobody is later than promised.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use harness::exceeded;
use ratelimit_runtime::{Decision, Limiter, Policy, RateLimitError};
use tokio::{
    task::{JoinHandle, JoinSet},
    time::{Instant, sleep, timeout},
};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3_600);

/// One unit a minute.
const LINE: Policy = Policy::sliding_window("line", MINUTE, 1);

/// Returns policies of so many units a minute.
fn a_minute(units: u32) -> [Policy; 3] {
    [
        Policy::sliding_window("line", MINUTE, units),
        Policy::fixed_window("line", MINUTE, units),
        Policy::token_bucket("line", MINUTE, units),
    ]
}

type Answer = Result<Decision, RateLimitError>;

/// Starts a call that may wait, and lets it take its turn.
async fn arrive(limiter: &Limiter, policy: Policy, cost: u32) -> JoinHandle<Answer> {
    arrive_for(limiter, policy, cost, HOUR).await
}

async fn arrive_for(
    limiter: &Limiter,
    policy: Policy,
    cost: u32,
    max_wait: Duration,
) -> JoinHandle<Answer> {
    let limiter = limiter.clone();
    let call =
        tokio::spawn(
            async move { limiter.check(&policy, "alice").cost(cost).max_wait(max_wait).await },
        );
    tokio::task::yield_now().await;
    call
}

/// Returns the seconds that an admitted call has waited.
async fn waited(call: JoinHandle<Answer>) -> u64 {
    call.await.unwrap().unwrap().waited().as_secs()
}

#[tokio::test(start_paused = true)]
async fn calls_are_served_in_the_order_of_their_arrival_each_at_its_turn() {
    for line in a_minute(1) {
        let limiter = Limiter::in_memory();
        let mut calls = Vec::new();
        for _ in 0..5 {
            calls.push(arrive(&limiter, line, 1).await);
        }
        let start = Instant::now();
        for (minutes, call) in (0..).zip(calls) {
            let decision = call.await.unwrap().unwrap();
            assert_eq!(start.elapsed(), MINUTE * minutes);
            assert_eq!(decision.waited(), MINUTE * minutes);
            // The numbers are those of the turn.
            assert_eq!((decision.remaining(), decision.reset_after()), (0, MINUTE));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn calls_of_one_turn_pass_in_order_and_one_that_is_not_polled_holds_nobody_up() {
    let policy = Policy::sliding_window("line", MINUTE, 9);
    for has_unpolled in [false, true] {
        let limiter = Limiter::in_memory();
        limiter.check(&policy, "alice").cost(9).await.unwrap();
        let mut unpolled = Box::pin(limiter.check(&policy, "alice").max_wait(HOUR).into_future());
        if has_unpolled {
            assert!(timeout(SECOND, &mut unpolled).await.is_err());
        }
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut calls = JoinSet::new();
        for number in 0..8 {
            let (limiter, order) = (limiter.clone(), Arc::clone(&order));
            calls.spawn(async move {
                limiter.check(&policy, "alice").max_wait(HOUR).await.unwrap();
                order.lock().unwrap().push(number);
            });
            tokio::task::yield_now().await;
        }
        let start = Instant::now();
        calls.join_all().await;
        let waited = start.elapsed() + SECOND * u32::from(has_unpolled);
        assert!(waited >= MINUTE && waited < MINUTE + Duration::from_millis(10), "{waited:?}");
        if !has_unpolled {
            assert!(order.lock().unwrap().is_sorted());
        }
        unpolled.await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_small_call_does_not_overtake_a_large_one() {
    let limiter = Limiter::in_memory();
    let policy = Policy::sliding_window("line", MINUTE, 4);
    limiter.check(&policy, "alice").cost(3).await.unwrap();
    let large = arrive(&limiter, policy, 4).await;
    let small = arrive(&limiter, policy, 1).await;
    assert_eq!(waited(large).await, 60);
    assert_eq!(waited(small).await, 120);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_does_not_wait_is_refused_while_others_do_with_the_wait_of_the_last() {
    for line in a_minute(1) {
        let limiter = Limiter::in_memory();
        limiter.check(&line, "alice").await.unwrap();
        let calls = [arrive(&limiter, line, 1).await, arrive(&limiter, line, 1).await];
        sleep(SECOND * 59).await;
        for at_once in [limiter.check(&line, "alice"), limiter.peek(&line, "alice")] {
            assert_eq!(exceeded(at_once.await).retry_after(), MINUTE * 2 + SECOND);
        }
        for (call, seconds) in calls.into_iter().zip([60, 120]) {
            assert_eq!(waited(call).await, seconds);
        }
        sleep(MINUTE).await;
        limiter.check(&line, "alice").await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_whose_turn_comes_too_late_is_refused_at_once_and_takes_nothing() {
    for line in a_minute(1) {
        let limiter = Limiter::in_memory();
        limiter.check(&line, "alice").await.unwrap();
        let waits = arrive(&limiter, line, 1).await;
        let start = Instant::now();
        let late = arrive_for(&limiter, line, 1, SECOND * 119).await.await.unwrap();
        assert_eq!(exceeded(late).retry_after(), MINUTE * 2);
        assert_eq!(start.elapsed(), Duration::ZERO);
        let fits = arrive_for(&limiter, line, 1, MINUTE * 2).await;
        assert_eq!((waited(waits).await, waited(fits).await), (60, 120));
    }
}

#[tokio::test(start_paused = true)]
async fn a_full_line_refuses_at_once() {
    for line in a_minute(1) {
        let limiter = Limiter::builder().max_line(2).in_memory();
        limiter.check(&line, "alice").await.unwrap();
        let calls = [arrive(&limiter, line, 1).await, arrive(&limiter, line, 1).await];
        let start = Instant::now();
        let refused = limiter.check(&line, "alice").max_wait(HOUR).await;
        assert_eq!(exceeded(refused).retry_after(), MINUTE * 3);
        assert_eq!(start.elapsed(), Duration::ZERO);
        // Another caller has a line of its own.
        assert!(limiter.check(&line, "bob").max_wait(HOUR).await.is_ok());
        for (call, seconds) in calls.into_iter().zip([60, 120]) {
            assert_eq!(waited(call).await, seconds);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_leaves_passes_its_turn_on() {
    for line in a_minute(1) {
        let limiter = Limiter::in_memory();
        limiter.check(&line, "alice").await.unwrap();
        let mut calls = Vec::new();
        for _ in 0..4 {
            calls.push(arrive(&limiter, line, 1).await);
        }
        sleep(SECOND).await;
        calls.remove(1).abort();
        sleep(SECOND).await;
        // The last turn is free again.
        let last = arrive(&limiter, line, 1).await;
        for (call, seconds) in calls.into_iter().zip([60, 120, 180]) {
            assert_eq!(waited(call).await, seconds);
        }
        assert_eq!(last.await.unwrap().unwrap().waited(), SECOND * 238);
    }
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_only_a_larger_call_left_brings_the_others_nearer() {
    for (policy, seconds) in a_minute(4).into_iter().zip([60, 60, 15]) {
        let limiter = Limiter::in_memory();
        limiter.check(&policy, "alice").cost(4).await.unwrap();
        let large = arrive(&limiter, policy, 4).await;
        let small = arrive(&limiter, policy, 1).await;
        sleep(SECOND).await;
        large.abort();
        assert_eq!(waited(small).await, seconds, "{policy:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn all_calls_that_leave_give_back_what_they_were_promised() {
    for line in a_minute(1) {
        let limiter = Limiter::in_memory();
        limiter.check(&line, "alice").await.unwrap();
        let mut calls = Vec::new();
        for _ in 0..20 {
            calls.push(arrive(&limiter, line, 1).await);
        }
        for call in &calls {
            call.abort();
        }
        sleep(MINUTE).await;
        limiter.check(&line, "alice").await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_with_a_request_id_keeps_its_turn_for_its_repetition() {
    let limiter = Limiter::in_memory();
    limiter.check(&LINE, "alice").await.unwrap();
    let job = || limiter.check(&LINE, "alice").request_id(7).max_wait(HOUR);
    assert!(timeout(SECOND, job().into_future()).await.is_err());
    let next = arrive(&limiter, LINE, 1).await;
    assert_eq!(job().await.unwrap().waited(), SECOND * 59);
    assert_eq!(next.await.unwrap().unwrap().waited(), SECOND * 119);
}

#[tokio::test(start_paused = true)]
async fn a_reset_reaches_the_line_at_once_and_in_order() {
    let turns = [[1, 1, 61, 61, 121], [1, 1, 61, 61, 121], [1, 1, 31, 61, 91]];
    for (policy, turns) in a_minute(2).into_iter().zip(turns) {
        let limiter = Limiter::in_memory();
        limiter.check(&policy, "alice").cost(2).await.unwrap();
        let mut calls = Vec::new();
        for _ in 0..5 {
            calls.push(arrive(&limiter, policy, 1).await);
        }
        sleep(SECOND).await;
        limiter.reset(&policy, "alice").await.unwrap();
        for (call, seconds) in calls.into_iter().zip(turns) {
            let waited = call.await.unwrap().unwrap().waited();
            assert_eq!(waited, SECOND * seconds, "{policy:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_whose_turn_a_reset_has_moved_is_refused_only_by_what_is_left_of_its_wait() {
    for line in a_minute(1) {
        let limiter = Limiter::in_memory();
        limiter.check(&line, "alice").await.unwrap();
        let first = arrive_for(&limiter, line, 1, MINUTE).await;
        let second = arrive_for(&limiter, line, 1, MINUTE * 2).await;
        sleep(SECOND * 30).await;
        limiter.reset(&line, "alice").await.unwrap();
        assert_eq!(waited(first).await, 30);
        assert_eq!(waited(second).await, 90);
    }
}

/// Returns a call that has all three units of a minute, and four that have waited for a second.
async fn four_calls_behind_three_units(
    policy: Policy,
) -> (Limiter, Decision, Vec<JoinHandle<Answer>>) {
    let limiter = Limiter::in_memory();
    let large = limiter.check(&policy, "alice").cost(3).await.unwrap();
    let mut calls = Vec::new();
    for _ in 0..4 {
        calls.push(arrive(&limiter, policy, 1).await);
    }
    sleep(SECOND).await;
    (limiter, large, calls)
}

#[tokio::test(start_paused = true)]
async fn a_refund_and_a_settle_bring_the_line_nearer_at_once() {
    let [policy, ..] = a_minute(3);
    let (limiter, large, mut calls) = four_calls_behind_three_units(policy).await;
    large.settle(2);
    assert_eq!(calls.remove(0).await.unwrap().unwrap().waited(), SECOND);
    sleep(SECOND).await;
    assert!(calls.iter().all(|call| !call.is_finished()));
    limiter.settle(&large, 0).await.unwrap();
    // The first settle counts.
    sleep(SECOND).await;
    assert!(calls.iter().all(|call| !call.is_finished()));
    for call in calls {
        assert!(waited(call).await >= 60);
    }
}

#[tokio::test(start_paused = true)]
async fn a_refund_serves_as_many_calls_as_it_has_room_for() {
    for (policy, last) in a_minute(3).into_iter().zip([61, 61, 21]) {
        let (limiter, large, mut calls) = four_calls_behind_three_units(policy).await;
        limiter.refund(&large).await.unwrap();
        for seconds in [1, 1, 1, last] {
            let waited = calls.remove(0).await.unwrap().unwrap().waited();
            assert_eq!(waited, SECOND * seconds, "{policy:?}");
        }
    }
}

/// The table of `guide::waiting`.
#[tokio::test(start_paused = true)]
async fn two_hundred_calls_wait_for_as_long_as_the_guide_says() {
    let period = SECOND / 2;
    for (policy, last, mean) in [
        (Policy::sliding_window("guide", period, 20), 4_500, 2_250),
        (Policy::fixed_window("guide", period, 20), 4_500, 2_250),
        (Policy::token_bucket("guide", period, 20), 4_500, 2_040),
        (Policy::sliding_counter("guide", period, 20), 5_210, 2_580),
    ] {
        let limiter = Limiter::in_memory();
        let mut calls = Vec::new();
        for _ in 0..200 {
            calls.push(arrive(&limiter, policy, 1).await);
        }
        let (mut sum, mut longest) = (Duration::ZERO, Duration::ZERO);
        for call in calls {
            let waited = call.await.unwrap().unwrap().waited();
            sum += waited;
            longest = longest.max(waited);
        }
        let [found_last, found_mean] = [longest, sum / 200].map(|it| it.as_millis());
        let is_near = |found: u128, told: u128| found.abs_diff(told) <= 30;
        assert!(is_near(found_last, last), "{found_last} ms under {policy:?}");
        assert!(is_near(found_mean, mean), "{found_mean} ms under {policy:?}");
    }
}

/// Tasks of several threads that come, leave and are reset, with a window of real milliseconds.
#[test]
fn no_turn_is_lost_when_calls_come_and_leave_at_once() {
    const PERIOD: Duration = Duration::from_millis(20);
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build().unwrap();
    for policy in [
        Policy::sliding_window("fast", PERIOD, 20),
        Policy::fixed_window("fast", PERIOD, 20),
        Policy::fixed_window("fast", PERIOD, 20).tier(3 * PERIOD, 50),
        Policy::sliding_counter("fast", PERIOD, 20),
        Policy::token_bucket("fast", PERIOD, 20),
    ] {
        let limiter = Limiter::in_memory();
        runtime.block_on(async {
            let calls: Vec<_> = (0..400)
                .map(|number| {
                    let limiter = limiter.clone();
                    tokio::spawn(async move {
                        sleep(Duration::from_millis(fastrand::u64(..100))).await;
                        let call = limiter.check(&policy, "alice").max_wait(MINUTE).into_future();
                        if number % 3 == 0 {
                            let leaves = Duration::from_millis(fastrand::u64(..300));
                            timeout(leaves, call).await.ok().map(Result::unwrap);
                        } else {
                            call.await.unwrap();
                        }
                    })
                })
                .collect();
            for _ in 0..20 {
                sleep(Duration::from_millis(7)).await;
                limiter.reset(&policy, "alice").await.unwrap();
            }
            for call in calls {
                timeout(MINUTE, call).await.expect("nobody waits in vain").unwrap();
            }
            // Nothing lies ahead, and the last calls have left the window.
            sleep(policy.tiers().iter().map(|tier| 2 * tier.period()).max().unwrap()).await;
            assert_eq!(limiter.check(&policy, "alice").cost(20).await.unwrap().remaining(), 0);
        });
    }
}
