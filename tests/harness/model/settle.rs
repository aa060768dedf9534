//! Settles of charges.

use ratelimit_runtime::Algorithm;

use super::{
    By, Charge, Model, Rules,
    states::State,
    units::{MOST, Units},
};

impl Model {
    /// Settles a charge by the state of its caller. Returns `true` if it is a charge of that state,
    /// or has become one.
    pub(super) fn settle_alone(
        &mut self,
        charge: Charge,
        rules: &Rules,
        now: u64,
        to: u32,
    ) -> bool {
        let mut charge = charge;
        if rules.algorithm == Algorithm::SlidingWindow {
            // What exceeds a forgotten charge of a log counts for the longest period.
            charge.tier.period = charge.tier.period.max(charge.ends.saturating_sub(charge.at));
        }
        let state = self.callers.get_mut(&charge.caller);
        if let Some(State::Calls(log)) = state {
            log.settle(charge, to, now);
            return true;
        }
        let is_same = state.as_ref().is_some_and(|state| state.life() == charge.life);
        if to <= charge.cost {
            if let Some(state) = state.filter(|_| to < charge.cost) {
                state.lower(charge, to, self.by);
            }
            return is_same;
        }
        // Redis finds a single unit by its id alone.
        let is_found = |log: &Units| log.charges.iter().any(|it| it.number == charge.number);
        let is_same = match state.as_deref() {
            Some(State::Units(log)) if self.by == By::Instant => is_found(log),
            _ => is_same,
        };
        if !is_same && now < charge.ends {
            return false;
        }
        if let Some(log @ State::Units(_)) = state {
            log.make_calls(now);
            let State::Calls(log) = log else { unreachable!("just made") };
            if is_same {
                log.settle(charge, to, now);
            } else {
                log.start_with(charge.tier.period, now, u64::from(to - charge.cost));
            }
            return true;
        }
        self.numbers += 1;
        let by = self.by;
        let generation = if by == By::Number { self.numbers } else { now };
        let empty = || State::empty(rules, generation, by);
        let state = self.callers.entry(charge.caller).or_insert_with(empty);
        let units = to - charge.cost;
        if let State::Units(log) = state {
            // In memory the first units are those of a call.
            let single = units.min(charge.tier.capacity) == 1 && charge.tier.threshold <= MOST;
            if by == By::Number && single {
                (log.capacity, log.period) = (charge.tier.threshold.into(), charge.tier.period);
                log.record(Charge { number: u64::MAX, at: now, ..charge }, by);
                if units == 1 {
                    return true;
                }
            }
            let first = u32::from(by == By::Number && single);
            state.make_calls(now);
            if units > first {
                state.raise(charge.tier, now, units - first);
            }
            return true;
        }
        state.raise(charge.tier, now, units);
        true
    }
}
