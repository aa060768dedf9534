//! The answer to a plain call: units are taken at once, or one is refused, under a policy of one
//! tier.

use std::num::NonZeroU64;

use super::{Charged, DecidedBy, Mark, Outcome};
use crate::{
    policy::Policy,
    time::{Micros, Timestamp},
};

/// The part of the answer to a plain call that is read: its [times](PlainTimes), or the
/// [whole](PlainOutcome).
pub(crate) trait PlainAnswer: From<Outcome> {
    /// Returns the answer to units that are taken. They count until the full quota is back.
    fn taken(reset: Micros, numbers: impl FnOnce() -> PlainNumbers) -> Self;

    /// Returns the refusal of one unit: none is left, and nothing has changed.
    fn refused(wait: Micros, reset: Micros) -> Self;

    /// Returns the wait of a refusal.
    fn refusal(&self) -> Option<Micros>;

    /// Returns the time until the full quota is back.
    fn reset(&self) -> Micros;

    /// Returns the [refusal](Self::refused) of one unit. One of more units, which may get some of
    /// them, and one that is recorded take the long way.
    #[inline]
    fn refused_unit(policy: &Policy, units: u32, wait: Micros, reset: Micros) -> Option<Self> {
        (units == 1 && !policy.counts_rejected()).then(|| Self::refused(wait, reset))
    }
}

/// The further numbers of units that were taken just now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PlainNumbers {
    pub(crate) remaining: u32,
    /// The time until more are left.
    pub(crate) wait: Micros,
    pub(crate) charged: Charged,
}

/// The times of an answer, in two registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PlainTimes {
    /// The wait of a refusal, and 1 more; 1 if units are taken.
    wait: NonZeroU64,
    reset: Micros,
}

impl PlainTimes {
    /// Returns the times of units that are taken.
    pub(crate) fn admitted(reset: Micros) -> Self {
        Self { wait: NonZeroU64::MIN, reset }
    }
}

impl PlainAnswer for PlainTimes {
    #[inline]
    fn taken(reset: Micros, _: impl FnOnce() -> PlainNumbers) -> Self {
        Self::admitted(reset)
    }

    #[inline]
    fn refused(wait: Micros, reset: Micros) -> Self {
        debug_assert!(wait > Micros::ZERO, "a refused unit has a wait");
        // Never that of an admission.
        Self { wait: NonZeroU64::MIN.saturating_add(wait.get().max(1)), reset }
    }

    #[inline]
    fn refusal(&self) -> Option<Micros> {
        (self.wait != NonZeroU64::MIN).then(|| Micros::new(self.wait.get() - 1))
    }

    fn reset(&self) -> Micros {
        self.reset
    }
}

impl From<Outcome> for PlainTimes {
    #[inline]
    fn from(outcome: Outcome) -> Self {
        let Outcome { admitted, wait, reset, .. } = outcome;
        if admitted { Self::admitted(reset) } else { Self::refused(wait, reset) }
    }
}

/// The numbers of a plain call's [`Outcome`] that are not known before. Those of units that are
/// taken are further ones, and those of a refusal its wait alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PlainOutcome {
    is_taken: bool,
    reset: Micros,
    pub(crate) numbers: PlainNumbers,
}

impl PlainOutcome {
    /// Returns the outcome of a call that was decided so, then.
    #[inline]
    pub(crate) fn outcome(&self, decided_by: DecidedBy, at: Timestamp) -> Outcome {
        let Self { is_taken, reset, numbers } = *self;
        let PlainNumbers { remaining, wait, charged } = numbers;
        let outcome = if is_taken {
            Outcome::admitted(remaining, wait, reset, Mark { at, charged })
        } else {
            Outcome::refused(wait, reset)
        };
        Outcome { decided_by, ..outcome }
    }
}

impl PlainAnswer for PlainOutcome {
    #[inline]
    fn taken(reset: Micros, numbers: impl FnOnce() -> PlainNumbers) -> Self {
        Self { is_taken: true, reset, numbers: numbers() }
    }

    #[inline]
    fn refused(wait: Micros, reset: Micros) -> Self {
        let numbers = PlainNumbers { remaining: 0, wait, charged: Charged::Nothing };
        Self { is_taken: false, reset, numbers }
    }

    fn refusal(&self) -> Option<Micros> {
        (!self.is_taken).then_some(self.numbers.wait)
    }

    fn reset(&self) -> Micros {
        self.reset
    }
}

impl From<Outcome> for PlainOutcome {
    #[inline]
    fn from(outcome: Outcome) -> Self {
        let Outcome { admitted, remaining, wait, reset, mark, .. } = outcome;
        let numbers = PlainNumbers { remaining, wait, charged: mark.charged };
        Self { is_taken: admitted, reset, numbers }
    }
}

/// An answer with its decider, and its time: that of the charge, or of a refusal in memory. Without
/// an answer the call is not decided. As an `Option` of the whole, the answer would be copied once
/// more: 20 instructions.
pub(crate) struct Answered<A> {
    pub(crate) answer: Option<A>,
    pub(crate) decided_by: DecidedBy,
    pub(crate) at: Timestamp,
}

impl<A> Answered<A> {
    /// Returns what is known of a call that is not decided.
    #[inline]
    pub(crate) fn nothing() -> Self {
        Self { answer: None, decided_by: DecidedBy::Nobody, at: Timestamp::default() }
    }
}
