//! The enforcement of limits.

use std::fmt;

/// How refusals of a limit are enforced. A later variant refuses less.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Enforcement {
    /// Calls over the limit are refused.
    On,
    /// A dry run: calls are decided, recorded and reported, but never refused.
    DryRun,
    /// Calls pass, and nothing is decided or recorded.
    Off,
}

impl Enforcement {
    /// All variants.
    pub const ALL: &'static [Self] = &[Self::On, Self::DryRun, Self::Off];

    /// Returns the word in documents, in the environment and on Redis: `on`, `dry_run` or `off`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::On => "on",
            Self::DryRun => "dry_run",
            Self::Off => "off",
        }
    }

    pub(crate) fn parse(word: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|it| it.as_str() == word)
    }
}

impl fmt::Display for Enforcement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
