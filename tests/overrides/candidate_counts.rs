//! A candidate counts for itself from its start, and only what its limit decides by numbers.

use std::{pin::pin, time::Duration};

use harness::{RedisServer, admitted, exceeded, on_each_store, until};
use ratelimit_runtime::{Enforcement, Limiter, OnStoreError, Override, Policy, overrides::Place};
use tokio::time::timeout;

use crate::candidates::{after, counts, threshold};

const MINUTE: Duration = Duration::from_secs(60);

/// Asserts that so many calls were refused for another reason than the numbers of the limit, and only those that
/// `counts` has asserted were newly admitted.
async fn otherwise(limiter: &Limiter, calls: u64) {
    let admitted = after(limiter, 0).await.newly_admitted;
    until("the other refusals", async || {
        let stats = after(limiter, 0).await;
        assert_eq!(stats.newly_admitted, admitted);
        (stats.refused_otherwise >= calls).then(|| assert_eq!(stats.refused_otherwise, calls))
    })
    .await;
}

#[tokio::test]
async fn each_candidate_has_counts_of_its_own_from_its_start() {
    let policy = Policy::sliding_window("tried anew", MINUTE, 1_000);
    on_each_store(async |limiter| {
        let overrides = limiter.overrides();
        let call = async |times: usize| {
            for _ in 0..times {
                let _ = limiter.check(&policy, "alice").await;
            }
        };
        overrides.candidate("tried anew", threshold(100)).unwrap();
        call(60).await;
        assert_eq!(counts(limiter, 60).await, (0, 0, 0));
        // Another one in its place, the same one again, and one after one that was applied.
        for is_ended in [false, true, true] {
            if is_ended {
                overrides.end_candidate("tried anew");
            }
            overrides.candidate("tried anew", threshold(20)).unwrap();
            call(21).await;
            assert_eq!(counts(limiter, 21).await, (1, 1, 0));
        }
        overrides.apply_candidate("tried anew").unwrap();
        overrides.candidate("tried anew", threshold(30)).unwrap();
        call(31).await;
        assert_eq!(counts(limiter, 31).await, (1, 0, 30));
    })
    .await;
}

#[tokio::test]
async fn a_published_candidate_has_counts_of_its_own_in_the_whole_fleet() {
    let server = RedisServer::start();
    let connect = async || Limiter::connect(&server.url()).await.unwrap();
    let (first, second) = (connect().await, connect().await);
    let policy = Policy::sliding_window("tried anew", MINUTE, 1_000);
    let both = [&first, &second];
    let publish = async |what: Override| {
        first.overrides().fleet().set("tried anew", what.clone()).await.unwrap();
        for limiter in both {
            until("the override", async || {
                let got = limiter.overrides().get("tried anew")?;
                let tried = got.candidate.as_ref().and_then(|tried| tried.threshold);
                let expected = what.candidate.as_ref().and_then(|tried| tried.threshold);
                ((got.enforcement, tried) == (what.enforcement, expected)).then_some(())
            })
            .await;
        }
    };
    let call = async |times: u64, calls: u64| {
        for limiter in both {
            for _ in 0..times {
                limiter.check(&policy, "alice").await.unwrap();
            }
            after(limiter, calls).await;
        }
    };
    let refused = || both.map(|limiter| limiter.overrides().candidates()[0].refused);
    publish(Override::new().candidate(threshold(100))).await;
    call(30, 30).await;
    // In place of the first, and after none, with the numbers of the one before it.
    for is_ended in [false, true] {
        if is_ended {
            first.overrides().fleet().remove("tried anew").await.unwrap();
            for limiter in both {
                let overrides = limiter.overrides();
                until("the end", async || overrides.get("tried anew").is_none().then_some(()))
                    .await;
            }
        }
        publish(Override::new().candidate(threshold(20))).await;
        call(10, 10).await;
        assert_eq!(refused(), [0, 0]);
        call(1, 11).await;
        assert_eq!(refused(), [1, 1]);
    }
    // A candidate that stays goes on with its counts, also if it is published again.
    let dry = Override::new().enforcement(Enforcement::DryRun);
    publish(dry.candidate(threshold(20))).await;
    call(1, 12).await;
    assert_eq!(refused(), [2, 2]);
}

