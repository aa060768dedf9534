//! Instants on the clock of one cache: numbers, which a look-up compares and subtracts at less cost.

use std::time::Duration;

use tokio::time::Instant;

use crate::time::Micros;

/// An instant in nanoseconds. Moments of two caches do not compare.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Moment(u64);

/// The time of a new cache: 146 years, so that tests whose paused clocks started earlier can share
/// it.
const MADE: u64 = 1 << 62;

impl Moment {
    /// Returns the moment of an instant on the clock of a cache that was made at `made`.
    #[inline]
    pub(super) fn new(instant: Instant, made: Instant) -> Self {
        match instant.checked_duration_since(made) {
            Some(since) => Self(MADE.saturating_add(nanos(since))),
            None => Self(MADE.saturating_sub(nanos(made - instant))),
        }
    }

    /// Returns the moment after a time, or the last one.
    #[inline]
    pub(super) fn after(self, time: Duration) -> Self {
        Self(self.0.saturating_add(nanos(time)))
    }

    /// Returns the moment after a number of microseconds, if there is one.
    pub(super) fn checked_after(self, time: Micros) -> Option<Self> {
        Some(Self(self.0.checked_add(time.get().checked_mul(1_000)?)?))
    }

    /// Returns the microseconds from `now` until this moment, rounded up: a call that waits this long
    /// is not early.
    #[inline]
    pub(super) fn micros_from(self, now: Self) -> Micros {
        Micros::new(self.0.saturating_sub(now.0).div_ceil(1_000))
    }
}

#[inline]
fn nanos(time: Duration) -> u64 {
    time.as_secs().saturating_mul(1_000_000_000).saturating_add(time.subsec_nanos().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn moments_are_as_far_apart_as_their_instants_before_and_after_the_cache_was_made() {
        let start = Instant::now();
        let hour = Duration::from_secs(3_600);
        for made in [start, start + hour, start + 2 * hour] {
            let moment = |since: Duration| Moment::new(start + since, made);
            let (first, last) = (moment(hour), moment(hour + Duration::from_nanos(1_999)));
            assert_eq!(last.micros_from(first), Micros::new(2));
            assert_eq!(first.micros_from(last), Micros::ZERO);
            assert_eq!(first.after(hour), moment(2 * hour));
            assert_eq!(first.checked_after(Micros::from(hour)), Some(moment(2 * hour)));
            assert!(first < last && last < first.after(Duration::MAX));
            assert_eq!(first.checked_after(Micros::new(u64::MAX)), None);
        }
    }
}
