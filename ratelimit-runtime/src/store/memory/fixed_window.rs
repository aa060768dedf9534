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
    #[inline]
    pub(super) fn decide(&mut self, now: u64, request: Request<'_>) -> Outcome {
        let Request { policy, cost, record, .. } = request;
        let tiers = policy.tiers();
        let stored = |index: usize| self.windows.get(index).copied().unwrap_or_default();
        let mut working = [Window::default(); MAX_TIERS];
        let windows = &mut working[..tiers.len()];
        for (index, (window, tier)) in windows.iter_mut().zip(tiers).enumerate() {
            *window = stored(index).at(now, *tier);
        }
        let fits = |(window, tier): (&Window, &Tier)| {
            u64::from(window.count) + u64::from(cost) <= u64::from(tier.threshold())
        };
        let admitted = windows.iter().zip(tiers).all(fits);
        if admitted {
            for window in &mut *windows {
                window.count += cost;
            }
        }

        let mut verdict = Verdict::new(admitted);
        for (index, (window, tier)) in (0..).zip(windows.iter().zip(tiers)) {
            let left = tier.threshold().saturating_sub(window.count);
            let ends = if window.count > 0 { window.start + tier.micros() - now } else { 0 };
            let wait = if admitted || !fits((window, tier)) { ends } else { 0 };
            verdict.tier(index, left, wait, ends);
        }
        // A clock that stepped back leaves windows in the future; from here on they are of now.
        let ahead = self.windows.iter().any(|window| window.start > now);
        if record && (admitted || ahead) {
            self.windows.keep(windows.iter().copied());
        }
        verdict.outcome(now)
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
    fn at(self, now: u64, tier: Tier) -> Self {
        let start = self.start.min(now);
        let open = self.count > 0 && now < start + tier.micros();
        if open { Self { start, ..self } } else { Self { start: now, count: 0 } }
    }
}
