//! The outcome of a call, from the numbers of every tier.

use crate::{
    request::{DecidedBy, Mark, Outcome},
    time::Micros,
};

/// The outcome so far, while tiers are added.
pub(super) struct Summary {
    admitted: bool,
    chosen: Option<Chosen>,
    reset: Micros,
}

/// The tier that the outcome is about.
#[derive(Clone, Copy)]
struct Chosen {
    index: u8,
    left: u32,
    wait: Micros,
}

impl Summary {
    pub(super) fn new(admitted: bool) -> Self {
        Self { admitted, chosen: None, reset: Micros::ZERO }
    }

    /// Adds a tier with `left` units, whose full quota is back after `reset`. Admitted: more than
    /// `left` units are available after `wait`. Refused: the tier admits the call after `wait`.
    #[inline]
    pub(super) fn add_tier(&mut self, index: u8, reset: Micros, left: u32, wait: Micros) {
        self.reset = self.reset.max(reset);
        let is_chosen = self.chosen.is_none_or(|chosen| {
            let fewer = self.admitted && left < chosen.left;
            fewer || (wait > chosen.wait && (left == chosen.left || !self.admitted))
        });
        if is_chosen {
            self.chosen = Some(Chosen { index, left, wait });
        }
    }

    /// Returns the outcome of a call of this cost. `until` returns the time until every tier has
    /// this many units.
    #[inline]
    pub(super) fn outcome(
        self,
        mark: Mark,
        cost: u32,
        until: impl FnOnce(u32) -> Micros,
    ) -> Outcome {
        let (tier, remaining, wait) =
            self.chosen.map_or_else(Default::default, |it| (it.index, it.left, it.wait));
        let more = match remaining.checked_add(1) {
            _ if self.admitted => Micros::ZERO,
            Some(units) if units < cost => until(units),
            _ => wait,
        };
        Outcome {
            admitted: self.admitted,
            tier,
            remaining,
            wait,
            more,
            reset: self.reset,
            lasts: self.reset,
            mark: if self.admitted { mark } else { Mark::NONE },
            decided_by: DecidedBy::Store,
            is_busy: false,
        }
    }
}

/// Returns the outcome of a call behind others that wait for their turns, the last of them `ahead` from
/// now. One unit can be had `one` after that. The numbers of `outcome` are those of that turn.
pub(super) fn behind(outcome: Outcome, ahead: Micros, one: Micros) -> Outcome {
    let (one, reset) = (ahead + one, ahead + outcome.reset);
    let (wait, more) =
        if outcome.admitted { (one, Micros::ZERO) } else { (ahead + outcome.wait, one) };
    Outcome { remaining: 0, wait, more, reset, ..outcome }
}
