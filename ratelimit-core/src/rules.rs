//! The rules: which numbers of a policy break one, and where.

use crate::{Algorithm, PolicyFault};

/// The maximum number of tiers of one policy.
pub const MAX_TIERS: usize = 8;

/// The minimum period in microseconds: 1 ms.
const MIN_PERIOD: u64 = 1_000;

/// The maximum period in microseconds: 366 days.
const MAX_PERIOD: u64 = 366 * 24 * 60 * 60 * 1_000_000;

/// The maximum threshold of an exact log, which keeps an entry per admitted unit.
const MAX_LOG: u64 = 100_000;

/// The maximum number of units anywhere.
const MAX_UNITS: u64 = u32::MAX as u64;

/// The maximum cost of one call in an exact log, in units.
///
/// A Redis server runs one script at a time. 1 000 entries block it for a little more than 1 ms,
/// 2 000 for more than 2 ms, 100 000 for half a second.
const MAX_LOG_COST: u64 = 1_000;

/// The largest integer up to which all integers are exact in a double, the only number type of Lua on
/// Redis.
pub const MAX_EXACT_INTEGER: u64 = 1 << 53;

/// The numbers of a policy, as far as they are known. `None` is a value that is known only at run
/// time; it breaks no rule.
#[derive(Clone, Copy, Debug)]
pub struct Draft<'a> {
    /// The algorithm.
    pub algorithm: Algorithm,
    /// The tiers, in the order in which they were written.
    pub tiers: &'a [TierDraft],
    /// The size of a token bucket.
    pub burst: Burst,
    /// The units of one call.
    pub cost: Option<u64>,
    /// `true` if refused calls are recorded as well.
    pub count_rejected: bool,
}

/// The numbers of one tier.
#[derive(Clone, Copy, Debug)]
pub struct TierDraft {
    /// The period in microseconds.
    pub period: Option<u64>,
    /// The threshold in units.
    pub threshold: Option<u64>,
}

impl TierDraft {
    fn known(self) -> Option<(u64, u64)> {
        Some((self.period.filter(|it| *it > 0)?, self.threshold.filter(|it| *it > 0)?))
    }
}

/// The size of a token bucket.
#[derive(Clone, Copy, Debug)]
pub enum Burst {
    /// The threshold: no burst was written.
    Threshold,
    /// The burst that was written, in tokens.
    Explicit(Option<u64>),
}

/// The argument that breaks a rule; tiers by their index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Argument {
    /// The period of a tier.
    Period(usize),
    /// The threshold of a tier.
    Threshold(usize),
    /// A tier as a whole.
    Tier(usize),
    /// The burst.
    Burst,
    /// The cost.
    Cost,
    /// The flag `count_rejected`.
    CountRejected,
}

/// Returns every rule that these numbers break, with the argument at fault.
#[must_use]
pub fn violations(draft: &Draft<'_>) -> Vec<(Argument, PolicyFault)> {
    let mut faults = Vec::new();
    let mut found = |place, fault: Option<PolicyFault>| {
        faults.extend(fault.map(|fault| (place, fault)));
    };
    let Draft { algorithm, tiers, .. } = *draft;
    found(
        Argument::Tier(MAX_TIERS),
        (tiers.len() > MAX_TIERS).then_some(PolicyFault::TooManyTiers),
    );
    found(
        Argument::CountRejected,
        (draft.count_rejected && algorithm == Algorithm::FixedWindow)
            .then_some(PolicyFault::CountRejectedInFixedWindow),
    );
    found(Argument::Burst, burst_fault(draft));
    for (index, tier) in tiers.iter().enumerate() {
        found(Argument::Period(index), tier.period.and_then(period_fault));
        let threshold = tier.threshold.and_then(|it| threshold_fault(algorithm, it));
        found(Argument::Threshold(index), threshold);
        if matches!(draft.burst, Burst::Threshold) && algorithm == Algorithm::TokenBucket {
            let bucket = tier.known().and_then(|known| bucket_fault(known, known.1));
            found(Argument::Threshold(index), bucket);
        }
        found(Argument::Tier(index), tier_fault(draft, index));
    }
    found(Argument::Cost, cost_fault(draft));
    faults
}

