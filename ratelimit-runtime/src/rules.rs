//! What a policy may say: one set of rules for the attribute's literals and for values that are
//! only known at run time. The two crates share this file.

use std::fmt;

/// The most tiers that one policy may have.
pub const MAX_TIERS: usize = 8;

/// The shortest period, in microseconds: 1 ms.
pub(crate) const MIN_PERIOD: u64 = 1_000;

/// The longest period, in microseconds: 366 days.
pub(crate) const MAX_PERIOD: u64 = 366 * 24 * 60 * 60 * 1_000_000;

/// The largest threshold of an exact log, which keeps an entry per admitted unit.
pub(crate) const MAX_LOG: u64 = 100_000;

/// How calls are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Algorithm {
    /// An exact log: a call at `now` of cost `c` is admitted if and only if the units admitted in
    /// `(now - period, now]` plus `c` are at most the threshold, for every tier.
    SlidingWindow,
}

impl Algorithm {
    /// The name as it is written in the attribute and in keys.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::SlidingWindow => "sliding_window",
        }
    }
}

/// The numbers of a policy, as far as they are known: what is `None` breaks no rule yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Numbers<'a> {
    pub(crate) algorithm: Algorithm,
    pub(crate) tiers: &'a [TierNumbers],
    pub(crate) cost: Option<u64>,
}

/// The numbers of a tier: the period in microseconds, and the threshold.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TierNumbers {
    pub(crate) period: Option<u64>,
    pub(crate) threshold: Option<u64>,
}

/// Which number breaks a rule; tiers by their index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Period(usize),
    Threshold(usize),
    Tier(usize),
    Cost,
}

/// A rule that a policy breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PolicyFault {
    /// A period is shorter than 1 ms.
    PeriodTooShort {
        /// The period in microseconds.
        period: u64,
    },
    /// A period is longer than 366 days.
    PeriodTooLong,
    /// A threshold is 0: nothing would ever be admitted.
    ThresholdZero,
    /// A threshold is larger than the algorithm can count exactly.
    ThresholdTooLarge {
        /// The algorithm.
        algorithm: Algorithm,
        /// The threshold.
        threshold: u64,
        /// The largest threshold of this algorithm.
        largest: u64,
    },
    /// There are more than [`MAX_TIERS`] tiers.
    TooManyTiers,
    /// A tier is given twice.
    TierTwice,
    /// A tier can never refuse: another one admits no more than it over its whole period.
    DeadTier {
        /// The period of the stricter tier, in microseconds.
        period: u64,
        /// The threshold of the stricter tier.
        threshold: u64,
        /// What the stricter tier admits at the most in the period of the dead one.
        admits: u64,
    },
    /// A call costs nothing.
    CostZero,
    /// A call costs more than a threshold, so that it could never pass.
    CostOverThreshold {
        /// The cost.
        cost: u64,
        /// The smallest threshold.
        threshold: u64,
    },
}

impl fmt::Display for PolicyFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::PeriodTooShort { period } => {
                write!(f, "`period` must be at least 1 ms, but is {}", Span(period))
            }
            Self::PeriodTooLong => f.write_str("`period` must be at most 366 days"),
            Self::ThresholdZero => f.write_str("`threshold` must be at least 1"),
            Self::ThresholdTooLarge { algorithm, threshold, largest } => {
                write!(f, "`threshold` must be at most {largest}, but is {threshold}")?;
                match algorithm {
                    Algorithm::SlidingWindow => f.write_str(
                        ": `sliding_window` keeps an entry for every admitted call; \
                         `sliding_counter` counts any number in constant space",
                    ),
                }
            }
            Self::TooManyTiers => {
                write!(f, "at most {MAX_TIERS} tiers are decided together; remove this one")
            }
            Self::TierTwice => f.write_str("this tier is given twice; remove one of them"),
            Self::DeadTier { period, threshold, admits } => write!(
                f,
                "this tier can never refuse: the tier of {threshold} per {} admits at most \
                 {admits} in this period; remove this one, or make it stricter",
                Span(period)
            ),
            Self::CostZero => {
                f.write_str("`cost` must be at least 1; `skip` lets calls pass unchecked")
            }
            Self::CostOverThreshold { cost, threshold } => {
                write!(f, "`cost` is {cost}, which can never pass a threshold of {threshold}")
            }
        }
    }
}

