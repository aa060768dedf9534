//! A violation of a rule, and its message.

use std::fmt;

use crate::{Algorithm, MAX_TIERS, rules::MAX_ENTRIES};

/// A violation of a policy's rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PolicyFault {
    /// A period is shorter than 1 ms.
    #[non_exhaustive]
    PeriodTooShort {
        /// The period in microseconds.
        period: u64,
    },
    /// A period is longer than 366 days.
    PeriodTooLong,
    /// A threshold is 0, which admits nothing.
    ThresholdZero,
    /// A threshold is larger than the algorithm can count exactly.
    #[non_exhaustive]
    ThresholdTooLarge {
        /// The algorithm.
        algorithm: Algorithm,
        /// The threshold, in units.
        threshold: u64,
        /// The largest threshold of this algorithm, in units.
        largest: u64,
    },
    /// A burst is 0.
    BurstZero,
    /// A burst is given to an algorithm without a bucket.
    #[non_exhaustive]
    BurstWithoutBucket {
        /// The algorithm.
        algorithm: Algorithm,
    },
    /// A burst is given together with several tiers.
    BurstWithTiers,
    /// A bucket is larger than can be counted exactly at its rate.
    #[non_exhaustive]
    BucketTooLarge {
        /// The size of the bucket, in tokens.
        burst: u64,
        /// The largest size at this rate, in tokens.
        largest: u64,
    },
    /// `weighted` is set for an algorithm that keeps no entry for each call.
    #[non_exhaustive]
    WeightedWithoutLog {
        /// The algorithm.
        algorithm: Algorithm,
    },
    /// `count_rejected` is set for a fixed window, where recorded refusals change nothing.
    CountRejectedInFixedWindow,
    /// The policy has more than [`MAX_TIERS`] tiers.
    TooManyTiers,
    /// A tier is given twice.
    TierTwice,
    /// A tier can never refuse, because another one always refuses first.
    #[non_exhaustive]
    DeadTier {
        /// The period of the stricter tier, in microseconds.
        period: u64,
        /// The threshold of the stricter tier, in units.
        threshold: u64,
    },
    /// A cost is 0.
    CostZero,
    /// A call costs more than a threshold, and can never be admitted.
    #[non_exhaustive]
    CostOverThreshold {
        /// The cost, in units.
        cost: u64,
        /// The smallest threshold, in units.
        threshold: u64,
    },
    /// A call costs more than the bucket's size, and can never be admitted.
    #[non_exhaustive]
    CostOverBurst {
        /// The cost, in units.
        cost: u64,
        /// The size of the bucket, in tokens.
        burst: u64,
    },
    /// A call costs more than a sliding window takes at once; it keeps an entry for each unit.
    #[non_exhaustive]
    CostTooLarge {
        /// The cost, in units.
        cost: u64,
        /// The largest cost of one call, in units.
        largest: u64,
    },
    /// `concurrency` is 0, which admits nothing.
    ConcurrencyZero,
    /// A `concurrency_timeout` is shorter than 100 ms or longer than one day.
    #[non_exhaustive]
    ConcurrencyTimeoutOutOfRange {
        /// The timeout in microseconds.
        timeout: u64,
    },
    /// A `concurrency_timeout` is given without `concurrency`.
    ConcurrencyTimeoutWithoutConcurrency,
    /// A policy of `concurrency` alone has no window, and so no units.
    #[non_exhaustive]
    NothingToCount {
        /// The argument that needs a window.
        argument: &'static str,
    },
    /// A request id is given to an algorithm that keeps no entry for each call.
    #[non_exhaustive]
    RequestIdWithoutLog {
        /// The algorithm.
        algorithm: Algorithm,
    },
    /// A request id is given together with `count_rejected`.
    RequestIdWithCountRejected,
    /// A call is settled above its cost in a sliding window that keeps an entry for each unit.
    #[non_exhaustive]
    SettleAboveCost {
        /// The cost, in units.
        cost: u64,
        /// The units that the call is settled at.
        actual: u64,
    },
    /// A call may wait under a sliding window that keeps an entry for each unit.
    WaitInLogOfUnits,
    /// Two of several calls that are decided together may wait.
    SeveralWaits,
    /// A lease is shorter than 1 ms.
    #[non_exhaustive]
    LeaseTooShort {
        /// The lease in microseconds.
        lease: u64,
    },
    /// A lease is longer than a tenth of the shortest period.
    #[non_exhaustive]
    LeaseTooLong {
        /// The lease in microseconds.
        lease: u64,
        /// The shortest period in microseconds.
        period: u64,
    },
    /// A bucket has too few tokens for its lease.
    #[non_exhaustive]
    BucketTooSmall {
        /// The size of the bucket, in tokens.
        burst: u64,
        /// The smallest size under this lease, in tokens.
        smallest: u64,
    },
    /// A call costs more than a bucket holds under its lease, and can never be admitted.
    #[non_exhaustive]
    CostOverLeasedBucket {
        /// The cost, in units.
        cost: u64,
        /// The most that the bucket holds, in tokens.
        largest: u64,
    },
    /// A lease is given together with an argument that needs the store at each call.
    #[non_exhaustive]
    LeaseWith {
        /// The argument that needs the store.
        argument: &'static str,
    },
}

