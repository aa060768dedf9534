//! Random schedules of calls, with the model's answer to each.

mod line;
mod policies;

use std::{env, time::Duration};

use fastrand::Rng;
use ratelimit_runtime::{Algorithm, Policy};

pub use self::policies::{Case, Kind, blocking, cases, changes, in_flight, leaving};
use super::model::{Answer, By, Call, Charge, Model, Rules, TIMEOUT, left_of};

/// Different callers of one policy.
pub const CALLERS: usize = 3;

/// Processes that hold permits.
const PROCESSES: u32 = 3;

/// The seed of runs that nobody sets, the same each time: what is red then is red by a change.
const SEED: u64 = 20_261_128;

/// The seed of a run: `MODEL_SEED`. With `MODEL_OPS` alone, or with `MODEL_SEED=random`, it is
/// another one each time.
#[must_use]
pub fn seed() -> u64 {
    match env::var("MODEL_SEED") {
        Ok(word) if word == "random" => fastrand::u64(..),
        Ok(number) => number.parse().expect("MODEL_SEED is a number"),
        Err(_) if env::var_os("MODEL_OPS").is_some() => fastrand::u64(..),
        Err(_) => SEED,
    }
}

/// The calls of each algorithm's test: `MODEL_OPS`, or 25 000.
pub fn operations() -> usize {
    env::var("MODEL_OPS").map_or(25_000, |it| it.parse().expect("MODEL_OPS is a number"))
}

/// One call of a schedule.
#[derive(Clone, Copy, Debug)]
pub struct Operation {
    /// The caller.
    pub caller: usize,
    /// The time of the call, in microseconds.
    pub now: u64,
    /// The units that the call takes.
    pub cost: u32,
    /// `true` for a take, `false` for a peek.
    pub record: bool,
    /// The index of the deciding policy.
    pub policy: usize,
    /// The request id of a call that may be repeated.
    pub id: Option<u64>,
    /// The id of the permit that the call takes, if its policy has any.
    pub permit: u64,
    /// The time that the call may wait for its turn.
    pub max_wait: u64,
}

/// One step of a schedule.
#[derive(Clone, Debug)]
pub enum Step {
    /// A call, and the model's answer.
    Call(Operation, Answer),
    /// Resets a caller.
    Reset(usize),
    /// The settle of a charge, by its position among all charges, at so many units.
    Settle(usize, u32),
    /// The confirmation of a charge, and whether the state has it.
    Confirm(usize, bool),
    /// The advance of a charge, and its time after that, unless it is gone.
    Advance(usize, Option<u64>),
    /// A pause of a caller of so many microseconds, and the times of charges after it, by their
    /// positions.
    Pause(usize, u64, Vec<(usize, u64)>),
    /// Releases a permit.
    Release(LivePermit),
    /// A process renews permits of one caller and policy, of which others have taken so many.
    Renew(Vec<LivePermit>, Vec<u64>),
    /// A process ends, and neither releases nor renews these, nor settles their charges.
    Crash(Vec<LivePermit>),
}

/// A permit of a call in flight.
#[derive(Clone, Copy, Debug)]
pub struct LivePermit {
    /// The caller.
    pub caller: usize,
    /// The id of the permit.
    pub id: u64,
    /// The position of the call's charge among all charges.
    pub charge: usize,
    /// The index of the policy that decided the call.
    pub policy: usize,
    process: u32,
}

/// Calls under one policy, or several that take turns, each with the model's answer.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is something that may happen or not")]
pub struct Schedule {
    model: Model,
    policies: Vec<Policy>,
    rules: Vec<Rules>,
    /// The policy of the next call, unless it changes.
    policy: usize,
    /// The charges that are not settled yet. Most never are, as those of a process that has ended.
    charges: Vec<Option<Charge>>,
    /// The positions of the charges whose calls have waited.
    waited: Vec<usize>,
    undoes: bool,
    settles: bool,
    names: bool,
    waits: bool,
    pauses: bool,
    rng: Rng,
    now: u64,
    /// The latest time of a call.
    latest: u64,
    /// `true` if the clock may step back.
    backwards: bool,
    shortest: (u64, u32),
    longest: u64,
    largest_costs: Vec<u32>,
    by: By,
    /// The permits that are held, and the number of those that were asked for.
    permits: Vec<LivePermit>,
    asked_permits: u64,
    /// The calls to come that take one unit, before others take more.
    singles: u32,
    /// For each caller the first time at which a cost is admitted, and that cost.
    due: [(u64, u32); CALLERS],
}

impl Schedule {
    /// Returns calls from `start` on, with a clock that never steps back.
    pub fn forwards(case: &Case, start: u64, rng: Rng) -> Self {
        Self::new(std::slice::from_ref(case), By::Number, start, rng)
    }

    /// Returns calls from `start` on under policies that take turns, with resets between them. If
    /// `is_overridden`, all policies but the first are overrides of it.
    pub fn in_turns(cases: &[Case], is_overridden: bool, by: By, start: u64, rng: Rng) -> Self {
        let mut schedule = Self { undoes: true, ..Self::new(cases, by, start, rng) };
        if let Some((written, others)) = schedule.rules.split_first_mut().filter(|_| is_overridden)
        {
            for rules in others {
                *rules = rules.clone().instead_of(written);
            }
        }
        schedule
    }

