//! The rules that a policy has to obey.

use super::{Algorithm, MAX_TIERS, Policy, Tier};
use crate::error::{InvalidPolicy, PolicyFault};

/// The shortest period, in microseconds: 1 ms.
const MIN_PERIOD: u64 = 1_000;

/// The longest period, in microseconds: 366 days.
const MAX_PERIOD: u64 = 366 * 24 * 60 * 60 * 1_000_000;

/// The largest threshold of an exact log, which keeps one entry per admitted unit.
const MAX_LOG: u32 = 100_000;

impl Policy {
    /// Checks the rules every policy has to obey.
    ///
    /// # Errors
    ///
    /// [`InvalidPolicy`] when there are more than [`MAX_TIERS`] tiers, a period is shorter than
    /// 1 ms or longer than 366 days, a threshold or a burst is 0, a threshold is over 100 000 for
    /// [`Algorithm::SlidingWindow`] (which keeps an entry per unit), a burst is given to another
    /// algorithm than [`Algorithm::TokenBucket`] or together with several tiers, a bucket is too
    /// large to be counted exactly at its rate, or refused calls are to be recorded in an
    /// [`Algorithm::FixedWindow`].
    pub fn validate(&self) -> Result<(), InvalidPolicy> {
        self.judged(self.fault())
    }

    /// Checks the policy together with what one call wants to take.
    pub(crate) fn validate_call(&self, cost: u32) -> Result<(), InvalidPolicy> {
        self.validate()?;
        let least = self.tiers().iter().map(|tier| tier.threshold()).min().unwrap_or(0);
        self.judged(match self.burst {
            Some(burst) if cost > burst => Some(PolicyFault::CostOverBurst { cost, burst }),
            None if cost > least => Some(PolicyFault::CostOverThreshold { cost, threshold: least }),
            _ => None,
        })
    }

    fn fault(&self) -> Option<PolicyFault> {
        if self.count > MAX_TIERS {
            return Some(PolicyFault::TooManyTiers { tiers: self.count });
        }
        if let Some(burst) = self.burst {
            if self.algorithm != Algorithm::TokenBucket {
                return Some(PolicyFault::BurstWithoutBucket { algorithm: self.algorithm });
            } else if self.count > 1 {
                return Some(PolicyFault::BurstWithTiers { tiers: self.count });
            } else if burst == 0 {
                return Some(PolicyFault::BurstZero);
            }
        }
        if self.count_rejected && self.algorithm == Algorithm::FixedWindow {
            return Some(PolicyFault::CountRejectedInFixedWindow);
        }
        self.tiers().iter().find_map(|tier| self.fault_of(*tier))
    }

    fn fault_of(&self, tier: Tier) -> Option<PolicyFault> {
        let (period, threshold) = (tier.micros(), tier.threshold());
        if period < MIN_PERIOD {
            return Some(PolicyFault::PeriodTooShort { period: tier.period() });
        } else if period > MAX_PERIOD {
            return Some(PolicyFault::PeriodTooLong { period: tier.period() });
        } else if threshold == 0 {
            return Some(PolicyFault::ThresholdZero);
        }
        match self.algorithm {
            Algorithm::SlidingWindow => (threshold > MAX_LOG)
                .then_some(PolicyFault::ThresholdTooLarge { threshold, largest: MAX_LOG }),
            // Any number is counted exactly: in coarser ticks, and as it is.
            Algorithm::SlidingCounter | Algorithm::FixedWindow => None,
            Algorithm::TokenBucket => {
                let burst = self.burst.unwrap_or(threshold);
                let largest = tier.bucket(burst).largest();
                u32::try_from(largest)
                    .ok()
                    .filter(|largest| burst > *largest)
                    .map(|largest| PolicyFault::BucketTooLarge { burst, largest })
            }
        }
    }

