//! Random schedules of calls, and what the model says to each of them.

use std::{env, time::Duration};

use fastrand::Rng;
use ratelimit_runtime::{Algorithm, Policy};

use crate::model::{Answer, Model};

const MILLISECOND: u64 = 1_000;
const SECOND: u64 = 1_000 * MILLISECOND;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;
const LONGEST: u64 = 366 * DAY;

/// Different callers of one policy.
const CALLERS: usize = 3;

/// The most units that a limiter takes from a log in one call.
const LARGEST_LOG_COST: u32 = 1_000;

/// The seed of a run: `MODEL_SEED`, or another one each time.
pub fn seed() -> u64 {
    match env::var("MODEL_SEED") {
        Ok(seed) => seed.parse().expect("MODEL_SEED is a number"),
        Err(_) => fastrand::u64(..),
    }
}

/// How many calls each algorithm is judged by: `MODEL_OPS`, or 100 000.
pub fn operations() -> usize {
    match env::var("MODEL_OPS") {
        Ok(operations) => operations.parse().expect("MODEL_OPS is a number"),
        Err(_) => 100_000,
    }
}

/// A policy to be judged.
#[derive(Clone, Debug)]
pub struct Case {
    /// The policy.
    pub policy: Policy,
    /// The burst it was given.
    pub burst: Option<u32>,
}

/// The policies that an algorithm is judged by.
pub fn cases(algorithm: Algorithm) -> Vec<Case> {
    let mut tiers = Vec::new();
    for period in [MILLISECOND, MINUTE, LONGEST] {
        for threshold in [1, 2, 3, 100, 100_000] {
            tiers.push(vec![(period, threshold)]);
        }
    }
    tiers.push(vec![(MINUTE, 1), (HOUR, 5), (DAY, 10)]);
    tiers.push(vec![(SECOND, 3), (MINUTE, 100)]);
    tiers.push(vec![(7 * MILLISECOND + 1, 3), (MILLISECOND, 2), (LONGEST, 100)]);
    if algorithm == Algorithm::SlidingCounter {
        for threshold in [284, 285, 1_000_000_000, u32::MAX] {
            tiers.push(vec![(LONGEST, threshold)]);
        }
        tiers.push(vec![(DAY, 1_000_000), (MILLISECOND, u32::MAX)]);
    }
    if algorithm == Algorithm::TokenBucket {
        tiers.push(vec![(SECOND, 7)]);
        tiers.push(vec![(1_009, 4_000)]);
    }

    let mut cases = Vec::new();
    for tiers in tiers {
        let policy = with_tiers(algorithm, &tiers);
        cases.push(Case { policy, burst: None });
        if algorithm != Algorithm::FixedWindow {
            cases.push(Case { policy: policy.count_rejected(), burst: None });
        }
        if algorithm == Algorithm::TokenBucket && tiers.len() == 1 {
            for burst in [1, 10, 284] {
                cases.push(Case { policy: policy.burst(burst), burst: Some(burst) });
            }
        }
    }
    for case in &cases {
        case.policy.validate().expect("a policy that obeys the rules");
    }
    cases
}

fn with_tiers(algorithm: Algorithm, tiers: &[(u64, u32)]) -> Policy {
    let make = match algorithm {
        Algorithm::SlidingWindow => Policy::sliding_window,
        Algorithm::SlidingCounter => Policy::sliding_counter,
        Algorithm::FixedWindow => Policy::fixed_window,
        Algorithm::TokenBucket => Policy::token_bucket,
        other => unreachable!("{other:?} is not tested"),
    };
    let (period, threshold) = tiers[0];
    let first = make("model", Duration::from_micros(period), threshold);
    tiers[1..].iter().fold(first, |policy, (period, threshold)| {
        policy.tier(Duration::from_micros(*period), *threshold)
    })
}

/// One call of a schedule.
#[derive(Clone, Copy, Debug)]
pub struct Operation {
    /// Who calls.
    pub caller: usize,
    /// When, in microseconds.
    pub now: u64,
    /// The units it takes.
    pub cost: u32,
    /// Whether it is recorded, or only looks.
    pub record: bool,
}

