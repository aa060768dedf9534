//! The wait that a response names, in seconds and in milliseconds. Pure.

use std::time::Duration;

use super::headers::{RETRY_AFTER, RETRY_AFTER_MS, seconds};
use crate::error::RateLimitError;

/// The longest wait that a response names. Timers of Node have 31 bits of milliseconds: after a
/// longer wait they repeat the request at once.
const LONGEST: Duration = Duration::from_secs(2_147_483);

/// The time after which a client may repeat its request.
#[derive(Clone, Copy)]
pub(super) struct Wait {
    pub(super) exact: Duration,
    is_guess: bool,
}

impl Wait {
    /// Returns the wait of an error, if it has one.
    pub(super) fn of(error: &RateLimitError) -> Option<Self> {
        let (exact, is_guess) = match error {
            RateLimitError::Exceeded(exceeded) => (Some(exceeded.told_after()), false),
            RateLimitError::Denied(denied) => (denied.retry_after(), false),
            RateLimitError::Busy(busy) => (busy.retry_after(), true),
            RateLimitError::Unavailable(error) => (Some(error.retry_after()), true),
            RateLimitError::TooLarge(_) | RateLimitError::InvalidPolicy(_) => (None, false),
        };
        exact.map(|exact| Self { exact, is_guess })
    }

    /// Returns this wait, or a longer one that is known. A guess that would be rounded below that
    /// one is rounded up.
    #[cfg(any(feature = "actix", feature = "tower"))]
    pub(super) fn at_least(self, known: Duration) -> Self {
        let wait = Self { exact: self.exact.max(known), ..self };
        Self { is_guess: self.is_guess && wait.whole_seconds() >= seconds(known), ..wait }
    }

    /// Returns whole seconds, at least 1: rounded up if the wait is known, and a guess to the
    /// nearest second.
    pub(super) fn whole_seconds(self) -> u64 {
        let earlier = Duration::from_millis(if self.is_guess { 500 } else { 0 });
        seconds(self.exact.saturating_sub(earlier).min(LONGEST)).max(1)
    }

    /// Returns whole milliseconds, rounded up and at least 1.
    pub(super) fn millis(self) -> u64 {
        let wait = self.exact.min(LONGEST);
        (wait.as_secs() * 1_000 + u64::from(wait.subsec_nanos().div_ceil(1_000_000))).max(1)
    }

    /// Returns the headers of the wait. That in milliseconds is left out if the other one is as
    /// exact.
    pub(super) fn headers(self) -> [(&'static str, Option<String>); 2] {
        let is_whole = self.exact.subsec_nanos() == 0 || self.exact > LONGEST;
        [
            (RETRY_AFTER, Some(self.whole_seconds().to_string())),
            (RETRY_AFTER_MS, (!is_whole).then(|| self.millis().to_string())),
        ]
    }
}
