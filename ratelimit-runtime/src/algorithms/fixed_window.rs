//! The fixed window in plain Rust: the same rule as `store/redis/fixed_window.lua`.

use super::{
    packed::{Period, Time, Units},
    per_tier::{Entry, Moment, Verdict},
    summary::Summary,
};
use crate::{
    policy::{Policy, Tier},
    request::{Detail, Mark, Request},
    time::{Micros, Timestamp},
};

/// A window that holds nothing is not open.
///
/// Invariant: an open window counts every unit recorded since its start, whichever policy decides.
#[derive(Clone, Copy)]
pub(crate) struct Window {
    period: Micros,
    /// 0: as long as the state.
    since: Timestamp,
    start: Timestamp,
    count: u32,
}

impl Entry for Window {
    type Packed = (Period, Time, Time, Units);
    const NONE: Self::Packed = (Period::ZERO, Time::ZERO, Time::ZERO, Units::ZERO);

    #[inline]
    fn unpack((period, last, start, count): Self::Packed) -> Option<(Timestamp, Self)> {
        let (start, count) = (start.get(), count.count());
        let window = Self { period: period.get(), since: Timestamp::default(), start, count };
        (window.period > Micros::ZERO).then_some((last.get(), window))
    }

    #[inline]
    fn pack(self, last: Timestamp) -> Self::Packed {
        let (start, count) = (Time::new(self.start), Units::new(self.count.into()));
        (Period::new(self.period), Time::new(last), start, count)
    }

    #[inline]
    fn new(_: &Policy, tier: Tier, now: Timestamp) -> Self {
        Self { period: tier.micros(), since: Timestamp::default(), start: now, count: 0 }
    }

    #[inline]
    fn is_same(&self, other: &Self) -> bool {
        self.period == other.period
    }

    /// The fullest of the others, open since its start, or since the last unit, if that start is too
    /// long ago.
    fn carried(self, others: &[Self], last: Timestamp, now: Timestamp) -> Self {
        let is_open = |start: Timestamp| now < start + self.period;
        let open = others.iter().filter(|window| window.count > 0).filter_map(|window| {
            let start = if is_open(window.start) { window.start } else { last };
            is_open(start).then_some((window.count, start))
        });
        let (count, start) = open.max().unwrap_or((0, now));
        Self { since: now, start, count, ..self }
    }

    #[inline]
    fn see(moment: &mut Moment, entries: &mut [Self], now: Timestamp) -> bool {
        // A clock that stepped back leaves windows in the future; from here on they are of now.
        let mut ahead = false;
        for window in entries {
            ahead |= window.start > now;
            *window = window.at(now);
        }
        moment.last = moment.last.min(now);
        ahead
    }

    #[inline]
    fn judge(
        moment: &mut Moment,
        (own, others): (&mut [Self], &mut [Self]),
        now: Timestamp,
        request: Request<'_>,
        detail: Detail,
    ) -> Verdict {
        let Request { policy, cost, .. } = request;
        let tiers = policy.tiers();
        let has_room = |(window, tier): (&Self, &Tier)| window.has_room(*tier, cost);
        let admitted = own.iter().zip(tiers).all(has_room);
        let mut verdict = Summary::new(admitted, detail);
        for (index, (tier, window)) in tiers.iter().zip(&mut *own).enumerate() {
            if admitted {
                window.count += cost;
            }
            let ends = window.ends(now);
            verdict.tier(index, ends, || {
                let left = tier.threshold().saturating_sub(window.count);
                (left, if admitted || !window.has_room(*tier, cost) { ends } else { Micros::ZERO })
            });
        }
        let mark = Mark { at: now, charged: moment.generation.charged() };
        let mut outcome = verdict.outcome(mark, cost, |units| {
            let full = tiers.iter().zip(&*own).filter(|it| !it.1.has_room(*it.0, units));
            full.map(|(_, window)| window.ends(now)).max().unwrap_or_default()
        });
        for window in others {
            if admitted {
                window.count = window.count.saturating_add(cost);
            }
            outcome.lasts = outcome.lasts.max(window.ends(now));
        }
        if admitted {
            moment.last = now;
        }
        Verdict { outcome, is_taken: admitted }
    }

    fn refund(&mut self, _: Timestamp, cost: u32, at: Timestamp) {
        if self.since <= at && self.start <= at {
            self.count = self.count.saturating_sub(cost);
        }
    }
}

impl Window {
    /// The window as it is now: if it is over, a new one.
    #[inline]
    fn at(self, now: Timestamp) -> Self {
        let start = self.start.min(now);
        let open = self.count > 0 && now < start + self.period;
        if open { Self { start, ..self } } else { Self { start: now, count: 0, ..self } }
    }

    fn has_room(self, tier: Tier, units: u32) -> bool {
        units == 0 || u64::from(self.count) + u64::from(units) <= u64::from(tier.threshold())
    }

    /// How long until the window is over, if it is open.
    fn ends(self, now: Timestamp) -> Micros {
        if self.count > 0 { self.start + self.period - now } else { Micros::ZERO }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::algorithms::{State, tests::take};

    const SECOND: u64 = 1_000_000;
    const POLICY: Policy = Policy::fixed_window("p", Duration::from_secs(10), 1);

    #[test]
    fn a_clock_set_back_refuses_for_one_window_at_the_most() {
        let mut state = State::new(POLICY.algorithm());
        let mut admits = |now| take(&mut state, &POLICY, now, 1).admitted;
        assert!(admits(1_000 * SECOND));
        // It is of now from the first call on, also of one that is refused.
        assert!(!admits(500 * SECOND));
        assert!(!admits(510 * SECOND - 1));
        assert!(admits(510 * SECOND));
    }
}
