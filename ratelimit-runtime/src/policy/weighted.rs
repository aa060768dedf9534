//! Weighted policies, and the kinds of state in which callers are counted.

use ratelimit_core::Algorithm;

use super::{Policy, Tier};

/// A kind of state. A key has one state of each kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum StateKind {
    SlidingWindow,
    SlidingCounter,
    FixedWindow,
    TokenBucket,
    /// A sliding window with an entry for each call.
    WeightedWindow,
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
        Self::WeightedWindow,
        Self::CalendarWindow,
    ];

    /// Returns the kind of an algorithm's policies that are not weighted.
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
            Self::WeightedWindow => "weighted_window",
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
            Self::WeightedWindow => Policy::sliding_window(name, period, threshold).weighted(),
            Self::CalendarWindow => Policy::new(name, Algorithm::CalendarWindow, period, threshold),
        }
    }

    /// Returns `true` if a call of one unit takes the short way in memory.
    pub(super) const fn is_plain(self) -> bool {
        !matches!(self, Self::CalendarWindow)
    }

    /// Returns `true` if an entry is kept for each unit.
    pub(crate) const fn is_log_of_units(self) -> bool {
        matches!(self, Self::SlidingWindow)
    }

    /// Returns `true` if each charge has a name of its own, by which it is settled once and a repeated
    /// call is recognized.
    pub(crate) const fn names_charges(self) -> bool {
        matches!(self, Self::SlidingWindow | Self::WeightedWindow)
    }
}

impl Policy {
    /// Keeps one entry for each call of a [`sliding_window`](Self::sliding_window), which has the units
    /// of the call, instead of one for each unit.
    ///
    /// It is for costs above 1, such as tokens, rows or bytes: the threshold may be up to
    /// 1 000 000 000, and a call may cost as much. At a cost of 1, an entry for each unit is decided in
    /// half the time. An attribute sets it where it has [`cost`, `lease`, `max_wait` or
    /// `settle`](macro@crate::rate_limit#weighted-windows). Admissions and waits are equally exact, except that on Redis the wait of a refusal
    /// is a lower bound where more than 4 096 calls have to leave the window first.
    ///
    /// # Many calls
    ///
    /// The log of a caller has at most 100 000 entries. From 90 000 on, a call joins the newest entry if
    /// both lie in the same 4 096th part of the shortest period, and leaves with it at most that much
    /// later. Its units can then be raised, but are not given back. A call beyond 100 000 entries is
    /// refused, with no unit left, until the oldest one has left the window.
    ///
    /// # Deploys
    ///
    /// A weighted policy has keys of its own, `ratelimit:weighted_window:..`, and starts with empty counts.
    /// In a deploy that makes a policy weighted, the processes of each build count in their own keys. Until
    /// one period after the last process of the old build, a window of one period admits at most twice the
    /// threshold. Meanwhile at most twice the [`concurrency`](Self::concurrency) are in flight. Halve both
    /// by an [override](crate::Overrides) for that time if that is too much.
    ///
    /// ```
    /// # use std::time::Duration;
    /// use ratelimit_runtime::{Limiter, Policy};
    ///
    /// const TOKENS: Policy =
    ///     Policy::sliding_window("tokens", Duration::from_secs(60), 1_000_000).weighted();
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), ratelimit_runtime::RateLimitError> {
    /// let limiter = Limiter::in_memory();
    /// let decision = limiter.check(&TOKENS, "alice").cost(250_000).await?;
    /// assert_eq!(decision.remaining(), 750_000);
    /// # Ok(())
    /// # }
    /// ```
    pub const fn weighted(mut self) -> Self {
        self.state = StateKind::WeightedWindow;
        self.checked()
    }

    /// Returns `true` if the policy is [weighted](Self::weighted).
    #[must_use]
    pub const fn is_weighted(&self) -> bool {
        matches!(self.state, StateKind::WeightedWindow)
    }
}
