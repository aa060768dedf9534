//! A charge is given back to the state that it was made in, whatever numbers hold by then.

use std::{
    cell::Cell,
    time::{Duration, UNIX_EPOCH},
};

use fastrand::Rng;
use harness::{Clock, on_each_store, schedule::seed, uncached, zone_before_noon};
use ratelimit_runtime::{CalendarUnit, Decision, Limiter, Override, Policy};
use tokio::time::sleep;

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
/// Nothing leaves a window of such a length during a test.
const DAY: Duration = Duration::from_secs(86_400);

type New = fn(&'static str, Duration, u32) -> Policy;

const ALGORITHMS: [New; 4] =
    [Policy::sliding_window, Policy::sliding_counter, Policy::fixed_window, Policy::token_bucket];

async fn take(limiter: &Limiter, policy: &Policy, caller: &str, cost: u32) -> Decision {
    limiter.check(policy, caller).cost(cost).await.unwrap()
}

async fn left(limiter: &Limiter, policy: &Policy, caller: &str) -> u32 {
    limiter.peek(policy, caller).cost(0).await.unwrap().remaining()
}

/// Asserts that as much is left for Alice, whose charges were given back, as for Bob, who never had them.
async fn assert_alike(limiter: &Limiter, policy: &Policy, case: &str) {
    let (alice, bob) = (left(limiter, policy, "alice").await, left(limiter, policy, "bob").await);
    assert_eq!(alice, bob, "{case} under {policy:?}");
}

/// Other numbers of a limit of 10 units in a period.
fn changes(period: Duration) -> [(&'static str, Override); 6] {
    [
        ("shorter", Override::new().period(period / 2)),
        ("longer", Override::new().period(period * 2)),
        ("fewer", Override::new().threshold(8)),
        ("more", Override::new().threshold(30)),
        ("both", Override::new().threshold(20).period(period * 2)),
        ("tiers", Override::new().tier(period / 2, 8).tier(period * 2, 12)),
    ]
}

#[tokio::test]
async fn a_charge_from_before_an_override_comes_back_under_it_and_after_it() {
    on_each_store(async |limiter| {
        for make in ALGORITHMS {
            for (change, what) in changes(DAY) {
                for settled in [0, 2] {
                    let policy = make("before", DAY, 10);
                    let charge = take(limiter, &policy, "alice", 6 - settled).await;
                    take(limiter, &policy, "alice", 1 + settled).await;
                    take(limiter, &policy, "bob", 1 + settled).await;
                    limiter.overrides().here().set("before", what.clone()).unwrap();
                    let before = left(limiter, &policy, "alice").await;
                    take(limiter, &policy, "alice", 1).await;
                    take(limiter, &policy, "bob", 1).await;
                    limiter.settle(&charge, 0).await.unwrap();
                    assert!(left(limiter, &policy, "alice").await > before, "{change} {policy:?}");
                    assert_alike(limiter, &policy, change).await;
                    limiter.overrides().here().remove("before");
                    assert_alike(limiter, &policy, change).await;
                    for caller in ["alice", "bob"] {
                        limiter.reset(&policy, caller).await.unwrap();
                    }
                }
            }
        }
    })
    .await;
}

/// As a plan does, or a deploy: the policies have one name.
#[tokio::test]
async fn a_charge_of_another_plan_comes_back() {
    on_each_store(async |limiter| {
        for make in ALGORITHMS {
            let free = make("plans", DAY, 10);
            for pro in [make("plans", DAY, 25), make("plans", DAY / 2, 10).tier(DAY * 3, 40)] {
                take(limiter, &free, "alice", 1).await;
                take(limiter, &free, "bob", 1).await;
                let charge = take(limiter, &free, "alice", 6).await;
                take(limiter, &pro, "alice", 1).await;
                take(limiter, &pro, "bob", 1).await;
                limiter.refund(&charge).await.unwrap();
                assert_alike(limiter, &pro, "a plan").await;
                assert_alike(limiter, &free, "a plan").await;
                for caller in ["alice", "bob"] {
                    limiter.reset(&free, caller).await.unwrap();
                }
            }
        }
        let of =
            |unit, units| Policy::calendar_window("units", unit, units).zone(zone_before_noon());
        let (day, month) = (of(CalendarUnit::Day, 10), of(CalendarUnit::Month, 20));
        for (one, other) in [(day, month), (month, day)] {
            let charge = take(limiter, &one, "alice", 6).await;
            let own = take(limiter, &other, "alice", 2).await;
            limiter.settle(&charge, 1).await.unwrap();
            let all = other.tiers()[0].threshold();
            assert_eq!(left(limiter, &other, "alice").await, all - 3, "{other:?}");
            limiter.refund(&own).await.unwrap();
            assert_eq!(left(limiter, &other, "alice").await, all - 1, "{other:?}");
            assert_eq!(left(limiter, &one, "alice").await, one.tiers()[0].threshold() - 1);
            limiter.reset(&one, "alice").await.unwrap();
        }
    })
    .await;
}

/// Changes the numbers at random between charges, some of which are given back. No time passes.
#[tokio::test]
async fn no_more_comes_back_than_was_charged_however_often_the_numbers_change() {
    on_each_store(async |limiter| {
        let mut rng = Rng::with_seed(seed());
        for round in 0..40 {
            for make in ALGORITHMS {
                let policy = make("often", DAY, 40);
                let is_bucket = policy == Policy::token_bucket("often", DAY, 40);
                let (mut charges, mut history) = (Vec::new(), Vec::new());
                for _ in 0..12 {
                    match rng.u8(..4) {
                        0 => {
                            let (_, what) = changes(DAY)[rng.usize(..6)].clone();
                            let what = match what.threshold {
                                Some(_) => what.threshold(rng.u32(3..60)),
                                None => what,
                            };
                            history.push(format!("{what:?}"));
                            limiter.overrides().here().set("often", what).unwrap();
                        }
                        1 if !charges.is_empty() => {
                            let charge = charges.swap_remove(rng.usize(..charges.len()));
                            limiter.refund(&charge).await.unwrap();
                            history.push("refund".to_owned());
                        }
                        2 => {
                            let cost = rng.u32(1..=3);
                            history.push(format!("{cost} that stay"));
                            if limiter.check(&policy, "alice").cost(cost).await.is_ok() {
                                take(limiter, &policy, "bob", cost).await;
                            }
                        }
                        _ => {
                            let cost = rng.u32(1..=3);
                            history.push(format!("{cost} that come back"));
                            charges.extend(limiter.check(&policy, "alice").cost(cost).await.ok());
                            // Both have called under the same numbers.
                            if let Ok(charge) = limiter.check(&policy, "bob").cost(cost).await {
                                limiter.refund(&charge).await.unwrap();
                            }
                        }
                    }
                }
                for charge in charges {
                    limiter.refund(&charge).await.unwrap();
                }
                for is_overridden in [true, false] {
                    let alice = left(limiter, &policy, "alice").await;
                    let bob = left(limiter, &policy, "bob").await;
                    let case = format!("{round} {is_overridden} {policy:?}: {history:?}");
                    assert!(alice <= bob, "{alice} of {bob}: {case}");
                    // A bucket that was too empty for a charge has forgotten a part of it.
                    assert!(alice == bob || is_bucket, "{alice} of {bob}: {case}");
                    limiter.overrides().here().remove("often");
                }
                for caller in ["alice", "bob"] {
                    limiter.reset(&policy, caller).await.unwrap();
                }
            }
        }
    })
    .await;
}

#[tokio::test]
async fn a_smaller_bucket_gets_back_what_it_took_over_and_no_more() {
    on_each_store(async |limiter| {
        let policy = Policy::token_bucket("small", DAY, 10);
        let charge = take(limiter, &policy, "alice", 6).await;
        limiter.overrides().here().set("small", Override::new().threshold(5)).unwrap();
        let own = take(limiter, &policy, "alice", 1).await;
        assert_eq!(left(limiter, &policy, "alice").await, 3);
        // Without the charge it would have been full before its own.
        limiter.refund(&charge).await.unwrap();
        assert_eq!(left(limiter, &policy, "alice").await, 4);
        limiter.refund(&own).await.unwrap();
        assert_eq!(left(limiter, &policy, "alice").await, 5);
        limiter.overrides().here().remove("small");
        assert_eq!(left(limiter, &policy, "alice").await, 10);
    })
    .await;
}

/// Under more generous numbers, a bucket of others is empty long before.
#[tokio::test]
async fn a_bucket_gets_back_only_the_tokens_that_a_charge_has_found_in_it() {
    on_each_store(async |limiter| {
        let policy = Policy::token_bucket("empty", DAY, 10);
        let own = take(limiter, &policy, "alice", 9).await;
        let generous = Override::new().threshold(10_000).period(SECOND);
        limiter.overrides().here().set("empty", generous).unwrap();
        // It starts with the one token that the other has.
        left(limiter, &policy, "alice").await;
        take(limiter, &policy, "alice", 1).await;
        sleep(SECOND / 20).await;
        let later = take(limiter, &policy, "alice", 100).await;
        limiter.overrides().here().remove("empty");
        assert_eq!(left(limiter, &policy, "alice").await, 0);
        limiter.refund(&later).await.unwrap();
        assert_eq!(left(limiter, &policy, "alice").await, 0);
        limiter.refund(&own).await.unwrap();
        assert_eq!(left(limiter, &policy, "alice").await, 9);
        // What is taken since then is its own.
        let since = take(limiter, &policy, "alice", 4).await;
        limiter.refund(&since).await.unwrap();
        assert_eq!(left(limiter, &policy, "alice").await, 9);
    })
    .await;
}

/// The times of a charge, of the change after it and of the refund, from the start of a window of a minute on.
const TIMES: [[u64; 3]; 5] = [[5, 10, 15], [10, 45, 52], [10, 45, 67], [10, 70, 83], [48, 70, 97]];

/// Gives a charge back after its numbers have changed, and time has passed. A log keeps the times of its units, and a
/// bucket is refilled meanwhile.
async fn passes_time(limiter: &Limiter, step: impl AsyncFn(Duration)) {
    for make in [Policy::sliding_counter, Policy::fixed_window] {
        for period in [30, 40, 90, 120].map(Duration::from_secs) {
            for [charged, changed, refunded] in TIMES.map(|times| times.map(Duration::from_secs)) {
                let policy = make("times", MINUTE, 10);
                // The windows of both start alike.
                for passed in [SECOND, charged.saturating_sub(SECOND)] {
                    step(passed).await;
                    for caller in ["alice", "bob"] {
                        take(limiter, &policy, caller, 1).await;
                    }
                }
                let charge = take(limiter, &policy, "alice", 6).await;
                step(changed.saturating_sub(charged)).await;
                limiter.overrides().here().set("times", Override::new().period(period)).unwrap();
                for caller in ["alice", "bob"] {
                    take(limiter, &policy, caller, 1).await;
                }
                step(refunded.saturating_sub(changed)).await;
                limiter.refund(&charge).await.unwrap();
                let case = format!("{charged:?} {changed:?} {refunded:?} {period:?}");
                assert_alike(limiter, &policy, &case).await;
                limiter.overrides().here().remove("times");
                assert_alike(limiter, &policy, &case).await;
                for caller in ["alice", "bob"] {
                    limiter.reset(&policy, caller).await.unwrap();
                }
                // To the start of another window.
                step((MINUTE * 12).saturating_sub(refunded)).await;
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_charge_in_memory_comes_back_after_time_has_passed() {
    passes_time(&Limiter::in_memory(), tokio::time::advance).await;
}

#[tokio::test]
async fn a_charge_on_redis_comes_back_after_time_has_passed() {
    let clock = Clock::new();
    let server = clock.server(&[]);
    let limiter = uncached(&server.url()).await;
    let wall_clock = || UNIX_EPOCH.elapsed().unwrap();
    let round = MINUTE * 12;
    let start = round * u32::try_from(wall_clock().as_secs() / round.as_secs() + 1).unwrap();
    let now = Cell::new(start);
    let step = async |passed| {
        now.set(now.get() + passed);
        let ahead = now.get().saturating_sub(wall_clock());
        clock.step(&server, i64::try_from(ahead.as_millis()).unwrap());
    };
    step(Duration::ZERO).await;
    passes_time(&limiter, step).await;
}

/// A counter knows since when it has taken over the counts of another period. A clock that steps back makes calls from
/// before that.
#[tokio::test]
async fn a_charge_after_a_clock_has_stepped_back_comes_back() {
    let clock = Clock::new();
    let server = clock.server(&[]);
    let limiter = uncached(&server.url()).await;
    for make in ALGORITHMS {
        let policy = make("back", MINUTE * 10, 9);
        clock.step(&server, 0);
        take(&limiter, &make("back", MINUTE, 9), "alice", 1).await;
        take(&limiter, &policy, "alice", 1).await;
        clock.step(&server, -1_200_000);
        let charge = take(&limiter, &policy, "alice", 3).await;
        let before = left(&limiter, &policy, "alice").await;
        limiter.refund(&charge).await.unwrap();
        assert_eq!(left(&limiter, &policy, "alice").await, before + 3, "{policy:?}");
    }
}
