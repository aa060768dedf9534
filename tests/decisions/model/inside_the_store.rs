//! The memory store follows the model while calls wait, leave, are confirmed, advance and come again by their ids, and
//! while keys pause. This is a module of `ratelimit-runtime`, as the store has no public interface of its own.
//!
//! Schedules are random: `MODEL_SEED` repeats one. `MODEL_OPS` is the number of steps for each algorithm.

use std::{env, time::Duration};

use fastrand::Rng;

use super::MemoryStore;
use crate::{
    Algorithm, Policy,
    caller::Caller,
    harness::{
        model::{Answer, By, MAX_LINE},
        schedule::{Case, Kind, Operation, Schedule, Step, cases, changes, leaving, seed},
    },
    key::KeyRef,
    request::{LinePlace, Op, Outcome, Request, Settle},
    time::Micros,
};

/// The time of a new store.
const EPOCH: u64 = 70 * 365 * 24 * 3_600 * 1_000_000;

/// Later than this a schedule starts anew, with another store.
const LATEST: u64 = 4_000_000_000_000_000;

fn steps() -> usize {
    env::var("MODEL_OPS").map_or(20_000, |it| it.parse().expect("a number of steps"))
}

/// A store under a schedule of policies that take turns; all but the first are overrides or none.
struct Run<'a> {
    cases: &'a [Case],
    is_overridden: bool,
    store: MemoryStore,
    schedule: Schedule,
    charges: Vec<(Operation, Outcome)>,
}

/// The number of calls that have waited, left and moved.
#[derive(Debug, Default)]
struct Figures {
    waited: u32,
    left: u32,
    moved: u32,
    paused: u32,
}

impl<'a> Run<'a> {
    fn new(cases: &'a [Case], is_overridden: bool, has_names: bool, rng: Rng) -> Self {
        let schedule = Schedule::in_turns(cases, is_overridden, By::Number, EPOCH, rng);
        let schedule = schedule.with_waits().with_settles();
        let schedule = if has_names { schedule.with_names() } else { schedule };
        let has_pauses = |case: &Case| {
            case.policy.algorithm() == Algorithm::SlidingWindow && !case.policy.counts_rejected()
        };
        let is_paused = cases.iter().all(has_pauses);
        let schedule = if is_paused { schedule.with_pauses() } else { schedule };
        let store = MemoryStore::new(100, usize::MAX);
        Self { cases, is_overridden, store, schedule, charges: Vec::new() }
    }

    /// Returns the policy that decides a call, which is another one if the call leaves a share.
    fn policy(&self, operation: Operation) -> Policy {
        let Case { policy, leave, .. } = &self.cases[operation.policy];
        match u8::try_from(*leave).expect("percent") {
            0 => *policy,
            percent => policy.leaving(percent),
        }
    }

    fn settle(&self, index: usize, to: u32) {
        let (operation, outcome) = self.charges[index];
        let policy = &self.policy(operation);
        let Operation { cost, id, .. } = operation;
        let place = LinePlace { policy, cost, mark: outcome.mark, id };
        let (tier, reset_after) = (policy.tier_of(outcome.tier), outcome.reset);
        let (period, threshold) = (tier.micros(), tier.threshold());
        let settle = Settle { to, period, threshold, reset_after, ..place.leave() };
        let caller = Caller::from(operation.caller);
        self.store.settle(KeyRef::new(policy, caller.parts()), &settle);
    }

