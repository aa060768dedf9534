//! The sources of overrides.

use std::fmt;

/// The source of an override. A later variant is a higher source: its overrides replace those of
/// earlier ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum OverrideSource {
    /// The program itself: [`Overrides::here`](crate::Overrides::here).
    Program,
    /// The file that `Overrides::follow_file` reads.
    File,
    /// The environment variables that [`Limiter::from_env`](crate::Limiter::from_env) reads.
    Environment,
    /// The hash on Redis, which limiters that `connect` or `from_env` builds follow.
    Redis,
    /// An operator, in this process alone: [`Overrides::here`](crate::Overrides::here) of a handle
    /// that [`Overrides::by`](crate::Overrides::by) returns.
    Operator,
}

impl OverrideSource {
    /// All variants, the lowest source first.
    pub(crate) const ALL: [Self; 5] =
        [Self::Program, Self::File, Self::Environment, Self::Redis, Self::Operator];
}

impl fmt::Display for OverrideSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Program => "the program",
            Self::File => "the file of overrides",
            Self::Environment => "the environment",
            Self::Redis => "the overrides on Redis",
            Self::Operator => "an operator of this process",
        })
    }
}
