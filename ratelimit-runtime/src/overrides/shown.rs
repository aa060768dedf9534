//! The settings of what operators see.

use super::Overrides;

/// The part of a limiter that operators see: its callers, and the version of the program.
#[derive(Clone, Default)]
pub(crate) struct Shown {
    /// The secret of the callers' digests; without it there are none.
    pub(crate) secret: Option<Box<str>>,
    /// `true` if callers are named.
    pub(crate) callers: bool,
    /// The version of the program.
    pub(crate) version: Option<Box<str>>,
}

impl Overrides {
    /// Returns what operators see.
    pub(crate) fn shown(&self) -> &Shown {
        &self.shared.shown
    }
}
