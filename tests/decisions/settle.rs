//! A call is settled at what it really took, once, in memory and on Redis alike.

use std::{cell::Cell, time::Duration};

use harness::{Clock, on_each_store, uncached};
use ratelimit_runtime::{Decision, Enforcement, Limiter, Policy, RateLimitError, rate_limit};
use tokio::time::advance;

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3_600);
const DAY: Duration = Duration::from_secs(86_400);
const MONTH: Duration = Duration::from_secs(30 * 86_400);

const LOG: Policy = Policy::sliding_window("log", HOUR, 10).tier(DAY, 30);
const COUNTER: Policy = Policy::sliding_counter("counter", DAY, 10).tier(MONTH, 30);
const WINDOW: Policy = Policy::fixed_window("window", HOUR, 10).tier(DAY, 30);
const BUCKET: Policy = Policy::token_bucket("bucket", DAY, 10).tier(MONTH, 30);
/// The states that count, and know no calls.
const COUNTS: [Policy; 3] = [COUNTER, WINDOW, BUCKET];
const ALL: [Policy; 4] = [LOG, COUNTER, WINDOW, BUCKET];

async fn left(limiter: &Limiter, policy: &Policy) -> u32 {
    limiter.peek(policy, "alice").cost(0).await.unwrap().remaining()
}

async fn take(limiter: &Limiter, policy: &Policy, cost: u32) -> Decision {
    limiter.check(policy, "alice").cost(cost).await.unwrap()
}

#[tokio::test]
async fn fewer_units_give_the_rest_back_to_every_tier() {
    on_each_store(async |limiter| {
        for policy in &ALL {
            let decision = take(limiter, policy, 8).await;
            limiter.settle(&decision, 3).await.unwrap();
            assert_eq!(left(limiter, policy).await, 7, "{policy:?}");
            limiter.check(policy, "alice").cost(8).await.unwrap_err();
            take(limiter, policy, 7).await;
        }
    })
    .await;
}

#[tokio::test]
async fn more_units_are_a_debt_of_every_tier() {
    on_each_store(async |limiter| {
        for policy in &COUNTS {
            let decision = take(limiter, policy, 2).await;
            let before = limiter.peek(policy, "alice").cost(10).await;
            let Err(RateLimitError::Exceeded(before)) = before else { panic!("{before:?}") };
            limiter.settle(&decision, 14).await.unwrap();
            assert_eq!(left(limiter, policy).await, 0, "{policy:?}");
            let refused = limiter.check(policy, "alice").await.unwrap_err();
            let RateLimitError::Exceeded(refused) = refused else { panic!("{refused}") };
            // One unit waits until the debt is paid; a window ends as before.
            if *policy == BUCKET {
                assert!(refused.retry_after() > DAY / 10 * 4, "{refused:?}");
            }
            assert!(refused.reset_after() + SECOND >= before.reset_after(), "{policy:?}");
        }
    })
    .await;
}

#[tokio::test]
async fn the_first_number_counts_whoever_tells_it() {
    on_each_store(async |limiter| {
        for policy in &ALL {
            let decision = take(limiter, policy, 4).await;
            let clone = decision.clone();
            limiter.settle(&decision, 1).await.unwrap();
            limiter.settle(&clone, 0).await.unwrap();
            limiter.refund(&decision).await.unwrap();
            clone.settle(2);
            drop(clone.meter());
            limiter.flush().await.unwrap();
            assert_eq!(left(limiter, policy).await, 9, "{policy:?}");

            let refunded = take(limiter, policy, 4).await;
            limiter.refund(&refunded).await.unwrap();
            limiter.settle(&refunded, 3).await.unwrap();
            assert_eq!(left(limiter, policy).await, 9, "{policy:?}");

            // The number that was reserved is a settle too.
            let kept = take(limiter, policy, 4).await;
            limiter.settle(&kept, 4).await.unwrap();
            limiter.refund(&kept).await.unwrap();
            assert_eq!(left(limiter, policy).await, 5, "{policy:?}");
        }
    })
    .await;
}

