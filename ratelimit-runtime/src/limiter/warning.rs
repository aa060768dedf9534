//! A warning, and the function that receives it.

use std::sync::Arc;

use crate::{caller::Caller, decision::Decision};

/// A caller who has used most of a limit, as
/// [`LimiterBuilder::on_warning`](crate::LimiterBuilder::on_warning) receives it.
#[derive(Clone, Debug)]
pub struct Warning {
    pub(super) percent: u8,
    pub(super) caller: Caller,
    pub(super) decision: Decision,
}

impl Warning {
    /// Returns the mark that was reached, in percent of the quota.
    #[must_use]
    pub fn percent(&self) -> u32 {
        self.percent.into()
    }

    /// Returns the caller.
    pub fn caller(&self) -> &Caller {
        &self.caller
    }

    /// Returns the caller's parts as they are in keys, such as `acme/42`: escaped, and the digest
    /// of a part that is secret or longer than 128 bytes. Do not log it.
    #[must_use]
    pub fn caller_key(&self) -> String {
        self.caller.text()
    }

    /// Returns the numbers of the call that reached the mark. Its decision is not counted once
    /// more.
    #[must_use]
    pub fn decision(&self) -> &Decision {
        &self.decision
    }
}

/// The function that receives warnings.
pub(super) type OnWarning = Arc<dyn Fn(Warning) + Send + Sync>;
