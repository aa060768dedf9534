//! The charge of a call that its output settles.

use crate::{decision::Decision, error::RateLimitError};

/// The charge of one call, before its output is known.
#[must_use = "the call is settled by it"]
pub struct Charge(Option<Decision>);

/// The admission of a call, which may have been charged.
pub trait MayCharge {
    /// Returns the decision of an admitted call.
    fn decision(self) -> Option<Decision>;
}

impl MayCharge for Decision {
    fn decision(self) -> Option<Decision> {
        Some(self)
    }
}

impl MayCharge for &Decision {
    fn decision(self) -> Option<Decision> {
        Some(self.clone())
    }
}

/// The body of a `soft` limit runs for refused calls too.
impl MayCharge for &Result<Decision, RateLimitError> {
    #[inline]
    fn decision(self) -> Option<Decision> {
        self.as_ref().ok().cloned()
    }
}

impl Charge {
    /// Returns the charge of an admitted call.
    #[inline]
    pub fn of(admission: impl MayCharge) -> Self {
        Self(admission.decision())
    }

    /// Settles the call at the units that `units` returns for its output, if a store counted it,
    /// and returns the output.
    #[inline]
    pub fn settle<T>(&self, output: T, units: impl FnOnce(&T) -> u32) -> T {
        if let Some(decision) = self.0.as_ref().filter(|decision| decision.is_counted()) {
            decision.settle(units(&output));
        }
        output
    }
}
