//! The entries of a state: what one tier counts.

use super::Tier;

/// An open window: its start and the units in it; none if it is not open.
#[derive(Clone, Debug)]
pub(super) struct Window {
    pub(super) period: u64,
    pub(super) open: Option<(u64, u64)>,
    /// The times of the charges whose units it has.
    pub(super) charges: Vec<u64>,
    /// The time at which it was seen last.
    seen: u64,
    /// After a clock has stepped back, all charges from the start on are its own.
    is_by_time: bool,
}

/// The number of a window since the epoch, the units in the window before it, and its own.
#[derive(Clone, Debug)]
pub(super) struct Counter {
    pub(super) period: u64,
    pub(super) window: u64,
    pub(super) previous: u64,
    pub(super) current: u64,
    /// The times of the charges whose units both windows have, and of those that its own one has.
    in_both: Vec<u64>,
    in_current: Vec<u64>,
    /// After a clock has stepped back, the charges of a window are those of its time.
    is_by_time: bool,
}

/// The time of the last update of a bucket, and its level. A token has as many parts as the period
/// has microseconds; each microsecond refills as many parts as the threshold.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bucket {
    pub(super) tier: Tier,
    /// Charges are its own from then on.
    pub(super) since: u64,
    pub(super) at: u64,
    /// Below 0 it is a debt.
    pub(super) level: i128,
    /// The parts that it lacks because of earlier charges.
    pub(super) carried: i128,
    /// The tokens that charges have not found, and the last of these.
    pub(super) untaken: (u64, u64),
}

impl Window {
    pub(super) fn see(&mut self, now: u64) {
        self.is_by_time |= now < self.seen;
        self.seen = now;
        let open = self.open.map(|(start, units)| (start.min(now), units));
        self.open = open.filter(|(start, _)| now < start + self.period);
        if self.open.is_none() {
            self.charges.clear();
        }
    }

    /// Gives back units of a charge.
    pub(super) fn lower(&mut self, charged: u64, units: u64) {
        let is_later = |(start, _)| start <= charged;
        let has_it = if self.is_by_time {
            self.open.is_some_and(is_later)
        } else {
            self.charges.contains(&charged)
        };
        if has_it {
            let left = self.open.map(|(start, held)| (start, held.saturating_sub(units)));
            self.open = left.filter(|(_, held)| *held > 0);
        }
    }

    /// The fullest of the others, since its start or since the last unit.
    pub(super) fn carried(period: u64, held: &[Self], last: u64, now: u64) -> Self {
        let is_open = |start: u64| now < start + period;
        let open = held.iter().rev().filter_map(|it| {
            let (start, units) = it.open?;
            let start = if is_open(start) { start } else { last };
            is_open(start).then_some((units, start, &it.charges))
        });
        let fullest = open.max_by_key(|(units, start, _)| (*units, *start));
        let (open, charges) = match fullest {
            Some((units, start, charges)) => (Some((start, units)), charges.clone()),
            None => Default::default(),
        };
        Self { period, open, charges, seen: now, is_by_time: false }
    }
}

impl Counter {
    pub(super) fn see(&mut self, now: u64) {
        let window = now / self.period;
        for _ in self.window..window.min(self.window + 2) {
            (self.previous, self.current) = (self.current, 0);
            self.in_both = std::mem::take(&mut self.in_current);
        }
        self.is_by_time |= window < self.window;
        self.window = window;
    }

    /// Adds a charge to those whose units the own window has.
    pub(super) fn charge(&mut self, at: u64) {
        self.in_both.push(at);
        self.in_current.push(at);
    }

    /// The known units of both windows, at least.
    pub(super) fn carried(period: u64, held: &[Self], last: u64, now: u64) -> Self {
        let window = now / period;
        let known_since = |at: u64| {
            if last < at {
                return (0, Vec::new());
            }
            let both = |it: &Self| (it.previous + it.current, it.in_both.clone());
            let known = held.iter().filter_map(|it| match it.window * it.period {
                start if start <= at => Some((it.current, it.in_current.clone())),
                start if start.saturating_sub(it.period) <= at => Some(both(it)),
                _ => None,
            });
            let all = held.iter().rev().map(both);
            let known = known.min_by_key(|(units, _)| *units);
            known.or(all.max_by_key(|(units, _)| *units)).unwrap_or_default()
        };
        let (current, in_current) = known_since(window * period);
        let (both, in_both) = known_since((window * period).saturating_sub(period));
        let most = |units: u64| units.min(u32::MAX.into());
        let previous = most(both.saturating_sub(current));
        let (current, is_by_time) = (most(current), false);
        Self { period, window, previous, current, in_both, in_current, is_by_time }
    }

