//! The error of a flush.

use std::{error::Error, fmt};

/// The error of a [flush](crate::Limiter::flush) that could not send everything;
/// [`unsent`](Self::unsent) is the number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlushError {
    unsent: usize,
}

impl FlushError {
    /// Returns an error unless everything was sent.
    pub(crate) fn check(unsent: usize) -> Result<(), Self> {
        if unsent == 0 { Ok(()) } else { Err(Self { unsent }) }
    }

    /// Returns the number of settles, of releases of permits, and of unused leases that were not sent, and of refused
    /// calls that may still be counted.
    #[must_use]
    pub fn unsent(&self) -> usize {
        self.unsent
    }
}

impl fmt::Display for FlushError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unsent = self.unsent;
        write!(f, "settles, releases or refunds have not reached the rate limit store: {unsent}")
    }
}

impl Error for FlushError {}
