//! Both stores follow the model while policies take turns on a live key, with resets and settles between the
//! calls.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use fastrand::Rng;
use harness::{
    RedisServer,
    model::{By, left_of},
    schedule::{
        Case, Kind, LivePermit, Operation, Schedule, Step, blocking, cases, changes, in_flight,
        leaving, operations, seed,
    },
};
use ratelimit_runtime::{Algorithm, Decision, Limiter};

use super::{
    EPOCH, LATEST, START, answer, assert_agree, micros,
    script::{Mark, Script, Tiers},
};

/// The policies that take turns, and the events in between.
struct Turns {
    cases: Vec<Case>,
    /// `true` if all but the first are overrides of it.
    is_overridden: bool,
    has_settles: bool,
    has_names: bool,
}

impl Turns {
    fn schedule(&self, by: By, start: u64, rng: Rng) -> Schedule {
        let schedule = Schedule::in_turns(&self.cases, self.is_overridden, by, start, rng);
        let schedule = if self.has_settles { schedule.with_settles() } else { schedule };
        if self.has_names { schedule.with_names() } else { schedule }
    }
}

fn turns(kind: Kind) -> Vec<Turns> {
    let mut turns = Vec::new();
    let changes = if kind == Kind::InFlight { Vec::new() } else { changes(kind) };
    for cases in changes {
        for (is_overridden, has_settles) in [(false, false), (false, true), (true, true)] {
            let cases = cases.clone();
            turns.push(Turns { cases, is_overridden, has_settles, has_names: false });
        }
    }
    for cases in leaving(kind) {
        for has_settles in [false, kind != Kind::InFlight] {
            let cases = cases.clone();
            turns.push(Turns { cases, is_overridden: false, has_settles, has_names: false });
        }
    }
    for cases in in_flight(kind).into_iter().chain(blocking(kind)) {
        let has_settles = kind != Kind::InFlight;
        turns.push(Turns { cases, is_overridden: false, has_settles, has_names: false });
    }
    if kind.has_names() {
        // Ids only under one policy: two policies may keep one for different times.
        let is_small = |case: &Case| case.policy.largest() <= 100 && !case.policy.counts_rejected();
        for case in cases(kind).into_iter().filter(is_small) {
            let cases = vec![case];
            turns.push(Turns { cases, is_overridden: false, has_settles: true, has_names: true });
        }
    }
    turns
}

trait Largest {
    fn largest(&self) -> u32;
}

impl Largest for ratelimit_runtime::Policy {
    fn largest(&self) -> u32 {
        self.tiers().iter().map(|tier| tier.threshold()).max().expect("a tier")
    }
}

/// The admitted units of each caller, and the policies that are certain to be counted.
#[derive(Default)]
struct Admissions {
    callers: HashMap<usize, Vec<(u64, u32)>>,
    counted: HashMap<(usize, usize), Counted>,
    /// How often the state of each caller has expired.
    forgotten: HashMap<usize, u64>,
}

/// A policy whose count is in a caller's state.
struct Counted {
    since: u64,
    /// The last admission. A log forgets a policy that has not admitted for its longest period.
    last: u64,
    /// The policies that were recorded after its last admission. The state keeps the counts of eight other
    /// policies.
    others: HashSet<usize>,
}

impl Admissions {
    /// Records a call, after which counts may be gone that were not used for long, and asserts that an
    /// admission stays in its bounds.
    fn see(&mut self, case: &Case, operation: Operation, is_admitted: bool, seed: u64) {
        let Operation { caller, now, cost, policy, .. } = operation;
        let longest = case.policy.tiers().iter().map(|tier| micros(tier.period())).max();
        if case.policy.algorithm() == Algorithm::SlidingWindow
            && let Some(counted) = self.counted.get(&(caller, policy))
            && Some(now - counted.last) > longest
        {
            self.counted.remove(&(caller, policy));
        }
        self.counted.retain(|(of, other), counted| {
            if (*of, *other) != (caller, policy) && *of == caller {
                counted.others.insert(policy);
            }
            counted.others.len() <= 8
        });
        if is_admitted {
            let counted = self.counted.entry((caller, policy));
            let fresh = || Counted { since: now, last: now, others: HashSet::new() };
            let counted = counted.or_insert_with(fresh);
            counted.last = now;
            counted.others.clear();
            self.callers.entry(caller).or_default().push((now, cost));
            self.assert_bounded(case, operation, seed);
        }
    }

