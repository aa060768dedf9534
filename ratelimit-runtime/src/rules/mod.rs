//! What a policy may say: one set of rules for the attribute's literals and for values that are
//! only known at run time. The two crates share this folder.

mod algorithm;
mod fault;

pub use self::{algorithm::Algorithm, fault::PolicyFault};

/// The most tiers that one policy may have.
pub const MAX_TIERS: usize = 8;

/// The shortest period, in microseconds: 1 ms.
const MIN_PERIOD: u64 = 1_000;

/// The longest period, in microseconds: 366 days.
const MAX_PERIOD: u64 = 366 * 24 * 60 * 60 * 1_000_000;

/// The largest threshold of an exact log, which keeps an entry per admitted unit.
const MAX_LOG: u64 = 100_000;

/// The most units that one call takes from an exact log: so many entries keep a Redis server, which
/// does one thing at a time, for a little more than a millisecond; 2 000 keep it for more than two,
/// and 100 000 for half a second.
const MAX_LOG_COST: u64 = 1_000;

/// The largest whole number up to which a double is exact: Lua on Redis has no other numbers.
pub(crate) const EXACT: u64 = 1 << 53;

/// The numbers of a policy, as far as they are known: what is `None` breaks no rule yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Numbers<'a> {
    pub(crate) algorithm: Algorithm,
    pub(crate) tiers: &'a [TierNumbers],
    pub(crate) burst: Burst,
    pub(crate) cost: Option<u64>,
    pub(crate) count_rejected: bool,
}

/// The numbers of a tier: the period in microseconds, and the threshold.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TierNumbers {
    pub(crate) period: Option<u64>,
    pub(crate) threshold: Option<u64>,
}

impl TierNumbers {
    fn known(self) -> Option<(u64, u64)> {
        Some((self.period.filter(|it| *it > 0)?, self.threshold.filter(|it| *it > 0)?))
    }
}

/// The size of the bucket: the threshold, or what is given.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Burst {
    Threshold,
    Given(Option<u64>),
}

/// Which number breaks a rule; tiers by their index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Period(usize),
    Threshold(usize),
    Tier(usize),
    Burst,
    Cost,
    CountRejected,
}

/// Every rule that these numbers break, and where.
pub(crate) fn faults(numbers: &Numbers<'_>) -> Vec<(Place, PolicyFault)> {
    let mut faults = Vec::new();
    let mut found = |place, fault: Option<PolicyFault>| {
        faults.extend(fault.map(|fault| (place, fault)));
    };
    let Numbers { algorithm, tiers, .. } = *numbers;
    found(Place::Tier(MAX_TIERS), (tiers.len() > MAX_TIERS).then_some(PolicyFault::TooManyTiers));
    found(
        Place::CountRejected,
        (numbers.count_rejected && algorithm == Algorithm::FixedWindow)
            .then_some(PolicyFault::CountRejectedInFixedWindow),
    );
    found(Place::Burst, burst_fault(numbers));
    for (index, tier) in tiers.iter().enumerate() {
        found(Place::Period(index), tier.period.and_then(period_fault));
        let threshold = tier.threshold.and_then(|it| threshold_fault(algorithm, it));
        found(Place::Threshold(index), threshold);
        if matches!(numbers.burst, Burst::Threshold) && algorithm == Algorithm::TokenBucket {
            let bucket = tier.known().and_then(|known| bucket_fault(known, known.1));
            found(Place::Threshold(index), bucket);
        }
        found(Place::Tier(index), tier_fault(numbers, index));
    }
    found(Place::Cost, cost_fault(numbers));
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
        // Any number that the runtime's type holds is counted exactly.
        _ => u32::MAX.into(),
    };
    if threshold == 0 {
        Some(PolicyFault::ThresholdZero)
    } else if threshold > largest {
        Some(PolicyFault::ThresholdTooLarge { algorithm, threshold, largest })
    } else {
        None
    }
}

fn burst_fault(numbers: &Numbers<'_>) -> Option<PolicyFault> {
    let Numbers { algorithm, tiers, burst: Burst::Given(burst), .. } = *numbers else {
        return None;
    };
    if algorithm != Algorithm::TokenBucket {
        return Some(PolicyFault::BurstWithoutBucket { algorithm });
    } else if tiers.len() > 1 {
        return Some(PolicyFault::BurstWithTiers);
    }
    match burst? {
        0 => Some(PolicyFault::BurstZero),
        burst => bucket_fault(tiers.first()?.known()?, burst),
    }
}

/// A bucket is counted in parts so small that all numbers are whole; so many must be exact.
fn bucket_fault((period, threshold): (u64, u64), burst: u64) -> Option<PolicyFault> {
    let largest = (EXACT - 1) / (period / greatest_common_divisor(period, threshold));
    let largest = largest.min(u32::MAX.into());
    (burst > largest).then_some(PolicyFault::BucketTooLarge { burst, largest })
}

/// A tier of (p, t) that can never refuse, because another one of (q, u) alone keeps the calls
/// below what it would refuse.
fn tier_fault(numbers: &Numbers<'_>, index: usize) -> Option<PolicyFault> {
    let Numbers { algorithm, tiers, count_rejected, .. } = *numbers;
    let (p, t) = tiers[index].known()?;
    tiers.iter().enumerate().find_map(|(other, tier)| {
        let (q, u) = tier.known().filter(|_| other != index)?;
        if (q, u) == (p, t) {
            return (other < index).then_some(PolicyFault::TierTwice);
        }
        let is_dead = match algorithm {
            // A window within the other's sees no more than it; recorded refusals fill any number.
            Algorithm::SlidingWindow if count_rejected => p <= q && u <= t,
            // A window of p is covered by ceil(p / q) windows of q, each with at most u units.
            Algorithm::SlidingWindow => p.div_ceil(q).saturating_mul(u) <= t,
            // Windows of one length open together; of another length one more may reach in.
            Algorithm::FixedWindow if p == q => u <= t,
            Algorithm::FixedWindow => (p.div_ceil(q) + 1).saturating_mul(u) <= t,
            // Two estimates compare only over the same windows.
            Algorithm::SlidingCounter => p == q && u <= t,
            // A larger bucket that fills no slower is never the emptier one.
            Algorithm::TokenBucket => {
                u <= t && u128::from(u) * u128::from(p) <= u128::from(t) * u128::from(q)
            }
        };
        is_dead.then_some(PolicyFault::DeadTier { period: q, threshold: u })
    })
}

