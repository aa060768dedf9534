//! The exact log in plain Rust: the same rule as `sliding_window.lua`.

use super::{
    request_ids::{self, NamedCharge, RequestIds},
    summary::outcome_of,
    timestamps::{Ring, Timestamps},
};
use crate::{
    policy::Tier,
    request::{Mark, Op, Outcome, OutcomeKind, Request, Settle},
    time::{Micros, Timestamp},
};

/// The time of each unit; never more units than the largest threshold.
///
/// Invariant: the newest units are kept, up to the largest threshold of all policies that have
/// written to the log. No unit that one of them counts is missing.
#[cfg_attr(test, derive(Clone, Debug, PartialEq))]
pub(crate) enum Log {
    Plain(Timestamps),
    /// With the request ids of charged calls. Few logs have any; the others have no room for them.
    WithIds(Box<(Timestamps, RequestIds)>),
}

/// The log during a decision, including the call's own units once they are recorded.
struct View<'a> {
    ring: Ring<'a>,
    now: Timestamp,
    own: usize,
    capacity: usize,
    /// The time of an earlier charge under the same request id.
    charged: Option<Timestamp>,
    admitted: bool,
}

impl Default for Log {
    fn default() -> Self {
        Self::Plain(Timestamps::default())
    }
}

impl Log {
    /// Decides a call.
    pub(crate) fn decide(&mut self, now: Timestamp, request: Request<'_>) -> Outcome {
        let Request { policy, written, op, id, .. } = request;
        let view = self.view(now, request);
        let reset = view.leaves(0, policy.longest_period());
        let charged = self.stamps().generation().charged();
        let mark = Mark { at: view.charged.unwrap_or(now), charged };
        let mut outcome = outcome_of(
            request,
            view.admitted,
            mark,
            |_, tier| (tier.threshold().saturating_sub(view.live(*tier)), reset),
            |_, tier, units| view.wait(*tier, units),
        );
        // The units count again when an override is removed.
        outcome.lasts = view.leaves(0, policy.longest_period().max(written.longest_period()));
        let View { own, capacity, charged, .. } = view;
        if charged.is_some() {
            outcome.kind = OutcomeKind::Repeated;
        }
        if op == Op::Take {
            self.record(now, own, capacity, id);
        }
        outcome
    }

    /// Returns the time of the newest unit.
    #[inline]
    pub(super) fn newest(&self) -> Option<Timestamp> {
        self.stamps().ring().newest(0)
    }

    /// Returns the bytes by which the heap grows if the call is decided now.
    #[inline]
    pub(crate) fn growth(&self, now: Timestamp, request: Request<'_>) -> usize {
        let Request { op, cost, id, .. } = request;
        let has_room = || self.stamps().growth(cost as usize, self.capacity_for(request)) == 0;
        if op == Op::Peek || self.growth_of_ids(id) == 0 && has_room() {
            return 0;
        }
        self.growth_of(&self.view(now, request), id)
    }

    #[cold]
    fn growth_of(&self, view: &View<'_>, id: Option<u64>) -> usize {
        if view.own == 0 {
            return 0;
        }
        self.stamps().growth(view.own, view.capacity) + self.growth_of_ids(id)
    }

    fn growth_of_ids(&self, id: Option<u64>) -> usize {
        match self {
            _ if id.is_none() => 0,
            Self::Plain(_) => size_of::<(Timestamps, RequestIds)>() + request_ids::FIRST_BYTES,
            Self::WithIds(both) => both.1.growth(),
        }
    }

    /// Returns the memory on the heap.
    pub(crate) fn heap_bytes(&self) -> usize {
        match self {
            Self::Plain(stamps) => stamps.heap_bytes(),
            Self::WithIds(both) => size_of_val(&**both) + both.0.heap_bytes() + both.1.heap_bytes(),
        }
    }

    /// Removes units of a call. Those of one instant are all alike.
    pub(crate) fn settle(&mut self, settle: Settle) {
        let Settle { to, mark, id, .. } = settle;
        if self.stamps().generation().charged() != mark.charged {
            return;
        }
        if let Some(id) = id {
            // Several decisions of one call are settled once, also if the id was charged again since.
            let Self::WithIds(both) = self else { return };
            let charge = both.1.charged_at(id, mark.at).filter(|charge| !charge.is_settled);
            let Some(charge) = charge else { return };
            charge.is_settled = true;
            if to == 0 {
                both.1.forget(id, mark.at);
            }
        }
        let stamps = self.stamps_mut();
        let end = stamps.ring().partition_point(|stamp| *stamp <= mark.at);
        let start = stamps.ring().partition_point(|stamp| *stamp < mark.at);
        stamps.remove(start.max(end.saturating_sub(settle.lowered() as usize)), end);
    }

