//! Policies: plain data that can be a `const`, and their validation.
//!
//! Floor 1: pure, imports `ratelimit-core`. Every room above may import it.

mod calendar;
mod derived;
mod flags;
mod invalid;
mod name;
mod on_store_error;
pub(crate) mod plans;
mod settings;
mod span;
mod state_kind;
#[cfg(test)]
mod tests;
mod tier;
mod too_large;
mod unit;
mod validation;

use std::{fmt, time::Duration};

use ratelimit_core::{
    Algorithm, MAX_TIERS,
    rules::{self, MAX_BLOCKS},
};

pub(crate) use self::{
    flags::Flags, name::PolicyName, span::Span, state_kind::StateKind, tier::BucketRate,
};
pub use self::{
    invalid::InvalidPolicy,
    on_store_error::{LocalShare, OnStoreError},
    plans::Plans,
    tier::Tier,
    too_large::TooLarge,
    unit::QuotaUnit,
};
use crate::{calendar::Zone, time::Micros};

/// A limit: a name, an algorithm, and one or more tiers that are decided together, also with the
/// [calls in flight](Self::concurrency).
///
/// A policy is plain data and can be a `const`. It is validated when a call is checked, and never
/// panics. A broken rule is
/// [`RateLimitError::InvalidPolicy`](crate::RateLimitError::InvalidPolicy), and a threshold of 0 is
/// [`RateLimitError::TooLarge`](crate::RateLimitError::TooLarge).
///
/// A method sets a value by its noun, and `get_` before the noun reads it: [`burst`](Self::burst),
/// [`get_burst`](Self::get_burst).
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
#[must_use]
pub struct Policy {
    name: PolicyName,
    state: StateKind,
    tiers: [Tier; MAX_TIERS],
    longest_period: Micros,
    largest_threshold: u32,
    /// The number of tiers that were added. Those beyond `MAX_TIERS` are not kept, and `validate`
    /// fails.
    count: u8,
    burst: Option<u32>,
    concurrency: Option<u32>,
    concurrency_timeout: Option<Micros>,
    lease: Option<Micros>,
    /// The share in percent that calls leave. Numbers other than those of a bucket are without it.
    share: u8,
    blocks: [Micros; MAX_BLOCKS],
    /// The number of these lengths. Of further ones, one is counted, so that `validate` fails.
    block_count: u8,
    zone: Option<&'static str>,
    /// That zone, of a [dated](Self::dated) policy.
    dated_zone: Option<Zone>,
    on_store_error: Option<OnStoreError>,
    /// That of an override.
    overridden_answer: Option<OnStoreError>,
    flags: Flags,
}

impl Policy {
    /// Creates a policy of at most `threshold` units in any `period`, counted exactly
    /// ([`Algorithm::SlidingWindow`]).
    ///
    /// Policies of one name and one algorithm share their callers' counts.
    pub const fn sliding_window(name: &'static str, period: Duration, threshold: u32) -> Self {
        Self::new(name, Algorithm::SlidingWindow, period, threshold)
    }

    /// Creates a policy of about `threshold` units in any `period`, in constant space
    /// ([`Algorithm::SlidingCounter`]).
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use ratelimit_runtime::Policy;
    /// const SEARCH: Policy =
    ///     Policy::sliding_counter("search", Duration::from_secs(60), 1_000_000);
    /// assert!(SEARCH.validate().is_ok());
    /// ```
    pub const fn sliding_counter(name: &'static str, period: Duration, threshold: u32) -> Self {
        Self::new(name, Algorithm::SlidingCounter, period, threshold)
    }

    /// Creates a policy of at most `threshold` units in a window that opens at the first call and
    /// ends after `period` ([`Algorithm::FixedWindow`]).
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use ratelimit_runtime::Policy;
    /// const SMS: Policy = Policy::fixed_window("sms", Duration::from_secs(24 * 60 * 60), 10);
    /// assert!(SMS.validate().is_ok());
    /// ```
    pub const fn fixed_window(name: &'static str, period: Duration, threshold: u32) -> Self {
        Self::new(name, Algorithm::FixedWindow, period, threshold)
    }

    /// Creates a policy with a bucket of `threshold` tokens, which refills continuously by
    /// `threshold` per `period` ([`Algorithm::TokenBucket`]). [`burst`](Self::burst) sets another
    /// size.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use ratelimit_runtime::Policy;
    /// /// Ten a second, evenly spaced.
    /// const PACED: Policy = Policy::token_bucket("paced", Duration::from_secs(1), 10).burst(1);
    /// assert!(PACED.validate().is_ok());
    /// ```
    pub const fn token_bucket(name: &'static str, period: Duration, threshold: u32) -> Self {
        Self::new(name, Algorithm::TokenBucket, period, threshold)
    }

