//! Both stores decide as the specification does, call by call.
//!
//! Schedules are random: `MODEL_SEED` chooses one, or another each time if it is `random`. `MODEL_OPS` is the number of checked calls for each
//! algorithm: 25 000 by default, 10 000 000 for a long run.

mod calendar;
mod in_turns;
mod people;
mod replay;
mod script;
mod waits;

use std::{collections::HashMap, fmt::Debug, time::Duration};

use fastrand::Rng;
use harness::{
    RedisServer,
    model::{Answer, left_of},
    schedule::{Case, Kind, Operation, Schedule, blocking, cases, operations, seed},
};
use ratelimit_runtime::{Algorithm, Limiter, Policy, RateLimitError};

use self::script::{Script, Tiers};

/// In the year 2023. Later than this the clock of a schedule is set back, with new callers.
const START: u64 = 1_700_000_000_000_000;
const LATEST: u64 = 4_000_000_000_000_000;

/// Calls sent to Redis at once.
const BATCH: usize = 200;

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap()
}

fn assert_agree<T: PartialEq + Debug>(
    (actual, expected): (T, T),
    operation: Operation,
    case: &impl Debug,
    seed: u64,
) {
    assert!(
        actual == expected,
        "MODEL_SEED={seed}: {operation:?} under {case:?}\n answered {actual:?}\n expected {expected:?}"
    );
}

/// The policies that do not take turns, and whose calls are over at once.
fn alone(cases: Vec<Vec<Case>>) -> impl Iterator<Item = Case> {
    let alone = cases.into_iter().filter_map(|cases| <[Case; 1]>::try_from(cases).ok());
    alone.flatten().filter(|case| case.policy.get_concurrency().is_none())
}

/// Drives the shipped script with the schedules of all its cases.
fn check_script(kind: Kind) {
    let (seed, server) = (seed(), RedisServer::start());
    let mut script = Script::load(&server, kind);
    let mut rng = Rng::with_seed(seed);
    let all: Vec<_> = cases(kind).into_iter().chain(alone(blocking(kind))).collect();
    let mut decided = 0;
    for case in &all {
        let tiers = [Tiers::of(case)];
        let () = server.command("FLUSHALL");
        let (mut left, mut generation) = (operations().div_ceil(all.len()), 0);
        while left > 0 {
            generation += 1;
            let mut schedule = Schedule::back_and_forth(case, START, rng.fork());
            while left > 0 && (START / 2..LATEST).contains(&schedule.now()) {
                let batch = BATCH.min(left);
                let (calls, expected): (Vec<_>, Vec<_>) = (0..batch)
                    .map(|_| {
                        let (operation, answer) = schedule.call();
                        let key = format!("{}:{generation}", operation.caller);
                        ((operation, key), answer)
                    })
                    .unzip();
                let answers = script.decide(&tiers, &calls);
                for (((answer, _), expected), (operation, _)) in
                    answers.into_iter().zip(expected).zip(calls)
                {
                    assert_agree((answer, expected), operation, case, seed);
                }
                left -= batch;
                decided += batch;
            }
        }
        assert_log_is_bounded(&server, case);
    }
    assert!(decided >= operations());
}

fn assert_log_is_bounded(server: &RedisServer, case: &Case) {
    if case.is_single {
        let largest = case.policy.tiers().iter().map(|tier| tier.threshold()).max().unwrap();
        for key in
            server.keys().into_iter().filter(|key| !key.ends_with(":b") && !key.ends_with(":x"))
        {
            let header: Option<f64> = server.command(&format!("ZSCORE {key} @"));
            if header.is_none() {
                // A clock that has stepped back by more than a period makes entries of its units.
                continue;
            }
            let units: u32 = server.command(&format!("ZCOUNT {key} 0 +inf"));
            assert!(units <= largest, "{units} units under {case:?}");
        }
    }
}

/// Converts a limiter's answer into the model's.
fn answer(
    policy: &Policy,
    leave: u32,
    answer: Result<ratelimit_runtime::Decision, RateLimitError>,
) -> Answer {
    let index = |period, threshold| {
        let is_bucket = policy.algorithm() == Algorithm::TokenBucket;
        let is_it = |tier: &ratelimit_runtime::Tier| {
            let left = if is_bucket { 0 } else { left_of(tier.threshold(), leave) };
            tier.period() == period && tier.threshold() - left == threshold
        };
        let tiers = policy.tiers();
        tiers
            .iter()
            .position(is_it)
            .or(tiers.is_empty().then_some(0))
            .expect("a tier of the policy")
    };
    if let Ok((remaining, quota)) = answer.as_ref().map(|it| (it.remaining(), it.quota())) {
        assert!(remaining <= quota, "{remaining} of {quota} under {policy:?}");
    }
    match answer {
        Ok(decision) => Answer {
            admitted: true,
            is_busy: false,
            tier: index(decision.period(), decision.threshold()),
            remaining: decision.remaining(),
            wait: micros(decision.replenish_after()),
            reset: micros(decision.reset_after()),
            more: 0,
        },
        Err(RateLimitError::Exceeded(refused)) => Answer {
            admitted: false,
            is_busy: false,
            tier: index(refused.period(), refused.threshold()),
            remaining: refused.remaining(),
            wait: micros(refused.retry_after()),
            reset: micros(refused.reset_after()),
            more: 0,
        },
        Err(RateLimitError::Busy(_)) => Answer::BUSY,
        Err(error) => panic!("{error}"),
    }
}

/// The time of an embedded limiter when it is made: 70 years after its epoch, to which the windows of
/// a sliding counter are aligned.
const EPOCH: u64 = 70 * 365 * 24 * 3_600 * 1_000_000;

