//! What a limit says: plain data that can be a `const`, and the rules it has to obey.

use std::time::Duration;

use crate::{
    error::InvalidPolicy,
    rules::{self, Algorithm, MAX_TIERS, Numbers, TierNumbers},
};

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

    /// Checks the rules that every policy has to obey.
    ///
    /// # Errors
    ///
    /// [`InvalidPolicy`] when there are more than [`MAX_TIERS`] tiers, a period is shorter than
    /// 1 ms or longer than 366 days, a threshold is 0 or too large for the algorithm (100 000 for
    /// [`Algorithm::SlidingWindow`], which keeps an entry per unit), or a tier can never refuse,
    /// because another one admits no more than it over its whole period.
    pub fn validate(&self) -> Result<(), InvalidPolicy> {
        self.validate_with(None)
    }

    /// Checks the policy together with what one call wants to take.
    pub(crate) fn validate_with(&self, cost: Option<u32>) -> Result<(), InvalidPolicy> {
        // What was asked for beyond the room for it is only counted; one rule says how many fit.
        let numbers = |tier: Tier| TierNumbers {
            period: Some(tier.period),
            threshold: Some(tier.threshold.into()),
        };
        let mut tiers = [TierNumbers { period: None, threshold: None }; MAX_TIERS + 1];
        for (place, tier) in tiers.iter_mut().zip(self.tiers()) {
            *place = numbers(*tier);
        }
        let tiers = &tiers[..self.count.min(MAX_TIERS + 1)];
        match rules::faults(&Numbers {
            algorithm: self.algorithm,
            tiers,
            cost: cost.map(u64::from),
        })
        .first()
        {
            Some((_, fault)) => Err(InvalidPolicy::new(self.name, *fault)),
            None => Ok(()),
        }
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
            "invalid rate limit policy `mail`: `period` must be at least 1 ms, but is 0"
        );
        assert_eq!(
            message(&Policy::sliding_window("mail", SECOND, 0)),
            "invalid rate limit policy `mail`: `threshold` must be at least 1"
        );
        let longest = Policy::sliding_window("mail", Duration::MAX, 1);
        assert!(message(&longest).contains("at most 366 days"));
        let most = Policy::sliding_window("mail", SECOND, 100_001);
        assert!(message(&most).contains("at most 100000"));
    }

    #[test]
    fn tiers_beyond_the_most_are_counted_and_refused() {
        let mut policy = Policy::sliding_window("mail", SECOND, 100);
        for tier in 1..10 {
            policy = policy.tier(SECOND * 5_u32.pow(tier), 100 + tier);
        }
        assert_eq!(policy.tiers().len(), MAX_TIERS);
        assert!(message(&policy).contains("at most 8 tiers"), "{}", message(&policy));
    }

    #[test]
    fn a_cost_has_to_fit_every_tier() {
        let policy = Policy::sliding_window("mail", SECOND, 2).tier(SECOND * 60, 3);
        assert_eq!(policy.validate_with(Some(2)), Ok(()));
        assert!(policy.validate_with(Some(3)).unwrap_err().to_string().contains("`cost` is 3"));
        assert!(policy.validate_with(Some(0)).unwrap_err().to_string().contains("at least 1"));
    }
}
