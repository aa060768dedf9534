//! The rules that a policy can break, and the words for it.

use std::{error::Error, fmt, time::Duration};

use crate::policy::{Algorithm, MAX_TIERS};

/// A policy that breaks a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidPolicy {
    policy: &'static str,
    fault: PolicyFault,
}

impl InvalidPolicy {
    pub(crate) fn new(policy: &'static str, fault: PolicyFault) -> Self {
        Self { policy, fault }
    }

    /// The name of the policy.
    #[must_use]
    pub fn policy(&self) -> &'static str {
        self.policy
    }

    /// The rule that is broken.
    #[must_use]
    pub fn fault(&self) -> PolicyFault {
        self.fault
    }
}

impl fmt::Display for InvalidPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "invalid rate limit policy `{}`: {}", self.policy, self.fault)
    }
}

impl Error for InvalidPolicy {}

/// A rule that a policy breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PolicyFault {
    /// A period is shorter than 1 ms.
    PeriodTooShort {
        /// The period.
        period: Duration,
    },
    /// A period is longer than 366 days.
    PeriodTooLong {
        /// The period.
        period: Duration,
    },
    /// A threshold is 0.
    ThresholdZero,
    /// A threshold is larger than the algorithm can count.
    ThresholdTooLarge {
        /// The threshold.
        threshold: u32,
        /// The largest threshold of this algorithm.
        largest: u32,
    },
    /// A burst is 0.
    BurstZero,
    /// A burst is given to an algorithm that has no bucket.
    BurstWithoutBucket {
        /// The algorithm.
        algorithm: Algorithm,
    },
    /// A burst is given together with several tiers.
    BurstWithTiers {
        /// The number of tiers.
        tiers: usize,
    },
    /// A bucket is larger than can be counted exactly at its rate.
    BucketTooLarge {
        /// The size of the bucket, in tokens.
        burst: u32,
        /// The largest size at this rate.
        largest: u32,
    },
    /// Refused calls are to be recorded in a fixed window, where they change nothing.
    CountRejectedInFixedWindow,
    /// There are more than [`MAX_TIERS`] tiers.
    TooManyTiers {
        /// The number of tiers.
        tiers: usize,
    },
    /// A call costs nothing.
    CostZero,
    /// A call costs more than a threshold, so that it could never pass.
    CostOverThreshold {
        /// The cost.
        cost: u32,
        /// The smallest threshold.
        threshold: u32,
    },
    /// A call costs more than the bucket holds, so that it could never pass.
    CostOverBurst {
        /// The cost.
        cost: u32,
        /// The size of the bucket, in tokens.
        burst: u32,
    },
}

impl fmt::Display for PolicyFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PeriodTooShort { period } => {
                write!(f, "the period must be at least 1 ms, but is {period:?}")
            }
            Self::PeriodTooLong { period } => {
                write!(f, "the period must be at most 366 days, but is {period:?}")
            }
            Self::ThresholdZero => f.write_str("the threshold must be at least 1"),
            Self::ThresholdTooLarge { threshold, largest } => {
                write!(
                    f,
                    "the threshold must be at most {largest}, but is {threshold}: every unit is \
                     kept for a period; `sliding_counter` takes any threshold"
                )
            }
            Self::BurstZero => f.write_str("the burst must be at least 1"),
            Self::BurstWithoutBucket { algorithm } => {
                let algorithm = algorithm.as_str();
                write!(f, "`burst` is the size of a `token_bucket`; a `{algorithm}` has none")
            }
            Self::BurstWithTiers { tiers } => {
                write!(
                    f,
                    "`burst` is the size of one bucket, but there are {tiers} tiers, each a \
                     bucket of its threshold"
                )
            }
            Self::BucketTooLarge { burst, largest } => {
                write!(
                    f,
                    "a bucket of {burst} tokens cannot be counted exactly at this rate, only up \
                     to {largest}; a threshold that divides the period's microseconds has more \
                     room"
                )
            }
            Self::CountRejectedInFixedWindow => f.write_str(
                "`count_rejected` has no effect on a `fixed_window`: a full window stays full \
                 until it ends, refused calls change nothing",
            ),
            Self::TooManyTiers { tiers } => {
                write!(f, "{tiers} tiers are too many: at most {MAX_TIERS} are decided together")
            }
            Self::CostZero => f.write_str("the cost must be at least 1"),
            Self::CostOverThreshold { cost, threshold } => {
                write!(f, "a cost of {cost} can never pass a threshold of {threshold}")
            }
            Self::CostOverBurst { cost, burst } => {
                write!(f, "a cost of {cost} can never pass a burst of {burst}")
            }
        }
    }
}
