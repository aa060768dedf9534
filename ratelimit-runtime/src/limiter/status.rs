//! The servers behind a limiter, for those who operate it.

use crate::error::UnavailableReason;

/// A Redis server of a limiter, as its calls see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerStatus {
    name: String,
    failure: Option<UnavailableReason>,
}

impl ServerStatus {
    pub(super) fn new(name: String, failure: Option<UnavailableReason>) -> Self {
        Self { name, failure }
    }

    /// What operators call it: its address, or what the URL says.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Why it is left alone for a while, if it is.
    #[must_use]
    pub fn failure(&self) -> Option<UnavailableReason> {
        self.failure
    }
}
