//! The kinds of state in which callers are counted.

use ratelimit_core::Algorithm;

use super::{Policy, Tier};

/// A kind of state. A key has one state of each kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum StateKind {
    SlidingWindow,
    SlidingCounter,
    FixedWindow,
    TokenBucket,
    CalendarWindow,
    /// The last block of a caller in memory, beside one of the others. No policy has it.
    Block,
}

impl StateKind {
    /// The kinds of policies.
    pub(crate) const ALL: &'static [Self] = &[
        Self::SlidingWindow,
        Self::SlidingCounter,
        Self::FixedWindow,
        Self::TokenBucket,
        Self::CalendarWindow,
    ];

    /// Returns the kind of an algorithm's policies.
    pub(super) const fn of(algorithm: Algorithm) -> Self {
        match algorithm {
            Algorithm::SlidingCounter => Self::SlidingCounter,
            Algorithm::FixedWindow => Self::FixedWindow,
            Algorithm::TokenBucket => Self::TokenBucket,
            Algorithm::CalendarWindow => Self::CalendarWindow,
            // `Algorithm` is not exhaustive outside of its crate.
            _ => Self::SlidingWindow,
        }
    }

    /// Returns the name, as it is written in keys.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::SlidingWindow => "sliding_window",
            Self::SlidingCounter => "sliding_counter",
            Self::FixedWindow => "fixed_window",
            Self::TokenBucket => "token_bucket",
            Self::CalendarWindow => "calendar_window2",
            Self::Block => "block",
        }
    }

    /// Returns a policy of one tier whose callers have such a state.
    pub(crate) const fn policy(self, name: &'static str, tier: Tier) -> Policy {
        let (period, threshold) = (tier.period(), tier.threshold());
        match self {
            Self::SlidingWindow | Self::Block => Policy::sliding_window(name, period, threshold),
            Self::SlidingCounter => Policy::sliding_counter(name, period, threshold),
            Self::FixedWindow => Policy::fixed_window(name, period, threshold),
            Self::TokenBucket => Policy::token_bucket(name, period, threshold),
            Self::CalendarWindow => Policy::new(name, Algorithm::CalendarWindow, period, threshold),
        }
    }

    /// Returns `true` if each charge has a name of its own, by which it is settled once and a
    /// repeated call is recognized.
    pub(crate) const fn names_charges(self) -> bool {
        matches!(self, Self::SlidingWindow)
    }
}
