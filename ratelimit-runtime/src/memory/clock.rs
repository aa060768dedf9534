//! The clock of a store: tokio's, so that tests with a paused clock need no other.

use tokio::time::Instant;

use crate::time::{Micros, Timestamp};

/// The time of a new store: 70 years, so that tests whose paused clocks started earlier can share
/// it. In whole days, so that aligned windows of usual periods start with the store.
const EPOCH: Timestamp = Timestamp::new(70 * 365 * 24 * 3_600 * 1_000_000);

pub(super) struct Clock {
    made: Instant,
}

impl Clock {
    pub(super) fn new() -> Self {
        Self { made: Instant::now() }
    }

    #[inline]
    pub(super) fn now(&self) -> Timestamp {
        let now = Instant::now();
        match now.checked_duration_since(self.made) {
            Some(since) => EPOCH + since.into(),
            // The sum is rounded down, as above.
            None => EPOCH - Micros::rounded_up(self.made - now),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const HOUR: Duration = Duration::from_secs(3_600);

    #[tokio::test(start_paused = true)]
    async fn a_clock_that_is_behind_moves_as_one_that_is_ahead() {
        let mut clock = Clock::new();
        clock.made += 5 * HOUR;
        let hours = |count: u32| Micros::from(count * HOUR);
        assert_eq!(clock.now(), EPOCH - hours(5));
        clock.made += Duration::from_nanos(1);
        assert_eq!(clock.now(), EPOCH - hours(5) - Micros::new(1));
        tokio::time::advance(7 * HOUR).await;
        assert_eq!(clock.now(), EPOCH + hours(2) - Micros::new(1));
    }
}
