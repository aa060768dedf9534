//! The scripts follow the model while calls wait, leave, are confirmed and advance.

use fastrand::Rng;
use harness::{
    RedisServer,
    model::By,
    schedule::{Case, Kind, Operation, Schedule, Step, cases, changes, leaving, operations, seed},
};
use ratelimit_runtime::Algorithm;

use super::{
    LATEST, START, assert_agree, micros,
    script::{Mark, Script, Tiers},
};

/// The events beside the waits.
#[derive(Clone, Copy)]
enum Beside {
    ClockSteps,
    RequestIds,
    /// Policies take turns, all but the first as overrides or none.
    Changes(bool),
}

fn schedule(cases: &[Case], beside: Beside, rng: Rng) -> Schedule {
    let in_turns =
        |is_overridden, rng| Schedule::in_turns(cases, is_overridden, By::Instant, START, rng);
    let schedule = match beside {
        Beside::ClockSteps => Schedule::back_and_forth(&cases[0], START, rng),
        Beside::RequestIds => in_turns(false, rng).with_names(),
        Beside::Changes(is_overridden) => in_turns(is_overridden, rng),
    };
    let schedule = schedule.with_waits().with_settles();
    let has_pauses = |case: &Case| {
        case.policy.algorithm() == Algorithm::SlidingWindow && !case.policy.counts_rejected()
    };
    if cases.iter().all(has_pauses) { schedule.with_pauses() } else { schedule }
}

fn runs(kind: Kind) -> Vec<(Vec<Case>, Beside)> {
    let mut runs = Vec::new();
    // A bucket that fills for centuries tells times that are no exact integers of a script.
    let is_exact = |it: &Case| {
        it.burst
            .is_none_or(|burst| micros(it.policy.tiers()[0].period()) * u64::from(burst) < 1 << 52)
    };
    for case in cases(kind).into_iter().filter(is_exact) {
        if kind.has_names() && !case.policy.counts_rejected() {
            runs.push((vec![case.clone()], Beside::RequestIds));
        }
        runs.push((vec![case], Beside::ClockSteps));
    }
    for cases in leaving(kind).into_iter().filter(|it| it[0].policy.get_concurrency().is_none()) {
        runs.push((cases, Beside::Changes(false)));
    }
    for cases in changes(kind) {
        runs.push((cases.clone(), Beside::Changes(false)));
        runs.push((cases, Beside::Changes(true)));
    }
    runs
}

/// Drives the shipped script.
fn check_script(kind: Kind) {
    let (seed, server) = (seed(), RedisServer::start());
    let mut script = Script::load(&server, kind);
    let mut rng = Rng::with_seed(seed);
    let runs = runs(kind);
    let (mut waited, mut left, mut moved, mut paused) = (0_usize, 0_usize, 0_usize, 0_usize);
    for (cases, beside) in &runs {
        let written = Tiers::of(&cases[0]);
        let tiers: Vec<_> = (0..cases.len())
            .map(|index| match beside {
                Beside::Changes(true) if index > 0 => Tiers::of(&cases[index]).instead_of(&written),
                _ => Tiers::of(&cases[index]),
            })
            .collect();
        let () = server.command("FLUSHALL");
        let mut steps = schedule(cases, *beside, rng.fork());
        let mut charges = Vec::<(Operation, Mark)>::new();
        for _ in 0..operations().div_ceil(runs.len()) {
            if !(START / 2..LATEST).contains(&steps.now()) {
                let () = server.command("FLUSHALL");
                (steps, charges) = (schedule(cases, *beside, rng.fork()), Vec::new());
            }
            match steps.step() {
                Step::Call(operation, expected) => {
                    let call = (operation, operation.caller.to_string());
                    let (actual, mark) = script.decide(&tiers, &[call])[0];
                    assert_agree((actual, expected), operation, cases, seed);
                    if actual.admitted && operation.record {
                        waited += usize::from(actual.more > 0);
                        charges.push((operation, mark));
                    }
                }
                Step::Reset(caller) => {
                    let () = server.command(&format!("DEL {caller} {caller}:x"));
                }
                Step::Settle(index, to) => {
                    let (operation, mark) = charges[index];
                    left += usize::from(to == 0 && mark.at > steps.now());
                    let call = (operation, mark, &*operation.caller.to_string());
                    script.settle(&tiers[operation.policy], call, (steps.now(), to));
                }
                Step::Release(_) | Step::Renew(..) | Step::Crash(_) => {
                    unreachable!("the policies have no permits")
                }
                Step::Confirm(..) if kind != Kind::Plain(Algorithm::SlidingWindow) => {}
                Step::Confirm(index, expected) => {
                    let (operation, mark) = charges[index];
                    let actual = script.confirm(operation, mark, &operation.caller.to_string());
                    assert_agree((actual, expected), operation, cases, seed);
                }
                Step::Pause(caller, length, expected) => {
                    let its: Vec<_> = expected.iter().map(|(index, _)| charges[*index]).collect();
                    let paused_key = (&*caller.to_string(), length, &its[..]);
                    let turns = script.pause(&tiers[0], paused_key, steps.now());
                    for ((index, expected), actual) in expected.into_iter().zip(turns) {
                        let (operation, mark) = &mut charges[index];
                        assert_agree((actual, expected), *operation, cases, seed);
                        paused += usize::from(actual > mark.at);
                        mark.move_to(actual);
                    }
                }
                Step::Advance(index, expected) => {
                    let ((operation, mark), now) = (charges[index], steps.now());
                    let call = (operation, mark, &*operation.caller.to_string());
                    let actual = script.advance(&tiers[0], call, now);
                    let expected = expected.map(|at| vec![at, at.saturating_sub(now)]);
                    assert_agree(
                        (actual.clone(), expected.unwrap_or_default()),
                        operation,
                        cases,
                        seed,
                    );
                    if let [at, _] = actual[..] {
                        moved += usize::from(at < mark.at);
                        charges[index].1.move_to(at);
                    }
                }
            }
            // A log of calls in the future may be forgotten: they come from a clock that has stepped back.
            if kind != Kind::Plain(Algorithm::SlidingWindow)
                || !matches!(beside, Beside::ClockSteps)
            {
                script.assert_kept(&steps, seed);
            }
        }
    }
    let once_in = |calls: usize, count: usize| count * calls > operations();
    let figures = format!("{waited} {left} {moved} {paused} of {}", operations());
    assert!(once_in(15, waited) && once_in(150, left) && once_in(1_500, moved), "{figures}");
    assert!(kind != Kind::Plain(Algorithm::SlidingWindow) || once_in(1_500, paused), "{figures}");
}

#[test]
fn the_sliding_window_script_follows_the_model_of_waiting_calls() {
    check_script(Kind::Plain(Algorithm::SlidingWindow));
}

#[test]
fn the_fixed_window_script_follows_the_model_of_waiting_calls() {
    check_script(Kind::Plain(Algorithm::FixedWindow));
}

#[test]
fn the_sliding_counter_script_follows_the_model_of_waiting_calls() {
    check_script(Kind::Plain(Algorithm::SlidingCounter));
}

#[test]
fn the_token_bucket_script_follows_the_model_of_waiting_calls() {
    check_script(Kind::Plain(Algorithm::TokenBucket));
}
