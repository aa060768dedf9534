//! What a limit says: plain data that can be a `const`, and the rules it has to obey.

use std::time::Duration;

use crate::error::{InvalidPolicy, PolicyFault};

/// The most tiers one policy may have.
pub const MAX_TIERS: usize = 8;

/// The shortest period, in microseconds: 1 ms.
const MIN_PERIOD: u64 = 1_000;

/// The longest period, in microseconds: 366 days.
const MAX_PERIOD: u64 = 366 * 24 * 60 * 60 * 1_000_000;

/// The largest threshold of an exact log, which keeps one entry per admitted unit.
const MAX_LOG: u32 = 100_000;

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

/// At most `threshold` units in any one `period`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tier {
    period: u64,
    threshold: u32,
}

impl Tier {
    const NONE: Self = Self { period: 0, threshold: 0 };

    const fn new(period: Duration, threshold: u32) -> Self {
        let micros = period.as_micros();
        // What does not fit is far beyond the longest period, and stays so.
        #[expect(clippy::cast_possible_truncation, reason = "compared just before")]
        let period = if micros > u64::MAX as u128 { u64::MAX } else { micros as u64 };
        Self { period, threshold }
    }

    /// The length of the window, in whole microseconds.
    #[must_use]
    pub const fn period(self) -> Duration {
        Duration::from_micros(self.period)
    }

    /// The units admitted in any one period.
    #[must_use]
    pub const fn threshold(self) -> u32 {
        self.threshold
    }

    pub(crate) const fn micros(self) -> u64 {
        self.period
    }
}

/// A limit: a name, an algorithm, and one or more tiers that are decided together.
///
/// A policy is plain data and can be a `const`. It is checked when it is used: what breaks a rule
/// is answered with [`RateLimitError::InvalidPolicy`](crate::RateLimitError::InvalidPolicy), never
/// with a panic.
///
/// ```
/// use std::time::Duration;
/// use ratelimit_runtime::Policy;
///
/// /// One mail a minute, and never more than five an hour.
/// const MAIL: Policy = Policy::sliding_window("mail", Duration::from_secs(60), 1)
///     .tier(Duration::from_secs(3600), 5);
/// assert_eq!(MAIL.name(), "mail");
/// assert_eq!(MAIL.tiers().len(), 2);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Policy {
    name: &'static str,
    algorithm: Algorithm,
    tiers: [Tier; MAX_TIERS],
    /// How many tiers were asked for; more than `MAX_TIERS` is found by `validate`.
    count: usize,
}

impl Policy {
    /// At most `threshold` units in any `period`, counted exactly ([`Algorithm::SlidingWindow`]).
    ///
    /// Policies of one name and one algorithm share their callers' history.
    #[must_use]
    pub const fn sliding_window(name: &'static str, period: Duration, threshold: u32) -> Self {
        let policy = Self {
            name,
            algorithm: Algorithm::SlidingWindow,
            tiers: [Tier::NONE; MAX_TIERS],
            count: 0,
        };
        policy.tier(period, threshold)
    }

    /// Adds a tier: a call has to pass all of them, and is charged to all or to none.
    #[must_use]
    pub const fn tier(mut self, period: Duration, threshold: u32) -> Self {
        if self.count < MAX_TIERS {
            self.tiers[self.count] = Tier::new(period, threshold);
        }
        self.count += 1;
        self
    }

    /// The same limit under another name.
    #[must_use]
    pub const fn named(mut self, name: &'static str) -> Self {
        self.name = name;
        self
    }

    /// The name, which stands in keys, errors and reports.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// How calls are counted.
    #[must_use]
    pub const fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// The tiers, in the order they were written; never empty.
    #[must_use]
    pub fn tiers(&self) -> &[Tier] {
        &self.tiers[..self.count.min(MAX_TIERS)]
    }

    /// Checks the rules every policy has to obey.
    ///
    /// # Errors
    ///
    /// [`InvalidPolicy`] when there are more than [`MAX_TIERS`] tiers, a period is shorter than
    /// 1 ms or longer than 366 days, or a threshold is 0 or too large for the algorithm (100 000
    /// for [`Algorithm::SlidingWindow`], which keeps an entry per unit).
    pub fn validate(&self) -> Result<(), InvalidPolicy> {
        let fault = if self.count > MAX_TIERS {
            Some(PolicyFault::TooManyTiers { tiers: self.count })
        } else {
            self.tiers().iter().find_map(|tier| self.fault_of(*tier))
        };
        self.judged(fault)
    }

    /// Checks the policy together with what one call wants to take.
    pub(crate) fn validate_call(&self, cost: u32) -> Result<(), InvalidPolicy> {
        self.validate()?;
        let least = self.tiers().iter().map(|tier| tier.threshold).min().unwrap_or(0);
        self.judged(
            (cost > least).then_some(PolicyFault::CostOverThreshold { cost, threshold: least }),
        )
    }

    fn fault_of(&self, Tier { period, threshold }: Tier) -> Option<PolicyFault> {
        let largest = match self.algorithm {
            Algorithm::SlidingWindow => MAX_LOG,
        };
        if period < MIN_PERIOD {
            Some(PolicyFault::PeriodTooShort { period: Duration::from_micros(period) })
        } else if period > MAX_PERIOD {
            Some(PolicyFault::PeriodTooLong { period: Duration::from_micros(period) })
        } else if threshold == 0 {
            Some(PolicyFault::ThresholdZero)
        } else if threshold > largest {
            Some(PolicyFault::ThresholdTooLarge { threshold, largest })
        } else {
            None
        }
    }

    fn judged(&self, fault: Option<PolicyFault>) -> Result<(), InvalidPolicy> {
        fault.map_or(Ok(()), |fault| Err(InvalidPolicy::new(self.name, fault)))
    }
}

impl std::fmt::Debug for Policy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Policy")
            .field("name", &self.name)
            .field("algorithm", &self.algorithm)
            .field("tiers", &self.tiers())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

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
    fn a_cost_has_to_fit_every_tier() {
        let policy = Policy::sliding_window("mail", SECOND, 5).tier(SECOND * 60, 3);
        assert_eq!(policy.validate_call(3), Ok(()));
        assert!(policy.validate_call(4).unwrap_err().to_string().contains("cost of 4"));
    }
}
