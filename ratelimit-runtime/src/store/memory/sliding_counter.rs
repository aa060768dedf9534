//! The sliding counter in plain Rust: the same rule as `store/redis/sliding_counter.lua`.

use super::per_tier::PerTier;
use crate::{
    policy::Tier,
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
    #[inline]
    pub(super) fn decide(&mut self, now: u64, request: Request<'_>) -> Outcome {
        let Request { policy, cost, record, .. } = request;
        let tiers = policy.tiers();
        let current = |counters: &PerTier<Counter>, index: usize, tier: &Tier| {
            counters.get(index).copied().unwrap_or_default().at(now, *tier)
        };
        // A window of the future, left by a clock that stepped back, is one of now from here on.
        let is_ahead =
            |(counter, tier): (&Counter, &Tier)| counter.start > counter.at(now, *tier).start;
        let ahead = self.counters.iter().zip(tiers).any(is_ahead);
        let admitted = (tiers.iter().enumerate())
            .all(|(index, tier)| current(&self.counters, index, tier).wait(now, *tier, cost) == 0);
        let taken = admitted || policy.counts_rejected();
        let kept = record && (taken || ahead);
        if kept {
            self.counters.fit(tiers, |_| Counter::default());
        }

        let mut verdict = Verdict::new(admitted);
        for (index, tier) in tiers.iter().enumerate() {
            let mut counter = current(&self.counters, index, tier);
            if taken {
                counter.current = counter.current.saturating_add(cost).min(tier.threshold());
            }
            if kept {
                self.counters[index] = counter;
            }
            let left = counter.left(now, *tier);
            let wanted = if admitted { left.saturating_add(1) } else { cost };
            let wait = counter.wait(now, *tier, wanted.min(tier.threshold()));
            verdict.tier(index, left, wait, counter.wait(now, *tier, tier.threshold()));
        }
        verdict.outcome(now)
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
        let (previous, current) = match (now / period).saturating_sub(self.start / period) {
            0 => (self.previous, self.current),
            1 => (self.current, 0),
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

    /// The units that can be had.
    fn left(self, now: u64, tier: Tier) -> u32 {
        let left = u64::from(tier.threshold()).saturating_sub(self.used(now, tier));
        u32::try_from(left).unwrap_or(u32::MAX)
    }

    /// How long until this many units, at most the threshold, can be had.
    fn wait(self, now: u64, tier: Tier, units: u32) -> u64 {
        let (period, tick) = (tier.micros(), tier.tick());
        if self.used(now, tier) + u64::from(units) <= u64::from(tier.threshold()) {
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
