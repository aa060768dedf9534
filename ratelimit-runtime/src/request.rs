//! Where calls are counted. Stores judge, atomically; what their numbers are called is decided
//! elsewhere.

use crate::policy::Policy;

/// What a call asks of a store.
#[derive(Clone, Copy)]
pub(crate) struct Request<'a> {
    pub(crate) policy: &'a Policy,
    /// The policy as it is written in the source, which an override may have put `policy` in the
    /// place of. What it counts is kept meanwhile, so that it finds nothing missing afterwards.
    pub(crate) written: &'a Policy,
    /// The units the call takes; 0 only when looking.
    pub(crate) cost: u32,
    /// Whether the call is recorded, or only looked at.
    pub(crate) record: bool,
    /// What a log calls this call, if it may be decided more than once and is to be charged once.
    pub(crate) id: Option<u64>,
}

/// What an admitted call took.
#[derive(Clone, Copy)]
pub(crate) struct Refund<'a> {
    pub(crate) policy: &'a Policy,
    pub(crate) cost: u32,
    /// The [`Outcome::mark`] of the call.
    pub(crate) mark: Mark,
    /// Its [`Request::id`].
    pub(crate) id: Option<u64>,
}

/// What a store answers. Times are in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) admitted: bool,
    /// Refused: the tier with the longest wait, after the refusal is recorded if it is. Admitted:
    /// the one with the fewest units left, of several the one with the longest wait.
    pub(crate) tier: u8,
    /// The units left in that tier.
    pub(crate) remaining: u32,
    /// Refused: until the same call is admitted. Admitted: until more than `remaining` can be had.
    pub(crate) wait: u64,
    /// Refused: until `remaining + 1` units can be had, which for a cost of no more is `wait`.
    /// Admitted: 0.
    pub(crate) more: u64,
    /// Until the full quota is back.
    pub(crate) reset: u64,
    /// Until the embedded store's state is no more than an absent one: `reset`, or later, while it
    /// counts for other policies too.
    pub(crate) lasts: u64,
    pub(crate) mark: Mark,
    pub(crate) decided_by: DecidedBy,
}

/// The charge that an admitted call was given: what is given back is given back to it alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mark {
    /// When it was charged; of a call with an id that was charged before, when that was.
    pub(crate) at: u64,
    /// The generation of the state, which no state after a reset shares. In a log on Redis, the id
    /// of the first unit.
    pub(crate) of: u64,
}

/// Who decided a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DecidedBy {
    /// The limiter's store.
    Store,
    /// This process, by what the store has refused before.
    DenyCache,
    /// The embedded store, because the limiter's could not.
    Fallback,
    /// Nobody, because the limiter's store could not.
    Nobody,
    /// The limiter, by the limit's numbers alone.
    Limiter,
}

impl DecidedBy {
    #[cfg(any(feature = "metrics", feature = "dashboard"))]
    pub(crate) const ALL: [Self; 5] =
        [Self::Store, Self::DenyCache, Self::Fallback, Self::Nobody, Self::Limiter];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Store => "store",
            Self::DenyCache => "deny_cache",
            Self::Fallback => "fallback",
            Self::Nobody => "none",
            Self::Limiter => "limiter",
        }
    }
}

impl Outcome {
    /// A call that passes without having been counted.
    pub(crate) fn unlimited(request: Request<'_>) -> Self {
        let tiers = (0..).zip(request.policy.tiers());
        let least = tiers.min_by_key(|(_, tier)| tier.threshold());
        let (tier, threshold) = least.map_or((0, 0), |(index, tier)| (index, tier.threshold()));
        let most = request.policy.given_burst().unwrap_or(threshold);
        let remaining = most.saturating_sub(request.cost);
        let decided_by = DecidedBy::Nobody;
        let (wait, more, reset, lasts, mark) = (0, 0, 0, 0, Mark::default());
        Self { admitted: true, tier, remaining, wait, more, reset, lasts, mark, decided_by }
    }
}

/// What a call gets when the store cannot decide it in time.
///
/// A key that holds a value of another type is no outage: such a call always fails with
/// [`UnavailableReason::WrongType`](crate::UnavailableReason::WrongType), and the value is left as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum OnStoreError {
    /// The embedded store decides, for this process alone, until the store is back.
    #[default]
    Local,
    /// The call fails with [`RateLimitError::Unavailable`](crate::RateLimitError::Unavailable).
    Deny,
    /// The call passes.
    Allow,
}
