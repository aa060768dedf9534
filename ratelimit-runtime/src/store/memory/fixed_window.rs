//! The fixed window in plain Rust: the same rule as `store/redis/fixed_window.lua`.

use super::per_tier::PerTier;
use crate::{
    policy::Tier,
    rules::MAX_TIERS,
    store::{Outcome, Refund, Request, verdict::Verdict},
};

/// One window for each tier.
#[derive(Default)]
pub(super) struct FixedWindow {
    windows: PerTier<Window>,
}

/// A window that holds nothing is not open.
#[derive(Clone, Copy, Default)]
struct Window {
    start: u64,
    count: u32,
}

impl FixedWindow {
    #[inline(never)]
    pub(super) fn decide(&mut self, now: u64, request: Request<'_>, looks: bool) -> Outcome {
        let Request { policy, cost, record, .. } = request;
        let tiers = policy.tiers();
        // A clock that stepped back leaves windows in the future; from here on they are of now.
        let ahead = self.windows.iter().any(|window| window.start > now);
        let stored: &[Window] = &self.windows;
        let (mut windows, mut admitted) = ([Window::default(); MAX_TIERS], true);
        for (index, (tier, window)) in tiers.iter().zip(&mut windows).enumerate() {
            *window = Window::at(stored.get(index), now, *tier);
            admitted &= cost == 0 || window.has_room(*tier, cost);
        }

        let mut verdict = Verdict::new(admitted, looks);
        for (index, (tier, window)) in tiers.iter().zip(&mut windows).enumerate() {
            if admitted {
                window.count += cost;
            }
            let ends = window.ends(now, *tier);
            verdict.tier(index, ends, || {
                let left = tier.threshold().saturating_sub(window.count);
                (left, if admitted || !window.has_room(*tier, cost) { ends } else { 0 })
            });
        }
        if record && (admitted || ahead) {
            self.windows.put(&windows[..tiers.len()]);
        }
        verdict.outcome(now, cost, |units| {
            let full = tiers.iter().zip(&windows).filter(|it| !it.1.has_room(*it.0, units));
            full.map(|(tier, window)| window.ends(now, *tier)).max().unwrap_or(0)
        })
    }

    /// The bytes that it takes more on the heap to record a call of so many tiers.
    #[inline]
    pub(super) fn growth(&self, tiers: usize) -> usize {
        self.windows.growth(tiers)
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.windows.heap_bytes()
    }

    /// Gives units back to the windows that were open when they were taken, and still are.
    pub(super) fn refund(&mut self, refund: Refund<'_>) {
        for window in self.windows.iter_mut() {
            if window.start <= refund.mark {
                window.count = window.count.saturating_sub(refund.cost);
            }
        }
    }
}

impl Window {
    /// The window that is open now, or a new one.
    fn at(stored: Option<&Self>, now: u64, tier: Tier) -> Self {
        let Self { start, count } = stored.copied().unwrap_or_default();
        let start = start.min(now);
        let open = count > 0 && now < start + tier.micros();
        if open { Self { start, count } } else { Self { start: now, count: 0 } }
    }

    fn has_room(self, tier: Tier, units: u32) -> bool {
        u64::from(self.count) + u64::from(units) <= u64::from(tier.threshold())
    }

    /// How long until the window is over, if it is open.
    fn ends(self, now: u64, tier: Tier) -> u64 {
        if self.count > 0 { self.start + tier.micros() - now } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::policy::Policy;

    const SECOND: u64 = 1_000_000;
    const POLICY: Policy = Policy::fixed_window("p", Duration::from_secs(10), 1);

    #[test]
    fn a_clock_set_back_refuses_for_one_window_at_the_most() {
        let mut window = FixedWindow::default();
        let request = Request { policy: &POLICY, cost: 1, record: true, id: None };
        let mut admits = |now| window.decide(now, request, true).admitted;
        assert!(admits(1_000 * SECOND));
        // It is of now from the first call on, also of one that is refused.
        assert!(!admits(500 * SECOND));
        assert!(!admits(510 * SECOND - 1));
        assert!(admits(510 * SECOND));
    }
}