    /// Drops the policies that a state counted which has expired.
    fn forget(&mut self, caller: usize, times: u64) {
        if self.forgotten.insert(caller, times).unwrap_or_default() < times {
            self.counted.retain(|(of, _), _| *of != caller);
        }
    }

    fn reset(&mut self, caller: usize) {
        self.callers.remove(&caller);
        self.counted.retain(|(of, _), _| *of != caller);
    }

    /// Asserts that no window of the admitting policy exceeds its threshold since that policy is counted,
    /// whatever the others admit.
    fn assert_bounded(&self, case: &Case, operation: Operation, seed: u64) {
        let Operation { caller, now, policy, .. } = operation;
        let start = self.counted[&(caller, policy)].since;
        for tier in case.policy.tiers() {
            let period = micros(tier.period());
            let threshold = u64::from(tier.threshold() - left_of(tier.threshold(), case.leave));
            let held = |from: u64| -> u64 {
                let since = self.callers[&caller].iter().filter(|(at, _)| *at >= from.max(start));
                since.map(|(_, cost)| u64::from(*cost)).sum()
            };
            let held = match case.policy.algorithm() {
                Algorithm::SlidingWindow => held((now + 1).saturating_sub(period)),
                Algorithm::SlidingCounter => held(now - now % period),
                _ => return,
            };
            assert!(held <= threshold, "MODEL_SEED={seed}: {held} in {tier:?} at {operation:?}");
        }
    }
}

/// Drives the shipped script.
fn check_script(kind: Kind) {
    let (seed, server) = (seed(), RedisServer::start());
    let mut script = Script::load(&server, kind);
    let mut rng = Rng::with_seed(seed);
    let all = turns(kind);
    for turns in &all {
        let Turns { cases, is_overridden, has_settles, .. } = turns;
        let mut tiers: Vec<_> = cases.iter().map(Tiers::of).collect();
        if *is_overridden {
            let written = Tiers::of(&cases[0]);
            let others = tiers.drain(1..).map(|tiers| tiers.instead_of(&written));
            tiers =
                std::iter::once(Tiers::of(&cases[0])).chain(others.collect::<Vec<_>>()).collect();
        }
        let () = server.command("FLUSHALL");
        let mut schedule = turns.schedule(By::Instant, START, rng.fork());
        let mut charges: Vec<(Operation, Mark)> = Vec::new();
        let mut admissions = Admissions::default();
        for _ in 0..operations().div_ceil(all.len()) {
            if schedule.now() > LATEST {
                let () = server.command("FLUSHALL");
                schedule = turns.schedule(By::Instant, START, rng.fork());
                (charges, admissions) = Default::default();
            }
            match schedule.step() {
                Step::Call(operation, expected) => {
                    let call = (operation, operation.caller.to_string());
                    let (actual, mark) = script.decide(&tiers, &[call])[0];
                    let case = &cases[operation.policy];
                    assert_agree((actual, expected), operation, case, seed);
                    if operation.record && !has_settles {
                        admissions.see(case, operation, actual.admitted, seed);
                    }
                    if actual.admitted && operation.record {
                        charges.push((operation, mark));
                    }
                }
                Step::Reset(caller) => {
                    let () = server.command(&format!("DEL {caller} {caller}:b {caller}:x"));
                    admissions.reset(caller);
                }
                Step::Settle(index, to) => {
                    let (operation, mark) = charges[index];
                    let call = (operation, mark, &*operation.caller.to_string());
                    script.settle(&tiers[operation.policy], call, (schedule.now(), to));
                }
                Step::Release(LivePermit { caller, id, .. }) => {
                    script.release(&caller.to_string(), id);
                }
                Step::Renew(permits, expected) => {
                    let LivePermit { caller, policy, .. } = permits[0];
                    let ids: Vec<_> = permits.iter().map(|it| it.id).collect();
                    let key = caller.to_string();
                    let lost = script.renew(&tiers[policy], &key, &ids, schedule.now());
                    assert_eq!(lost, expected, "MODEL_SEED={seed}: {permits:?} under {cases:?}");
                }
                // Nobody is there to tell.
                Step::Crash(_) => {}
                Step::Confirm(..) | Step::Advance(..) | Step::Pause(..) => {
                    unreachable!("nobody waits")
                }
            }
            script.assert_kept(&schedule, seed);
        }
    }
}