    /// Gives back units of a charge.
    pub(super) fn lower(&mut self, charged: u64, units: u64) {
        let its_window = charged / self.period;
        let [in_both, in_current] = if self.is_by_time {
            let in_current = its_window == self.window;
            [in_current || its_window + 1 == self.window, in_current]
        } else {
            [&self.in_both, &self.in_current].map(|charges| charges.contains(&charged))
        };
        if in_both {
            let held = if in_current { &mut self.current } else { &mut self.previous };
            *held = held.saturating_sub(units);
        }
    }
}

impl Bucket {
    pub(super) fn see(&mut self, now: u64) {
        if now < self.at {
            self.since = self.since.min(now);
        }
        let refilled = i128::from(now.saturating_sub(self.at)) * i128::from(self.tier.threshold);
        (self.level, self.at) = ((self.level + refilled).min(full(self.tier)), now);
        self.carried = self.carried.min(full(self.tier) - self.level);
    }

    /// The fewest whole tokens of all.
    pub(super) fn carried(tier: Tier, held: &[Self], last: u64, now: u64) -> Self {
        let tokens = held.iter().map(|it| it.level.div_euclid(it.tier.period.into())).min();
        let level = tokens.map_or(full(tier), |tokens| tokens * i128::from(tier.period));
        let level = bounded(tier, level);
        let smallest = held.iter().map(|it| it.tier.capacity).fold(tier.capacity, u32::min);
        let newest = held.iter().map(|it| it.since).fold(last, u64::max);
        let since = if held.is_empty() { 0 } else { now.max(newest + 1) };
        let carried = parts(tier, smallest.into()) - level;
        Self { tier, since, at: now, level, carried, untaken: (0, 0) }
    }

    /// Takes tokens as far as there are any, for a charge of this time.
    pub(super) fn follow(&mut self, tokens: u128, charged: u64) {
        let found = self.level.max(0).unsigned_abs() / u128::from(self.tier.period);
        let missing = u64::try_from(tokens.saturating_sub(found)).expect("a number of units");
        if missing > 0 {
            self.untaken = ((self.untaken.0 + missing).min(u32::MAX.into()), charged);
        }
        self.take(tokens);
    }

    pub(super) fn take(&mut self, tokens: u128) {
        self.level = (self.level - parts(self.tier, tokens)).max(self.level.min(0));
    }

    /// Gives back what it has of a charge, at most the limit of an earlier one than its own.
    /// Returns the units.
    fn lower(&mut self, charged: u64, units: u64, limit: u64) -> u64 {
        let is_own = self.since <= charged;
        let mut units = if is_own { units } else { limit };
        if charged <= self.untaken.1 {
            let untaken = self.untaken.0.min(units);
            (self.untaken.0, units) = (self.untaken.0 - untaken, units - untaken);
        }
        let most = parts(self.tier, units.into());
        let back = if is_own { most } else { most.min(self.carried) };
        if !is_own {
            self.carried -= back;
            units = u64::try_from(back / i128::from(self.tier.period)).expect("a number of units");
        }
        self.level = bounded(self.tier, self.level + back);
        units
    }
}

/// Gives back units of a charge. A bucket has taken over no more of it than those that were there
/// before.
pub(super) fn give_back(buckets: &mut [Bucket], charged: u64, units: u64) {
    let mut oldest_first: Vec<_> = buckets.iter_mut().collect();
    oldest_first.sort_by_key(|it| it.since);
    let mut given: Vec<(u64, u64)> = Vec::new();
    for it in oldest_first {
        let older = given.iter().filter(|(since, _)| *since < it.since);
        let limit = older.map(|(_, units)| *units).min().unwrap_or(units);
        given.push((it.since, it.lower(charged, units, limit)));
    }
}

pub(super) fn parts(tier: Tier, tokens: u128) -> i128 {
    i128::try_from(tokens).expect("a number of units") * i128::from(tier.period)
}

pub(super) fn full(tier: Tier) -> i128 {
    parts(tier, tier.capacity.into())
}

/// A bucket's debt is at most one full bucket, and both together are at most 2^53 of the store's
/// parts.
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
