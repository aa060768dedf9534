//! The specification: the decisions of each algorithm, in a few plain lines each.
//!
//! An algorithm defines two things: whether a tier has room for some units at some time, and the
//! units that a call records; see `states`. The model derives remaining units, waits and resets
//! from the first alone.

mod blocks;
mod calls;
mod entries;
mod expiry;
mod line;
mod numbers;
mod permits;
mod settle;
mod soonest;
mod states;
mod turns;
mod units;

use std::{collections::HashMap, time::Duration};

use ratelimit_runtime::{Algorithm, Policy};

pub use self::permits::TIMEOUT;
use self::{
    blocks::Block,
    numbers::{answer, until_one},
    permits::Permits,
    states::State,
    turns::Turns,
};

/// The answer of a call. Times are in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// `true` if the call is admitted.
    pub admitted: bool,
    /// `true` if the call is refused because no permit is free. Nothing else is known then.
    pub is_busy: bool,
    /// Refused: the tier with the longest wait. Admitted: the one with the fewest units left.
    pub tier: usize,
    /// The units left in that tier.
    pub remaining: u32,
    /// Until the call is admitted, or until more than `remaining` can be had.
    pub wait: u64,
    /// Until the full quota is back.
    pub reset: u64,
    /// Refused: until `remaining + 1` units can be had. Admitted: until the call's turn, of which
    /// the other numbers are.
    pub more: u64,
}

/// The numbers of a policy.
#[derive(Clone, Debug)]
pub struct Rules {
    algorithm: Algorithm,
    count_rejected: bool,
    tiers: Vec<Tier>,
    /// The declared tiers, if an override decides.
    written: Vec<Tier>,
    /// The calls of one caller that may be in flight at one time.
    permits: Option<u32>,
    /// The share that calls leave, in percent.
    leave: u32,
    /// The lengths of blocks.
    blocks: Vec<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Tier {
    period: u64,
    threshold: u32,
    /// The units that are available after a long time without calls.
    capacity: u32,
}

/// One call.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// The time of the call, in microseconds.
    pub now: u64,
    /// The units that the call takes.
    pub cost: u32,
    /// `true` for a take, `false` for a peek.
    pub record: bool,
    /// The request id of a call that is charged once.
    pub id: Option<u64>,
    /// The id of the permit that the call takes, if its policy has any.
    pub permit: u64,
    /// The time that the call may wait for its turn.
    pub max_wait: u64,
}

/// The turns that may lie ahead.
pub const MAX_LINE: u64 = 20;

/// The charge of an admitted call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Charge {
    caller: usize,
    at: u64,
    cost: u32,
    id: Option<u64>,
    /// The number of the charge.
    number: u64,
    /// The generation of the state that it was written to.
    life: u64,
    /// The tier of the answer.
    tier: Tier,
    /// The time before which the state cannot have expired.
    ends: u64,
    /// `true` if it was made while its log had single units alone.
    is_single: bool,
}

impl Charge {
    /// The units that were charged.
    pub fn cost(&self) -> u32 {
        self.cost
    }

    /// The time at which they were charged, or will be.
    pub fn at(&self) -> u64 {
        self.at
    }

    /// The charge of a call that takes a permit and no units.
    fn of_permit(caller: usize, Call { now, id, .. }: Call) -> Self {
        let tier = Tier { period: 0, threshold: 0, capacity: 0 };
        let (cost, number, life, ends, is_single) = (0, 0, 0, 0, false);
        Self { caller, at: now, cost, id, number, life, tier, ends, is_single }
    }
}

impl Answer {
    /// The answer without a free permit.
    pub const BUSY: Self =
        Self { admitted: false, is_busy: true, tier: 0, remaining: 0, wait: 0, reset: 0, more: 0 };
}

/// All callers of one limit.
#[derive(Debug)]
pub struct Model {
    callers: HashMap<usize, State>,
    /// The lines of callers whose states have no room for turns.
    lines: HashMap<usize, Turns>,
    permits: HashMap<usize, Permits>,
    blocks: HashMap<usize, Block>,
    /// The times from which the states are equal to empty ones.
    expiries: HashMap<usize, u64>,
    /// How often a caller's state has expired.
    forgotten: HashMap<usize, u64>,
    /// How units and states are distinguished: by their instant, or by a name.
    by: By,
    /// The charges and the states so far.
    numbers: u64,
}

/// How a store distinguishes charges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// The embedded store: units of a log by the instant, states by a number.
    Number,
    /// Redis: units of a log by name, states by the instant of their birth.
    Instant,
}

