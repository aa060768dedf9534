//! The setting of the longest pause.

use std::time::Duration;

use super::LimiterBuilder;

/// The largest setting: a month.
const LONGEST: Duration = Duration::from_secs(31 * 24 * 3_600);

impl LimiterBuilder {
    /// Sets the longest [pause](crate::Limiter::pause) of a caller; 24 hours by default, at most 31 days. A longer one
    /// is cut, and logged at `warn`: the remote service chooses it, and may be wrong.
    ///
    /// ```
    /// use std::time::Duration;
    /// use ratelimit_runtime::Limiter;
    ///
    /// let limiter = Limiter::builder().max_pause(Duration::from_secs(60)).in_memory();
    /// ```
    pub fn max_pause(mut self, max_pause: Duration) -> Self {
        self.max_pause = max_pause.min(LONGEST);
        self
    }
}
