//! The places in which an action takes effect.

use ratelimit_runtime::{Overrides, overrides::OverrideSource};
use serde::{Deserialize, Serialize};

/// The name of all limits together.
pub(super) const ALL_LIMITS: &str = "*";

/// Where an action takes effect.
#[derive(Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Scope {
    /// In this process, before any other source.
    Process,
    /// In all processes that follow the overrides on Redis.
    Fleet,
}

impl Scope {
    /// Returns the scope of actions that change this source; none if it is changed where it is
    /// written.
    pub(super) fn of(source: OverrideSource) -> Option<Self> {
        match source {
            OverrideSource::Operator => Some(Self::Process),
            OverrideSource::Redis => Some(Self::Fleet),
            _ => None,
        }
    }
}

/// Returns the source where actions take effect: the fleet's, as long as this process can read it.
pub(super) fn target(overrides: &Overrides) -> OverrideSource {
    if overrides.follows_redis() && overrides.redis_failure().is_none() {
        OverrideSource::Redis
    } else {
        OverrideSource::Operator
    }
}
