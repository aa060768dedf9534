//! From what every tier says to what the call is told.

use super::{Outcome, Source};

/// The answer so far, while the tiers are gone through.
pub(super) struct Verdict {
    admitted: bool,
    chosen: Option<(usize, u32, u64)>,
    reset: u64,
}

impl Verdict {
    pub(super) fn new(admitted: bool) -> Self {
        Self { admitted, chosen: None, reset: 0 }
    }

    /// Of an admitted call, `left` units are left in the tier and more can be had after `wait`;
    /// of a refused one, the tier would admit it after `wait`. The tier is full after `reset`.
    #[inline]
    pub(super) fn tier(&mut self, index: usize, left: u32, wait: u64, reset: u64) {
        let speaks = self.chosen.is_none_or(|(_, least, longest)| {
            let fewer = self.admitted && left < least;
            fewer || (wait > longest && (left == least || !self.admitted))
        });
        if speaks {
            self.chosen = Some((index, left, wait));
        }
        self.reset = self.reset.max(reset);
    }

    /// The answer to a call that the store knows by `mark`.
    #[inline]
    pub(super) fn outcome(self, mark: u64) -> Outcome {
        let (tier, remaining, wait) = self.chosen.unwrap_or_default();
        Outcome {
            admitted: self.admitted,
            #[expect(clippy::cast_possible_truncation, reason = "there are at most eight tiers")]
            tier: tier as u8,
            remaining,
            wait,
            reset: self.reset,
            mark,
            source: Source::Store,
        }
    }
}