#[tokio::test]
async fn a_call_that_the_limit_refuses_for_another_reason_is_not_newly_admitted() {
    let loose = || threshold(100);
    on_each_store(async |limiter| {
        let overrides = limiter.overrides();
        let refused = async |policy: &Policy, times: usize| {
            for _ in 0..times {
                assert!(limiter.check(policy, "alice").await.is_err(), "{policy:?}");
            }
        };
        // A pause, also for a call that is too large.
        let paused = Policy::sliding_window("tried pause", MINUTE, 5);
        overrides.candidate("tried pause", loose()).unwrap();
        limiter.pause(&paused, "alice", MINUTE).await.unwrap();
        refused(&paused, 5).await;
        assert!(limiter.check(&paused, "alice").cost(6).await.is_err());
        otherwise(limiter, 6).await;
        limiter.reset(&paused, "alice").await.unwrap();
        limiter.check(&paused, "alice").cost(5).await.unwrap();
        refused(&paused, 1).await;
        assert_eq!(counts(limiter, 2).await, (0, 0, 1));
        overrides.end_candidate("tried pause");
        // A line, for those who do not wait and for one who would wait too long.
        for policy in [
            Policy::sliding_window("tried line", MINUTE, 1),
            Policy::fixed_window("tried line", MINUTE, 1),
            Policy::token_bucket("tried line", MINUTE, 1),
        ] {
            overrides.candidate("tried line", loose()).unwrap();
            limiter.check(&policy, "alice").await.unwrap();
            let mut waiting = pin!(limiter.check(&policy, "alice").max_wait(MINUTE).into_future());
            let peek = || limiter.peek(&policy, "alice");
            until("the line", async || {
                assert!(timeout(Duration::from_millis(1), &mut waiting).await.is_err());
                (exceeded(peek().await).retry_after() > MINUTE).then_some(())
            })
            .await;
            refused(&policy, 3).await;
            assert!(limiter.check(&policy, "alice").max_wait(MINUTE).await.is_err());
            otherwise(limiter, 4).await;
            overrides.end_candidate("tried line");
        }
        // A block. The offence is refused by the numbers.
        for policy in [
            Policy::sliding_window("tried block", MINUTE, 2),
            Policy::sliding_counter("tried other block", MINUTE, 2),
        ] {
            let policy = policy.block(&[60 * MINUTE]);
            overrides.candidate(policy.name(), loose()).unwrap();
            for _ in 0..2 {
                limiter.check(&policy, "alice").await.unwrap();
            }
            refused(&policy, 6).await;
            assert_eq!(counts(limiter, 3).await, (0, 0, 1));
            otherwise(limiter, 5).await;
            overrides.end_candidate(policy.name());
        }
    })
    .await;
}

#[tokio::test]
async fn a_factor_multiplies_the_numbers_that_are_tried_as_it_does_those_in_effect() {
    const SCALED: Policy = Policy::sliding_window("tried under a factor", MINUTE, 3);
    for place in [Place::all(), Place::from(SCALED.name())] {
        on_each_store(async |limiter| {
            let overrides = limiter.overrides();
            overrides.here().set(place.clone(), Override::new().scale(2.0)).unwrap();
            overrides.candidate(SCALED.name(), threshold(2)).unwrap();
            for _ in 0..6 {
                limiter.check(&SCALED, "alice").await.unwrap();
            }
            assert_eq!(counts(limiter, 6).await, (2, 2, 0));
            overrides.apply_candidate(SCALED.name()).unwrap();
            let call = async || limiter.check(&SCALED, "bob").await.map(drop);
            assert_eq!(admitted(call).await, 4);
        })
        .await;
    }
}

#[tokio::test]
async fn a_process_alone_tries_a_candidate_under_the_share_of_its_limit() {
    const ALONE: Policy = Policy::sliding_window("tried alone", MINUTE, 10);
    let limiter = Limiter::builder().connect_lazy("redis://127.0.0.1:1").unwrap();
    let what = Override::new().on_store_error(OnStoreError::local::<20>()).candidate(threshold(10));
    limiter.overrides().here().set(ALONE.name(), what).unwrap();
    for _ in 0..4 {
        let _ = limiter.check(&ALONE, "alice").await;
    }
    // Equal numbers decide alike.
    assert_eq!(counts(&limiter, 4).await, (2, 0, 0));
}

#[tokio::test]
async fn a_call_that_another_budget_pays_for_is_tried_by_the_one_that_refused_it() {
    const PLAN: Policy = Policy::fixed_window("tried plan", MINUTE, 1);
    const CREDITS: Policy = Policy::fixed_window("tried credits", MINUTE, 8);
    on_each_store(async |limiter| {
        limiter.overrides().candidate(PLAN.name(), threshold(5)).unwrap();
        let mut paid = 0;
        for _ in 0..10 {
            let budgets = [&PLAN, &CREDITS].map(|policy| limiter.check(policy, "alice"));
            paid += u32::from(limiter.check_first(budgets).await.is_ok());
        }
        assert_eq!(paid, 9);
        assert_eq!(counts(limiter, 10).await, (5, 0, 4));
        // A peek and a call that is too large for both.
        let budgets = [&PLAN, &CREDITS].map(|policy| limiter.peek(policy, "alice"));
        limiter.check_first(budgets).await.unwrap_err();
        let budgets = [&PLAN, &CREDITS].map(|policy| limiter.check(policy, "alice").cost(9));
        limiter.check_first(budgets).await.unwrap_err();
        assert_eq!(counts(limiter, 11).await, (6, 0, 4));
    })
    .await;
}
