//! What a limit says: plain data that can be a `const`, and the rules it has to obey.

mod name;
mod tier;

use std::time::Duration;

pub use self::tier::Tier;
pub(crate) use self::{name::Name, tier::Bucket};
use crate::{
    error::InvalidPolicy,
    rules::{self, Algorithm, Burst, MAX_TIERS, Numbers, TierNumbers},
};

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
    name: Name,
    algorithm: Algorithm,
    tiers: [Tier; MAX_TIERS],
    longest_period: u64,
    largest_threshold: u32,
    /// How many tiers were asked for; more than `MAX_TIERS` is found by `validate`.
    count: usize,
    burst: Option<u32>,
    count_rejected: bool,
}

impl Policy {
    /// At most `threshold` units in any `period`, counted exactly ([`Algorithm::SlidingWindow`]).
    ///
    /// Policies of one name and one algorithm share their callers' history.
    #[must_use]
    pub const fn sliding_window(name: &'static str, period: Duration, threshold: u32) -> Self {
        Self::new(name, Algorithm::SlidingWindow, period, threshold)
    }

    /// About `threshold` units in any `period`, in constant space ([`Algorithm::SlidingCounter`]).
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use ratelimit_runtime::Policy;
    /// const SEARCH: Policy =
    ///     Policy::sliding_counter("search", Duration::from_secs(60), 1_000_000);
    /// assert!(SEARCH.validate().is_ok());
    /// ```
    #[must_use]
    pub const fn sliding_counter(name: &'static str, period: Duration, threshold: u32) -> Self {
        Self::new(name, Algorithm::SlidingCounter, period, threshold)
    }

    /// At most `threshold` units in a window that opens at the first call and ends after `period`
    /// ([`Algorithm::FixedWindow`]).
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use ratelimit_runtime::Policy;
    /// const SMS: Policy = Policy::fixed_window("sms", Duration::from_secs(24 * 60 * 60), 10);
    /// assert!(SMS.validate().is_ok());
    /// ```
    #[must_use]
    pub const fn fixed_window(name: &'static str, period: Duration, threshold: u32) -> Self {
        Self::new(name, Algorithm::FixedWindow, period, threshold)
    }

    /// A bucket of `threshold` tokens that is refilled continuously, `threshold` in a `period`
    /// ([`Algorithm::TokenBucket`]). [`burst`](Self::burst) sets another size.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use ratelimit_runtime::Policy;
    /// /// Ten a second, evenly spaced.
    /// const PACED: Policy = Policy::token_bucket("paced", Duration::from_secs(1), 10).burst(1);
    /// assert!(PACED.validate().is_ok());
    /// ```
    #[must_use]
    pub const fn token_bucket(name: &'static str, period: Duration, threshold: u32) -> Self {
        Self::new(name, Algorithm::TokenBucket, period, threshold)
    }

    const fn new(
        name: &'static str,
        algorithm: Algorithm,
        period: Duration,
        threshold: u32,
    ) -> Self {
        let policy = Self {
            name: Name::new(name),
            algorithm,
            tiers: [Tier::NONE; MAX_TIERS],
            longest_period: 0,
            largest_threshold: 0,
            count: 0,
            burst: None,
            count_rejected: false,
        };
        policy.tier(period, threshold)
    }

    /// Adds a tier: a call has to pass all of them, and is charged to all or to none.
    ///
    /// Of a [`token_bucket`](Self::token_bucket), each tier is a bucket of its own that holds as
    /// many tokens as its threshold.
    #[must_use]
    pub const fn tier(mut self, period: Duration, threshold: u32) -> Self {
        if self.count < MAX_TIERS {
            let tier = Tier::new(period, threshold);
            self.tiers[self.count] = tier;
            if self.longest_period < tier.micros() {
                self.longest_period = tier.micros();
            }
            if self.largest_threshold < threshold {
                self.largest_threshold = threshold;
            }
        }
        self.count += 1;
        self
    }

    /// The size of a [`token_bucket`](Self::token_bucket) with one tier: the tokens that can be
    /// taken at once after a pause. Without it, the threshold.
    #[must_use]
    pub const fn burst(mut self, burst: u32) -> Self {
        self.burst = Some(burst);
        self
    }

