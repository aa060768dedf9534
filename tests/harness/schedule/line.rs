//! The steps of calls that wait for their turns.

use super::super::model::Charge;
use super::{Schedule, Step};

impl Schedule {
    /// Returns the time from which a caller's state is equal to an empty one.
    pub fn ends(&self, caller: usize) -> u64 {
        self.model.ends(caller)
    }

    /// Returns a pause, mostly one that moves turns.
    pub(super) fn pause(&mut self) -> Step {
        let (caller, period) = (self.rng.usize(..super::CALLERS), self.shortest.0);
        let most = if self.rng.bool() { period } else { 3 * self.longest };
        let length = self.rng.u64(1..=most);
        self.model.pause(&self.rules[0], caller, self.now, self.now + length);
        let charges = self.charges.iter_mut().enumerate();
        let its = charges.filter_map(|(index, it)| Some((index, it.as_mut()?)));
        let ahead = its.filter(|(_, charge)| charge.at() > self.now);
        let turns = ahead.filter_map(|(index, it)| Some((index, self.model.follow(caller, it)?)));
        Step::Pause(caller, length, turns.collect())
    }

    /// Returns a step of a charge whose call has waited, mostly of one that lies ahead. Others
    /// never ask for a turn.
    pub(super) fn step_of_line(&mut self) -> Step {
        let is_ahead = |it: &Charge| it.at() > self.now || self.now.is_multiple_of(16);
        let recent = self.waited.iter().rev().take(100).copied();
        let ahead = recent.filter(|index| self.charges[*index].as_ref().is_some_and(is_ahead));
        let Some(index) = self.rng.choice(ahead.collect::<Vec<_>>()) else { return self.step() };
        let mut charge = self.charges[index].expect("a charge");
        if !self.model.knows(charge) {
            return self.step();
        }
        match self.rng.u32(..3) {
            0 => {
                self.charges[index] = None;
                self.model.settle(charge, &self.rules[0], self.now, 0);
                Step::Settle(index, 0)
            }
            1 => Step::Confirm(index, self.model.is_promised(charge)),
            _ => {
                let is_kept = self.model.advance(&mut charge, &self.rules[0], self.now);
                self.charges[index] = Some(charge);
                Step::Advance(index, is_kept.then(|| charge.at()))
            }
        }
    }
}
