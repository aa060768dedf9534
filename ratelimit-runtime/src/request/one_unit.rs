//! The answer to a plain call: one unit, under a policy of one tier.

use super::{DecidedBy, Mark, Outcome};
use crate::time::{Micros, Timestamp};

/// The answer to one unit under one tier: the numbers of its [`Outcome`] that are not known before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OneUnit {
    pub(crate) is_taken: bool,
    pub(crate) decided_by: DecidedBy,
    pub(crate) remaining: u32,
    pub(crate) wait: Micros,
    /// The time until the full quota is back, for which the unit counts.
    pub(crate) reset: Micros,
    /// The charge, or the time of a refusal in memory.
    pub(crate) mark: Mark,
}

impl OneUnit {
    /// Returns the answer to a unit that is taken.
    #[inline]
    pub(crate) fn taken(remaining: u32, wait: Micros, reset: Micros, mark: Mark) -> Self {
        Self { is_taken: true, decided_by: DecidedBy::Store, remaining, wait, reset, mark }
    }

    /// Returns the answer to a unit that is taken, of which nobody reads more than the time for which it
    /// counts.
    #[inline]
    pub(crate) fn unread(reset: Micros) -> Self {
        Self::taken(0, Micros::ZERO, reset, Mark::NONE)
    }

    /// Returns the refusal of a unit: none is left, and nothing has changed.
    #[inline]
    pub(crate) fn refused(now: Timestamp, wait: Micros, reset: Micros) -> Self {
        Self { is_taken: false, ..Self::taken(0, wait, reset, Mark { at: now, ..Mark::NONE }) }
    }

    #[inline]
    pub(crate) fn outcome(self) -> Outcome {
        let Self { is_taken, decided_by, remaining, wait, reset, mark } = self;
        let outcome = if is_taken {
            Outcome::admitted(remaining, wait, reset, mark)
        } else {
            Outcome::refused(wait, reset)
        };
        Outcome { decided_by, ..outcome }
    }
}

impl From<Outcome> for OneUnit {
    #[inline]
    fn from(outcome: Outcome) -> Self {
        let Outcome { admitted, decided_by, remaining, wait, reset, mark, .. } = outcome;
        Self { is_taken: admitted, decided_by, remaining, wait, reset, mark }
    }
}