    /// Adds settles of charges: at 0 units, at fewer than were charged, and at more.
    #[must_use]
    pub fn with_settles(self) -> Self {
        Self { settles: true, ..self }
    }

    /// Adds request ids to some calls, which may be repeated.
    #[must_use]
    pub fn with_names(self) -> Self {
        Self { names: true, ..self }
    }

    /// Adds calls that wait for their turns, of which some are given back, confirmed or advanced;
    /// and resets.
    #[must_use]
    pub fn with_waits(self) -> Self {
        Self { waits: true, undoes: true, ..self }
    }

    /// Adds pauses.
    #[must_use]
    pub fn with_pauses(self) -> Self {
        Self { pauses: true, ..self }
    }

    /// Returns calls from `start` on with a clock that steps back now and then, and stays within
    /// the exact integers of a script.
    pub fn back_and_forth(case: &Case, start: u64, rng: Rng) -> Self {
        let cases = std::slice::from_ref(case);
        let forwards = Self::new(cases, By::Instant, start, rng);
        Self { backwards: true, latest: 8_000_000_000_000_000, ..forwards }
    }

    fn new(cases: &[Case], by: By, start: u64, mut rng: Rng) -> Self {
        let micros = |period: Duration| u64::try_from(period.as_micros()).expect("a period");
        let tiers = cases.iter().flat_map(|case| case.policy.tiers());
        let tiers: Vec<_> = tiers.map(|tier| (micros(tier.period()), tier.threshold())).collect();
        let largest_cost = |case: &Case| {
            let thresholds = case.policy.tiers().iter().map(|tier| tier.threshold());
            let most = case.burst.or(thresholds.min()).unwrap_or(1);
            (most - left_of(most, case.leave)).max(1)
        };
        let is_log = cases[0].policy.algorithm() == Algorithm::SlidingWindow;
        let is_penal = cases.iter().any(|case| case.policy.counts_rejected());
        let singles = match cases[0].is_single {
            true => u32::MAX,
            // A recorded refusal is as alike as another unit of its instant: only its call knows
            // which one it settles.
            false if is_log && !is_penal && rng.bool() => rng.u32(..60),
            false => 0,
        };
        Self {
            model: Model::new(by),
            policies: cases.iter().map(|case| case.policy).collect(),
            rules: cases.iter().map(Case::rules).collect(),
            policy: 0,
            charges: Vec::new(),
            waited: Vec::new(),
            undoes: false,
            settles: false,
            names: false,
            waits: false,
            pauses: false,
            rng,
            now: start,
            latest: u64::MAX,
            backwards: false,
            shortest: tiers.iter().min().copied().unwrap_or((TIMEOUT / 2, 1)),
            longest: tiers.iter().map(|(period, _)| *period).max().unwrap_or(TIMEOUT),
            largest_costs: cases.iter().map(largest_cost).collect(),
            by,
            permits: Vec::new(),
            asked_permits: 0,
            singles,
            due: [(start, 1); CALLERS],
        }
    }

    /// The time of the last call.
    pub fn now(&self) -> u64 {
        self.now
    }

    /// Returns how often the state of a caller has expired.
    pub fn forgotten(&self, caller: usize) -> u64 {
        self.model.forgotten(caller)
    }

    /// The policies that take turns.
    pub fn policies(&self) -> &[Policy] {
        &self.policies
    }

    /// Returns the next step.
    pub fn step(&mut self) -> Step {
        match self.rng.u32(..100) {
            0..2 if self.undoes => {
                let caller = self.rng.usize(..CALLERS);
                self.model.reset(caller);
                Step::Reset(caller)
            }
            2..14 if self.settles && !self.charges.is_empty() => {
                // Mostly a recent one.
                let recent = self.charges.len().saturating_sub(8);
                let from = if self.rng.u32(..4) > 0 { recent } else { 0 };
                let index = self.rng.usize(from..self.charges.len());
                match self.charges[index].take() {
                    Some(charge) => {
                        let to = self.settled(charge.cost());
                        self.model.settle(charge, &self.rules[0], self.now, to);
                        Step::Settle(index, to)
                    }
                    None => self.step(),
                }
            }
            14..26 if !self.permits.is_empty() => self.release(),
            26..29 if !self.permits.is_empty() && self.by == By::Instant => self.renew(),
            29 if !self.permits.is_empty() => self.crash(),
            14..40 if self.waits => self.step_of_line(),
            40..46 if self.pauses => self.pause(),
            _ => {
                let (operation, answer) = self.call();
                Step::Call(operation, answer)
            }
        }
    }

    fn release(&mut self) -> Step {
        let permit = self.permits.swap_remove(self.rng.usize(..self.permits.len()));
        self.end(permit);
        self.model.release(permit.caller, permit.id);
        Step::Release(permit)
    }

