//! The status of a limiter's Redis servers.

use std::time::SystemTime;

use super::UnavailableReason;

/// The status of one Redis server, by the results of the limiter's own commands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerStatus {
    pub(crate) name: String,
    pub(crate) failure: Option<UnavailableReason>,
    pub(crate) since: Option<SystemTime>,
    pub(crate) failures: u32,
}

impl ServerStatus {
    /// Returns the server's address, or its name in the URL.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the latest failure while the server's circuit breaker is open, else `None`.
    /// [`UnavailableReason::advice`] names the remedy.
    #[must_use]
    pub fn failure(&self) -> Option<UnavailableReason> {
        self.failure
    }

    /// Returns the time at which the circuit breaker opened, while it is open.
    #[must_use]
    pub fn since(&self) -> Option<SystemTime> {
        self.since
    }

    /// Returns the number of commands that have failed since the last reply. While the circuit
    /// breaker is open, few are sent.
    #[must_use]
    pub fn failures(&self) -> u32 {
        self.failures
    }
}