/// Drives an embedded limiter on tokio's paused clock.
async fn check_embedded(kind: Kind) {
    let seed = seed();
    let mut rng = Rng::with_seed(seed);
    let all = turns(kind);
    for turns in all.iter().filter(|turns| !turns.is_overridden) {
        let Turns { cases, has_settles, .. } = turns;
        let mut limiter = Limiter::in_memory();
        let mut schedule = turns.schedule(By::Number, EPOCH, rng.fork());
        let mut charges: Vec<Option<Decision>> = Vec::new();
        let mut admissions = Admissions::default();
        for _ in 0..operations().div_ceil(all.len()) {
            if schedule.now() > LATEST {
                limiter = Limiter::in_memory();
                schedule = turns.schedule(By::Number, EPOCH, rng.fork());
                (charges, admissions) = Default::default();
            }
            let before = schedule.now();
            match schedule.step() {
                Step::Call(operation, expected) => {
                    let Operation { caller, now, cost, record, policy, id, .. } = operation;
                    if now > before {
                        tokio::time::advance(Duration::from_micros(now - before)).await;
                    }
                    let policy = &cases[policy].policy;
                    let check = if record {
                        limiter.check(policy, caller)
                    } else {
                        limiter.peek(policy, caller)
                    };
                    let case = &cases[operation.policy];
                    let check = check.cost(cost).leave(case.leave);
                    let decided = match id {
                        Some(id) => check.request_id(id).await,
                        None => check.await,
                    };
                    let actual = answer(policy, case.leave, decided.clone());
                    let expected = harness::model::Answer { more: 0, ..expected };
                    assert_agree((actual, expected), operation, case, seed);
                    if record && !has_settles {
                        admissions.forget(caller, schedule.forgotten(caller));
                        admissions.see(case, operation, decided.is_ok(), seed);
                    }
                    if let Ok(decision) = decided
                        && record
                    {
                        charges.push(Some(decision));
                    }
                }
                Step::Reset(caller) => {
                    limiter.reset(&cases[0].policy, caller).await.expect("in memory");
                    admissions.reset(caller);
                }
                Step::Settle(index, to) => {
                    let decision = charges[index].as_ref().expect("a call in flight");
                    limiter.settle(decision, to).await.expect("in memory");
                }
                Step::Release(permit) => charges[permit.charge] = None,
                Step::Crash(permits) => {
                    for permit in permits {
                        charges[permit.charge] = None;
                    }
                }
                Step::Renew(..) => unreachable!("permits in memory last as long as their process"),
                Step::Confirm(..) | Step::Advance(..) | Step::Pause(..) => {
                    unreachable!("nobody waits")
                }
            }
        }
    }
}

#[test]
fn the_sliding_window_script_follows_the_model_of_changing_policies() {
    check_script(Kind::Plain(Algorithm::SlidingWindow));
}

#[test]
fn the_sliding_counter_script_follows_the_model_of_changing_policies() {
    check_script(Kind::Plain(Algorithm::SlidingCounter));
}

#[test]
fn the_fixed_window_script_follows_the_model_of_changing_policies() {
    check_script(Kind::Plain(Algorithm::FixedWindow));
}

#[test]
fn the_token_bucket_script_follows_the_model_of_changing_policies() {
    check_script(Kind::Plain(Algorithm::TokenBucket));
}

#[tokio::test(start_paused = true)]
async fn the_embedded_sliding_window_follows_the_model_of_changing_policies() {
    check_embedded(Kind::Plain(Algorithm::SlidingWindow)).await;
}

#[tokio::test(start_paused = true)]
async fn the_embedded_sliding_counter_follows_the_model_of_changing_policies() {
    check_embedded(Kind::Plain(Algorithm::SlidingCounter)).await;
}

#[tokio::test(start_paused = true)]
async fn the_embedded_fixed_window_follows_the_model_of_changing_policies() {
    check_embedded(Kind::Plain(Algorithm::FixedWindow)).await;
}

#[tokio::test(start_paused = true)]
async fn the_embedded_token_bucket_follows_the_model_of_changing_policies() {
    check_embedded(Kind::Plain(Algorithm::TokenBucket)).await;
}

#[test]
fn the_script_of_single_units_follows_the_model_of_changing_policies() {
    check_script(Kind::SingleUnits);
}

#[tokio::test(start_paused = true)]
async fn embedded_single_units_follow_the_model_of_changing_policies() {
    check_embedded(Kind::SingleUnits).await;
}

#[test]
fn the_script_of_calls_in_flight_follows_the_model_of_changing_policies() {
    check_script(Kind::InFlight);
}

#[tokio::test(start_paused = true)]
async fn embedded_calls_in_flight_follow_the_model_of_changing_policies() {
    check_embedded(Kind::InFlight).await;
}
