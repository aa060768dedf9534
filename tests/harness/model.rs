//! The specification: the decisions of each algorithm, in a few plain lines each.
//!
//! An algorithm defines two things: whether a tier has room for some units at some time, and the units that a
//! call records; see `states`. The model derives remaining units, waits and resets from the first alone.

mod entries;
mod line;
mod log;
mod permits;
mod settle;
mod states;
mod turns;
mod weighted;

use std::collections::HashMap;

use ratelimit_runtime::{Algorithm, Policy};

pub use self::permits::TIMEOUT;
use self::{permits::Permits, states::State, turns::Turns};

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
    /// Refused: until `remaining + 1` units can be had. Admitted: until the call's turn, of which the other
    /// numbers are.
    pub more: u64,
}

/// The numbers of a policy.
#[derive(Clone, Debug)]
pub struct Rules {
    algorithm: Algorithm,
    is_weighted: bool,
    count_rejected: bool,
    tiers: Vec<Tier>,
    /// The declared tiers, if an override decides.
    written: Vec<Tier>,
    /// The calls of one caller that may be in flight at one time.
    permits: Option<u32>,
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
    /// `true` once a part of it was given back.
    settled: bool,
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
        let (cost, number, life, ends, settled) = (0, 0, 0, 0, false);
        Self { caller, at: now, cost, id, number, life, tier, ends, settled }
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
        let tiers = policy.tiers().iter().map(|tier| Tier {
            period: u64::try_from(tier.period().as_micros()).expect("at most 366 days"),
            threshold: tier.threshold(),
            capacity: burst.unwrap_or(tier.threshold()),
        });
        Self {
            algorithm: policy.algorithm(),
            is_weighted: policy.is_weighted(),
            count_rejected: policy.counts_rejected(),
            tiers: tiers.collect(),
            written: Vec::new(),
            permits: policy.max_in_flight(),
        }
    }

    /// Returns the same as an override of a declared policy.
    #[must_use]
    pub fn instead_of(mut self, written: &Self) -> Self {
        self.written.clone_from(&written.tiers);
        self
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
        let (callers, lines, permits) = Default::default();
        Self { callers, lines, permits, by, numbers: 0 }
    }

    /// Decides a call, and records it unless it is a peek. It takes a permit and its units, or neither.
    pub fn decide(&mut self, rules: &Rules, caller: usize, call: Call) -> (Answer, Option<Charge>) {
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
        if waits && rules.algorithm != Algorithm::SlidingWindow {
            return self.decide_in_line(rules, caller, call);
        }
        self.decide_alone(rules, caller, call)
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
        let charged = id.and_then(|id| state.charged(id, arrival, rules.longest(), self.by));
        let (end, place) = (now, state.place(rules, (now, admitted), call, charged));
        (admitted, now) = (place.is_admitted, place.at);
        if now != end {
            state.move_to(now);
        }
        let (number, tier) = (self.numbers, rules.tiers[0]);
        let (life, ends, settled) = (0, 0, false);
        let mut charge = Charge { caller, at: now, cost, id, number, life, tier, ends, settled };
        let recorded = charged.is_none() && (admitted || rules.count_rejected);
        if let Some(before) = charged {
            charge = Charge { cost, ..before };
        }
        if recorded {
            charge.life = state.record(rules, admitted, arrival, charge, self.by);
        }
        let mut answer = answer(&state, rules, admitted, now, cost);
        if recorded && cost > 0 && matches!(state, State::Log(_) | State::Weighted(_)) {
            // Counted from this call, also while a clock has not caught up yet.
            answer.reset = rules.longest();
        }
        place.finish(&mut answer, arrival, || until_one(&state, rules, now));
        charge.tier = rules.tiers[answer.tier];
        charge.ends = charge.at + answer.reset;
        if rules.algorithm == Algorithm::TokenBucket {
            // The call's own tokens are certain to have been missing.
            let parts = u64::from(cost) * charge.tier.period;
            charge.ends = now + parts.div_ceil(charge.tier.threshold.into());
        }
        if record && (recorded || is_changed) {
            self.callers.insert(caller, state);
        } else if let Some(written) = written {
            self.callers.entry(caller).or_insert(written);
        }
        (answer, (admitted && record).then_some(charge))
    }

    /// Drops all units of a caller.
    pub fn reset(&mut self, caller: usize) {
        self.callers.remove(&caller);
        self.lines.remove(&caller);
    }
}

/// The time until one unit can be had.
fn until_one(state: &State, rules: &Rules, now: u64) -> u64 {
    let until = |index| soonest(|wait| state.has_room(rules, index, now + wait, 1));
    (0..rules.tiers.len()).map(until).max().unwrap_or(0)
}

fn answer(state: &State, rules: &Rules, admitted: bool, now: u64, cost: u32) -> Answer {
    let until = |index, units| {
        soonest(|wait| units == 0 || state.has_room(rules, index, now + wait, units))
    };
    let tiers = rules.tiers.iter().enumerate().map(|(index, tier)| {
        let has_room = |units| units == 0 || state.has_room(rules, index, now, units);
        let remaining = most(tier.capacity, has_room);
        let wanted = if admitted { remaining + 1 } else { u64::from(cost) };
        let until =
            |units: u64| until(index, u32::try_from(units).unwrap_or(u32::MAX).min(tier.capacity));
        let remaining = u32::try_from(remaining).expect("at most the capacity");
        (index, remaining, until(wanted), until(tier.capacity.into()))
    });
    let tiers: Vec<_> = tiers.collect();
    // Of equals, the first one is reported.
    let speaks = tiers.iter().rev().max_by_key(|(_, remaining, wait, _)| {
        let fewest = if admitted { u32::MAX - remaining } else { 0 };
        (fewest, *wait)
    });
    let &(tier, remaining, wait, _) = speaks.expect("a policy has a tier");
    let reset = tiers.iter().map(|(_, _, _, reset)| *reset).max().unwrap_or(0);
    let units = remaining.saturating_add(1);
    let more = match units {
        _ if admitted => 0,
        _ if units >= cost => wait,
        _ => (0..tiers.len()).map(|index| until(index, units)).max().unwrap_or(0),
    };
    Answer { admitted, is_busy: false, tier, remaining, wait, reset, more }
}

/// The most units up to `capacity` for which there is room.
fn most(capacity: u32, has_room: impl Fn(u32) -> bool) -> u64 {
    let (mut fits, mut too_many) = (0, u64::from(capacity) + 1);
    while fits + 1 < too_many {
        let middle = u64::midpoint(fits, too_many);
        if has_room(u32::try_from(middle).expect("at most the capacity")) {
            fits = middle;
        } else {
            too_many = middle;
        }
    }
    fits
}

/// The first time from which there is room: once there is, it stays.
fn soonest(has_room: impl Fn(u64) -> bool) -> u64 {
    if has_room(0) {
        return 0;
    }
    let (mut too_soon, mut late) = (0, 1);
    while !has_room(late) {
        (too_soon, late) = (late, late * 2);
    }
    while too_soon + 1 < late {
        let middle = u64::midpoint(too_soon, late);
        if has_room(middle) {
            late = middle;
        } else {
            too_soon = middle;
        }
    }
    late
}
