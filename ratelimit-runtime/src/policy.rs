//! What a limit says: plain data that can be a `const`, and the rules it has to obey.

mod invalid;
mod name;
#[cfg(test)]
mod tests;
mod tier;
mod too_large;

use std::time::Duration;

use ratelimit_core::{
    Algorithm, MAX_TIERS, PolicyFault,
    rules::{self, Burst, Draft, TierDraft},
};

pub use self::{invalid::InvalidPolicy, tier::Tier, too_large::TooLarge};
pub(crate) use self::{name::PolicyName, tier::BucketRate};
use crate::time::Micros;

/// The reason why a call can never be decided under its policy.
pub(crate) enum CallFault {
    /// The policy breaks a rule.
    InvalidPolicy(InvalidPolicy),
    /// The policy never admits a call of this cost.
    TooLarge(TooLarge),
}

/// A limit: a name, an algorithm, and one or more tiers that are decided together.
///
/// A policy is plain data and can be a `const`. It is checked when it is used: what breaks a rule
/// is answered with [`RateLimitError::InvalidPolicy`](crate::RateLimitError::InvalidPolicy), and a
/// threshold of 0 with [`RateLimitError::TooLarge`](crate::RateLimitError::TooLarge), never with a
/// panic.
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
    name: PolicyName,
    algorithm: Algorithm,
    tiers: [Tier; MAX_TIERS],
    longest_period: Micros,
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

    /// A policy of an algorithm that is chosen at run time.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use ratelimit_runtime::{Algorithm, Policy};
    /// for algorithm in Algorithm::ALL {
    ///     let policy = Policy::new("trial", *algorithm, Duration::from_secs(1), 10);
    ///     assert_eq!(policy.algorithm(), *algorithm);
    /// }
    /// ```
    #[must_use]
    pub const fn new(
        name: &'static str,
        algorithm: Algorithm,
        period: Duration,
        threshold: u32,
    ) -> Self {
        let policy = Self {
            name: PolicyName::new(name),
            algorithm,
            tiers: [Tier::NONE; MAX_TIERS],
            longest_period: Micros::ZERO,
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
            if self.longest_period.get() < tier.micros().get() {
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

    /// The same limit, under which refused calls leave no trace.
    pub(crate) const fn without_count_rejected(mut self) -> Self {
        self.count_rejected = false;
        self
    }

    /// The same limit under another name.
    #[must_use]
    pub const fn named(mut self, name: &'static str) -> Self {
        self.name = PolicyName::new(name);
        self
    }

    /// The same limit with other tiers, at least one.
    pub(crate) fn with_tiers(self, tiers: &[(Duration, u32)]) -> Self {
        let bare = Self {
            tiers: [Tier::NONE; MAX_TIERS],
            count: 0,
            longest_period: Micros::ZERO,
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

    pub(crate) fn full_name(&self) -> PolicyName {
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
    ///
    /// A limiter that meets a threshold or a burst of 0 refuses the call with
    /// [`TooLarge`](crate::TooLarge) instead: a plan may have no calls.
    pub fn validate(&self) -> Result<(), InvalidPolicy> {
        self.validate_with(None)
    }

    /// Checks the policy together with what each call takes.
    pub(crate) fn validate_with(&self, cost: Option<u32>) -> Result<(), InvalidPolicy> {
        match self.faults(cost).first() {
            Some(fault) => Err(InvalidPolicy::new(self.name(), *fault)),
            None => Ok(()),
        }
    }

    /// Checks the rules that do not depend on a call.
    pub(crate) fn validate_shape(&self) -> Result<(), InvalidPolicy> {
        match self.faults(None).into_iter().find(|fault| !fault.can_never_admit()) {
            Some(fault) => Err(InvalidPolicy::new(self.name(), fault)),
            None => Ok(()),
        }
    }

    /// Checks that a call of this cost can be decided.
    ///
    /// # Errors
    ///
    /// `InvalidPolicy` if the policy breaks a rule, `TooLarge` if it never admits such a call.
    pub(crate) fn validate_call(&self, cost: u32) -> Result<(), CallFault> {
        let faults = self.faults((cost > 0).then_some(cost));
        if let Some(fault) = faults.iter().find(|fault| !fault.can_never_admit()) {
            return Err(CallFault::InvalidPolicy(InvalidPolicy::new(self.name(), *fault)));
        }
        let Some(fault) = faults.first() else { return Ok(()) };
        let tier = self.tiers().iter().min_by_key(|tier| tier.threshold());
        let tier = *tier.unwrap_or(&Tier::NONE);
        Err(CallFault::TooLarge(TooLarge { policy: self.name(), cost, tier, fault: *fault }))
    }

    /// The rules that are broken, by the policy or by calls of this cost.
    fn faults(&self, cost: Option<u32>) -> Vec<PolicyFault> {
        // What was asked for beyond the room for it is only counted; one rule says how many fit.
        let mut tiers = [TierDraft { period: None, threshold: None }; MAX_TIERS + 1];
        for (place, tier) in tiers.iter_mut().zip(self.tiers()) {
            *place = TierDraft {
                period: Some(tier.micros().get()),
                threshold: Some(tier.threshold().into()),
            };
        }
        let draft = Draft {
            algorithm: self.algorithm,
            tiers: &tiers[..self.count.min(MAX_TIERS + 1)],
            burst: self.burst.map_or(Burst::Threshold, |burst| Burst::Explicit(Some(burst.into()))),
            cost: cost.map(u64::from),
            count_rejected: self.count_rejected,
        };
        rules::violations(&draft).into_iter().map(|(_, fault)| fault).collect()
    }

    /// The longest of the tiers' periods.
    pub(crate) fn longest_period(&self) -> Micros {
        self.longest_period
    }

    /// The largest of the tiers' thresholds.
    pub(crate) fn largest_threshold(&self) -> u32 {
        self.largest_threshold
    }

    /// The numbers of the token bucket that this tier is.
    pub(crate) fn bucket(&self, tier: Tier) -> BucketRate {
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