/// Every rule that these numbers break, and where.
pub(crate) fn faults(numbers: &Numbers<'_>) -> Vec<(Place, PolicyFault)> {
    let Numbers { algorithm, tiers, cost } = *numbers;
    let mut faults = Vec::new();
    if tiers.len() > MAX_TIERS {
        faults.push((Place::Tier(MAX_TIERS), PolicyFault::TooManyTiers));
    }
    for (index, tier) in tiers.iter().enumerate() {
        if let Some(fault) = tier.period.and_then(period_fault) {
            faults.push((Place::Period(index), fault));
        }
        if let Some(fault) = tier.threshold.and_then(|it| threshold_fault(algorithm, it)) {
            faults.push((Place::Threshold(index), fault));
        }
        if let Some(fault) = tier_fault(tiers, index) {
            faults.push((Place::Tier(index), fault));
        }
    }
    let least = tiers.iter().filter_map(|tier| tier.threshold).filter(|it| *it > 0).min();
    match (cost, least) {
        (Some(0), _) => faults.push((Place::Cost, PolicyFault::CostZero)),
        (Some(cost), Some(threshold)) if cost > threshold => {
            faults.push((Place::Cost, PolicyFault::CostOverThreshold { cost, threshold }));
        }
        _ => {}
    }
    faults
}

fn period_fault(period: u64) -> Option<PolicyFault> {
    if period < MIN_PERIOD {
        Some(PolicyFault::PeriodTooShort { period })
    } else if period > MAX_PERIOD {
        Some(PolicyFault::PeriodTooLong)
    } else {
        None
    }
}

fn threshold_fault(algorithm: Algorithm, threshold: u64) -> Option<PolicyFault> {
    let largest = match algorithm {
        Algorithm::SlidingWindow => MAX_LOG,
    };
    if threshold == 0 {
        Some(PolicyFault::ThresholdZero)
    } else if threshold > largest {
        Some(PolicyFault::ThresholdTooLarge { algorithm, threshold, largest })
    } else {
        None
    }
}

/// A tier of (p, t) can never refuse if another one of (q, u) alone admits no more than t in any
/// p: a window of length p is covered by ceil(p / q) windows of length q, each with at most u
/// units. So it is dead if and only if ceil(p / q) * u <= t.
fn tier_fault(tiers: &[TierNumbers], index: usize) -> Option<PolicyFault> {
    let known = |tier: &TierNumbers| Some((tier.period.filter(|it| *it > 0)?, tier.threshold?));
    let (p, t) = known(&tiers[index])?;
    tiers.iter().enumerate().find_map(|(other, tier)| {
        let (q, u) = known(tier).filter(|_| other != index)?;
        if (q, u) == (p, t) {
            return (other < index).then_some(PolicyFault::TierTwice);
        }
        let admits = p.div_ceil(q).saturating_mul(u);
        (admits <= t).then_some(PolicyFault::DeadTier { period: q, threshold: u, admits })
    })
}

/// A length of time in the largest unit that it is a whole number of.
pub(crate) struct Span(pub(crate) u64);

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

    const SECOND: u64 = 1_000_000;

    fn tiers(tiers: &[(u64, u64)]) -> Vec<(Place, PolicyFault)> {
        let tiers: Vec<_> = tiers
            .iter()
            .map(|&(seconds, threshold)| TierNumbers {
                period: Some(seconds * SECOND),
                threshold: Some(threshold),
            })
            .collect();
        faults(&Numbers { algorithm: Algorithm::SlidingWindow, tiers: &tiers, cost: None })
    }

    #[test]
    fn a_tier_is_dead_when_another_is_as_strict_over_its_whole_period() {
        assert_eq!(tiers(&[(60, 1), (3600, 5), (86400, 10)]), []);
        // One a minute is at most 60 an hour: an hourly tier must stay below.
        assert_eq!(tiers(&[(60, 1), (3600, 59)]), []);
        for (dead, others) in [
            (1, [(60, 1), (3600, 60)]),
            // As many in a shorter period, or more in the same.
            (0, [(60, 5), (3600, 5)]),
            (0, [(60, 6), (60, 5)]),
            // 61 s are covered by two windows of 60 s.
            (1, [(60, 5), (61, 10)]),
        ] {
            let found = tiers(&others);
            assert!(
                matches!(found[..], [(Place::Tier(i), PolicyFault::DeadTier { .. })] if i == dead),
                "{found:?}"
            );
        }
        assert_eq!(tiers(&[(60, 5), (61, 9)]), []);
        assert_eq!(tiers(&[(60, 5), (60, 5)]), [(Place::Tier(1), PolicyFault::TierTwice)]);
    }

    #[test]
    fn every_fault_is_found_in_its_place() {
        let found = tiers(&[(0, 0), (400 * 24 * 3600, 100_001)]);
        let places: Vec<_> = found.iter().map(|(place, _)| *place).collect();
        assert_eq!(
            places,
            [Place::Period(0), Place::Threshold(0), Place::Period(1), Place::Threshold(1)]
        );
    }

    #[test]
    fn lengths_of_time_are_told_in_whole_units() {
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