#[tokio::test]
async fn a_decision_settles_without_being_awaited() {
    on_each_store(async |limiter| {
        for policy in &COUNTS {
            let (less, more) = (take(limiter, policy, 4).await, take(limiter, policy, 1).await);
            less.settle(1);
            more.settle(3);
            limiter.flush().await.unwrap();
            assert_eq!(left(limiter, policy).await, 6, "{policy:?}");
        }
    })
    .await;
}

#[tokio::test]
async fn a_meter_settles_when_its_last_clone_is_dropped() {
    on_each_store(async |limiter| {
        for policy in &COUNTS {
            let decision = take(limiter, policy, 1).await;
            let meter = decision.meter();
            let stream = meter.clone();
            drop(decision);
            stream.add(2);
            drop(stream);
            limiter.flush().await.unwrap();
            assert_eq!(left(limiter, policy).await, 9, "{policy:?}");
            meter.add(3);
            assert_eq!(meter.units(), 5);
            drop(meter);
            limiter.flush().await.unwrap();
            assert_eq!(left(limiter, policy).await, 5, "{policy:?}");
        }
    })
    .await;
}

#[tokio::test]
async fn a_reset_clears_what_a_call_would_owe_or_get_back() {
    on_each_store(async |limiter| {
        for policy in &ALL {
            let (less, more) = (take(limiter, policy, 4).await, take(limiter, policy, 1).await);
            limiter.reset(policy, "alice").await.unwrap();
            if *policy != LOG {
                limiter.settle(&more, 9).await.unwrap();
                assert_eq!(left(limiter, policy).await, 10, "{policy:?}");
            }
            take(limiter, policy, 5).await;
            limiter.settle(&less, 0).await.unwrap();
            assert_eq!(left(limiter, policy).await, 5, "{policy:?}");
        }
    })
    .await;
}

#[tokio::test]
async fn a_call_is_settled_under_a_changed_policy() {
    on_each_store(async |limiter| {
        for (old, new) in [
            (LOG, Policy::sliding_window("log", HOUR, 20)),
            (COUNTER, Policy::sliding_counter("counter", DAY, 20)),
            (WINDOW, Policy::fixed_window("window", HOUR, 20)),
            (BUCKET, Policy::token_bucket("bucket", DAY, 20)),
        ] {
            let (less, more) = (take(limiter, &old, 4).await, take(limiter, &old, 2).await);
            let before = left(limiter, &new).await;
            take(limiter, &new, 1).await;
            limiter.settle(&less, 1).await.unwrap();
            assert_eq!(left(limiter, &new).await, before - 1 + 3, "{new:?}");
            if old != LOG {
                limiter.settle(&more, 3).await.unwrap();
                assert_eq!(left(limiter, &new).await, before - 2 + 3, "{new:?}");
            }
        }
    })
    .await;
}

#[tokio::test]
async fn a_call_by_hand_is_settled_above_its_cost_once() {
    on_each_store(async |limiter| {
        let decision = take(limiter, &LOG, 2).await;
        let single = take(limiter, &LOG, 1).await;
        for (decision, to, expected) in [(&decision, 3, 6), (&single, 4, 3)] {
            for again in [to, to + 1, 0] {
                limiter.settle(decision, again).await.unwrap();
                assert_eq!(left(limiter, &LOG).await, expected);
            }
        }
    })
    .await;
}

#[tokio::test]
async fn a_settled_id_stays_charged() {
    on_each_store(async |limiter| {
        let job = || limiter.check(&LOG, "alice").cost(5).request_id("job");
        let (first, again) = (job().await.unwrap(), job().await.unwrap());
        limiter.settle(&first, 2).await.unwrap();
        assert_eq!(left(limiter, &LOG).await, 8);
        limiter.settle(&again, 0).await.unwrap();
        job().await.unwrap();
        assert_eq!(left(limiter, &LOG).await, 8);
    })
    .await;
}

#[tokio::test]
async fn a_repetition_of_another_cost_settles_nothing() {
    on_each_store(async |limiter| {
        let policy = Policy::sliding_window("repeated", HOUR, 20);
        for (again, to) in [(1, 4), (3, 4), (1, 2), (1, 0), (3, 2), (3, 0)] {
            limiter.reset(&policy, "alice").await.unwrap();
            let check = |cost| limiter.check(&policy, "alice").cost(cost).request_id("job");
            let first = check(2).await.unwrap();
            limiter.settle(&check(again).await.unwrap(), to).await.unwrap();
            assert_eq!(left(limiter, &policy).await, 18, "{again} settled at {to}");
            limiter.settle(&first, 5).await.unwrap();
            assert_eq!(left(limiter, &policy).await, 15, "{again} settled at {to}");
        }
    })
    .await;
}

