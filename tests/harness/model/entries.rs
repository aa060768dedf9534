//! The entries of a state: what one tier counts.

use super::Tier;

/// An open window: its start and the units in it; none if it is not open.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    pub(super) period: u64,
    pub(super) since: u64,
    pub(super) open: Option<(u64, u64)>,
}

/// The number of a window since the epoch, the units in the window before it, and its own.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counter {
    pub(super) period: u64,
    pub(super) since: u64,
    pub(super) window: u64,
    pub(super) previous: u64,
    pub(super) current: u64,
}

/// The time of the last update of a bucket, and its level. A token has as many parts as the period has
/// microseconds; each microsecond refills as many parts as the threshold.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bucket {
    pub(super) tier: Tier,
    pub(super) since: u64,
    pub(super) at: u64,
    /// Below 0 it is a debt.
    pub(super) level: i128,
}

impl Window {
    pub(super) fn see(&mut self, now: u64) {
        let open = self.open.map(|(start, units)| (start.min(now), units));
        self.open = open.filter(|(start, _)| now < start + self.period);
    }

    /// The fullest of the others, since its start or since the last unit.
    pub(super) fn carried(period: u64, held: &[Self], last: u64, now: u64) -> Self {
        let is_open = |start: u64| now < start + period;
        let open = held.iter().filter_map(|it| it.open).filter_map(|(start, units)| {
            let start = if is_open(start) { start } else { last };
            is_open(start).then_some((units, start))
        });
        let since = if held.is_empty() { 0 } else { now };
        Self { period, since, open: open.max().map(|(units, start)| (start, units)) }
    }
}

impl Counter {
    pub(super) fn see(&mut self, now: u64) {
        let window = now / self.period;
        if window == self.window + 1 {
            (self.previous, self.current) = (self.current, 0);
        } else if window > self.window {
            (self.previous, self.current) = (0, 0);
        }
        self.window = window;
    }

    /// The known units of both windows, at least.
    pub(super) fn carried(period: u64, held: &[Self], last: u64, now: u64) -> Self {
        let window = now / period;
        let known_since = |at: u64| {
            if last < at {
                return 0;
            }
            let known = held.iter().filter_map(|it| match it.window * it.period {
                start if start <= at => Some(it.current),
                start if start.saturating_sub(it.period) <= at => Some(it.previous + it.current),
                _ => None,
            });
            let all = held.iter().map(|it| it.previous + it.current);
            known.min().or(all.max()).unwrap_or(0)
        };
        let current = known_since(window * period);
        let both = known_since((window * period).saturating_sub(period));
        let since = if held.is_empty() { 0 } else { now };
        let most = |units: u64| units.min(u32::MAX.into());
        let previous = most(both.saturating_sub(current));
        Self { period, since, window, previous, current: most(current) }
    }
}

impl Bucket {
    pub(super) fn see(&mut self, now: u64) {
        let refilled = i128::from(now.saturating_sub(self.at)) * i128::from(self.tier.threshold);
        (self.level, self.at) = ((self.level + refilled).min(full(self.tier)), now);
    }

    /// The fewest whole tokens of all.
    pub(super) fn carried(tier: Tier, held: &[Self], now: u64) -> Self {
        let tokens = held.iter().map(|it| it.level.div_euclid(it.tier.period.into())).min();
        let level = tokens.map_or(full(tier), |tokens| tokens * i128::from(tier.period));
        let since = if held.is_empty() { 0 } else { now };
        Self { tier, since, at: now, level: bounded(tier, level) }
    }

    pub(super) fn take(&mut self, tokens: u128) {
        self.level = (self.level - parts(self.tier, tokens)).max(self.level.min(0));
    }
}

pub(super) fn parts(tier: Tier, tokens: u128) -> i128 {
    i128::try_from(tokens).expect("a number of units") * i128::from(tier.period)
}

pub(super) fn full(tier: Tier) -> i128 {
    parts(tier, tier.capacity.into())
}

/// A bucket's debt is at most one full bucket, and both together are at most 2^53 of the store's parts.
pub(super) fn bounded(tier: Tier, level: i128) -> i128 {
    let (mut a, mut b) = (tier.period, u64::from(tier.threshold));
    while b > 0 {
        (a, b) = (b, a % b);
    }
    let debt = full(tier).min((1 << 53) * i128::from(a) - full(tier));
    level.max(-debt).min(full(tier))
}

/// Buckets of one rate and size are one.
pub(super) fn is_same_bucket(one: Tier, other: Tier) -> bool {
    let rate = |a: Tier, b: Tier| u128::from(a.threshold) * u128::from(b.period);
    rate(one, other) == rate(other, one) && one.capacity == other.capacity
}
