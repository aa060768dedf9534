//! The clock of a store: the processor's counter where the system itself keeps time by it, tokio's
//! clock elsewhere. It is our own, since `quanta`, which reads the same counter, has no bound of
//! its error, and [`Clock::surely_past`] needs one.
//!
//! A build whose tokio has `test-util` keeps tokio's clock, so that tests with a paused clock need
//! no other.

mod anchor;
mod calendar;
mod counter;

use tokio::time::Instant;

use self::{anchor::MAX_ERROR, calendar::WallClock, counter::CounterClock};
use crate::time::{self, Micros, Timestamp};

/// The time of a new store: 70 years, so that tests whose paused clocks started earlier can share
/// it. In whole days, so that aligned windows of usual periods start with the store.
pub(crate) const EPOCH: Timestamp = Timestamp::new(70 * 365 * 24 * 3_600 * 1_000_000);

/// `true` if this module defines a function `pause`. Without one, the glob import has no such name,
/// and the outer scope's is found.
macro_rules! has_pause {
    ($module:path) => {{
        #[allow(unused_imports, clippy::wildcard_imports)]
        use $module::*;
        is_another(pause)
    }};
}

/// `true` if tokio is built with `test-util`: dependents cannot see the features of another crate.
const IS_PAUSABLE: bool = has_pause!(tokio::time);

pub(crate) struct Clock {
    made: Instant,
    /// The time of the process when the clock was made.
    uptime: Micros,
    counter: Option<CounterClock>,
    calendar: WallClock,
}

impl Clock {
    pub(super) fn new() -> Self {
        let counter = if IS_PAUSABLE { None } else { CounterClock::new() };
        let calendar = WallClock::new(!IS_PAUSABLE);
        Self { made: Instant::now(), uptime: time::uptime().into(), counter, calendar }
    }

    /// Returns the time, which may be some microseconds before the one returned last.
    #[inline]
    pub(crate) fn now(&self) -> Timestamp {
        match &self.counter {
            Some(counter) => EPOCH + counter.now(),
            None => self.tokio_now(),
        }
    }

    /// Returns the time of the process at an instant of this clock. It is the same for all clocks.
    #[inline]
    pub(crate) fn uptime(&self, at: Timestamp) -> Micros {
        self.uptime + (at - EPOCH)
    }

    /// Returns the time less the error of two readings: the time from it to a later reading is
    /// never shorter than what has passed.
    pub(crate) fn surely_past(&self) -> Timestamp {
        match &self.counter {
            Some(counter) => EPOCH + counter.now() - MAX_ERROR - MAX_ERROR,
            None => self.tokio_now(),
        }
    }

    /// Returns the time by the counter, if there is one. It is read before the lock of a shard is
    /// taken, and [ordered](Self::ordered) under it: others wait less for the lock.
    #[inline]
    pub(super) fn counted(&self) -> Option<Timestamp> {
        self.counter.as_ref().map(|counter| EPOCH + counter.now())
    }

    /// Returns the [counted](Self::counted) time or, if that is later, the `latest` one returned
    /// for the locked shard. Without a counter it returns the present time.
    #[inline]
    pub(super) fn ordered(&self, counted: Option<Timestamp>, latest: &mut Timestamp) -> Timestamp {
        match counted {
            Some(counted) => {
                *latest = counted.max(*latest);
                *latest
            }
            // It goes back only where the clock is another paused one.
            None => self.tokio_now(),
        }
    }

    // Not inlined, so that reading the counter is.
    #[inline(never)]
    fn tokio_now(&self) -> Timestamp {
        let now = Instant::now();
        match now.checked_duration_since(self.made) {
            Some(since) => EPOCH + since,
            // The sum is rounded down, as above.
            None => EPOCH - Micros::rounded_up(self.made - now),
        }
    }
}

/// The stand-in for a `pause` that a module lacks.
#[allow(dead_code, reason = "tokio has one in the build of the tests")]
const fn pause() -> Absent {
    Absent
}

struct Absent;

/// Tells the results of two functions apart.
trait Returned {
    const IS_ANOTHER: bool;
}

impl Returned for () {
    const IS_ANOTHER: bool = true;
}

impl Returned for Absent {
    const IS_ANOTHER: bool = false;
}

const fn is_another<R: Returned>(_pause: fn() -> R) -> bool {
    R::IS_ANOTHER
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    mod pausable {
        pub(super) fn pause() {}
    }

    mod not_pausable {
        #[allow(dead_code)]
        pub(super) fn resume() {}
    }

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

    #[test]
    fn a_build_with_paused_clocks_is_known_from_one_without() {
        const { assert!(IS_PAUSABLE) };
        const { assert!(has_pause!(super::tests::pausable)) };
        const { assert!(!has_pause!(super::tests::not_pausable)) };
        assert!(Clock::new().counter.is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn tokio_s_clock_is_without_error() {
        let clock = Clock::new();
        assert_eq!(clock.surely_past(), clock.now());
    }

    #[test]
    fn the_time_since_one_that_is_surely_past_is_never_too_short() {
        let clock = Clock { counter: CounterClock::new(), ..Clock::new() };
        let start = std::time::Instant::now();
        // Several windows of the counter.
        while start.elapsed() < Duration::from_millis(20) {
            let past = clock.surely_past();
            let since = std::time::Instant::now();
            for _ in 0..100 {
                let elapsed = Micros::from(since.elapsed());
                assert!(clock.now() - past >= elapsed, "{elapsed:?} after {past:?}");
            }
        }
    }

    #[test]
    fn the_time_of_a_shard_does_not_go_back() {
        let clock = Clock { counter: Some(CounterClock::unchecked()), ..Clock::new() };
        let mut latest = Timestamp::default();
        let first = clock.ordered(clock.counted(), &mut latest);
        assert!(first >= EPOCH && latest == first);
        latest = first + Micros::from(HOUR);
        assert_eq!(clock.ordered(clock.counted(), &mut latest), first + Micros::from(HOUR));
        assert!(clock.now() < latest);
    }
}
