//! What a limit says: plain data that can be a `const`, and the rules it has to obey.

mod algorithm;
mod rules;
mod tier;

use std::time::Duration;

pub(crate) use self::tier::Bucket;
pub use self::{algorithm::Algorithm, tier::Tier};

/// The most tiers one policy may have.
pub const MAX_TIERS: usize = 8;

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
            name,
            algorithm,
            tiers: [Tier::NONE; MAX_TIERS],
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
            self.tiers[self.count] = Tier::new(period, threshold);
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

    /// Whether refused calls are recorded as well.
    #[must_use]
    pub const fn counts_rejected(&self) -> bool {
        self.count_rejected
    }

    /// The numbers of the token bucket that this tier is.
    pub(crate) fn bucket(&self, tier: Tier) -> Bucket {
        tier.bucket(self.burst.unwrap_or(tier.threshold()))
    }
}

impl std::fmt::Debug for Policy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Policy")
            .field("name", &self.name)
            .field("algorithm", &self.algorithm)
            .field("tiers", &self.tiers())
            .field("burst", &self.burst)
            .field("count_rejected", &self.count_rejected)
            .finish_non_exhaustive()
    }
}
