//! Calls in flight are bounded on each store, with windows or without: a call holds one permit until it
//! ends, however it ends.

use std::{panic::AssertUnwindSafe, time::Duration};

use harness::{exceeded, on_each_store, until};
use ratelimit_runtime::{Decision, Limiter, Override, Policy, RateLimitError, observe};
const MINUTE: Duration = Duration::from_secs(60);
const TWO: Policy = Policy::concurrency_limit("two", 2);
const BOTH: Policy = Policy::sliding_window("both", MINUTE, 5).concurrency(2);

/// Returns the call, once a permit is free.
async fn held(limiter: &Limiter, policy: &Policy, caller: &str) -> Decision {
    until("a free permit", async || limiter.check(policy, caller).await.ok()).await
}

/// Waits until exactly this many permits are free.
async fn until_free(limiter: &Limiter, policy: &Policy, caller: &str, free: u32) {
    until("free permits", async || {
        let looked = limiter.peek(policy, caller).cost(0).await.unwrap();
        (looked.remaining() == free).then_some(())
    })
    .await;
}

fn is_busy<T>(answer: &Result<T, RateLimitError>) -> bool {
    matches!(answer, Err(RateLimitError::Busy(_)))
}

#[tokio::test]
async fn as_many_calls_are_in_flight_as_the_policy_allows_and_a_dropped_one_is_free() {
    on_each_store(async |limiter| {
        let first = limiter.check(&TWO, "alice").await.unwrap();
        assert_eq!((first.threshold(), first.remaining(), first.cost()), (2, 1, 0));
        assert_eq!(first.reset_after(), Duration::ZERO);
        let second = limiter.check(&TWO, "alice").await.unwrap();
        assert!(first.has_permit() && second.has_permit());
        let refused = limiter.check(&TWO, "alice").await.unwrap_err();
        assert_eq!(refused.to_string(), "rate limit `two` is busy: at most 2 in flight");
        let other = limiter.check(&TWO, "bob").await.unwrap();
        assert_eq!(other.remaining(), 1);
        drop(first);
        let third = held(limiter, &TWO, "alice").await;
        assert!(is_busy(&limiter.check(&TWO, "alice").await));
        drop((second, third));
        until_free(limiter, &TWO, "alice", 2).await;
    })
    .await;
}