/// Calls under one policy, each with the model's answer.
#[derive(Debug)]
pub struct Schedule {
    model: Model,
    rng: Rng,
    now: u64,
    /// The time that no call is later than.
    latest: u64,
    /// Whether the clock may step back.
    backwards: bool,
    shortest: (u64, u32),
    longest: u64,
    largest_cost: u32,
    /// For each caller when which cost is admitted for the first time.
    due: [(u64, u32); CALLERS],
}

impl Schedule {
    /// Calls from `start` on, forwards, that a limiter decides.
    pub fn forwards(case: &Case, start: u64, rng: Rng) -> Self {
        let mut schedule = Self::new(case, start, rng);
        if case.policy.algorithm() == Algorithm::SlidingWindow {
            schedule.largest_cost = schedule.largest_cost.min(LARGEST_LOG_COST);
        }
        schedule
    }

    /// Calls from `start` on, with a clock that steps back now and then and stays within what a
    /// script can hold exactly.
    pub fn back_and_forth(case: &Case, start: u64, rng: Rng) -> Self {
        Self { backwards: true, latest: 8_000_000_000_000_000, ..Self::new(case, start, rng) }
    }

    fn new(case: &Case, start: u64, rng: Rng) -> Self {
        let micros = |period: Duration| u64::try_from(period.as_micros()).expect("a period");
        let tiers = case.policy.tiers().iter();
        let tiers: Vec<_> = tiers.map(|tier| (micros(tier.period()), tier.threshold())).collect();
        let thresholds = tiers.iter().map(|(_, threshold)| *threshold).min();
        Self {
            model: Model::new(&case.policy, case.burst),
            rng,
            now: start,
            latest: u64::MAX,
            backwards: false,
            shortest: *tiers.iter().min().expect("a tier"),
            longest: tiers.iter().map(|(period, _)| *period).max().expect("a tier"),
            largest_cost: case.burst.or(thresholds).expect("a tier"),
            due: [(start, 1); CALLERS],
        }
    }

    /// The time of the last call.
    pub fn now(&self) -> u64 {
        self.now
    }

    /// The next call, and what the model answers.
    pub fn call(&mut self) -> (Operation, Answer) {
        let operation = self.operation();
        let Operation { caller, now, cost, record } = operation;
        self.now = now;
        let answer = self.model.decide(caller, now, cost, record);
        let wanted = if answer.admitted { answer.remaining.saturating_add(1) } else { cost };
        self.due[caller] = (now + answer.wait, wanted.clamp(1, self.largest_cost));
        (operation, answer)
    }

    fn operation(&mut self) -> Operation {
        let caller = self.rng.usize(..CALLERS);
        let (due, due_cost) = self.due[caller];
        let (period, threshold) = self.shortest;
        let pace = period / u64::from(threshold);
        let mut cost = None;
        let now = match self.rng.u32(..100) {
            0..20 => self.now,
            20..30 => self.now + 1,
            30..45 => self.now + self.rng.u64(..=2 * pace),
            45..55 => self.now + self.rng.u64(..=period),
            55..60 => self.now + self.rng.u64(..=self.longest),
            60..62 => self.now + self.rng.u64(..=5 * self.longest / 2),
            62..77 => {
                cost = Some(due_cost);
                due
            }
            77..88 => {
                cost = Some(due_cost);
                due.saturating_sub(1)
            }
            88..92 => self.now.saturating_sub(1),
            92..96 => self.now.saturating_sub(self.rng.u64(..=2 * period)),
            _ => self.now.saturating_sub(self.rng.u64(..=2 * self.longest)),
        };
        let now = if now > self.latest { self.now } else { now };
        let now = if self.backwards { now } else { now.max(self.now) };
        let record = self.rng.u32(..100) < 85;
        let cost = cost.unwrap_or_else(|| match self.rng.u32(..10) {
            // Else a large log would never be full.
            0..6 if self.largest_cost == LARGEST_LOG_COST => LARGEST_LOG_COST,
            0..6 => 1,
            6..8 => self.rng.u32(1..=self.largest_cost.min(5)),
            8 if !record => 0,
            _ => self.rng.u32(1..=self.largest_cost),
        });
        Operation { caller, now, cost, record }
    }
}
