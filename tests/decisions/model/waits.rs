//! The script of a weighted window follows the model while calls wait, leave, are confirmed and advance.

use fastrand::Rng;
use harness::{
    RedisServer,
    model::By,
    schedule::{Kind, Operation, Schedule, Step, cases, operations, seed},
};

use super::{
    LATEST, START, assert_agree,
    script::{Mark, Script, Tiers},
};

/// Drives the shipped script: with a clock that steps back now and then, or with request ids.
fn check_script(kind: Kind) {
    let (seed, server) = (seed(), RedisServer::start());
    let mut script = Script::load(&server, kind);
    let mut rng = Rng::with_seed(seed);
    let cases = cases(kind);
    let (mut waited, mut left, mut moved) = (0, 0, 0);
    let all = cases.iter().flat_map(|case| [(case, false), (case, true)]);
    for (case, has_names) in
        all.filter(|(case, has_names)| !has_names || !case.policy.counts_rejected())
    {
        let tiers = [Tiers::of(case)];
        let schedule = |rng: &mut Rng| {
            let (cases, rng) = (std::slice::from_ref(case), rng.fork());
            let schedule = if has_names {
                Schedule::in_turns(cases, false, By::Instant, START, rng).with_names()
            } else {
                Schedule::back_and_forth(case, START, rng)
            };
            schedule.with_waits().with_settles()
        };
        let () = server.command("FLUSHALL");
        let (mut steps, mut charges) = (schedule(&mut rng), Vec::<(Operation, Mark)>::new());
        for _ in 0..operations().div_ceil(2 * cases.len()) {
            if !(START / 2..LATEST).contains(&steps.now()) {
                let () = server.command("FLUSHALL");
                (steps, charges) = (schedule(&mut rng), Vec::new());
            }
            match steps.step() {
                Step::Call(operation, expected) => {
                    let call = (operation, operation.caller.to_string());
                    let (actual, mark) = script.decide(&tiers, &[call])[0];
                    assert_agree((actual, expected), operation, case, seed);
                    if actual.admitted && operation.record {
                        waited += u32::from(actual.more > 0);
                        charges.push((operation, mark));
                    }
                }
                Step::Reset(caller) => {
                    let () = server.command(&format!("DEL {caller}"));
                }
                Step::Settle(index, to) => {
                    let (operation, mark) = charges[index];
                    left += u32::from(to == 0 && mark.at > steps.now());
                    let call = (operation, mark, &*operation.caller.to_string());
                    script.settle(&tiers[0], call, (steps.now(), to));
                }
                Step::Release(_) | Step::Renew(..) | Step::Crash(_) => {
                    unreachable!("the policies have no permits")
                }
                Step::Confirm(index, expected) => {
                    let (operation, mark) = charges[index];
                    let actual = script.confirm(operation, mark, &operation.caller.to_string());
                    assert_agree((actual, expected), operation, case, seed);
                }
                Step::Advance(index, expected) => {
                    let ((operation, mark), now) = (charges[index], steps.now());
                    let call = (operation, mark, &*operation.caller.to_string());
                    let actual = script.advance(&tiers[0], call, now);
                    let expected = expected.map(|at| vec![at, at.saturating_sub(now)]);
                    assert_agree(
                        (actual.clone(), expected.unwrap_or_default()),
                        operation,
                        case,
                        seed,
                    );
                    if let [at, _] = actual[..] {
                        moved += u32::from(at < mark.at);
                        charges[index].1.at = at;
                    }
                }
            }
        }
    }
    assert!(waited > 1_000 && left > 100 && moved > 10, "{waited} {left} {moved}");
}

#[test]
fn the_weighted_window_script_follows_the_model_of_waiting_calls() {
    check_script(Kind::Weighted);
}