    /// The size of the bucket, if it is not the threshold.
    pub(crate) fn given_burst(&self) -> Option<u32> {
        self.burst
    }

    /// Records refused calls as well, so that a caller who does not stop stays shut out.
    ///
    /// A sliding window or counter counts the units of a refused call like those of an admitted
    /// one, up to the threshold; a token bucket loses the tokens that it has. The wait that a
    /// refusal tells is the one after this. A fixed window cannot have it.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use ratelimit_runtime::Policy;
    /// const LOGIN: Policy =
    ///     Policy::sliding_window("login", Duration::from_secs(60), 3).count_rejected();
    /// assert!(LOGIN.counts_rejected());
    /// ```
    #[must_use]
    pub const fn count_rejected(mut self) -> Self {
        self.count_rejected = true;
        self
    }

    /// The same limit under another name.
    #[must_use]
    pub const fn named(mut self, name: &'static str) -> Self {
        self.name = Name::new(name);
        self
    }

    /// The same limit with other tiers, at least one.
    pub(crate) fn with_tiers(self, tiers: &[(Duration, u32)]) -> Self {
        let bare = Self {
            tiers: [Tier::NONE; MAX_TIERS],
            count: 0,
            longest_period: 0,
            largest_threshold: 0,
            ..self
        };
        tiers.iter().fold(bare, |policy, (period, threshold)| policy.tier(*period, *threshold))
    }

    /// The same limit under the name of another.
    pub(crate) fn named_as(mut self, other: &Self) -> Self {
        self.name = other.name;
        self
    }

    pub(crate) fn full_name(&self) -> Name {
        self.name
    }

    /// The name, which stands in keys, errors and reports.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name.text()
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

    /// Whether refused calls are recorded as well.
    #[must_use]
    pub const fn counts_rejected(&self) -> bool {
        self.count_rejected
    }

    /// Checks the rules that every policy has to obey.
    ///
    /// # Errors
    ///
    /// [`InvalidPolicy`] when there are more than [`MAX_TIERS`] tiers, a period is shorter than
    /// 1 ms or longer than 366 days, a threshold or a burst is 0, a threshold is over 100 000 for
    /// [`Algorithm::SlidingWindow`] (which keeps an entry per unit), a burst is given to another
    /// algorithm than [`Algorithm::TokenBucket`] or together with several tiers, a bucket is too
    /// large to be counted exactly at its rate, refused calls are to be recorded in an
    /// [`Algorithm::FixedWindow`], or a tier can never refuse, because another one always refuses
    /// first.
    pub fn validate(&self) -> Result<(), InvalidPolicy> {
        self.validate_with(None)
    }

    /// Checks the policy together with what one call wants to take.
    pub(crate) fn validate_with(&self, cost: Option<u32>) -> Result<(), InvalidPolicy> {
        // What was asked for beyond the room for it is only counted; one rule says how many fit.
        let mut tiers = [TierNumbers { period: None, threshold: None }; MAX_TIERS + 1];
        for (place, tier) in tiers.iter_mut().zip(self.tiers()) {
            *place = TierNumbers {
                period: Some(tier.micros()),
                threshold: Some(tier.threshold().into()),
            };
        }
        let numbers = Numbers {
            algorithm: self.algorithm,
            tiers: &tiers[..self.count.min(MAX_TIERS + 1)],
            burst: self.burst.map_or(Burst::Threshold, |burst| Burst::Given(Some(burst.into()))),
            cost: cost.map(u64::from),
            count_rejected: self.count_rejected,
        };
        match rules::faults(&numbers).first() {
            Some((_, fault)) => Err(InvalidPolicy::new(self.name(), *fault)),
            None => Ok(()),
        }
    }

    /// The longest of the tiers' periods.
    pub(crate) fn longest_period(&self) -> u64 {
        self.longest_period
    }

    /// The largest of the tiers' thresholds.
    pub(crate) fn largest_threshold(&self) -> u32 {
        self.largest_threshold
    }

