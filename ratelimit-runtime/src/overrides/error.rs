//! Errors of overrides.

use std::{error::Error, fmt};

#[cfg(feature = "overrides")]
use crate::error::UnavailableReason;
use crate::error::{Fault, OneLine};

/// The error of an override that was not applied. Overrides of the same file or change are not
/// applied either; earlier ones stay in effect.
///
/// The message names the source, the limit and the rule.
#[derive(Clone, PartialEq, Eq)]
pub struct OverrideError {
    /// The source in messages: a path, a variable, a key.
    origin: Option<String>,
    limit: Option<String>,
    fault: Fault,
}

#[cfg(feature = "overrides")]
impl From<Fault> for OverrideError {
    fn from(fault: Fault) -> Self {
        Self { origin: None, limit: None, fault }
    }
}

/// Redis did not answer.
#[cfg(feature = "overrides")]
impl From<UnavailableReason> for OverrideError {
    fn from(reason: UnavailableReason) -> Self {
        Fault::new(format!("no answer from Redis: {reason}")).into()
    }
}

impl OverrideError {
    pub(crate) fn of(limit: &str, fault: Fault) -> Self {
        Self { origin: None, limit: Some(limit.to_owned()), fault }
    }

    /// Adds the source for the message.
    #[cfg(feature = "overrides")]
    pub(crate) fn at(self, origin: impl Into<String>) -> Self {
        Self { origin: Some(origin.into()), ..self }
    }

    /// Returns the name of the limit, if the error is about a single one.
    #[must_use]
    pub fn limit(&self) -> Option<&str> {
        self.limit.as_deref()
    }
}

impl fmt::Display for OverrideError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(origin) = &self.origin {
            write!(f, "{}: ", OneLine(origin))?;
        }
        if let Some(limit) = &self.limit {
            write!(f, "invalid override of rate limit `{}`: ", OneLine(limit))?;
        }
        OneLine(&self.fault).fmt(f)
    }
}

/// The message: it is what a `main` that returns this error prints.
impl fmt::Debug for OverrideError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Error for OverrideError {}
