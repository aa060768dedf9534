//! The outcome of a plain call: units are taken at once, or one is refused, under a policy of one tier.

use super::{DecidedBy, Mark, Outcome};
use crate::{
    policy::Policy,
    time::{Micros, Timestamp},
};

/// The numbers of a plain call's [`Outcome`] that are not known before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PlainOutcome {
    pub(crate) is_taken: bool,
    pub(crate) decided_by: DecidedBy,
    pub(crate) remaining: u32,
    pub(crate) wait: Micros,
    /// The time until the full quota is back, for which the units count.
    pub(crate) reset: Micros,
    /// The charge, or the time of a refusal in memory.
    pub(crate) mark: Mark,
}

impl PlainOutcome {
    /// Returns the outcome of units that are taken.
    #[inline]
    pub(crate) fn taken(remaining: u32, wait: Micros, reset: Micros, mark: Mark) -> Self {
        Self { is_taken: true, decided_by: DecidedBy::Store, remaining, wait, reset, mark }
    }

    /// Returns the outcome of units that are taken, of which nobody reads more than the time for which they
    /// count.
    #[inline]
    pub(crate) fn unread(reset: Micros) -> Self {
        Self::taken(0, Micros::ZERO, reset, Mark::NONE)
    }

    /// Returns the refusal of one unit: none is left, and nothing has changed. A refusal of more units, which may get
    /// some of them, and one that is recorded take the long way.
    #[inline]
    pub(crate) fn refused(
        now: Timestamp,
        policy: &Policy,
        units: u32,
        (wait, reset): (Micros, Micros),
    ) -> Option<Self> {
        let refused = Self::taken(0, wait, reset, Mark { at: now, ..Mark::NONE });
        (units == 1 && !policy.counts_rejected()).then_some(Self { is_taken: false, ..refused })
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

impl From<Outcome> for PlainOutcome {
    #[inline]
    fn from(outcome: Outcome) -> Self {
        let Outcome { admitted, decided_by, remaining, wait, reset, mark, .. } = outcome;
        Self { is_taken: admitted, decided_by, remaining, wait, reset, mark }
    }
}
