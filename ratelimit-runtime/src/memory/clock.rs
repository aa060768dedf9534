//! The time of a store: tokio's, in microseconds.

use std::time::Duration;

use tokio::time::Instant;

/// The time at which a store is made, 70 years: one store may be used under several clocks, such as
/// those that stand still in tests, and some of them may be far behind the first. In whole days,
/// so that aligned windows of usual periods start with the store.
const EPOCH: u64 = 70 * 365 * 24 * 3_600 * 1_000_000;

/// Short of a microsecond by as little as there is.
const ALMOST_ONE: Duration = Duration::from_nanos(999);

pub(super) struct Clock {
    made: Instant,
}

impl Clock {
    pub(super) fn new() -> Self {
        Self { made: Instant::now() }
    }

    #[inline]
    pub(super) fn now(&self) -> u64 {
        let now = Instant::now();
        match now.checked_duration_since(self.made) {
            Some(since) => EPOCH + micros(since),
            // Rounded down, as the other is.
            None => EPOCH.saturating_sub(micros(self.made - now + ALMOST_ONE)),
        }
    }
}

fn micros(duration: Duration) -> u64 {
    duration.as_secs() * 1_000_000 + u64::from(duration.subsec_micros())
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3_600);

    #[tokio::test(start_paused = true)]
    async fn a_clock_that_is_behind_moves_as_one_that_is_ahead() {
        let mut clock = Clock::new();
        clock.made += 5 * HOUR;
        assert_eq!(clock.now(), EPOCH - 5 * micros(HOUR));
        clock.made += Duration::from_nanos(1);
        assert_eq!(clock.now(), EPOCH - 5 * micros(HOUR) - 1);
        tokio::time::advance(7 * HOUR).await;
        assert_eq!(clock.now(), EPOCH + 2 * micros(HOUR) - 1);
    }
}
