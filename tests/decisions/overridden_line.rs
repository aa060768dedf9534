//! An override reaches the calls that wait: nobody is served later than promised, and a raise refuses nobody.

use std::{
    future::{IntoFuture, poll_fn},
    task::Poll,
    time::Duration,
};

use harness::{exceeded, on_each_store, until};
use ratelimit_runtime::{Decision, Enforcement, Limiter, Override, Plans, Policy, RateLimitError};
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep, timeout},
};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3_600);

type Answer = Result<Decision, RateLimitError>;

/// Returns policies of so many units in a period.
fn policies(period: Duration, units: u32) -> [Policy; 3] {
    [
        Policy::sliding_window("line", period, units),
        Policy::fixed_window("line", period, units),
        Policy::token_bucket("line", period, units),
    ]
}

/// Takes all units, and starts calls that arrive in this order, each with this patience.
async fn waiting(
    limiter: &Limiter,
    policy: Policy,
    patience: impl IntoIterator<Item = Duration>,
) -> Vec<JoinHandle<Answer>> {
    limiter.check(&policy, "alice").cost(policy.tiers()[0].threshold()).await.unwrap();
    let mut calls = Vec::new();
    for max_wait in patience {
        let its = limiter.clone();
        calls.push(tokio::spawn(
            async move { its.check(&policy, "alice").max_wait(max_wait).await },
        ));
        tokio::task::yield_now().await;
    }
    calls
}

/// The turns of six calls behind two of a limit of two: in a window, and in a bucket the earlier ones.
fn promised(policy: Policy) -> [Duration; 6] {
    let period = policy.tiers()[0].period();
    let is_bucket = policies(period, 2)[2] == policy;
    [1, 2, 3, 4, 5, 6].map(
        |turn: u32| {
            if is_bucket { period * turn / 2 } else { period * turn.div_ceil(2) }
        },
    )
}

fn set(limiter: &Limiter, what: Override) {
    limiter.overrides().here().set("line", what).unwrap();
}

fn threshold(units: u32) -> Override {
    Override::new().threshold(units)
}

/// Asserts that all calls have passed in order, none of them later than this.
async fn all_pass_by(promised: &[Duration], calls: Vec<JoinHandle<Answer>>) -> Vec<Duration> {
    let mut waits = Vec::new();
    for (promised, call) in promised.iter().zip(calls) {
        let answer = call.await.unwrap();
        let decision = answer.unwrap_or_else(|error| panic!("behind {waits:?}: {error:?}"));
        let waited = decision.waited();
        assert!(waited <= *promised, "{waited:?} instead of {promised:?} behind {waits:?}");
        waits.push(waited);
    }
    assert!(waits.is_sorted(), "{waits:?}");
    waits
}