    /// The numbers of the token bucket that this tier is.
    pub(crate) fn bucket(&self, tier: Tier) -> Bucket {
        tier.bucket(self.burst.unwrap_or(tier.threshold()))
    }
}

impl std::fmt::Debug for Policy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Policy")
            .field("name", &self.name())
            .field("algorithm", &self.algorithm)
            .field("tiers", &self.tiers())
            .field("burst", &self.burst)
            .field("count_rejected", &self.count_rejected)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const MAX: Duration = Duration::from_secs(366 * 24 * 60 * 60);

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
        assert!(
            message(&Policy::sliding_window("mail", Duration::MAX, 1)).contains("at most 366 days")
        );
        assert!(
            message(&Policy::sliding_window("mail", SECOND, 100_001)).contains("at most 100000")
        );
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
    fn as_many_tiers_as_there_may_be_are_all_decided() {
        let mut policy = Policy::sliding_window("mail", SECOND, 100);
        for tier in 1..MAX_TIERS.try_into().unwrap() {
            policy = policy.tier(SECOND * 5_u32.pow(tier), 100 + tier);
        }
        assert_eq!(policy.tiers().len(), MAX_TIERS);
        assert_eq!(policy.validate(), Ok(()));
    }

    #[test]
    fn with_other_tiers_it_is_as_if_they_had_been_written() {
        let written = Policy::sliding_window("mail", MAX, 90).tier(SECOND, 9).count_rejected();
        let narrow = Policy::sliding_window("mail", SECOND * 2, 5).count_rejected();
        assert_eq!(written.with_tiers(&[(SECOND * 2, 5)]), narrow);
        assert_eq!(narrow.with_tiers(&[(MAX, 90), (SECOND, 9)]), written);
        let bucket = Policy::token_bucket("mail", SECOND, 1).burst(7);
        assert_eq!(bucket.with_tiers(&[(MAX, 2)]), Policy::token_bucket("mail", MAX, 2).burst(7));
    }

    #[test]
    fn a_large_log_is_pointed_to_the_counter() {
        let log = Policy::sliding_window("search", SECOND, 1_000_000);
        assert_eq!(
            message(&log),
            "invalid rate limit policy `search`: `threshold` must be at most 100000, but is 1000000: \
             `sliding_window` keeps an entry for every admitted call; `sliding_counter` counts any \
             number in constant space"
        );
        assert_eq!(Policy::sliding_counter("search", MAX, u32::MAX).validate(), Ok(()));
        assert_eq!(Policy::fixed_window("search", MAX, u32::MAX).validate(), Ok(()));
    }

    #[test]
    fn a_burst_belongs_to_one_bucket() {
        let bucket = Policy::token_bucket("p", SECOND, 10);
        assert_eq!(bucket.burst(1).validate(), Ok(()));
        assert!(message(&bucket.burst(0)).ends_with("`burst` must be at least 1"));
        assert!(message(&bucket.tier(MAX, 20).burst(5)).ends_with(
            "`burst` is the size of one bucket; with several tiers each is a bucket of its threshold"
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
        // A token of 2^22 parts, and fewer than 2^53 parts in all.
        let binary = Policy::token_bucket("p", Duration::from_micros(1 << 22), 1);
        assert_eq!(binary.burst((1 << 31) - 1).validate(), Ok(()));
        assert!(binary.burst(1 << 31).validate().is_err());
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
        assert_eq!(bucket.validate_with(Some(5)), Ok(()));
        assert!(bucket.validate_with(Some(6)).unwrap_err().to_string().contains("a burst of 5"));
        assert!(bucket.burst(1).validate_with(Some(2)).is_err());
    }

    #[test]
    fn a_cost_has_to_fit_every_tier() {
        let policy = Policy::sliding_window("mail", SECOND, 2).tier(SECOND * 60, 3);
        assert_eq!(policy.validate_with(Some(2)), Ok(()));
        assert!(policy.validate_with(Some(3)).unwrap_err().to_string().contains("`cost` is 3"));
        assert!(policy.validate_with(Some(0)).unwrap_err().to_string().contains("at least 1"));
    }
}