impl PolicyFault {
    /// Returns `true` if the policy can be stored and peeked at, but can never admit this call.
    #[doc(hidden)]
    #[must_use]
    pub fn can_never_admit(self) -> bool {
        matches!(
            self,
            Self::ThresholdZero
                | Self::BurstZero
                | Self::CostZero
                | Self::CostOverThreshold { .. }
                | Self::CostOverBurst { .. }
                | Self::CostTooLarge { .. }
                | Self::CostOverLeasedBucket { .. }
                | Self::ConcurrencyZero
        )
    }
}

/// The reason for the largest threshold of a log with an entry for each unit.
const OF_ENTRIES: &str = ": `sliding_window` keeps an entry for every admitted call; \
                          `sliding_counter` counts any number in constant space";

impl fmt::Display for PolicyFault {
    #[expect(clippy::too_many_lines, reason = "one message for each rule")]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::PeriodTooShort { period } => {
                write!(f, "`period` must be at least 1 ms, but is {}", Span(period))
            }
            Self::PeriodTooLong => f.write_str("`period` must be at most 366 days"),
            Self::ThresholdZero => f.write_str("`threshold` must be at least 1"),
            Self::ThresholdTooLarge { threshold, largest, .. } => {
                write!(f, "`threshold` must be at most {largest}, but is {threshold}")?;
                f.write_str(if largest == MAX_ENTRIES as u64 { OF_ENTRIES } else { "" })
            }
            Self::BurstZero => f.write_str("`burst` must be at least 1"),
            Self::BurstWithoutBucket { algorithm } => {
                let algorithm = algorithm.as_str();
                write!(f, "`burst` is the size of a `token_bucket`; a `{algorithm}` has none")
            }
            Self::BurstWithTiers => f.write_str(
                "`burst` is the size of one bucket; with several tiers each is a bucket of its \
                 threshold",
            ),
            Self::BucketTooLarge { burst, largest } => write!(
                f,
                "a bucket of {burst} tokens cannot be counted exactly at this rate, only up to \
                 {largest}; a threshold that divides the period's microseconds has more room"
            ),
            Self::WeightedWithoutLog { algorithm } => write!(
                f,
                "`weighted` is for a `sliding_window`, which keeps entries; a `{}` takes any cost \
                 without it",
                algorithm.as_str()
            ),
            Self::CountRejectedInFixedWindow => f.write_str(
                "`count_rejected` has no effect on a `fixed_window`: a full window stays full \
                 until it ends, refused calls change nothing",
            ),
            Self::TooManyTiers => {
                write!(f, "at most {MAX_TIERS} tiers are decided together; remove this one")
            }
            Self::TierTwice => f.write_str("this tier is given twice; remove one of them"),
            Self::DeadTier { period, threshold } => write!(
                f,
                "this tier can never refuse: the tier of {threshold} per {} is at least as strict \
                 over its whole period; remove this one, or make it stricter",
                Span(period)
            ),
            Self::CostZero => {
                f.write_str("`cost` must be at least 1; `skip` lets calls pass unchecked")
            }
            Self::CostOverThreshold { cost, threshold } => {
                write!(f, "`cost` is {cost}, which can never pass a threshold of {threshold}")
            }
            Self::CostOverBurst { cost, burst } => {
                write!(f, "`cost` is {cost}, which can never pass a burst of {burst}")
            }
            Self::CostTooLarge { cost, largest } => write!(
                f,
                "`cost` must be at most {largest} on this `sliding_window`, but is {cost}: it keeps an \
                 entry for each unit; `.weighted()` keeps one for each call"
            ),
            Self::ConcurrencyZero => f.write_str("`concurrency` must be at least 1"),
            Self::ConcurrencyTimeoutOutOfRange { timeout } => write!(
                f,
                "`concurrency_timeout` must be at least 100 ms and at most 1 d, but is {}",
                Span(timeout)
            ),
            Self::ConcurrencyTimeoutWithoutConcurrency => f.write_str(
                "`concurrency_timeout` is the time after which a lost call no longer counts as in \
                 flight; it needs `concurrency`",
            ),
            Self::NothingToCount { argument } => write!(
                f,
                "`{argument}` needs a window: a policy of `concurrency` alone has nothing to count"
            ),
            Self::RequestIdWithoutLog { algorithm } => {
                let algorithm = algorithm.as_str();
                write!(
                    f,
                    "a request id needs a `sliding_window`, which remembers each call; a \
                     `{algorithm}` does not"
                )
            }
            Self::SettleAboveCost { cost, actual } => write!(
                f,
                "a call of cost {cost} cannot be settled at {actual}: this `sliding_window` keeps an \
                 entry for each unit; `.weighted()` keeps one for each call"
            ),
            Self::WaitInLogOfUnits => f.write_str(
                "`max_wait` needs `.weighted()` on this `sliding_window`, which keeps an entry for each \
                 unit: calls wait in line by their entries",
            ),
            Self::SeveralWaits => f.write_str(
                "one of several calls that are decided together may have a `max_wait`: two would hold \
                 what they have taken while they wait",
            ),
            Self::RequestIdWithCountRejected => f.write_str(
                "a request id does not go with `count_rejected`: an admitted call and a refused \
                 one would have the same name",
            ),
            Self::LeaseTooShort { lease } => {
                write!(f, "`lease` must be at least 1 ms, but is {}", Span(lease))
            }
            Self::LeaseTooLong { lease, period } => write!(
                f,
                "`lease` must be at most a tenth of the shortest period of {}, but is {}",
                Span(period),
                Span(lease)
            ),
            Self::BucketTooSmall { burst, smallest } => write!(
                f,
                "under this `lease` a bucket needs at least {smallest} tokens, one more than refill \
                 during the lease, but has {burst}"
            ),
            Self::CostOverLeasedBucket { cost, largest } => write!(
                f,
                "`cost` is {cost}, which can never pass: under its `lease` the bucket holds at most \
                 {largest} tokens"
            ),
            Self::LeaseWith { argument } => write!(
                f,
                "`{argument}` needs the store at each call, and under `lease` a process decides \
                 without it; remove one of them"
            ),
        }
    }
}

/// A duration in the largest unit of which it is a multiple.
struct Span(u64);

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SECOND: u64 = 1_000_000;
        let units = [
            (24 * 60 * 60 * SECOND, "d"),
            (60 * 60 * SECOND, "h"),
            (60 * SECOND, "min"),
            (SECOND, "s"),
            (1_000, "ms"),
        ];
        let Self(micros) = *self;
        if micros == 0 {
            return f.write_str("0");
        }
        let whole = units.into_iter().find(|(unit, _)| micros.is_multiple_of(*unit));
        let (unit, name) = whole.unwrap_or((1, "µs"));
        write!(f, "{} {name}", micros / unit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_shown_in_its_largest_whole_unit() {
        const SECOND: u64 = 1_000_000;
        for (micros, text) in [
            (0, "0"),
            (999, "999 µs"),
            (1_500_000, "1500 ms"),
            (90 * SECOND, "90 s"),
            (5_400 * SECOND, "90 min"),
            (7_200 * SECOND, "2 h"),
            (400 * 86_400 * SECOND, "400 d"),
        ] {
            assert_eq!(Span(micros).to_string(), text);
        }
    }
}
