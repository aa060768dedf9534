//! One tier of a policy, and the integers in which its algorithm counts.

use std::time::Duration;

use ratelimit_core::rules::{self, MAX_EXACT_INTEGER, greatest_common_divisor};

use super::Span;
use crate::time::{Micros, Timestamp};

/// At most `threshold` units in any one `period`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Tier {
    /// In microseconds.
    pub(super) period: u64,
    /// The parts of one token, for a token bucket. For a window of the calendar in memory, its
    /// start.
    pub(super) token: u64,
    pub(super) threshold: u32,
    /// The parts that a token bucket regains each microsecond. For a window of the calendar in
    /// memory, its span.
    pub(super) refill: u32,
}

impl Tier {
    pub(super) const NONE: Self = Self { period: 0, token: 0, threshold: 0, refill: 0 };

    /// Creates a tier of at most `threshold` units in any one `period`. Fractions of a microsecond
    /// are cut off.
    ///
    /// ```
    /// use std::time::Duration;
    /// use ratelimit_runtime::Tier;
    ///
    /// const HOURLY: Tier = Tier::new(Duration::from_secs(3600), 100);
    /// assert_eq!(HOURLY.threshold(), 100);
    /// ```
    #[must_use]
    pub const fn new(period: Duration, threshold: u32) -> Self {
        let micros = period.as_micros();
        // A period that does not fit is far beyond the maximum, also when it saturates.
        #[expect(clippy::cast_possible_truncation, reason = "compared just before")]
        let period = if micros > u64::MAX as u128 { u64::MAX } else { micros as u64 };
        // The largest parts of a token in which all numbers are integers.
        let divisor = greatest_common_divisor(period, threshold as u64);
        let (token, refill) = match divisor {
            0 => (0, 0),
            divisor => (period / divisor, threshold as u64 / divisor),
        };
        #[expect(clippy::cast_possible_truncation, reason = "no larger than the threshold")]
        let refill = refill as u32;
        Self { period, token, threshold, refill }
    }

    /// Returns the length of the window, in whole microseconds.
    #[must_use]
    pub const fn period(self) -> Duration {
        Duration::from_micros(self.period)
    }

    /// Returns the units that are admitted in any one period.
    #[must_use]
    pub const fn threshold(self) -> u32 {
        self.threshold
    }

    /// Returns the length of the window.
    pub(crate) const fn micros(self) -> Micros {
        Micros::new(self.period)
    }

    /// Returns the tier of a window of the calendar.
    pub(super) fn dated(self, start: Timestamp, Span(span): Span) -> Self {
        Self { token: start.get(), refill: span, ..self }
    }

    /// Returns the start and the span of the [dated](Self::dated) window.
    pub(crate) fn dates(self) -> (Timestamp, Span) {
        (Timestamp::new(self.token), Span(self.refill))
    }

    /// Returns the length of one tick of a sliding counter in microseconds: the shortest for which
    /// `threshold * period` in ticks is at most 2^53.
    pub(crate) fn tick(self) -> u64 {
        // Most policies need no division of 128 bits.
        if u64::from(self.threshold)
            .checked_mul(self.period)
            .is_some_and(|it| it <= MAX_EXACT_INTEGER)
        {
            return 1;
        }
        let product = u128::from(self.threshold) * u128::from(self.period);
        u64::try_from(product.div_ceil(u128::from(MAX_EXACT_INTEGER))).unwrap_or(u64::MAX).max(1)
    }

    /// Returns the units that come free during a lease.
    pub(super) fn refilled(self, lease: Micros) -> u64 {
        rules::refilled((self.period, self.threshold.into()), lease.get())
    }

    /// Returns a bucket of `burst` tokens that refills at this tier's rate.
    pub(crate) const fn bucket(self, burst: u32) -> BucketRate {
        let Self { token, refill, .. } = self;
        BucketRate { token, refill: refill as u64, full: token.saturating_mul(burst as u64) }
    }
}

impl std::fmt::Debug for Tier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tier")
            .field("period", &self.period())
            .field("threshold", &self.threshold)
            .finish_non_exhaustive()
    }
}

/// The rate and size of a token bucket, in parts of a token in which all numbers are integers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BucketRate {
    /// The parts of one token.
    pub(crate) token: u64,
    /// The parts that the bucket regains each microsecond.
    pub(crate) refill: u64,
    /// The parts of a full bucket.
    pub(crate) full: u64,
}

impl BucketRate {
    /// Returns the time until a bucket with this content has `wanted` parts, or is full.
    #[inline(always)]
    pub(crate) fn until(self, parts: u64, wanted: u64) -> Micros {
        let missing = wanted.min(self.full).saturating_sub(parts);
        // Mostly one part returns each microsecond, and there is nothing to divide.
        Micros::new(if self.refill == 1 { missing } else { missing.div_ceil(self.refill) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tick_is_a_microsecond_until_the_product_is_too_large() {
        let day = Duration::from_secs(24 * 60 * 60);
        assert_eq!(Tier::new(Duration::from_millis(1), u32::MAX).tick(), 1);
        assert_eq!(Tier::new(day, 100_000).tick(), 1);
        assert_eq!(Tier::new(day, 104_249).tick(), 1);
        assert_eq!(Tier::new(day, 104_250).tick(), 2);
        for tier in [Tier::new(day, 104_250), Tier::new(day * 366, u32::MAX)] {
            let ticks = tier.micros().get() / tier.tick();
            assert!(ticks * u64::from(tier.threshold()) <= MAX_EXACT_INTEGER);
        }
    }

    #[test]
    fn a_bucket_counts_in_the_largest_parts_that_are_whole() {
        let minute = Duration::from_secs(60);
        assert_eq!(
            Tier::new(minute, 5).bucket(2),
            BucketRate { token: 12_000_000, refill: 1, full: 24_000_000 }
        );
        assert_eq!(
            Tier::new(minute, 7).bucket(7),
            BucketRate { token: 60_000_000, refill: 7, full: 420_000_000 }
        );
        assert_eq!(
            Tier::new(Duration::from_millis(1), 4_000).bucket(10),
            BucketRate { token: 1, refill: 4, full: 10 }
        );
    }
}