    fn judged(&self, fault: Option<PolicyFault>) -> Result<(), InvalidPolicy> {
        fault.map_or(Ok(()), |fault| Err(InvalidPolicy::new(self.name, fault)))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const MAX: Duration = Duration::from_micros(MAX_PERIOD);

    fn message(policy: &Policy) -> String {
        policy.validate().expect_err("the policy breaks a rule").to_string()
    }

    #[test]
    fn bounds_are_part_of_what_is_allowed() {
        for (period, threshold) in
            [(Duration::from_millis(1), 1), (Duration::from_secs(366 * 24 * 60 * 60), 100_000)]
        {
            assert_eq!(Policy::sliding_window("p", period, threshold).validate(), Ok(()));
        }
    }

    #[test]
    fn faults_name_the_policy_and_the_rule() {
        assert_eq!(
            message(&Policy::sliding_window("mail", Duration::ZERO, 1)),
            "invalid rate limit policy `mail`: the period must be at least 1 ms, but is 0ns"
        );
        assert_eq!(
            message(&Policy::sliding_window("mail", SECOND, 0)),
            "invalid rate limit policy `mail`: the threshold must be at least 1"
        );
        assert!(
            message(&Policy::sliding_window("mail", Duration::MAX, 1)).contains("at most 366 days")
        );
        assert!(
            message(&Policy::sliding_window("mail", SECOND, 100_001)).contains("at most 100000")
        );
        let mut many = Policy::sliding_window("mail", SECOND, 1);
        for _ in 0..MAX_TIERS {
            many = many.tier(SECOND, 1);
        }
        assert!(message(&many).contains("9 tiers"));
        assert_eq!(many.tiers().len(), MAX_TIERS);
    }

    #[test]
    fn a_large_log_is_pointed_to_the_counter() {
        let log = Policy::sliding_window("search", SECOND, 1_000_000);
        assert_eq!(
            message(&log),
            "invalid rate limit policy `search`: the threshold must be at most 100000, but is \
             1000000: every unit is kept for a period; `sliding_counter` takes any threshold"
        );
        assert_eq!(Policy::sliding_counter("search", MAX, u32::MAX).validate(), Ok(()));
        assert_eq!(Policy::fixed_window("search", MAX, u32::MAX).validate(), Ok(()));
    }

    #[test]
    fn a_burst_belongs_to_one_bucket() {
        let bucket = Policy::token_bucket("p", SECOND, 10);
        assert_eq!(bucket.burst(1).validate(), Ok(()));
        assert!(message(&bucket.burst(0)).ends_with("the burst must be at least 1"));
        assert!(message(&bucket.tier(MAX, 20).burst(5)).ends_with(
            "`burst` is the size of one bucket, but there are 2 tiers, \
             each a bucket of its threshold"
        ));
        assert!(
            message(&Policy::fixed_window("p", SECOND, 10).burst(5))
                .ends_with("`burst` is the size of a `token_bucket`; a `fixed_window` has none")
        );
    }

    #[test]
    fn a_bucket_is_as_large_as_is_counted_exactly() {
        // 366 days have no divisor in common with 11: a token is as many parts as microseconds.
        let odd = Policy::token_bucket("p", MAX, 11);
        assert_eq!(odd.burst(284).validate(), Ok(()));
        assert_eq!(
            message(&odd.burst(285)),
            "invalid rate limit policy `p`: a bucket of 285 tokens cannot be counted exactly at \
             this rate, only up to 284; a threshold that divides the period's microseconds has \
             more room"
        );
        assert_eq!(Policy::token_bucket("p", MAX, 100_000).validate(), Ok(()));
        assert_eq!(Policy::token_bucket("p", SECOND, 1_000_000).burst(u32::MAX).validate(), Ok(()));
    }

    #[test]
    fn refused_calls_change_nothing_in_a_fixed_window() {
        assert!(
            message(&Policy::fixed_window("p", SECOND, 1).count_rejected())
                .ends_with("a full window stays full until it ends, refused calls change nothing")
        );
        assert_eq!(Policy::token_bucket("p", SECOND, 1).count_rejected().validate(), Ok(()));
    }

    #[test]
    fn a_cost_has_to_fit_the_burst_and_not_the_rate() {
        let bucket = Policy::token_bucket("p", SECOND, 2).burst(5);
        assert_eq!(bucket.validate_call(5), Ok(()));
        assert!(bucket.validate_call(6).unwrap_err().to_string().contains("a burst of 5"));
        assert!(bucket.burst(1).validate_call(2).is_err());
    }

    #[test]
    fn a_cost_has_to_fit_every_tier() {
        let policy = Policy::sliding_window("mail", SECOND, 5).tier(SECOND * 60, 3);
        assert_eq!(policy.validate_call(3), Ok(()));
        assert!(policy.validate_call(4).unwrap_err().to_string().contains("cost of 4"));
    }
}
