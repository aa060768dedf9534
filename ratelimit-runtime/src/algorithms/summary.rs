//! From what every tier says to what the call is told.

use crate::{
    request::{DecidedBy, Detail, Mark, Outcome},
    time::Micros,
};

/// The answer so far, while the tiers are gone through.
pub(super) struct Summary {
    admitted: bool,
    tells: bool,
    chosen: Option<(usize, u32, Micros)>,
    reset: Micros,
}

impl Summary {
    /// A refused call is always told why; of an admitted one no tier says more than its `reset`
    /// unless the [`Detail`] is full.
    pub(super) fn new(admitted: bool, detail: Detail) -> Self {
        Self {
            admitted,
            tells: !admitted || detail == Detail::Full,
            chosen: None,
            reset: Micros::ZERO,
        }
    }

    /// The tier is full after `reset`. Of an admitted call, `left` units are left in it and more can
    /// be had after `wait`; of a refused one, the tier would admit it after `wait`.
    #[inline]
    pub(super) fn tier(
        &mut self,
        index: usize,
        reset: Micros,
        left_and_wait: impl FnOnce() -> (u32, Micros),
    ) {
        self.reset = self.reset.max(reset);
        if !self.tells {
            return;
        }
        let (left, wait) = left_and_wait();
        let speaks = self.chosen.is_none_or(|(_, least, longest)| {
            let fewer = self.admitted && left < least;
            fewer || (wait > longest && (left == least || !self.admitted))
        });
        if speaks {
            self.chosen = Some((index, left, wait));
        }
    }

    /// The answer to a call of this cost that was charged so; `until` so many units can
    /// be had of every tier.
    #[inline]
    pub(super) fn outcome(
        self,
        mark: Mark,
        cost: u32,
        until: impl FnOnce(u32) -> Micros,
    ) -> Outcome {
        let (tier, remaining, wait) = self.chosen.unwrap_or_default();
        let more = match remaining.checked_add(1) {
            _ if self.admitted => Micros::ZERO,
            Some(units) if units < cost => until(units),
            _ => wait,
        };
        Outcome {
            admitted: self.admitted,
            #[expect(clippy::cast_possible_truncation, reason = "there are at most eight tiers")]
            tier: tier as u8,
            remaining,
            wait,
            more,
            reset: self.reset,
            lasts: self.reset,
            mark,
            decided_by: DecidedBy::Store,
        }
    }
}