#[tokio::test]
async fn an_uncounted_call_is_not_settled() {
    on_each_store(async |limiter| {
        for policy in &COUNTS {
            let free = limiter.check(policy, "alice").cost(0).await.unwrap();
            let peeked = limiter.peek(policy, "alice").await.unwrap();
            limiter.overrides().here().set("*", Enforcement::Off).unwrap();
            let passed = limiter.check(policy, "alice").await.unwrap();
            limiter.overrides().here().remove("*");
            for decision in [free, peeked, passed] {
                assert!(!decision.is_counted());
                limiter.settle(&decision, 5).await.unwrap();
                decision.settle(5);
                decision.meter().add(5);
            }
            limiter.flush().await.unwrap();
            assert_eq!(left(limiter, policy).await, 10, "{policy:?}");
            assert!(take(limiter, policy, 1).await.is_counted());
        }
    })
    .await;
}

#[tokio::test]
async fn a_debt_of_a_bucket_is_at_most_one_full_bucket() {
    on_each_store(async |limiter| {
        let policy = Policy::token_bucket("bucket", HOUR, 10);
        let decision = take(limiter, &policy, 1).await;
        limiter.settle(&decision, u32::MAX).await.unwrap();
        let refused = limiter.check(&policy, "alice").cost(10).await.unwrap_err();
        let RateLimitError::Exceeded(refused) = refused else { panic!("{refused}") };
        let wait = refused.retry_after();
        assert!(wait <= 2 * HOUR && wait + SECOND >= 2 * HOUR, "{refused:?}");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_debt_counts_from_when_it_is_known_also_after_the_window() {
    let limiter = Limiter::in_memory();
    let passed = [
        (Policy::sliding_counter("p", HOUR, 10), 3 * HOUR),
        (Policy::fixed_window("p", HOUR, 10), 3 * HOUR),
        (Policy::token_bucket("p", HOUR, 10), 3 * HOUR),
    ];
    for (policy, passed) in passed {
        let (more, less) = (take(&limiter, &policy, 2).await, take(&limiter, &policy, 2).await);
        advance(passed).await;
        limiter.settle(&less, 0).await.unwrap();
        assert_eq!(left(&limiter, &policy).await, 10, "{policy:?}");
        limiter.settle(&more, 7).await.unwrap();
        assert_eq!(left(&limiter, &policy).await, 5, "{policy:?}");
        // It does not last longer than what is taken then.
        advance(2 * HOUR).await;
        assert_eq!(left(&limiter, &policy).await, 10, "{policy:?}");
    }
}

/// Settles a call of two tiers above its cost, after both have forgotten it. The decision is about the shorter one.
async fn exceeds_a_forgotten_charge(limiter: &Limiter, step: impl AsyncFn(Duration)) {
    let policy = Policy::sliding_window("both", SECOND, 10).tier(60 * SECOND, 100);
    for (cost, units) in [(5, 65), (1, 61)] {
        let decision = take(limiter, &policy, cost).await;
        assert_eq!(decision.period(), SECOND);
        step(90 * SECOND).await;
        limiter.settle(&decision, units).await.unwrap();
        for (later, used) in [(10 * SECOND, 60), (60 * SECOND, 0)] {
            step(later).await;
            let usage = limiter.usage(&policy, "alice").await.unwrap();
            assert_eq!(usage.tiers()[1].used(), used, "{cost} after {later:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_debt_in_memory_counts_in_every_tier_also_after_the_windows() {
    exceeds_a_forgotten_charge(&Limiter::in_memory(), advance).await;
}

#[tokio::test]
async fn a_debt_on_redis_counts_in_every_tier_also_after_the_windows() {
    let clock = Clock::new();
    let server = clock.server(&[]);
    let passed = Cell::new(0);
    exceeds_a_forgotten_charge(&uncached(&server.url()).await, async |step: Duration| {
        passed.set(passed.get() + i64::try_from(step.as_millis()).unwrap());
        clock.step(&server, passed.get());
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_bucket_refills_from_below_zero() {
    let limiter = Limiter::in_memory();
    let policy = Policy::token_bucket("p", 10 * SECOND, 10);
    let decision = take(&limiter, &policy, 10).await;
    limiter.settle(&decision, 14).await.unwrap();
    advance(4 * SECOND).await;
    assert_eq!(left(&limiter, &policy).await, 0);
    advance(SECOND).await;
    take(&limiter, &policy, 1).await;
    limiter.check(&policy, "alice").await.unwrap_err();
}

/// Two calls of one window, settled at 150 and at 0: the clamped count would lose 50 units.
#[tokio::test]
async fn a_counter_counts_what_is_above_its_threshold() {
    on_each_store(async |limiter| {
        let policy = Policy::sliding_counter("p", DAY, 100);
        let (more, none) = (take(limiter, &policy, 50).await, take(limiter, &policy, 50).await);
        limiter.settle(&more, 150).await.unwrap();
        limiter.settle(&none, 0).await.unwrap();
        assert_eq!(left(limiter, &policy).await, 0);
        limiter.check(&policy, "alice").await.unwrap_err();
    })
    .await;
}

#[tokio::test]
async fn the_decision_of_a_dropped_limiter_settles_nothing() {
    let limiter = Limiter::in_memory();
    let decision = take(&limiter, &WINDOW, 2).await;
    drop(limiter);
    decision.settle(0);
    assert!(decision.is_counted());
}

/// The body of an annotated function settles its own call.
#[tokio::test]
async fn an_annotated_body_settles_its_call() {
    #[rate_limit(period = "1d", threshold = 10, name = "rows", algorithm = fixed_window,
        key = user, cost = 5, limiter = limiter, decision = quota)]
    async fn rows(limiter: &Limiter, user: &str, rows: u32) -> Result<u32, RateLimitError> {
        quota.settle(rows);
        Ok(quota.remaining())
    }

    const ROWS: Policy = Policy::fixed_window("rows", DAY, 10);
    on_each_store(async |limiter| {
        rows(limiter, "alice", 2).await.unwrap();
        limiter.flush().await.unwrap();
        assert_eq!(left(limiter, &ROWS).await, 8);
        rows(limiter, "alice", 9).await.unwrap();
        limiter.flush().await.unwrap();
        rows(limiter, "alice", 1).await.unwrap_err();
    })
    .await;
}

#[tokio::test]
async fn an_annotated_function_is_settled_by_its_output() {
    #[rate_limit(period = "1d", threshold = 10, name = "told", algorithm = token_bucket, key = user,
        cost = 4, limiter = limiter, settle = |out| out.as_ref().copied().unwrap_or(0))]
    async fn told(limiter: &Limiter, user: &str, units: u32) -> Result<u32, RateLimitError> {
        limiter.check(&LOG, user).cost(units).await?;
        Ok(units)
    }
    #[rate_limit(period = "1d", threshold = 10, name = "failed", key = user, limiter = limiter,
        settle = |out| u32::from(out.is_err()))]
    async fn failed(limiter: &Limiter, user: &str, does: bool) -> Result<(), RateLimitError> {
        if does { limiter.check(&LOG, user).cost(11).await.map(drop) } else { Ok(()) }
    }

    const TOLD: Policy = Policy::token_bucket("told", DAY, 10);
    const FAILED: Policy = Policy::sliding_window("failed", DAY, 10);
    on_each_store(async |limiter| {
        // Fewer, none, more.
        for (units, expected) in [(1, 9), (11, 9), (6, 3)] {
            let told = told(limiter, "alice", units).await;
            assert_eq!(told.is_ok(), units < 11);
            limiter.flush().await.unwrap();
            assert_eq!(left(limiter, &TOLD).await, expected);
        }
        for (does, expected) in [(false, 10), (true, 9), (false, 9)] {
            assert_eq!(failed(limiter, "alice", does).await.is_err(), does);
            limiter.flush().await.unwrap();
            assert_eq!(left(limiter, &FAILED).await, expected);
        }
    })
    .await;
}