    /// Creates a policy of an algorithm that is known only at run time.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use ratelimit_runtime::{Algorithm, Policy};
    /// for algorithm in Algorithm::ALL {
    ///     let policy = Policy::new("trial", *algorithm, Duration::from_secs(1), 10);
    ///     assert_eq!(policy.algorithm(), *algorithm);
    /// }
    /// ```
    pub const fn new(
        name: &'static str,
        algorithm: Algorithm,
        period: Duration,
        threshold: u32,
    ) -> Self {
        Self::without_tiers(name, algorithm).tier(period, threshold)
    }

    const fn without_tiers(name: &'static str, algorithm: Algorithm) -> Self {
        Self {
            name: PolicyName::new(name),
            state: StateKind::of(algorithm),
            tiers: [Tier::NONE; MAX_TIERS],
            longest_period: Micros::ZERO,
            largest_threshold: 0,
            count: 0,
            burst: None,
            concurrency: None,
            concurrency_timeout: None,
            lease: None,
            share: 0,
            blocks: [Micros::ZERO; MAX_BLOCKS],
            block_count: 0,
            zone: None,
            dated_zone: None,
            on_store_error: None,
            overridden_answer: None,
            flags: Flags::of(algorithm),
        }
    }

    /// Adds a tier. A call must pass all tiers, and is charged to all or to none.
    ///
    /// Each tier of a [`token_bucket`](Self::token_bucket) is a bucket of its own, of `threshold`
    /// tokens.
    pub const fn tier(mut self, period: Duration, threshold: u32) -> Self {
        let count = self.count as usize;
        if count < MAX_TIERS {
            let tier = Tier::new(period, threshold);
            self.tiers[count] = tier;
            if self.longest_period.get() < tier.micros().get() {
                self.longest_period = tier.micros();
            }
            if self.largest_threshold < threshold {
                self.largest_threshold = threshold;
            }
            self.count += 1;
        } else {
            self.count = u8::MAX;
        }
        self.checked()
    }

    /// Returns this policy with the flags of its validity as they are for its numbers.
    const fn checked(mut self) -> Self {
        let Tier { period, threshold, .. } = self.tiers[0];
        let has_permits = matches!(self.concurrency, Some(1..)) && self.lease.is_none();
        let is_valid = self.count == 1
            && (self.concurrency.is_none() || has_permits && !self.is_calendar())
            && self.concurrency_timeout.is_none()
            && (self.zone.is_none() || self.is_calendar())
            && self.block_count == 0
            && rules::is_valid_alone(
                self.algorithm(),
                (period, threshold as u64),
                self.burst,
                self.counts_rejected(),
                match self.lease {
                    Some(lease) => Some(lease.get()),
                    None => None,
                },
            );
        let is_one_tier = is_valid && !self.is_calendar() && self.concurrency.is_none();
        let flags =
            self.flags.with(Flags::VALID_ALONE, is_valid).with(Flags::ONE_TIER, is_one_tier);
        let flags = flags.with(Flags::LEASED, self.lease.is_some());
        self.flags = flags.with(Flags::BLOCKS, self.block_count > 0);
        self
    }

    /// Returns this policy under another name.
    pub const fn named(mut self, name: &'static str) -> Self {
        self.name = PolicyName::new(name);
        self
    }

    /// Returns `true` if the burst or the calls in flight come with each call. The attribute
    /// declares 0 for them, which does not compile as a literal.
    pub(crate) fn lacks_numbers(&self) -> bool {
        self.burst == Some(0) || self.concurrency == Some(0)
    }

    /// Returns this policy with valid numbers in place of those that come with each call.
    pub(crate) fn with_known_numbers(&self) -> Self {
        let known = |number: Option<u32>| number.map(|number| number.max(1));
        let timeout = self.concurrency_timeout.filter(|timeout| *timeout > Micros::ZERO);
        let (burst, concurrency) = (known(self.burst), known(self.concurrency));
        Self { burst, concurrency, concurrency_timeout: timeout, ..*self }.checked()
    }