#[tokio::test]
async fn a_call_takes_its_permit_and_its_units_or_neither() {
    for make in [
        Policy::sliding_window as fn(&'static str, Duration, u32) -> Policy,
        Policy::sliding_counter,
        Policy::fixed_window,
        Policy::token_bucket,
    ] {
        for tiers in [1, 2] {
            on_each_store(async |limiter| {
                let mut policy = make("both", 60 * MINUTE, 5).concurrency(2);
                if tiers == 2 {
                    policy = policy.tier(600 * MINUTE, 8);
                }
                let left = async || {
                    limiter.peek(&policy, "alice").cost(0).await.map(|it| it.remaining()).unwrap()
                };
                let first = limiter.check(&policy, "alice").await.unwrap();
                let second = limiter.check(&policy, "alice").cost(2).await.unwrap();
                assert_eq!((second.remaining(), left().await), (2, 2));
                for _ in 0..3 {
                    assert!(is_busy(&limiter.check(&policy, "alice").await));
                }
                assert_eq!(left().await, 2);
                drop(first);
                let third = held(limiter, &policy, "alice").await;
                drop((second, third));
                // One unit is left, and a refused call of two holds no permit.
                until("a free permit", async || {
                    let refused = limiter.check(&policy, "alice").cost(2).await.unwrap_err();
                    matches!(refused, RateLimitError::Exceeded(_)).then_some(())
                })
                .await;
                let last = held(limiter, &policy, "alice").await;
                let refused = exceeded(limiter.check(&policy, "alice").await);
                assert_eq!(refused.threshold(), 5);
                drop(last);
            })
            .await;
        }
    }
}

#[tokio::test]
async fn a_peek_tells_that_all_permits_are_held_and_takes_none() {
    on_each_store(async |limiter| {
        for policy in [&TWO, &BOTH] {
            let first = limiter.check(policy, "alice").await.unwrap();
            for _ in 0..3 {
                let look = limiter.peek(policy, "alice").await.unwrap();
                assert!(!look.has_permit() && look.cost() == 0);
            }
            let second = limiter.check(policy, "alice").await.unwrap();
            assert!(is_busy(&limiter.peek(policy, "alice").await));
            assert!(limiter.peek(policy, "alice").cost(0).await.is_ok());
            assert!(limiter.check(policy, "alice").cost(0).await.is_ok_and(|it| !it.has_permit()));
            drop((first, second));
        }
    })
    .await;
}

#[tokio::test]
async fn a_call_that_panics_or_is_cancelled_frees_its_permit() {
    on_each_store(async |limiter| {
        let in_flight = limiter.clone();
        let panicked = tokio::spawn(async move {
            let _call = in_flight.check(&TWO, "alice").await.unwrap();
            std::panic::resume_unwind(Box::new("the body panics"));
        });
        assert!(panicked.await.is_err());
        let (in_flight, (held, is_held)) = (limiter.clone(), tokio::sync::oneshot::channel());
        let cancelled = tokio::spawn(async move {
            let _call = in_flight.check(&TWO, "alice").await.unwrap();
            held.send(()).unwrap();
            std::future::pending::<()>().await;
        });
        is_held.await.unwrap();
        cancelled.abort();
        assert!(cancelled.await.is_err());
        // A check that is dropped at any of its first polls.
        for polls in 0..20 {
            let mut check = limiter.check(&TWO, "alice").into_future();
            for _ in 0..polls {
                let polled = std::future::poll_fn(|context| {
                    std::task::Poll::Ready(std::pin::Pin::new(&mut check).poll(context))
                });
                if polled.await.is_ready() {
                    break;
                }
                tokio::task::yield_now().await;
            }
        }
        until_free(limiter, &TWO, "alice", 2).await;
        let caught = AssertUnwindSafe(limiter.check(&TWO, "alice").await.unwrap());
        assert!(
            std::panic::catch_unwind(move || {
                let _call = caught;
                std::panic::resume_unwind(Box::new("the body panics"))
            })
            .is_err()
        );
        until_free(limiter, &TWO, "alice", 2).await;
    })
    .await;
}

#[tokio::test]
async fn clones_share_one_permit_and_observers_hold_none() {
    on_each_store(async |limiter| {
        let first = limiter.check(&TWO, "alice").await.unwrap();
        let clone = first.clone();
        drop(first);
        assert!(clone.has_permit());
        until_free(limiter, &TWO, "alice", 1).await;
        let (answer, observed) = observe(limiter.check(&TWO, "alice").into_future()).await;
        let answer = answer.unwrap();
        let copy = observed[0].as_ref().unwrap();
        assert!(answer.has_permit() && !copy.has_permit());
        drop((answer, clone));
        until_free(limiter, &TWO, "alice", 2).await;
    })
    .await;
}

#[tokio::test]
async fn a_reset_clears_the_windows_and_leaves_the_calls_in_flight() {
    on_each_store(async |limiter| {
        let calls = [
            limiter.check(&BOTH, "alice").await.unwrap(),
            limiter.check(&BOTH, "alice").await.unwrap(),
        ];
        limiter.reset(&BOTH, "alice").await.unwrap();
        assert_eq!(limiter.peek(&BOTH, "alice").cost(0).await.unwrap().remaining(), 5);
        assert!(is_busy(&limiter.check(&BOTH, "alice").await));
        assert!(calls.iter().all(Decision::has_permit));
        drop(calls);
        held(limiter, &BOTH, "alice").await;
    })
    .await;
}

#[tokio::test]
async fn an_override_changes_the_number_and_calls_in_flight_go_on() {
    on_each_store(async |limiter| {
        let calls = [
            limiter.check(&TWO, "alice").await.unwrap(),
            limiter.check(&TWO, "alice").await.unwrap(),
        ];
        limiter.overrides().here().set("two", Override::new().concurrency(3)).unwrap();
        let third = limiter.check(&TWO, "alice").await.unwrap();
        assert!(is_busy(&limiter.check(&TWO, "alice").await));
        limiter.overrides().here().set("two", Override::new().concurrency(1)).unwrap();
        drop(third);
        until_free(limiter, &TWO, "alice", 0).await;
        let refused = limiter.check(&TWO, "alice").await.unwrap_err();
        assert_eq!(refused.to_string(), "rate limit `two` is busy: at most 1 in flight");
        drop(calls);
        held(limiter, &TWO, "alice").await;
    })
    .await;
}

#[tokio::test]
async fn a_dry_run_passes_busy_calls_without_a_permit() {
    on_each_store(async |limiter| {
        let what = Override::new().enforcement(ratelimit_runtime::Enforcement::DryRun);
        limiter.overrides().here().set("two", what).unwrap();
        let mut calls = Vec::new();
        for _ in 0..4 {
            calls.push(limiter.check(&TWO, "alice").await.unwrap());
        }
        let held: Vec<_> = calls.iter().map(Decision::has_permit).collect();
        assert_eq!(held, [true, true, false, false]);
        assert!(calls[2].is_dry_run());
    })
    .await;
}

#[tokio::test]
async fn without_a_window_there_is_nothing_to_count() {
    on_each_store(async |limiter| {
        for check in
            [limiter.check(&TWO, "alice").cost(2), limiter.check(&TWO, "alice").request_id("job-7")]
        {
            let error = check.await.unwrap_err();
            let RateLimitError::InvalidPolicy(invalid) = &error else { panic!("{error}") };
            assert!(invalid.fault().to_string().contains("nothing to count"), "{error}");
        }
        let none = Policy::concurrency_limit("none", 0);
        let error = limiter.check(&none, "alice").await.unwrap_err();
        assert_eq!(error.to_string(), "rate limit `none` admits nothing: its concurrency is 0");
        assert!(matches!(error, RateLimitError::TooLarge(_)));
    })
    .await;
}

#[tokio::test]
async fn a_permit_alone_is_no_charge_to_settle() {
    on_each_store(async |limiter| {
        let call = limiter.check(&TWO, "alice").await.unwrap();
        assert!(call.has_permit() && !call.is_counted() && call.cost() == 0);
        call.settle(5);
        call.meter().add(7);
        limiter.settle(&call, 3).await.unwrap();
        limiter.refund(&call).await.unwrap();
        limiter.flush().await.unwrap();
        assert!(call.has_permit());
        assert_eq!(limiter.peek(&TWO, "alice").cost(0).await.unwrap().remaining(), 1);
        // Beside a window there is one.
        let call = limiter.check(&BOTH, "alice").cost(2).await.unwrap();
        assert!(call.has_permit() && call.is_counted());
        limiter.refund(&call).await.unwrap();
        assert!(call.has_permit());
        assert_eq!(limiter.peek(&BOTH, "alice").cost(0).await.unwrap().remaining(), 5);
    })
    .await;
}

/// Random calls of several callers agree with a count.
#[tokio::test]
async fn permits_agree_with_a_count_of_the_calls_in_flight() {
    on_each_store(async |limiter| {
        let mut rng = fastrand::Rng::with_seed(7);
        let policies = [
            TWO,
            Policy::fixed_window("counted", 60 * MINUTE, 40).concurrency(3),
            Policy::sliding_window("logged", 60 * MINUTE, 40).tier(600 * MINUTE, 60).concurrency(1),
        ];
        let mut calls: Vec<(usize, Decision)> = Vec::new();
        let mut taken = [0; 6];
        for _ in 0..600 {
            let key = rng.usize(..6);
            let (policy, caller) = (&policies[key % 3], ["alice", "bob"][key / 3]);
            let in_flight = calls.iter().filter(|(of, _)| *of == key).count();
            let most = policy.get_concurrency().unwrap() as usize;
            if rng.bool() {
                let Some(at) = calls.iter().position(|(of, _)| *of == key) else { continue };
                drop(calls.swap_remove(at));
                if key.is_multiple_of(3) {
                    let free = u32::try_from(most - in_flight + 1).unwrap();
                    until_free(limiter, policy, caller, free).await;
                } else if in_flight == most && taken[key] < 40 {
                    until("a free permit", async || limiter.peek(policy, caller).await.ok()).await;
                }
                continue;
            }
            let answer = limiter.check(policy, caller).await;
            let has_room = key.is_multiple_of(3) || taken[key] < 40;
            match answer {
                Ok(decision) => {
                    assert!(in_flight < most && has_room);
                    taken[key] += 1;
                    calls.push((key, decision));
                }
                Err(RateLimitError::Busy(_)) => assert_eq!(in_flight, most),
                Err(RateLimitError::Exceeded(_)) => assert!(in_flight < most && !has_room),
                Err(error) => panic!("{error}"),
            }
        }
        assert!(taken.iter().all(|taken| *taken > 20), "{taken:?}");
    })
    .await;
}
