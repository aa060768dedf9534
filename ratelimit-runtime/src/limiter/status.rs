//! The status of a limiter's Redis servers.

use crate::error::UnavailableReason;

/// The status of one Redis server, by the results of the limiter's own commands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerStatus {
    name: String,
    failure: Option<UnavailableReason>,
}

impl ServerStatus {
    pub(super) fn new(name: String, failure: Option<UnavailableReason>) -> Self {
        Self { name, failure }
    }

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
}