/// Drives an embedded limiter with the schedules of all its cases, on tokio's paused clock.
async fn check_embedded(kind: Kind) {
    let seed = seed();
    let mut rng = Rng::with_seed(seed);
    let all: Vec<_> = cases(kind).into_iter().chain(alone(blocking(kind))).collect();
    for case in &all {
        let mut limiter = Limiter::in_memory();
        let mut schedule = Schedule::forwards(case, EPOCH, rng.fork());
        let mut admissions = HashMap::new();
        for _ in 0..operations().div_ceil(all.len()) {
            if schedule.now() > LATEST {
                limiter = Limiter::in_memory();
                schedule = Schedule::forwards(case, EPOCH, rng.fork());
                admissions.clear();
            }
            let before = schedule.now();
            let (operation, expected) = schedule.call();
            let Operation { caller, now, cost, record, .. } = operation;
            if now > before {
                tokio::time::advance(Duration::from_micros(now - before)).await;
            }
            let decided = if record {
                limiter.check(&case.policy, caller).cost(cost).await
            } else {
                limiter.peek(&case.policy, caller).cost(cost).await
            };
            let actual = answer(&case.policy, case.leave, decided);
            // Callers do not receive `more`: a test of the store checks it.
            assert_agree((actual, Answer { more: 0, ..expected }), operation, case, seed);
            let has_block = case.policy.get_block().next().is_some();
            let is_log = case.policy.algorithm() == Algorithm::SlidingWindow;
            if is_log && !case.policy.counts_rejected() && !has_block {
                let admissions = admissions.entry(caller).or_default();
                assert_window_property(admissions, operation, actual.admitted, case, seed);
            }
        }
    }
}

/// Asserts by the admissions alone that no window of a tier's length has more units than its threshold,
/// and that no call is refused for which there was room.
fn assert_window_property(
    admissions: &mut Vec<(u64, u32)>,
    Operation { now, cost, record, .. }: Operation,
    admitted: bool,
    case: &Case,
    seed: u64,
) {
    let has_room = case.policy.tiers().iter().all(|tier| {
        // Time does not go back here: of all windows, the one that ends now has the new units.
        let in_window = |(at, _): &&(u64, u32)| at + micros(tier.period()) > now;
        let held: u32 = admissions.iter().rev().take_while(in_window).map(|(_, cost)| cost).sum();
        held + cost <= tier.threshold()
    });
    assert_eq!(admitted, has_room, "MODEL_SEED={seed}: at {now} under {case:?}");
    if admitted && record {
        admissions.push((now, cost));
    }
}

#[test]
fn the_straight_way_through_a_log_answers_as_the_general_one() {
    let (seed, server) = (seed(), RedisServer::start());
    let mut script = Script::load(&server, Kind::Plain(Algorithm::SlidingWindow));
    let mut rng = Rng::with_seed(seed);
    let mut all = cases(Kind::Plain(Algorithm::SlidingWindow));
    all.retain(|case| !case.policy.counts_rejected() && case.policy.tiers()[0].threshold() <= 100);
    let (mut admitted, mut refused) = (0, 0);
    for case in &all {
        let () = server.command("FLUSHALL");
        let mut schedule = Schedule::back_and_forth(case, START, rng.fork());
        for _ in 0..operations().div_ceil(BATCH * all.len()) {
            let operations: Vec<_> =
                (0..BATCH).map(|_| Operation { cost: 1, ..schedule.call().0 }).collect();
            let mut decide = |way: &str, goes_straight| {
                script.goes_straight = goes_straight;
                let call = |it: &Operation| (*it, format!("{way}:{}", it.caller));
                script.decide(&[Tiers::of(case)], &operations.iter().map(call).collect::<Vec<_>>())
            };
            let (straight, general) = (decide("straight", true), decide("general", false));
            for (operation, ((straight, _), (general, _))) in
                operations.iter().zip(straight.into_iter().zip(general))
            {
                assert_agree((straight, general), *operation, case, seed);
                *if general.admitted { &mut admitted } else { &mut refused } += 1;
            }
        }
    }
    assert!(admitted > BATCH && refused > BATCH, "{admitted} and {refused}");
}

#[test]
fn the_sliding_window_script_follows_the_model() {
    check_script(Kind::Plain(Algorithm::SlidingWindow));
}

#[test]
fn the_sliding_counter_script_follows_the_model() {
    check_script(Kind::Plain(Algorithm::SlidingCounter));
}

#[test]
fn the_fixed_window_script_follows_the_model() {
    check_script(Kind::Plain(Algorithm::FixedWindow));
}

#[test]
fn the_token_bucket_script_follows_the_model() {
    check_script(Kind::Plain(Algorithm::TokenBucket));
}

#[test]
fn the_script_of_single_units_follows_the_model() {
    check_script(Kind::SingleUnits);
}

#[tokio::test(start_paused = true)]
async fn embedded_single_units_follow_the_model() {
    check_embedded(Kind::SingleUnits).await;
}

#[tokio::test(start_paused = true)]
async fn the_embedded_sliding_window_follows_the_model() {
    check_embedded(Kind::Plain(Algorithm::SlidingWindow)).await;
}

#[tokio::test(start_paused = true)]
async fn the_embedded_sliding_counter_follows_the_model() {
    check_embedded(Kind::Plain(Algorithm::SlidingCounter)).await;
}

#[tokio::test(start_paused = true)]
async fn the_embedded_fixed_window_follows_the_model() {
    check_embedded(Kind::Plain(Algorithm::FixedWindow)).await;
}

#[tokio::test(start_paused = true)]
async fn the_embedded_token_bucket_follows_the_model() {
    check_embedded(Kind::Plain(Algorithm::TokenBucket)).await;
}
