//! Errors of overrides.

use std::{error::Error, fmt};

use crate::error::OneLine;
#[cfg(feature = "overrides")]
use crate::error::UnavailableReason;
use ratelimit_core::PolicyFault;

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

/// The reason of an [`OverrideError`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The overridden policy breaks a rule.
    Policy(PolicyFault),
    /// A period or a threshold for a limit of this many tiers.
    SeveralTiers(usize),
    /// A period or a threshold for a limit without a window.
    NoWindow,
    /// Calls in flight for a limit that declares none.
    NoConcurrency,
    /// Tiers together with a period or a threshold.
    TiersAndOne,
    /// A `deny` for a limit.
    OfCallers,
    /// A `deny` with other values.
    DenyAndOther,
    /// A candidate for a caller.
    CandidateOfCaller,
    /// A candidate with anything but numbers of a window.
    CandidateAndOther,
    /// A text or a file that is no override.
    #[cfg(feature = "overrides")]
    Unreadable(String),
    /// Anything but an enforcement for all limits together.
    MoreThanEnforcement,
    /// One more field than are read, in the hash of this key.
    #[cfg(feature = "overrides")]
    Full(String),
    /// Redis did not answer.
    #[cfg(feature = "overrides")]
    Unavailable(UnavailableReason),
    /// The limiter is in memory.
    #[cfg(feature = "overrides")]
    NoRedis,
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

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Policy(fault) => fault.fmt(f),
            Self::SeveralTiers(count) => {
                write!(f, "the limit has {count} tiers; give all of them as `tiers`")
            }
            Self::NoWindow => {
                f.write_str("the limit has no window; give `tiers`, or `concurrency` alone")
            }
            Self::NoConcurrency => f.write_str(
                "the limit declares no `concurrency`, and its calls would hold no permit; declare \
                 one in the program",
            ),
            Self::TiersAndOne => f.write_str("`tiers` replace `period` and `threshold`; give one"),
            Self::OfCallers => f.write_str("`deny` is for single callers"),
            Self::DenyAndOther => f.write_str("`deny` takes nothing but `until` and `by`"),
            Self::CandidateOfCaller => f.write_str("`candidate` is for limits"),
            Self::CandidateAndOther => f.write_str(
                "`candidate` takes nothing but `period`, `threshold`, `tiers` and `burst`",
            ),
            #[cfg(feature = "overrides")]
            Self::Unreadable(why) => f.write_str(why),
            Self::MoreThanEnforcement => {
                f.write_str("all limits together take only `on`, `dry_run` or `off`")
            }
            #[cfg(feature = "overrides")]
            Self::Full(key) => {
                write!(f, "`{key}` on Redis has its most fields, 10000; remove some first")
            }
            #[cfg(feature = "overrides")]
            Self::Unavailable(reason) => write!(f, "no answer from Redis: {reason}"),
            #[cfg(feature = "overrides")]
            Self::NoRedis => f.write_str(
                "a limiter in memory has no overrides on Redis; connect it, or `set` them",
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