    /// Returns this policy with other tiers, at least one.
    pub(crate) fn with_tiers(self, tiers: &[Tier]) -> Self {
        let bare = Self {
            tiers: [Tier::NONE; MAX_TIERS],
            count: 0,
            longest_period: Micros::ZERO,
            largest_threshold: 0,
            ..self
        };
        tiers.iter().fold(bare, |policy, tier| policy.tier(tier.period(), tier.threshold()))
    }

    /// Returns this policy under the name of another.
    pub(crate) const fn named_as(mut self, other: &Self) -> Self {
        self.name = other.name;
        self
    }

    /// Returns the name with its hash.
    pub(crate) fn full_name(&self) -> PolicyName {
        self.name
    }

    /// Returns the name, as it is in keys, errors and events.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name.text()
    }

    /// Returns the name of the plan, if the policy is one of [`Plans`].
    #[must_use]
    pub fn plan(&self) -> Option<&'static str> {
        plans::plan(self.name(), self.flags)
    }

    /// Returns the name by which operators and clients know the policy: `api@pro` for a plan.
    pub(crate) fn shown_name(&self) -> PolicyName {
        self.label().unwrap_or(self.name)
    }

    /// Returns the name of a plan as a limit of its own.
    #[inline]
    pub(crate) fn label(&self) -> Option<PolicyName> {
        plans::label(self.name(), self.flags)
    }

    /// Returns the algorithm.
    #[must_use]
    pub const fn algorithm(&self) -> Algorithm {
        self.flags.algorithm
    }

    /// Returns the unit of the quota and the plan, for answers.
    pub(crate) fn flags(&self) -> Flags {
        self.flags
    }

    /// Returns this policy with the properties of another one.
    #[cfg(feature = "tower")]
    pub(crate) const fn with_flags(mut self, flags: Flags) -> Self {
        self.flags = flags;
        self
    }

    /// Returns the kind of state in which callers are counted.
    pub(crate) const fn state(&self) -> StateKind {
        self.state
    }

    /// Returns the tiers in the order in which they were added, at most [`MAX_TIERS`]. A
    /// [`concurrency_limit`](Self::concurrency_limit) has none.
    #[must_use]
    pub fn tiers(&self) -> &[Tier] {
        &self.tiers[..usize::from(self.count).min(MAX_TIERS)]
    }

    /// Returns `true` unless there is nothing but `concurrency`.
    pub(crate) const fn has_window(&self) -> bool {
        self.count > 0
    }

    /// Returns the tier of an outcome. Without a window, it is one of the calls in flight.
    #[inline]
    pub(crate) fn tier_of(&self, index: u8) -> Tier {
        match self.tiers().get(usize::from(index)) {
            Some(tier) => *tier,
            None => Tier::new(Duration::ZERO, self.concurrency.unwrap_or_default()),
        }
    }

    /// Returns `true` if the policies differ in nothing but perhaps their names.
    ///
    /// Inlined into a loop, it would copy all tiers of a policy ahead of the first comparison.
    #[inline(never)]
    pub(crate) fn limits_as(&self, other: &Self) -> bool {
        let numbers =
            |it: &Self| (it.state, it.count, it.block_count, it.burst, it.counts_rejected());
        let others = |it: &Self| (it.concurrency, it.concurrency_timeout, it.zone);
        // The counts of tiers and blocks are equal from here on: comparing slices would ask once
        // more.
        numbers(self) == numbers(other)
            && (self.lease, self.share) == (other.lease, other.share)
            && others(self) == others(other)
            && self.tiers().iter().zip(other.tiers()).all(|(own, other)| own == other)
            && (self.block_count == 0 || self.block_lengths() == other.block_lengths())
    }

    /// Returns the longest period of the tiers.
    pub(crate) fn longest_period(&self) -> Micros {
        self.longest_period
    }

    /// Returns the shortest period of the tiers.
    pub(crate) fn shortest_period(&self) -> Micros {
        self.tiers().iter().map(|tier| tier.micros()).min().unwrap_or_default()
    }

    /// Returns the largest threshold of the tiers.
    pub(crate) fn largest_threshold(&self) -> u32 {
        self.largest_threshold
    }
}

impl fmt::Debug for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Policy")
            .field("name", &self.name())
            .field("algorithm", &self.algorithm())
            .field("tiers", &self.tiers())
            .field("burst", &self.burst)
            .field("count_rejected", &self.counts_rejected())
            .field("concurrency", &self.concurrency)
            .field("lease", &self.get_lease())
            .field("block", &self.get_block().collect::<Vec<_>>())
            .field("unit", &self.get_quota_unit())
            .finish_non_exhaustive()
    }
}