/// Returns `true` if a policy with this tier alone breaks no rule: [`violations`] finds none then.
#[must_use]
pub const fn is_valid_alone(
    algorithm: Algorithm,
    (period, threshold): (u64, u64),
    burst: Option<u32>,
    count_rejected: bool,
) -> bool {
    let is_bucket = matches!(algorithm, Algorithm::TokenBucket);
    let burst = match burst {
        None => threshold,
        Some(burst) if is_bucket => burst as u64,
        Some(_) => return false,
    };
    period_fault(period).is_none()
        && threshold_fault(algorithm, threshold).is_none()
        && (!is_bucket || burst > 0 && bucket_fault((period, threshold), burst).is_none())
        && !(count_rejected && matches!(algorithm, Algorithm::FixedWindow))
}

const fn period_fault(period: u64) -> Option<PolicyFault> {
    if period < MIN_PERIOD {
        Some(PolicyFault::PeriodTooShort { period })
    } else if period > MAX_PERIOD {
        Some(PolicyFault::PeriodTooLong)
    } else {
        None
    }
}

const fn threshold_fault(algorithm: Algorithm, threshold: u64) -> Option<PolicyFault> {
    let largest = match algorithm {
        Algorithm::SlidingWindow => MAX_LOG,
        // The other algorithms count any `u32` exactly.
        _ => MAX_UNITS,
    };
    if threshold == 0 {
        Some(PolicyFault::ThresholdZero)
    } else if threshold > largest {
        Some(PolicyFault::ThresholdTooLarge { algorithm, threshold, largest })
    } else {
        None
    }
}