    fn renew(&mut self) -> Step {
        let LivePermit { caller, policy, process, .. } =
            self.permits[self.rng.usize(..self.permits.len())];
        let is_same =
            |it: &&LivePermit| (it.caller, it.policy, it.process) == (caller, policy, process);
        let renewed: Vec<_> = self.permits.iter().filter(is_same).copied().collect();
        let ids: Vec<_> = renewed.iter().map(|it| it.id).collect();
        let lost = self.model.renew(&self.rules[policy], caller, &ids, self.now);
        Step::Renew(renewed, lost)
    }

    fn crash(&mut self) -> Step {
        let process = self.permits[self.rng.usize(..self.permits.len())].process;
        let is_its = |it: &LivePermit| it.process == process;
        let (ended, alive) = self.permits.iter().partition(|it| is_its(it));
        self.permits = alive;
        let ended: Vec<LivePermit> = ended;
        for permit in &ended {
            self.end(*permit);
            self.charges[permit.charge] = None;
            if self.by == By::Number {
                self.model.release(permit.caller, permit.id);
            }
        }
        Step::Crash(ended)
    }

    /// Without its permit nobody can settle a call in memory.
    fn end(&mut self, permit: LivePermit) {
        if self.by == By::Number {
            self.charges[permit.charge] = None;
        }
    }

    /// Returns the units at which a charge is settled.
    fn settled(&mut self, cost: u32) -> u32 {
        // In memory the single units of a log have no ids: recorded refusals may have pushed out
        // the one that is settled upward.
        let is_log = self.policies[0].algorithm() == Algorithm::SlidingWindow;
        let is_penal = self.policies.iter().any(Policy::counts_rejected);
        let most = if self.by == By::Number && is_log && is_penal { cost } else { u32::MAX };
        let to = match self.rng.u32(..10) {
            0..3 => 0,
            // A settle at more makes calls of all units.
            _ if self.singles > 0
                && (self.policies[0].counts_rejected() || self.rng.u8(..20) > 0) =>
            {
                0
            }
            3..6 => self.rng.u32(..=cost),
            6..9 => cost.saturating_add(self.rng.u32(1..=5)),
            _ => cost.saturating_mul(self.rng.u32(2..100)),
        };
        to.min(most)
    }

    /// Returns the next call with the model's answer.
    pub fn call(&mut self) -> (Operation, Answer) {
        if self.rules.len() > 1 && self.rng.bool() {
            self.policy = self.rng.usize(..self.rules.len());
        }
        let operation = self.operation();
        let Operation { caller, now, cost, record, policy, id, permit, max_wait } = operation;
        self.now = now;
        let call = Call { now, cost, record, id, permit, max_wait };
        let (answer, charge) = self.model.decide(&self.rules[policy], caller, call);
        if charge.is_some() && self.policies[policy].get_concurrency().is_some() {
            let (process, charge) = (self.rng.u32(..PROCESSES), self.charges.len());
            self.permits.retain(|it| it.id != permit);
            self.permits.push(LivePermit { caller, id: permit, charge, policy, process });
        }
        if answer.admitted && answer.more > 0 {
            self.waited.push(self.charges.len());
        }
        self.charges.extend(charge.map(Some));
        let wanted = if answer.admitted { answer.remaining.saturating_add(1) } else { cost };
        let turn = if answer.admitted { answer.more } else { 0 };
        self.due[caller] = (now + turn + answer.wait, wanted.max(1));
        (operation, answer)
    }

    fn operation(&mut self) -> Operation {
        let (caller, policy) = (self.rng.usize(..CALLERS), self.policy);
        let largest_cost = self.largest_costs[policy];
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
        let cost = match (cost, self.rng.u32(..10)) {
            (Some(cost), _) => cost.min(largest_cost),
            (_, 0..6) => 1,
            (_, 6..8) => self.rng.u32(1..=largest_cost.min(5)),
            (_, 8) if !record => 0,
            _ => self.rng.u32(1..=largest_cost),
        };
        let is_single = record && self.singles > 0;
        self.singles -= u32::from(is_single);
        let cost = if is_single { 1 } else { cost };
        let is_named = self.names && cost > 0 && !is_single && self.rng.u32(..4) == 0;
        let id = is_named.then(|| self.rng.u64(1..=6));
        let cost = id.map_or(cost, |id| largest_cost.min(u32::try_from(id).expect("a digit")));
        let waits = self.waits && record && !is_single && self.rules[policy].may_wait();
        let max_wait = match self.rng.u32(..4) {
            0..2 if waits => self.rng.u64(..4 * period),
            2 if waits => self.rng.u64(..4 * self.longest),
            _ => 0,
        };
        let permit = self.permit(caller, record);
        Operation { caller, now, cost, record, policy, id, permit, max_wait }
    }

    /// Returns the id of a new permit, or of one that the caller holds: a call whose reply was lost
    /// is repeated.
    fn permit(&mut self, caller: usize, record: bool) -> u64 {
        self.asked_permits += 1;
        let held = self.permits.iter().find(|it| it.caller == caller).map(|it| it.id);
        // A permit in memory has no id.
        let may_repeat = record && self.by == By::Instant;
        held.filter(|_| may_repeat && self.rng.u32(..20) == 0).unwrap_or(self.asked_permits)
    }
}