    async fn step(&mut self, seed: u64, figures: &mut Figures) {
        let before = self.schedule.now();
        let first = &self.cases[0].policy;
        match self.schedule.step() {
            Step::Call(operation, expected) => {
                let Operation { caller, now, cost, record, id, max_wait, .. } = operation;
                tokio::time::advance(Duration::from_micros(now - before)).await;
                let op = if record { Op::Take } else { Op::Peek };
                let Case { policy, leave, .. } = &self.cases[operation.policy];
                let deciding = self.policy(operation);
                let is_whole = *leave == 0 && !self.is_overridden;
                let request = Request::new(if is_whole { policy } else { &deciding }, op, cost);
                let written = if self.is_overridden { first } else { policy };
                let max_line = MAX_LINE.try_into().expect("a small number");
                let max_wait = Micros::new(max_wait);
                let request = Request { written, id, max_wait, max_line, ..request };
                let (store, caller) = (&self.store, Caller::from(caller));
                let outcome = store.decide(KeyRef::new(first, caller.parts()), request);
                let outcome = outcome.expect("there is room");
                let case = &self.cases;
                assert_eq!(
                    answer(outcome),
                    expected,
                    "MODEL_SEED={seed}: {operation:?} of {case:?}"
                );
                if outcome.admitted && record {
                    figures.waited += u32::from(expected.more > 0);
                    self.charges.push((operation, outcome));
                }
            }
            Step::Reset(caller) => {
                let (store, caller) = (&self.store, Caller::from(caller));
                store.reset(KeyRef::new(first, caller.parts()));
            }
            Step::Settle(index, to) => {
                let is_ahead = self.charges[index].1.mark.at.get() > before;
                figures.left += u32::from(to == 0 && is_ahead);
                self.settle(index, to);
            }
            Step::Confirm(index, expected) => {
                let (operation, outcome) = self.charges[index];
                let Operation { cost, id, .. } = operation;
                let place = LinePlace { policy: first, cost, mark: outcome.mark, id };
                let caller = Caller::from(operation.caller);
                let is_promised = self.store.is_promised(KeyRef::new(first, caller.parts()), place);
                // The turn of a call that has passed needs no promise.
                if outcome.mark.at.get() > before {
                    assert_eq!(is_promised, expected, "MODEL_SEED={seed}: {operation:?}");
                }
            }
            Step::Pause(caller, length, expected) => {
                let (store, own) = (&self.store, Caller::from(caller));
                let key = KeyRef::new(first, own.parts());
                assert_eq!(store.pause(key, first, Micros::new(length), None), Ok(true));
                let place = |(operation, outcome): (Operation, Outcome)| LinePlace {
                    policy: first,
                    cost: operation.cost,
                    mark: outcome.mark,
                    id: operation.id,
                };
                let places: Vec<_> =
                    expected.iter().map(|(index, _)| place(self.charges[*index])).collect();
                let turns = store.turns(key, &places);
                for ((index, expected), turn) in expected.into_iter().zip(turns) {
                    let expected = crate::time::Timestamp::new(expected);
                    assert_eq!(turn, Some(expected), "MODEL_SEED={seed}");
                    let at = &mut self.charges[index].1.mark.at;
                    figures.paused += u32::from(expected > *at);
                    *at = expected;
                }
            }
            Step::Advance(index, expected) => {
                let (operation, outcome) = self.charges[index];
                let Operation { cost, id, .. } = operation;
                let place = LinePlace { policy: first, cost, mark: outcome.mark, id };
                let caller = Caller::from(operation.caller);
                let standing = self.store.advance(KeyRef::new(first, caller.parts()), place);
                if outcome.mark.at.get() > before {
                    let at = standing.map(|it| it.at.get());
                    assert_eq!(at, expected, "MODEL_SEED={seed}: {operation:?}");
                }
                if let Some(standing) = standing {
                    figures.moved += u32::from(standing.at < outcome.mark.at);
                    self.charges[index].1.mark.at = standing.at;
                }
            }
            Step::Release(_) | Step::Renew(..) | Step::Crash(_) => {
                unreachable!("the policies have no permits")
            }
        }
    }
}

fn answer(outcome: Outcome) -> Answer {
    Answer {
        admitted: outcome.admitted,
        is_busy: outcome.is_busy(),
        tier: outcome.tier.into(),
        remaining: outcome.remaining,
        wait: outcome.wait.get(),
        reset: outcome.reset.get(),
        more: if outcome.admitted { outcome.turn.get() } else { outcome.more.get() },
    }
}

async fn check(kind: Kind) {
    let seed = seed();
    let mut rng = Rng::with_seed(seed);
    let alone = |case| (vec![case], false, false);
    let mut runs: Vec<_> = cases(kind).into_iter().map(alone).collect();
    if kind.has_names() {
        let named = cases(kind).into_iter().filter(|case| !case.policy.counts_rejected());
        runs.extend(named.map(|case| (vec![case], false, true)));
    }
    let leaves = |cases: &Vec<Case>| cases[0].policy.get_concurrency().is_none();
    runs.extend(leaving(kind).into_iter().filter(leaves).map(|cases| (cases, false, false)));
    for cases in changes(kind) {
        runs.extend([(cases.clone(), false, false), (cases, true, false)]);
    }
    let mut figures = Figures::default();
    for (cases, is_overridden, has_names) in &runs {
        let mut run = Run::new(cases, *is_overridden, *has_names, rng.fork());
        for _ in 0..steps().div_ceil(runs.len()) {
            if run.schedule.now() > LATEST {
                run = Run::new(cases, *is_overridden, *has_names, rng.fork());
            }
            run.step(seed, &mut figures).await;
        }
    }
    let Figures { waited, left, moved, paused } = figures;
    assert!(waited > 500 && left > 50 && moved > 5, "{figures:?}");
    assert!(kind != Kind::Plain(Algorithm::SlidingWindow) || paused > 15, "{figures:?}");
}

#[tokio::test(start_paused = true)]
async fn the_fixed_window_follows_the_model_of_waiting_calls() {
    check(Kind::Plain(Algorithm::FixedWindow)).await;
}

#[tokio::test(start_paused = true)]
async fn the_sliding_counter_follows_the_model_of_waiting_calls() {
    check(Kind::Plain(Algorithm::SlidingCounter)).await;
}

#[tokio::test(start_paused = true)]
async fn the_token_bucket_follows_the_model_of_waiting_calls() {
    check(Kind::Plain(Algorithm::TokenBucket)).await;
}

#[tokio::test(start_paused = true)]
async fn the_sliding_window_follows_the_model_of_waiting_calls() {
    check(Kind::Plain(Algorithm::SlidingWindow)).await;
}