    fn view(&self, now: Timestamp, request: Request<'_>) -> View<'_> {
        let Request { policy, cost, id, .. } = request;
        let charged = id.and_then(|id| self.charged(id, now, policy.longest_period()));
        let (ring, capacity) = (self.stamps().ring(), self.capacity_for(request));
        let mut view = View { ring, now, own: 0, capacity, charged, admitted: true };
        let has_room = |tier: &Tier| {
            cost == 0 || cost <= tier.threshold() && view.wait(*tier, cost) == Micros::ZERO
        };
        view.admitted = charged.is_some() || policy.tiers().iter().all(has_room);
        if charged.is_none() && (view.admitted || policy.counts_rejected()) {
            view.own = cost as usize;
        }
        view
    }

    /// Returns the units that are kept once the request is decided.
    #[inline]
    fn capacity_for(&self, request: Request<'_>) -> usize {
        let Request { policy, written, .. } = request;
        let largest = policy.largest_threshold().max(written.largest_threshold());
        self.stamps().capacity().max(largest as usize)
    }

    /// Returns the time at which this id was charged, if that still counts.
    fn charged(&self, id: u64, now: Timestamp, longest: Micros) -> Option<Timestamp> {
        let Self::WithIds(both) = self else { return None };
        let stamp = both.1.get(id)?.stamp;
        (stamp + longest > now).then_some(stamp)
    }

    /// Records the units of a decided call, none if it was refused.
    fn record(&mut self, now: Timestamp, own: usize, capacity: usize, id: Option<u64>) {
        let stamps = self.stamps_mut();
        // A clock that stepped back leaves units in the future. They count from now on instead.
        if stamps.ring().newest(0) > Some(now) {
            stamps.clamp_future(now);
        }
        if own == 0 {
            // A policy with a larger threshold counts from its first call on, also if that is
            // refused.
            stamps.raise_capacity(capacity);
            return;
        }
        stamps.add(now, own, capacity);
        if let Some(id) = id {
            self.record_id(NamedCharge { id, stamp: now, entry: 0, is_settled: false });
        }
    }

    fn record_id(&mut self, charge: NamedCharge) {
        let oldest = self.stamps().ring().get(0);
        if let Self::Plain(stamps) = self {
            *self = Self::WithIds(Box::new((stamps.take(), RequestIds::default())));
        }
        if let Self::WithIds(both) = self {
            both.1.remember(charge, oldest);
        }
    }

    fn stamps(&self) -> &Timestamps {
        match self {
            Self::Plain(stamps) => stamps,
            Self::WithIds(both) => &both.0,
        }
    }

    fn stamps_mut(&mut self) -> &mut Timestamps {
        match self {
            Self::Plain(stamps) => stamps,
            Self::WithIds(both) => &mut both.0,
        }
    }
}

impl View<'_> {
    /// Returns the units in `(now - period, now]`.
    fn live(&self, tier: Tier) -> u32 {
        let mut live = self.ring.len() - self.ring.expired(tier.micros(), self.now) + self.own;
        if self.own > 0 {
            live = live.min(self.capacity);
        }
        u32::try_from(live).unwrap_or(u32::MAX)
    }

    /// Returns the time until the tier has room for this many units, 0 for more than its threshold.
    fn wait(&self, tier: Tier, units: u32) -> Micros {
        let after = tier.threshold().checked_sub(units);
        after.map_or(Micros::ZERO, |after| self.leaves(after, tier.micros()))
    }

