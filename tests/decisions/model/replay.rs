//! A replay decides recorded calls as both stores decided them.

use std::time::Duration;

use fastrand::Rng;
use harness::schedule::{Kind, Operation, Schedule, blocking, cases, operations, seed};
use ratelimit_runtime::{
    Algorithm, CalendarUnit, Policy, limiter,
    replay::{Recorded, Replay},
    testing,
};
use tokio::time::{Instant, advance};

use super::{LATEST, START, alone, answer, assert_agree};

fn kinds() -> impl Iterator<Item = Kind> {
    Algorithm::ALL.iter().map(|algorithm| Kind::Plain(*algorithm)).chain([Kind::SingleUnits])
}

/// The scripts and the memory store follow the same model.
#[test]
fn a_replay_follows_the_model() {
    let seed = seed();
    let mut rng = Rng::with_seed(seed);
    for kind in kinds() {
        let all: Vec<_> = cases(kind).into_iter().chain(alone(blocking(kind))).collect();
        for case in &all {
            let mut replay = Replay::new(&case.policy).unwrap();
            let mut schedule = Schedule::forwards(case, START, rng.fork());
            for _ in 0..operations().div_ceil(4 * all.len()) {
                // A bucket has no room for times of a further two thousand years.
                if schedule.now() > LATEST {
                    replay = Replay::new(&case.policy).unwrap();
                    schedule = Schedule::forwards(case, START, rng.fork());
                }
                let (operation, expected) = schedule.call();
                let Operation { caller, now, cost, record: true, .. } = operation else { continue };
                let call = Recorded::new(Duration::from_micros(now), caller, cost);
                let actual = answer(&case.policy, 0, replay.decide(call));
                let expected = super::Answer { more: 0, ..expected };
                assert_agree((actual, expected), operation, case, seed);
            }
        }
    }
}

/// A call as a program logs it: with what it was told, and with its settle.
struct Logged {
    call: Recorded<u32>,
    answer: super::Answer,
}

/// Calls a limiter at random, settles some calls later, and returns the log.
async fn log_of(policy: &Policy, rng: &mut Rng) -> Vec<Logged> {
    let (limiter, start) = (limiter(), Instant::now());
    let mut since = Duration::ZERO;
    if policy.algorithm() == Algorithm::CalendarWindow {
        testing::at("2026-03-28T22:00:00Z");
        since = Duration::from_secs(1_774_735_200);
    }
    let period = policy.tiers()[0].period();
    let most = policy.tiers()[0].threshold();
    let mut log: Vec<Logged> = Vec::new();
    let mut unsettled = Vec::new();
    for _ in 0..2_000 {
        // No two events are of one microsecond: their order would be lost in the log.
        advance(Duration::from_micros(1) + period.mul_f64(rng.f64() / 4.0)).await;
        let at = since + start.elapsed();
        if !unsettled.is_empty() && rng.u32(..3) == 0 {
            let (index, decision): (usize, ratelimit_runtime::Decision) =
                unsettled.swap_remove(rng.usize(..unsettled.len()));
            let most = 3 * decision.cost();
            let units = rng.u32(..=most);
            decision.settle(units);
            let Logged { call, .. } = &mut log[index];
            *call = call.clone().settled(at, units);
            continue;
        }
        let (caller, cost) = (rng.u32(..3), rng.u32(1..=most));
        let decided = limiter.check(policy, caller).cost(cost).await;
        unsettled.extend(decided.as_ref().ok().map(|decision| (log.len(), decision.clone())));
        let call = Recorded::new(at, caller, cost);
        log.push(Logged { call, answer: answer(policy, 0, decided) });
    }
    log
}

/// Policies of every algorithm, also with blocks.
fn logged_policies() -> Vec<Policy> {
    let (second, minute) = (Duration::from_secs(1), Duration::from_secs(60));
    let mut policies = Vec::new();
    for new in [
        Policy::sliding_window,
        Policy::sliding_counter,
        Policy::fixed_window,
        Policy::token_bucket,
        |name, period, threshold| Policy::sliding_window(name, period, threshold),
    ] {
        let policy = new("p", second, 9);
        policies.extend([policy, policy.tier(minute, 200), policy.block(&[second / 2, second])]);
    }
    for unit in CalendarUnit::ALL {
        let policy = Policy::calendar_window("p", *unit, 9);
        policies.extend([policy, policy.zone("Europe/Berlin")]);
    }
    policies
}

#[tokio::test(start_paused = true)]
async fn a_replay_of_what_a_program_logged_gives_the_decisions_that_it_made() {
    let seed = seed();
    let mut rng = Rng::with_seed(seed);
    for policy in logged_policies() {
        let log = testing::isolated(log_of(&policy, &mut rng)).await;
        let mut replay = Replay::new(&policy).unwrap();
        let refused = log.iter().filter(|logged| !logged.answer.admitted).count();
        assert!((100..log.len() - 100).contains(&refused), "{refused} under {policy:?}");
        for (index, Logged { call, answer: told }) in log.into_iter().enumerate() {
            let replayed = answer(&policy, 0, replay.decide(call));
            assert_eq!(replayed, told, "MODEL_SEED={seed}: call {index} under {policy:?}");
        }
        assert_eq!(replay.refused(), refused as u64);
    }
}

#[test]
fn the_callers_that_are_hit_most_come_first() {
    let policy = Policy::fixed_window("p", Duration::from_secs(60), 2);
    let call = |at, caller| Recorded::new(Duration::from_secs(at), caller, 1);
    let calls = [
        call(0, "alice"),
        call(1, "bob"),
        call(2, "alice"),
        call(3, "alice"),
        call(4, "carol"),
        call(5, "bob"),
        call(6, "bob"),
        call(7, "alice"),
        // The next window.
        call(60, "alice"),
        // Never admitted.
        Recorded::new(Duration::from_secs(61), "dave", 3),
    ];
    let replay = ratelimit_runtime::replay::replay(&policy, calls).unwrap();
    assert_eq!((replay.admitted(), replay.refused()), (6, 4));
    assert_eq!((replay.callers(), replay.refused_callers()), (4, 3));
    let hit = replay.hit_most(2);
    let names: Vec<_> = hit.iter().map(|(caller, _)| *caller).collect();
    assert_eq!(names, ["alice", "dave"], "of two with one refusal, the one with fewer calls");
    assert_eq!((hit[0].1.admitted, hit[0].1.refused), (3, 2));
    assert_eq!(hit[0].1.longest_wait, Duration::from_secs(57));
    assert_eq!(replay.longest_wait(), Duration::from_secs(57));

    let invalid = Policy::fixed_window("p", Duration::ZERO, 2);
    assert!(Replay::<&str>::new(&invalid).is_err());
}
