//! Settles of charges.

use super::{By, Charge, Model, Rules, states::State};

impl Model {
    /// Settles a charge at `to` units. Fewer are given back if they are still recorded. More are recorded
    /// now, unless the caller was reset.
    pub fn settle(&mut self, charge: Charge, rules: &Rules, now: u64, to: u32) {
        if self.lines.contains_key(&charge.caller) {
            self.settle_in_line(charge, rules, now, to);
        } else {
            self.settle_alone(charge, rules, now, to);
        }
        self.extend(charge.caller, 0);
    }

    /// Settles a charge by the state of its caller. Returns `true` if it is a charge of that state, or has
    /// become one.
    pub(super) fn settle_alone(
        &mut self,
        charge: Charge,
        rules: &Rules,
        now: u64,
        to: u32,
    ) -> bool {
        let state = self.callers.get_mut(&charge.caller);
        if let Some(State::Weighted(log)) = state {
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
        if !is_same && now < charge.ends {
            return false;
        }
        self.numbers += 1;
        let by = self.by;
        let generation = if by == By::Number { self.numbers } else { now };
        let empty = || State::empty(rules, generation, by);
        let state = self.callers.entry(charge.caller).or_insert_with(empty);
        state.raise(charge.tier, now, to - charge.cost);
        true
    }
}
