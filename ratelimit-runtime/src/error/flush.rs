//! The error of a flush.

/// The error of a [flush](crate::Limiter::flush) after which Redis still counts too much: of
/// commands that could not be sent, or of refused calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "rate limit store: {unsent} settles, releases or leases could not be sent, \
     {unanswered} refused calls may be counted"
)]
pub struct FlushError {
    unsent: usize,
    unanswered: usize,
}

impl FlushError {
    /// Returns an error unless everything was sent, and every late reply has come.
    pub(crate) fn check(unsent: usize, unanswered: usize) -> Result<(), Self> {
        if unsent + unanswered == 0 { Ok(()) } else { Err(Self { unsent, unanswered }) }
    }

    /// Returns the number of settles, of releases of permits, and of unused leases that were not
    /// sent.
    #[must_use]
    pub fn unsent(&self) -> usize {
        self.unsent
    }

    /// Returns the number of calls that [`OnStoreError::Deny`](crate::OnStoreError::Deny) has
    /// refused, and whose late reply has not come: Redis may count them.
    #[must_use]
    pub fn unanswered(&self) -> usize {
        self.unanswered
    }
}
