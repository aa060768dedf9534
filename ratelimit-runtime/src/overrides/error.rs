//! Why an override is refused.

use std::{error::Error, fmt};

use crate::error::OneLine;
#[cfg(feature = "overrides")]
use crate::error::UnavailableReason;
use ratelimit_core::PolicyFault;

/// An override that is refused, with all that was said together with it. What held before holds on.
///
/// The message says which limit, which rule, and where it was written.
#[derive(Clone, PartialEq, Eq)]
pub struct OverrideError {
    /// Where it was written, as an operator knows it.
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

/// What is wrong with an override.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The limit that it would make breaks a rule.
    Policy(PolicyFault),
    /// One period or one threshold is given to a limit of so many tiers.
    SeveralTiers(usize),
    /// Tiers are given together with a period or a threshold.
    TiersAndOne,
    /// It cannot be read.
    #[cfg(feature = "overrides")]
    Unreadable(String),
    /// Numbers are given for all limits together, or nothing is.
    #[cfg(feature = "overrides")]
    MoreThanEnforcement,
    /// It cannot be written, or read, on Redis.
    #[cfg(feature = "overrides")]
    Unavailable(UnavailableReason),
    /// There is no Redis to write it to, or to read it from.
    #[cfg(feature = "overrides")]
    NoRedis,
}

impl OverrideError {
    pub(crate) fn of(limit: &str, fault: Fault) -> Self {
        Self { origin: None, limit: Some(limit.to_owned()), fault }
    }

    /// A fault in what stands at a place that operators know.
    #[cfg(feature = "overrides")]
    pub(crate) fn at(self, origin: impl Into<String>) -> Self {
        Self { origin: Some(origin.into()), ..self }
    }

    /// The name of the limit, if the fault is in what is said of one.
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

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Policy(fault) => fault.fmt(f),
            Self::SeveralTiers(count) => {
                write!(f, "the limit has {count} tiers; give all that shall hold as `tiers`")
            }
            Self::TiersAndOne => f.write_str("`tiers` replace `period` and `threshold`; give one"),
            #[cfg(feature = "overrides")]
            Self::Unreadable(why) => f.write_str(why),
            #[cfg(feature = "overrides")]
            Self::MoreThanEnforcement => {
                f.write_str("of all limits together only `on`, `dry_run` or `off` can be said")
            }
            #[cfg(feature = "overrides")]
            Self::Unavailable(reason) => write!(f, "Redis did not do it: {reason}"),
            #[cfg(feature = "overrides")]
            Self::NoRedis => f.write_str(
                "a limiter in memory shares no overrides; connect it to Redis, or `set` them",
            ),
        }
    }
}

/// The message: it is what a `main` that returns this error prints.
impl fmt::Debug for OverrideError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Error for OverrideError {}
