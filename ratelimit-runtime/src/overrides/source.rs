//! Where overrides come from.

use std::fmt;

/// Where an override comes from. What a later one of these says of a limit holds before what an
/// earlier one says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum OverrideSource {
    /// The program itself: [`Overrides::set`](crate::Overrides::set).
    Program,
    /// The file that [`Limiter::follow_overrides_file`](crate::Limiter) names.
    File,
    /// The environment.
    Environment,
    /// The hash on Redis that a fleet follows.
    Redis,
}

impl OverrideSource {
    pub(crate) const ALL: [Self; 4] = [Self::Program, Self::File, Self::Environment, Self::Redis];
}

impl fmt::Display for OverrideSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Program => "the program",
            Self::File => "the file of overrides",
            Self::Environment => "the environment",
            Self::Redis => "the overrides on Redis",
        })
    }
}