#[tokio::test(start_paused = true)]
async fn a_raised_limit_serves_nobody_later_and_the_first_at_once() {
    for policy in policies(MINUTE, 2) {
        let limiter = Limiter::in_memory();
        // Each waits for its turn, and not for a moment more.
        let promised = promised(policy);
        let calls = waiting(&limiter, policy, promised).await;
        sleep(SECOND).await;
        set(&limiter, threshold(3));
        let waits = all_pass_by(&promised, calls).await;
        assert!(waits[0] < promised[0], "{policy:?}: {waits:?}");
        let [waited, expected] = [&waits[..], &promised].map(|all| all.iter().sum::<Duration>());
        assert!(waited < expected, "{policy:?}: {waits:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lowered_limit_serves_nobody_later_while_it_has_room_for_the_first() {
    for policy in policies(MINUTE, 2) {
        let limiter = Limiter::in_memory();
        let promised = promised(policy);
        let calls = waiting(&limiter, policy, promised).await;
        sleep(SECOND).await;
        if policy == policies(MINUTE, 2)[2] {
            // A bucket of one token is full by the time of the second turn at the latest.
            continue;
        }
        set(&limiter, threshold(1));
        all_pass_by(&promised, calls).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_limit_that_has_no_room_at_the_first_turn_asks_the_line_anew_in_order() {
    for (policy, first) in policies(MINUTE, 1).into_iter().zip([180, 180, 181]) {
        let limiter = Limiter::in_memory();
        let patience = [HOUR, MINUTE * 2, HOUR, HOUR];
        let mut calls = waiting(&limiter, policy, patience).await;
        sleep(SECOND).await;
        let start = Instant::now();
        set(&limiter, Override::new().period(MINUTE * 3));
        // It is no longer patient enough, and known to be so at once.
        exceeded(calls.remove(1).await.unwrap());
        assert_eq!(start.elapsed(), Duration::ZERO, "{policy:?}");
        let mut found = Vec::new();
        for call in calls {
            found.push(call.await.unwrap().unwrap().waited().as_secs());
        }
        assert_eq!(found, [first, first + 180, first + 360], "{policy:?}");
    }
}

/// The calls of all plans wait in one line.
#[tokio::test(start_paused = true)]
async fn a_stricter_plan_takes_no_turn_from_a_call_of_another_plan() {
    let [small, large] = [2, 4].map(|units| Policy::sliding_window("line", MINUTE, units));
    let plans = Plans::new("line", "small", small).plan("large", large);
    let limiter = Limiter::in_memory();
    limiter.check(plans.of("large"), "alice").cost(4).await.unwrap();
    let calls = [("small", HOUR), ("large", MINUTE)].map(|(plan, patience)| {
        let its = limiter.clone();
        tokio::spawn(async move { its.check(plans.of(plan), "alice").max_wait(patience).await })
    });
    sleep(SECOND).await;
    limiter.overrides().here().set("line@small", Override::new().period(3 * MINUTE)).unwrap();
    let [small, large] = calls;
    assert_eq!(large.await.unwrap().unwrap().waited(), MINUTE);
    assert_eq!(small.await.unwrap().unwrap().waited(), 3 * MINUTE);
}

/// Lets a call arrive under a period twice as long, before the first of four that wait has asked for its turn
/// under it, which has no room. Returns the answers of the four, and of the later one: its turn is at most
/// eight periods ahead, and would be ten behind four turns under the longer period.
async fn behind_a_lengthened_line(limiter: &Limiter, policy: Policy) -> (Vec<Answer>, Answer) {
    let period = policy.tiers()[0].period();
    let calls = waiting(limiter, policy, [HOUR; 4]).await;
    until("a line", async || {
        let refused = exceeded(limiter.peek(&policy, "alice").await);
        (refused.retry_after() > period * 4).then_some(())
    })
    .await;
    set(limiter, Override::new().period(period * 2));
    let check = limiter.check(&policy, "alice").max_wait(period * 9);
    let mut later = Box::pin(check.into_future());
    poll_fn(|context| {
        let polled = later.as_mut().poll(context);
        assert!(polled.is_pending(), "{policy:?}: {polled:?}");
        Poll::Ready(())
    })
    .await;
    let later = later.await;
    let mut answers = Vec::new();
    for call in calls {
        answers.push(call.await.unwrap());
    }
    (answers, later)
}

#[tokio::test(start_paused = true)]
async fn a_line_without_room_under_a_stricter_limit_takes_no_turn_that_was_promised_under_it() {
    let apart = [2, 4, 6, 8, 10];
    // Windows that are fixed have room for the turns of before.
    for (policy, turns) in policies(MINUTE, 1).into_iter().zip([apart, [1, 2, 3, 4, 6], apart]) {
        let (before, later) = behind_a_lengthened_line(&Limiter::in_memory(), policy).await;
        let later = later.unwrap_or_else(|error| panic!("{policy:?}: {error:?}")).waited();
        assert!(later <= MINUTE * 8, "{policy:?}: {later:?}");
        // Each turn that there is has one call.
        let mut found: Vec<_> = before.into_iter().map(|it| it.unwrap().waited()).collect();
        found.push(later);
        found.sort_unstable();
        assert_eq!(found, turns.map(|turn| MINUTE * turn), "{policy:?}");
    }
}

#[tokio::test]
async fn a_line_without_room_on_each_store_takes_no_turn_that_was_promised_under_the_limit() {
    on_each_store(async |limiter| {
        let [log, _, bucket] = policies(SECOND * 2 / 5, 1);
        for policy in [log, bucket] {
            let (before, later) = behind_a_lengthened_line(limiter, policy).await;
            later.unwrap_or_else(|error| panic!("{policy:?}: {error:?}"));
            assert!(before.iter().all(Result::is_ok), "{policy:?}: {before:?}");
            limiter.overrides().here().remove("line");
            limiter.reset(&policy, "alice").await.unwrap();
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn overrides_in_quick_succession_are_one_change_to_the_last() {
    for (changes, is_nearer) in [(vec![3, 2, 4], true), (vec![3, 2], false), (vec![1, 2], false)] {
        for is_polled in [false, true] {
            let limiter = Limiter::in_memory();
            let policy = policies(MINUTE, 2)[0];
            let promised = promised(policy);
            let calls = waiting(&limiter, policy, promised).await;
            sleep(SECOND).await;
            for units in &changes {
                set(&limiter, threshold(*units));
                if is_polled {
                    tokio::task::yield_now().await;
                }
            }
            let waits = all_pass_by(&promised, calls).await;
            assert!(waits[0] == SECOND || !is_nearer, "{changes:?}: {waits:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_limit_that_is_off_for_a_moment_lets_calls_pass_or_keeps_their_turns() {
    for is_polled in [false, true] {
        let limiter = Limiter::in_memory();
        let policy = policies(MINUTE, 2)[0];
        let promised = promised(policy);
        let calls = waiting(&limiter, policy, promised).await;
        sleep(SECOND).await;
        set(&limiter, Override::new().enforcement(Enforcement::Off));
        if is_polled {
            tokio::task::yield_now().await;
        }
        limiter.overrides().here().remove("line");
        let waits = all_pass_by(&promised, calls).await;
        assert_eq!(waits == [SECOND; 6], is_polled, "{waits:?}");
        // The turns of those that passed meanwhile are given back.
        sleep(MINUTE).await;
        limiter.check(&policy, "alice").cost(2).await.unwrap();
    }
}

#[tokio::test]
async fn a_raised_limit_refuses_no_call_that_had_a_turn() {
    on_each_store(async |limiter| {
        for policy in policies(SECOND, 2) {
            let calls = waiting(limiter, policy, promised(policy)).await;
            until("a line", async || {
                let refused = exceeded(limiter.peek(&policy, "alice").await);
                (refused.retry_after() > SECOND * 2).then_some(())
            })
            .await;
            set(limiter, threshold(3));
            for call in calls {
                call.await.unwrap().unwrap();
            }
            limiter.overrides().here().remove("line");
            limiter.reset(&policy, "alice").await.unwrap();
        }
    })
    .await;
}

#[tokio::test]
async fn raised_concurrency_reaches_all_calls_that_wait() {
    const ONE: Policy = Policy::concurrency_limit("line", 1);
    on_each_store(async |limiter| {
        let _held = limiter.check(&ONE, "alice").await.unwrap();
        let calls = [(); 8].map(|()| {
            let limiter = limiter.clone();
            tokio::spawn(async move { limiter.check(&ONE, "alice").max_wait(SECOND * 5).await })
        });
        sleep(SECOND / 5).await;
        set(limiter, Override::new().concurrency(9));
        let mut held = Vec::new();
        for call in calls {
            held.push(call.await.unwrap().unwrap());
        }
        assert!(held.iter().all(Decision::has_permit));
        limiter.overrides().here().remove("line");
    })
    .await;
}

/// One that waits for a permit, and is under no limit of them any more.
#[tokio::test(start_paused = true)]
async fn a_queue_for_permits_of_a_limit_that_is_off_is_empty_at_once() {
    const ONE: Policy = Policy::concurrency_limit("line", 1);
    let limiter = Limiter::in_memory();
    let _held = limiter.check(&ONE, "alice").await.unwrap();
    let calls = [(); 5].map(|()| {
        let limiter = limiter.clone();
        tokio::spawn(async move { limiter.check(&ONE, "alice").max_wait(HOUR).await })
    });
    sleep(SECOND).await;
    set(&limiter, Override::new().enforcement(Enforcement::Off));
    for call in calls {
        let call = timeout(SECOND, call).await.expect("at once").unwrap().unwrap();
        assert_eq!((call.has_permit(), call.waited()), (false, SECOND));
    }
}