impl Rules {
    /// Returns the numbers of a policy; `burst` is the explicit one.
    pub fn new(policy: &Policy, burst: Option<u32>) -> Self {
        let micros = |it: Duration| u64::try_from(it.as_micros()).expect("at most 366 days");
        let tiers = policy.tiers().iter().map(|tier| Tier {
            period: micros(tier.period()),
            threshold: tier.threshold(),
            capacity: burst.unwrap_or(tier.threshold()),
        });
        Self {
            algorithm: policy.algorithm(),
            count_rejected: policy.counts_rejected(),
            tiers: tiers.collect(),
            written: Vec::new(),
            permits: policy.get_concurrency(),
            leave: 0,
            blocks: policy.get_block().map(micros).collect(),
        }
    }

    /// Returns the same for calls that leave a share, in percent.
    #[must_use]
    pub fn leaving(self, leave: u32) -> Self {
        let permits = self.permits.map(|permits| permits - left_of(permits, leave));
        Self { permits, leave, ..self }
    }

    /// A call that leaves something is promised nothing.
    pub(super) fn may_wait(&self) -> bool {
        self.leave == 0
    }

    /// The units of a tier that calls leave.
    fn left(&self, index: usize) -> u32 {
        left_of(self.tiers[index].capacity, self.leave)
    }

    /// Returns the same as an override of a declared policy.
    #[must_use]
    pub fn instead_of(mut self, written: &Self) -> Self {
        self.written.clone_from(&written.tiers);
        self
    }

    /// The tiers that a log of units counts for, also those that decide nothing. On Redis a period
    /// has one tier, and an override that admits fewer of it leaves none that the declared tier
    /// could miss.
    fn counted(&self, by: By) -> impl Iterator<Item = &Tier> {
        let is_decided = |tier: &Tier| self.tiers.iter().any(|it| it.period == tier.period);
        let written = self.written.iter();
        let written = written.filter(move |tier| by == By::Number || !is_decided(tier));
        self.tiers.iter().chain(written)
    }

    fn shortest(&self) -> u64 {
        self.tiers.iter().map(|tier| tier.period).min().expect("a policy has a tier")
    }

    fn longest(&self) -> u64 {
        self.tiers.iter().map(|tier| tier.period).max().expect("a policy has a tier")
    }
}

impl Model {
    /// Returns a model without any calls.
    pub fn new(by: By) -> Self {
        let (callers, lines, permits, blocks) = Default::default();
        let [expiries, forgotten] = Default::default();
        Self { callers, lines, permits, blocks, expiries, forgotten, by, numbers: 0 }
    }

    /// Decides a call, and records it unless it is a peek. A blocked caller is refused; a recorded
    /// call that a window refuses blocks its caller.
    pub fn decide(&mut self, rules: &Rules, caller: usize, call: Call) -> (Answer, Option<Charge>) {
        self.forget_expired(call.now);
        if !rules.blocks.is_empty() {
            let left = self.blocks.entry(caller).or_default().left(call);
            if left > 0 && call.cost > 0 {
                let look = Call { record: false, ..call };
                let (window, _) = self.decide_units(rules, caller, look);
                return (Answer::blocked(window, left), None);
            }
        }
        let (answer, charge) = self.decide_unblocked(rules, caller, call);
        if rules.blocks.is_empty() || answer.admitted || answer.is_busy || !call.record {
            return (answer, charge);
        }
        let block = self.blocks.entry(caller).or_default();
        let left = block.offend(&rules.blocks, call.now);
        (Answer::blocked(answer, left), None)
    }

    /// Decides a call of a caller that is not blocked. It takes a permit and its units, or neither.
    fn decide_unblocked(
        &mut self,
        rules: &Rules,
        caller: usize,
        call: Call,
    ) -> (Answer, Option<Charge>) {
        let Some(most) = rules.permits else { return self.decide_units(rules, caller, call) };
        let permits = self.permits.entry(caller).or_default();
        let free = permits.free(most, call);
        if call.cost > 0 && free == 0 {
            return (Answer::BUSY, None);
        }
        let (answer, charge) = if rules.tiers.is_empty() {
            let remaining = free - u32::from(call.cost > 0);
            let answer = Answer { admitted: true, is_busy: false, remaining, ..Answer::BUSY };
            (answer, call.record.then(|| Charge::of_permit(caller, call)))
        } else {
            self.decide_units(rules, caller, call)
        };
        if answer.admitted && call.record {
            self.permits.entry(caller).or_default().take(call, self.by);
        }
        (answer, charge)
    }

    /// Releases a permit.
    pub fn release(&mut self, caller: usize, permit: u64) {
        self.permits.entry(caller).or_default().release(permit);
    }