fn burst_fault(draft: &Draft<'_>) -> Option<PolicyFault> {
    let Draft { algorithm, tiers, burst: Burst::Explicit(burst), .. } = *draft else {
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

/// Returns a fault if the bucket is too large to be counted exactly. It is counted in parts of a
/// token, so small that all numbers are integers; a full bucket must be an exact integer in Lua.
const fn bucket_fault((period, threshold): (u64, u64), burst: u64) -> Option<PolicyFault> {
    let exact = (MAX_EXACT_INTEGER - 1) / (period / greatest_common_divisor(period, threshold));
    let largest = if exact < MAX_UNITS { exact } else { MAX_UNITS };
    if burst > largest { Some(PolicyFault::BucketTooLarge { burst, largest }) } else { None }
}

/// Returns a fault if the tier (p, t) can never refuse, because another tier (q, u) refuses first.
fn tier_fault(draft: &Draft<'_>, index: usize) -> Option<PolicyFault> {
    let Draft { algorithm, tiers, count_rejected, .. } = *draft;
    let (p, t) = tiers[index].known()?;
    tiers.iter().enumerate().find_map(|(other, tier)| {
        let (q, u) = tier.known().filter(|_| other != index)?;
        if (q, u) == (p, t) {
            return (other < index).then_some(PolicyFault::TierTwice);
        }
        let is_dead = match algorithm {
            // Recorded refusals may exceed `u`: only a window inside the other one counts no more.
            Algorithm::SlidingWindow if count_rejected => p <= q && u <= t,
            // A window of p is covered by ceil(p / q) windows of q, each with at most u units.
            Algorithm::SlidingWindow => p.div_ceil(q).saturating_mul(u) <= t,
            // Windows of equal length open together; a window of another length may overlap one more.
            Algorithm::FixedWindow if p == q => u <= t,
            Algorithm::FixedWindow => (p.div_ceil(q) + 1).saturating_mul(u) <= t,
            // Two estimates compare only over the same windows.
            Algorithm::SlidingCounter => p == q && u <= t,
            // A bucket that is at least as large and refills at least as fast is never the emptier one.
            Algorithm::TokenBucket => {
                u <= t && u128::from(u) * u128::from(p) <= u128::from(t) * u128::from(q)
            }
        };
        is_dead.then_some(PolicyFault::DeadTier { period: q, threshold: u })
    })
}

fn cost_fault(draft: &Draft<'_>) -> Option<PolicyFault> {
    let cost = draft.cost?;
    if cost == 0 {
        return Some(PolicyFault::CostZero);
    }
    match draft.burst {
        Burst::Explicit(burst) if draft.algorithm == Algorithm::TokenBucket => {
            let burst = burst.filter(|burst| (1..cost).contains(burst))?;
            Some(PolicyFault::CostOverBurst { cost, burst })
        }
        _ => {
            let thresholds = draft.tiers.iter().filter_map(|tier| tier.threshold);
            let is_log = draft.algorithm == Algorithm::SlidingWindow;
            match thresholds.filter(|it| (1..cost).contains(it)).min() {
                Some(threshold) => Some(PolicyFault::CostOverThreshold { cost, threshold }),
                None => (is_log && cost > MAX_LOG_COST)
                    .then_some(PolicyFault::CostTooLarge { cost, largest: MAX_LOG_COST }),
            }
        }
    }
}

/// Returns the rule that a request id breaks. An id needs an algorithm that keeps an entry for each
/// admitted call, and no recorded refusals.
#[must_use]
pub fn request_id_violation(algorithm: Algorithm, count_rejected: bool) -> Option<PolicyFault> {
    match algorithm {
        Algorithm::SlidingWindow => {
            count_rejected.then_some(PolicyFault::RequestIdWithCountRejected)
        }
        algorithm => Some(PolicyFault::RequestIdWithoutLog { algorithm }),
    }
}

/// Returns the greatest common divisor of two numbers.
#[must_use]
pub const fn greatest_common_divisor(mut a: u64, mut b: u64) -> u64 {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000;

    fn found(algorithm: Algorithm, tiers: &[(u64, u64)]) -> Vec<(Argument, PolicyFault)> {
        found_where(algorithm, tiers, false)
    }

    fn found_where(
        algorithm: Algorithm,
        tiers: &[(u64, u64)],
        count_rejected: bool,
    ) -> Vec<(Argument, PolicyFault)> {
        let tiers: Vec<_> = tiers
            .iter()
            .map(|&(seconds, threshold)| TierDraft {
                period: Some(seconds * SECOND),
                threshold: Some(threshold),
            })
            .collect();
        let burst = Burst::Threshold;
        violations(&Draft { algorithm, tiers: &tiers, burst, cost: None, count_rejected })
    }

    fn dead(algorithm: Algorithm, tiers: &[(u64, u64)]) -> Option<usize> {
        match found(algorithm, tiers)[..] {
            [] => None,
            [(Argument::Tier(index), PolicyFault::DeadTier { .. })] => Some(index),
            ref other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_tier_is_dead_when_another_is_as_strict_over_its_whole_period() {
        use Algorithm::{FixedWindow, SlidingCounter, SlidingWindow, TokenBucket};
        for &algorithm in Algorithm::ALL {
            assert_eq!(dead(algorithm, &[(60, 1), (3600, 5), (86400, 10)]), None);
            assert_eq!(dead(algorithm, &[(60, 6), (60, 5)]), Some(0));
            let twice = [(Argument::Tier(1), PolicyFault::TierTwice)];
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
    fn a_tier_is_valid_alone_if_and_only_if_no_rule_is_broken() {
        let periods = [0, 999, 1_000, 86_400 * SECOND, 86_401 * SECOND, 366 * 86_400 * SECOND];
        let thresholds = [0, 1, 99_999, 100_000, 100_001, 104_249, 104_250, u64::from(u32::MAX)];
        let bursts = [None, Some(0), Some(1), Some(284), Some(285), Some(u32::MAX)];
        for &algorithm in Algorithm::ALL {
            for period in periods.into_iter().chain([MAX_PERIOD + 1]) {
                for (threshold, burst) in
                    thresholds.iter().flat_map(|it| bursts.map(|burst| (*it, burst)))
                {
                    for count_rejected in [false, true] {
                        let tier = TierDraft { period: Some(period), threshold: Some(threshold) };
                        let draft = Draft {
                            algorithm,
                            tiers: &[tier],
                            burst: burst
                                .map_or(Burst::Threshold, |it| Burst::Explicit(Some(it.into()))),
                            cost: Some(1),
                            count_rejected,
                        };
                        let is_valid =
                            is_valid_alone(algorithm, (period, threshold), burst, count_rejected);
                        assert_eq!(is_valid, violations(&draft).is_empty(), "{draft:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn refused_calls_that_are_counted_keep_a_longer_tier_alive() {
        let found = |tiers| found_where(Algorithm::SlidingWindow, tiers, true);
        // One a minute is admitted, and any number refused, which fill an hour.
        assert_eq!(found(&[(60, 1), (3600, 60)]), []);
        // Within an hour there are no more than in the hour.
        let dead =
            [(Argument::Tier(0), PolicyFault::DeadTier { period: 3600 * SECOND, threshold: 5 })];
        assert_eq!(found(&[(60, 5), (3600, 5)]), dead);
        assert_eq!(found(&[(60, 4), (3600, 5)]), []);
    }

    #[test]
    fn every_fault_is_found_in_its_place() {
        let found = found(Algorithm::SlidingWindow, &[(0, 0), (400 * 24 * 3600, 100_001)]);
        let places: Vec<_> = found.iter().map(|(place, _)| *place).collect();
        assert_eq!(
            places,
            [
                Argument::Period(0),
                Argument::Threshold(0),
                Argument::Period(1),
                Argument::Threshold(1)
            ]
        );
    }
}
