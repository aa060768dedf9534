//! The demand of one key's calls in this process.

use crate::time::{Micros, Timestamp};

/// The units that calls ask for, by the lengths of two leases.
#[derive(Clone, Copy, Debug)]
pub(super) struct Demand {
    length: Micros,
    /// The units since the last lease.
    pub(super) asked: u64,
    since: Timestamp,
    /// The units in the length of a lease before that.
    before: Option<u64>,
}

impl Demand {
    pub(super) fn new(length: Micros, now: Timestamp) -> Self {
        Self { length, asked: 0, since: now, before: None }
    }

    pub(super) fn add(&mut self, units: u32) {
        self.asked += u64::from(units);
    }

    /// Returns the units that are asked for in the length of a lease: the mean of the last two.
    /// Starts a new count.
    pub(super) fn end(&mut self, now: Timestamp) -> u64 {
        // A short burst is no measure of a whole lease.
        let passed = (now - self.since).max(Micros::new(self.length.get() / 4)).get().max(1);
        let present = self.asked.saturating_mul(self.length.get()).div_ceil(passed);
        let before = self.before.replace(present).unwrap_or(present);
        (self.asked, self.since) = (0, now);
        present.midpoint(before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_mean_of_the_last_two_leases() {
        let at = |micros: u64| Timestamp::new(1_000_000 + micros);
        let mut demand = Demand::new(Micros::new(1_000), at(0));
        demand.add(10);
        assert_eq!((demand.asked, demand.end(at(1_000))), (10, 10));
        assert_eq!((demand.asked, demand.end(at(2_000))), (0, 5));
        // 30 in 3 ms are 10 in one.
        demand.add(30);
        assert_eq!(demand.end(at(5_000)), 5);
        // Half a lease counts as twice its units, a moment as a quarter of a lease.
        demand.add(30);
        assert_eq!(demand.end(at(5_500)), 35);
        demand.add(1);
        assert_eq!(demand.end(at(5_501)), 32);
    }
}