    /// Renews permits, and returns those whose place others have taken.
    pub fn renew(&mut self, rules: &Rules, caller: usize, permits: &[u64], now: u64) -> Vec<u64> {
        let most = rules.permits.expect("a policy of calls in flight");
        self.permits.entry(caller).or_default().renew(permits, most, now)
    }

    fn decide_units(
        &mut self,
        rules: &Rules,
        caller: usize,
        call: Call,
    ) -> (Answer, Option<Charge>) {
        let waits = call.max_wait > 0 || self.lines.contains_key(&caller);
        let decided = if waits && rules.algorithm != Algorithm::SlidingWindow {
            self.decide_in_line(rules, caller, call)
        } else {
            self.decide_alone(rules, caller, call)
        };
        if call.record {
            self.extend(caller, call.now);
        }
        decided
    }

    fn decide_alone(
        &mut self,
        rules: &Rules,
        caller: usize,
        call: Call,
    ) -> (Answer, Option<Charge>) {
        let Call { now: arrival, cost, record, id, .. } = call;
        self.numbers += 1;
        let generation = if self.by == By::Number { self.numbers } else { arrival };
        let written = self.callers.remove(&caller);
        let mut state = written.clone().unwrap_or_else(|| State::empty(rules, generation, self.by));
        let mut now = state.line_end(rules, arrival);
        let mut is_changed = state.see(rules, arrival, now);
        if now == arrival {
            state.forget_line();
        }
        let mut admitted = state.admits(rules, now, cost);
        if !admitted && state.mend(rules, arrival, &mut now) {
            is_changed = true;
            admitted = state.admits(rules, now, cost);
            // A peek does so as well.
            self.callers.insert(caller, state.clone());
        }
        let charged = id.and_then(|id| state.charged(id, arrival, rules.longest()));
        let (end, place) = (now, state.place(rules, (now, admitted), call, charged));
        (admitted, now) = (place.is_admitted, place.at);
        if now != end {
            state.move_to(now);
        }
        let (number, tier) = (self.numbers, rules.tiers[0]);
        let (life, ends, is_single) = (0, 0, false);
        let mut charge = Charge { caller, at: now, cost, id, number, life, tier, ends, is_single };
        let recorded = charged.is_none() && (admitted || rules.count_rejected);
        if let Some(before) = charged {
            charge = Charge { cost, ..before };
        }
        if recorded && cost > 0 {
            state.drop_old(arrival);
            if state.needs_calls(rules, call, now, self.by) {
                state.become_calls(rules, arrival, now);
            }
        }
        charge.is_single = recorded && matches!(state, State::Units(_));
        if recorded {
            charge.life = state.record(rules, admitted, arrival, charge, self.by);
            if let State::Buckets(kept) = &state {
                charge.at = kept.charged(now);
            }
        }
        let mut answer = answer(&state, rules, admitted, now, cost);
        if recorded && cost > 0 && matches!(state, State::Units(_) | State::Calls(_)) {
            // Counted from this call, also while a clock has not caught up yet.
            answer.reset = rules.longest();
        }
        place.finish(&mut answer, arrival, || until_one(&state, rules, now));
        charge.tier = rules.tiers[answer.tier];
        charge.ends = charge.at + answer.reset;
        if rules.algorithm == Algorithm::TokenBucket {
            // The call's own tokens are certain to have been missing.
            let parts = u64::from(cost) * charge.tier.period;
            charge.ends = charge.at + parts.div_ceil(charge.tier.threshold.into());
        }
        if record && (recorded || is_changed) {
            self.callers.insert(caller, state);
        } else if let Some(written) = written {
            self.callers.entry(caller).or_insert(written);
        }
        (answer, (admitted && record).then_some(charge))
    }

    /// Settles a charge at `to` units. Fewer are given back if they are still recorded. More are
    /// recorded now, unless the caller was reset.
    pub fn settle(&mut self, charge: Charge, rules: &Rules, now: u64, to: u32) {
        if self.lines.contains_key(&charge.caller) {
            self.settle_in_line(charge, rules, now, to);
        } else {
            self.settle_alone(charge, rules, now, to);
        }
        self.extend(charge.caller, 0);
        if to < charge.cost {
            self.shorten(charge.caller, now);
        }
    }

    /// Drops all units of a caller.
    pub fn reset(&mut self, caller: usize) {
        self.callers.remove(&caller);
        self.lines.remove(&caller);
        self.expiries.remove(&caller);
        self.blocks.remove(&caller);
    }
}

/// The units that stay of a quota, rounded up.
pub fn left_of(quota: u32, percent: u32) -> u32 {
    let left = (u64::from(quota) * u64::from(percent)).div_ceil(100);
    u32::try_from(left).expect("at most the quota")
}