    /// Returns the time until the unit before `after` newer ones has left a window of this length.
    fn leaves(&self, after: u32, period: Micros) -> Micros {
        let stamp = match (after as usize).checked_sub(self.own) {
            None => self.now,
            Some(after) => match self.ring.newest(after) {
                Some(stamp) => stamp.min(self.now),
                None => return Micros::ZERO,
            },
        };
        stamp + period - self.now
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::policy::Policy;

    const SECOND: u64 = 1_000_000;

    fn take(log: &mut Log, policy: &Policy, now: u64, cost: u32) -> (bool, u8, u32, u64, u64) {
        let request = Request::new(policy, Op::Take, cost);
        let decided = log.decide(Timestamp::new(now), request);
        let Outcome { admitted, tier, remaining, wait, reset, .. } = decided;
        (admitted, tier, remaining, wait.get(), reset.get())
    }

    fn stamps(log: &Log) -> Vec<u64> {
        let ring = log.stamps().ring();
        (0..ring.len()).filter_map(|index| ring.get(index)).map(Timestamp::get).collect()
    }

    #[test]
    fn third_call_in_window_is_refused_until_the_first_has_left() {
        let policy = Policy::sliding_window("p", Duration::from_secs(30), 2);
        let mut log = Log::default();
        assert_eq!(take(&mut log, &policy, 0, 1), (true, 0, 1, 30 * SECOND, 30 * SECOND));
        assert_eq!(take(&mut log, &policy, 10 * SECOND, 1), (true, 0, 0, 20 * SECOND, 30 * SECOND));
        assert_eq!(
            take(&mut log, &policy, 12 * SECOND, 1),
            (false, 0, 0, 18 * SECOND, 28 * SECOND)
        );
        assert_eq!(take(&mut log, &policy, 30 * SECOND - 1, 1), (false, 0, 0, 1, 10 * SECOND + 1));
        assert_eq!(take(&mut log, &policy, 30 * SECOND, 1), (true, 0, 0, 10 * SECOND, 30 * SECOND));
    }

    #[test]
    fn all_tiers_or_none() {
        let policy = Policy::sliding_window("mail", Duration::from_secs(60), 1)
            .tier(Duration::from_secs(3600), 2);
        let mut log = Log::default();
        assert_eq!(take(&mut log, &policy, 0, 1), (true, 0, 0, 60 * SECOND, 3600 * SECOND));
        assert!(!take(&mut log, &policy, 59 * SECOND, 1).0);
        // Both tiers have nothing left now; the longer wait is the one that counts.
        assert_eq!(
            take(&mut log, &policy, 60 * SECOND, 1),
            (true, 1, 0, 3540 * SECOND, 3600 * SECOND)
        );
        assert_eq!(
            take(&mut log, &policy, 120 * SECOND, 1),
            (false, 1, 0, 3480 * SECOND, 3540 * SECOND)
        );
        assert!(take(&mut log, &policy, 3600 * SECOND, 1).0);
    }

    #[test]
    fn a_cost_waits_for_as_many_units() {
        let policy = Policy::sliding_window("p", Duration::from_secs(10), 5);
        let mut log = Log::default();
        for second in 0..5 {
            assert!(take(&mut log, &policy, second * SECOND, 1).0);
        }
        assert_eq!(take(&mut log, &policy, 5 * SECOND, 3), (false, 0, 0, 7 * SECOND, 9 * SECOND));
        assert_eq!(take(&mut log, &policy, 12 * SECOND, 3), (true, 0, 0, SECOND, 10 * SECOND));
    }

    #[test]
    fn the_log_is_never_longer_than_the_threshold() {
        let policy = Policy::sliding_window("p", Duration::from_secs(1), 3);
        let mut log = Log::default();
        for call in 0..1_000 {
            take(&mut log, &policy, call * SECOND / 2, 1);
            assert!(stamps(&log).len() <= 3);
        }
    }

    #[test]
    fn units_of_the_future_are_units_of_now() {
        let policy = Policy::sliding_window("p", Duration::from_secs(10), 2);
        let mut log = Log::default();
        take(&mut log, &policy, 100 * SECOND, 1);
        take(&mut log, &policy, 105 * SECOND, 1);
        let peek = Request::new(&policy, Op::Peek, 1);
        let peeked = log.decide(Timestamp::new(50 * SECOND), peek);
        assert_eq!(peeked.wait.get(), 10 * SECOND);
        assert_eq!(stamps(&log), [100 * SECOND, 105 * SECOND]);
        assert_eq!(take(&mut log, &policy, 50 * SECOND, 1).3, 10 * SECOND);
        assert_eq!(stamps(&log), [50 * SECOND, 50 * SECOND]);
        assert!(take(&mut log, &policy, 60 * SECOND, 1).0);
    }

    #[test]
    fn refused_calls_are_recorded_where_the_policy_says_so() {
        let policy = Policy::sliding_window("p", Duration::from_secs(10), 2).count_rejected();
        let mut log = Log::default();
        take(&mut log, &policy, 0, 1);
        take(&mut log, &policy, SECOND, 1);
        assert_eq!(take(&mut log, &policy, 9 * SECOND, 1), (false, 0, 0, 2 * SECOND, 10 * SECOND));
        assert_eq!(take(&mut log, &policy, 10 * SECOND, 1), (false, 0, 0, 9 * SECOND, 10 * SECOND));
        assert_eq!(stamps(&log).len(), 2);
        assert!(take(&mut log, &policy, 19 * SECOND, 1).0);
    }

    #[test]
    fn a_lowered_threshold_goes_on_with_the_same_history() {
        let wide = Policy::sliding_window("p", Duration::from_secs(10), 4);
        let narrow = Policy::sliding_window("p", Duration::from_secs(10), 2);
        let mut log = Log::default();
        for second in 0..4 {
            assert!(take(&mut log, &wide, second * SECOND, 1).0);
        }
        assert_eq!(take(&mut log, &narrow, 4 * SECOND, 1), (false, 0, 0, 8 * SECOND, 9 * SECOND));
        assert!(take(&mut log, &narrow, 12 * SECOND, 1).0);
    }
}
