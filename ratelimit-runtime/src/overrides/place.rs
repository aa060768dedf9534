//! The place of an override: a limit, a plan of it, all limits, or one caller.

use super::{OverrideChange, layer::ALL_LIMITS};
use crate::key::{Caller, IntoCaller};

/// The place where an override applies: a limit, a plan of it, all limits, or one caller of one of
/// these.
///
/// A text is the name of a limit, or of a plan such as `api@pro`; `*` is all limits. A pair is a
/// caller of a place.
///
/// ```
/// use ratelimit_runtime::overrides::Place;
///
/// assert_eq!(Place::from("*"), Place::all());
/// assert_eq!(Place::from("api@pro"), Place::plan("api", "pro"));
/// assert_eq!(Place::from(("api", "user-42")), Place::caller("api", "user-42"));
/// assert_eq!(Place::from((Place::all(), "user-42")).limit, "*");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a place is passed to `get`, `set` or `remove`"]
#[non_exhaustive]
pub struct Place {
    /// The name of the limit or of the plan; `*` is all limits.
    pub limit: String,
    /// The caller, if the place is that of a single one.
    pub caller: Option<Caller>,
}

impl Place {
    /// Returns the place of all limits.
    pub fn all() -> Self {
        ALL_LIMITS.into()
    }

    /// Returns the place of a plan of a limit.
    pub fn plan(limit: &str, plan: &str) -> Self {
        format!("{limit}@{plan}").into()
    }

    /// Returns the place of one caller of a limit, of a plan, or of all limits.
    pub fn caller<'a>(of: impl Into<Self>, caller: impl IntoCaller<'a>) -> Self {
        let Self { limit, .. } = of.into();
        Self { limit, caller: Some(caller.into_caller().into_owned()) }
    }
}

impl From<String> for Place {
    fn from(limit: String) -> Self {
        Self { limit, caller: None }
    }
}

impl From<&String> for Place {
    fn from(limit: &String) -> Self {
        limit.clone().into()
    }
}

impl From<&str> for Place {
    fn from(limit: &str) -> Self {
        limit.to_owned().into()
    }
}

impl<'a, L: Into<Self>, C: IntoCaller<'a>> From<(L, C)> for Place {
    fn from((of, caller): (L, C)) -> Self {
        Self::caller(of, caller)
    }
}

impl OverrideChange {
    /// Returns the place of the override that has changed.
    pub fn place(&self) -> Place {
        Place { limit: self.limit.clone(), caller: self.caller.clone() }
    }
}
