//! The processor's counter as a clock: less than half the cost of asking the system.

use std::time::Instant;

use super::anchor::{Reading, SharedAnchor};
use crate::time::Micros;

/// A clock of the whole store, not one for each shard: shards that are called rarely find it
/// anchored, and 256 anchors would not fit the first cache along with the keys.
pub(super) struct CounterClock {
    made: Instant,
    anchor: Box<SharedAnchor>,
}

impl CounterClock {
    /// Returns no clock where the counter is not to be trusted.
    pub(super) fn new() -> Option<Self> {
        hardware::is_trusted().then(Self::unchecked)
    }

    pub(super) fn unchecked() -> Self {
        let made = Instant::now();
        Self { made, anchor: Box::new(SharedAnchor::new(read(made))) }
    }

    /// Returns the time since the clock was made. It may be earlier by a microsecond than the one
    /// returned before.
    #[inline(always)]
    pub(super) fn now(&self) -> Micros {
        let counter = hardware::counter();
        let nanos = self.anchor.nanos_at(counter).unwrap_or_else(|| self.renew());
        Micros::new(nanos / 1_000)
    }

    /// Returns the system's time, and anchors the counter to it if that is due.
    #[cold]
    #[inline(never)]
    fn renew(&self) -> u64 {
        self.anchor.renew(|| read(self.made), hardware::is_trusted)
    }
}

fn read(made: Instant) -> Reading {
    let before = hardware::counter();
    // 584 years.
    let nanos = u64::try_from(made.elapsed().as_nanos()).unwrap_or(u64::MAX);
    Reading { before, nanos, after: hardware::counter() }
}

/// The counter of processors for which `std` asks the system, which costs twice as much. Elsewhere
/// `std` reads a counter itself.
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
mod hardware {
    use std::fs::read_to_string;

    #[cfg(target_arch = "aarch64")]
    pub(super) use tick_counter::aarch64_tick_counter as counter;
    #[cfg(target_arch = "x86_64")]
    pub(super) use tick_counter::x86_64_tick_counter as counter;

    /// Returns `true` if the kernel keeps time by this counter. It has checked then that the
    /// counter runs at one rate, on all processors alike, and chooses another clock when that ends.
    pub(super) fn is_trusted() -> bool {
        let source = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
        let counter = if cfg!(target_arch = "x86_64") { "tsc" } else { "arch_sys_counter" };
        read_to_string(source).is_ok_and(|name| name.trim_end() == counter)
    }
}

#[cfg(any(not(target_os = "linux"), not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
mod hardware {
    pub(super) fn counter() -> u64 {
        0
    }

    pub(super) fn is_trusted() -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counter_is_within_a_millisecond_of_the_system_s_clock() {
        let clock = CounterClock::unchecked();
        let elapsed = || u64::try_from(clock.made.elapsed().as_micros()).unwrap();
        let mut by_counter = 0;
        // Some milliseconds, unless the machine is busy.
        while by_counter < 10_000 && elapsed() < 10_000_000 {
            by_counter += u32::from(clock.anchor.nanos_at(hardware::counter()).is_some());
            let before = elapsed();
            let now = clock.now().get();
            let after = elapsed();
            assert!((before.saturating_sub(1_000)..=after + 1_000).contains(&now));
            if !hardware::is_trusted() {
                return;
            }
        }
        assert_eq!(by_counter, 10_000);
    }
}
