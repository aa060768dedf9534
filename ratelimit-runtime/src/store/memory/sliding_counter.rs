//! The sliding counter in plain Rust: the same rule as `store/redis/sliding_counter.lua`.

use super::per_tier::PerTier;
use crate::{
    policy::Tier,
    rules::MAX_TIERS,
    store::{Outcome, Refund, Request, verdict::Verdict},
};

/// One pair of windows for each tier.
#[derive(Default)]
pub(super) struct SlidingCounter {
    counters: PerTier<Counter>,
}

/// The window that starts at `start`, a multiple of the period, and the one before it.
#[derive(Clone, Copy, Default)]
struct Counter {
    start: u64,
    previous: u32,
    current: u32,
}

impl SlidingCounter {
    #[inline(never)]
    pub(super) fn decide(&mut self, now: u64, request: Request<'_>, looks: bool) -> Outcome {
        let Request { policy, cost, record, .. } = request;
        let tiers = policy.tiers();
        let stored: &[Counter] = &self.counters;
        let mut counters = [Counter::default(); MAX_TIERS];
        let (mut admitted, mut ahead) = (true, false);
        for (index, (tier, counter)) in tiers.iter().zip(&mut counters).enumerate() {
            let last = stored.get(index).copied().unwrap_or_default();
            *counter = last.at(now, *tier);
            admitted &= cost == 0 || counter.has_room(now, *tier, cost);
            // A window of the future, left by a clock that stepped back, is one of now from here on.
            ahead |= last.start > counter.start;
        }
        let taken = admitted || policy.counts_rejected();

        let mut verdict = Verdict::new(admitted, looks);
        for (index, (tier, counter)) in tiers.iter().zip(&mut counters).enumerate() {
            if taken {
                counter.current = counter.current.saturating_add(cost).min(tier.threshold());
            }
            verdict.tier(index, counter.wait(now, *tier, tier.threshold()), || {
                let left = counter.left(now, *tier);
                let wanted = if admitted { left.saturating_add(1) } else { cost };
                (left, counter.wait(now, *tier, wanted.min(tier.threshold())))
            });
        }
        if record && (taken || ahead) {
            self.counters.put(&counters[..tiers.len()]);
        }
        verdict.outcome(now, cost, |units| {
            let until = |(tier, counter): (&Tier, &Counter)| {
                counter.wait(now, *tier, units.min(tier.threshold()))
            };
            tiers.iter().zip(&counters).map(until).max().unwrap_or(0)
        })
    }

    /// The bytes that it takes more on the heap to record a call of so many tiers.
    #[inline]
    pub(super) fn growth(&self, tiers: usize) -> usize {
        self.counters.growth(tiers)
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.counters.heap_bytes()
    }

    /// Gives units back to the windows that they were counted in.
    pub(super) fn refund(&mut self, refund: Refund<'_>) {
        let Refund { policy, cost, mark, .. } = refund;
        for (counter, tier) in self.counters.iter_mut().zip(policy.tiers()) {
            let start = mark - mark % tier.micros();
            if start == counter.start {
                counter.current = counter.current.saturating_sub(cost);
            } else if start + tier.micros() == counter.start {
                counter.previous = counter.previous.saturating_sub(cost);
            }
        }
    }
}

impl Counter {
    /// The two windows as they are now. What a lowered threshold leaves too large counts as the
    /// threshold: all products stay exact.
    fn at(self, now: u64, tier: Tier) -> Self {
        let (period, threshold) = (tier.micros(), tier.threshold());
        let start = now - now % period;
        let (previous, current) = match start.saturating_sub(self.start) {
            0 => (self.previous, self.current),
            passed if passed <= period => (self.current, 0),
            _ => (0, 0),
        };
        Self { start, previous: previous.min(threshold), current: current.min(threshold) }
    }

    /// What the two windows weigh together, rounded up to whole units.
    fn used(self, now: u64, tier: Tier) -> u64 {
        let (tick, ticks) = (tier.tick(), tier.micros() / tier.tick());
        // Less time left than there is would be less weight: it is rounded up.
        let time = (self.start + tier.micros() - now).div_ceil(tick).min(ticks);
        u64::from(self.current) + (u64::from(self.previous) * time).div_ceil(ticks)
    }

    fn has_room(self, now: u64, tier: Tier, units: u32) -> bool {
        self.used(now, tier) + u64::from(units) <= u64::from(tier.threshold())
    }

    /// The units that can be had.
    fn left(self, now: u64, tier: Tier) -> u32 {
        let left = u64::from(tier.threshold()).saturating_sub(self.used(now, tier));
        u32::try_from(left).unwrap_or(u32::MAX)
    }

    /// How long until this many units, at most the threshold, can be had.
    fn wait(self, now: u64, tier: Tier, units: u32) -> u64 {
        let (period, tick) = (tier.micros(), tier.tick());
        if self.has_room(now, tier, units) {
            return 0;
        }
        let end = self.start + period - now;
        // The most ticks with which `count`, weighted, leaves room for `free` units.
        let most = |count: u32, free: u32| {
            u64::from(free) * (period / tick) / u64::from(count.max(1)) * tick
        };
        match (tier.threshold() - units).checked_sub(self.current) {
            // In this window, when what is left of it is short enough; at its end at the latest.
            Some(free) => end - most(self.previous, free),
            // In the next one, in which the current units weigh, or at its end.
            None => end + period - most(self.current, tier.threshold() - units),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::policy::Policy;

    const SECOND: u64 = 1_000_000;
    const POLICY: Policy = Policy::sliding_counter("p", Duration::from_secs(10), 4);

    fn take(counter: &mut SlidingCounter, now: u64, cost: u32) -> Outcome {
        let request = Request { policy: &POLICY, cost, record: true, id: None };
        counter.decide(now, request, true)
    }

    #[test]
    fn units_are_given_back_to_the_window_they_were_counted_in() {
        let refund = |counter: &mut SlidingCounter, mark| {
            counter.refund(Refund { policy: &POLICY, cost: 2, mark, id: None });
        };
        let mut counter = SlidingCounter::default();
        let early = take(&mut counter, 105 * SECOND, 2).mark;
        let late = take(&mut counter, 112 * SECOND, 2).mark;
        // Of the two before, eight tenths count.
        assert!(!take(&mut counter, 112 * SECOND, 1).admitted);
        refund(&mut counter, early);
        assert!(take(&mut counter, 112 * SECOND, 2).admitted);
        assert!(!take(&mut counter, 112 * SECOND, 1).admitted);
        refund(&mut counter, late);
        assert_eq!(take(&mut counter, 112 * SECOND, 1).remaining, 1);
        // What has left both windows is given back no more.
        refund(&mut counter, 95 * SECOND);
        assert!(take(&mut counter, 112 * SECOND, 1).admitted);
        assert!(!take(&mut counter, 112 * SECOND, 1).admitted);
    }

    #[test]
    fn a_clock_set_back_refuses_for_two_windows_at_the_most() {
        let mut counter = SlidingCounter::default();
        assert!(take(&mut counter, 1_000 * SECOND, 4).admitted);
        // It is of now from the first call on, also of one that is refused.
        assert!(!take(&mut counter, 500 * SECOND, 1).admitted);
        assert!(take(&mut counter, 519 * SECOND, 1).admitted);
        assert!(take(&mut counter, 520 * SECOND, 3).admitted);
    }
}