fn cost_fault(numbers: &Numbers<'_>) -> Option<PolicyFault> {
    let cost = numbers.cost?;
    if cost == 0 {
        return Some(PolicyFault::CostZero);
    }
    match numbers.burst {
        Burst::Given(burst) if numbers.algorithm == Algorithm::TokenBucket => {
            let burst = burst.filter(|burst| (1..cost).contains(burst))?;
            Some(PolicyFault::CostOverBurst { cost, burst })
        }
        _ => {
            let thresholds = numbers.tiers.iter().filter_map(|tier| tier.threshold);
            let is_log = numbers.algorithm == Algorithm::SlidingWindow;
            match thresholds.filter(|it| (1..cost).contains(it)).min() {
                Some(threshold) => Some(PolicyFault::CostOverThreshold { cost, threshold }),
                None => (is_log && cost > MAX_LOG_COST)
                    .then_some(PolicyFault::CostTooLarge { cost, largest: MAX_LOG_COST }),
            }
        }
    }
}

pub(crate) const fn greatest_common_divisor(mut a: u64, mut b: u64) -> u64 {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000;

    fn found(algorithm: Algorithm, tiers: &[(u64, u64)]) -> Vec<(Place, PolicyFault)> {
        found_where(algorithm, tiers, false)
    }

    fn found_where(
        algorithm: Algorithm,
        tiers: &[(u64, u64)],
        count_rejected: bool,
    ) -> Vec<(Place, PolicyFault)> {
        let tiers: Vec<_> = tiers
            .iter()
            .map(|&(seconds, threshold)| TierNumbers {
                period: Some(seconds * SECOND),
                threshold: Some(threshold),
            })
            .collect();
        let burst = Burst::Threshold;
        faults(&Numbers { algorithm, tiers: &tiers, burst, cost: None, count_rejected })
    }

    fn dead(algorithm: Algorithm, tiers: &[(u64, u64)]) -> Option<usize> {
        match found(algorithm, tiers)[..] {
            [] => None,
            [(Place::Tier(index), PolicyFault::DeadTier { .. })] => Some(index),
            ref other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_tier_is_dead_when_another_is_as_strict_over_its_whole_period() {
        use Algorithm::{FixedWindow, SlidingCounter, SlidingWindow, TokenBucket};
        for &algorithm in Algorithm::ALL {
            assert_eq!(dead(algorithm, &[(60, 1), (3600, 5), (86400, 10)]), None);
            assert_eq!(dead(algorithm, &[(60, 6), (60, 5)]), Some(0));
            let twice = [(Place::Tier(1), PolicyFault::TierTwice)];
            assert_eq!(found(algorithm, &[(60, 5), (60, 5)]), twice);
        }
        for (algorithm, tiers, expected) in [
            // One a minute is at most 60 an hour: an hourly tier must stay below.
            (SlidingWindow, [(60, 1), (3600, 60)], Some(1)),
            (SlidingWindow, [(60, 1), (3600, 59)], None),
            // As many in a shorter period.
            (SlidingWindow, [(60, 5), (3600, 5)], Some(0)),
            // 61 s are covered by two windows of 60 s.
            (SlidingWindow, [(60, 5), (61, 10)], Some(1)),
            (SlidingWindow, [(60, 5), (61, 9)], None),
            (FixedWindow, [(60, 1), (3600, 60)], None),
            (FixedWindow, [(60, 1), (3600, 61)], Some(1)),
            (SlidingCounter, [(60, 1), (3600, 1000)], None),
            (TokenBucket, [(60, 1), (3600, 60)], Some(1)),
            (TokenBucket, [(60, 1), (3600, 59)], None),
            (TokenBucket, [(1, 10), (60, 5)], Some(0)),
        ] {
            assert_eq!(dead(algorithm, &tiers), expected, "{algorithm:?} {tiers:?}");
        }
    }

    #[test]
    fn refused_calls_that_are_counted_keep_a_longer_tier_alive() {
        let found = |tiers| found_where(Algorithm::SlidingWindow, tiers, true);
        // One a minute is admitted, and any number refused, which fill an hour.
        assert_eq!(found(&[(60, 1), (3600, 60)]), []);
        // Within an hour there are no more than in the hour.
        let dead =
            [(Place::Tier(0), PolicyFault::DeadTier { period: 3600 * SECOND, threshold: 5 })];
        assert_eq!(found(&[(60, 5), (3600, 5)]), dead);
        assert_eq!(found(&[(60, 4), (3600, 5)]), []);
    }

    #[test]
    fn every_fault_is_found_in_its_place() {
        let found = found(Algorithm::SlidingWindow, &[(0, 0), (400 * 24 * 3600, 100_001)]);
        let places: Vec<_> = found.iter().map(|(place, _)| *place).collect();
        assert_eq!(
            places,
            [Place::Period(0), Place::Threshold(0), Place::Period(1), Place::Threshold(1)]
        );
    }
}
