//! The exact log in plain Rust: the same rule as `store/redis/sliding_window.lua`.

use super::{
    NeedsRoom,
    summary::Summary,
    timestamps::{Ring, Timestamps},
};
use crate::{
    policy::Tier,
    request::{Detail, Mark, Op, Outcome, Refund, Request},
    time::{Micros, Timestamp},
};

/// When each unit was recorded; never more than the largest threshold.
///
/// Invariant: the newest units are held, as many as the largest threshold of all policies that have
/// written to the log: none of them finds a unit missing that it counts.
pub(crate) enum Log {
    Plain(Timestamps),
    /// With calls that may be decided again. Few logs have any; the others have no room for them.
    Named(Box<(Timestamps, Vec<Named>)>),
}

/// A call with a request id.
pub(crate) struct Named {
    id: u64,
    stamp: Timestamp,
}

/// The calls that there is room for with the first of them.
const NAMES: usize = 4;

/// The memory of a log with room for so many calls by name, but for its stamps'.
const fn both_bytes(names: usize) -> usize {
    size_of::<(Timestamps, Vec<Named>)>() + names * size_of::<Named>()
}

/// The log as it is once the call's own units are recorded.
struct View<'a> {
    held: Ring<'a>,
    now: Timestamp,
    own: usize,
    /// The largest threshold that the log has known: as many units are kept.
    keep: usize,
}

impl Default for Log {
    fn default() -> Self {
        Self::Plain(Timestamps::default())
    }
}

impl Log {
    /// Decides a call. Nothing is recorded of one that needs more than `room` bytes for it.
    #[inline(never)]
    pub(crate) fn decide(
        &mut self,
        now: Timestamp,
        request: Request<'_>,
        detail: Detail,
        room: usize,
    ) -> Result<Outcome, NeedsRoom> {
        let Request { policy, written, op, cost, id } = request;
        let (tiers, longest) = (policy.tiers(), policy.longest_period());
        let largest = policy.largest_threshold().max(written.largest_threshold());
        let keep = self.stamps().keep().max(largest as usize);
        let charged = id.and_then(|id| self.charged(id, now, longest));
        let mut view = View { held: self.stamps().ring(), now, own: 0, keep };
        let has_room = |tier: &Tier| {
            cost == 0 || cost <= tier.threshold() && view.wait(*tier, cost) == Micros::ZERO
        };
        let admitted = charged.is_some() || tiers.iter().all(has_room);
        if charged.is_none() && (admitted || policy.counts_rejected()) {
            view.own = cost as usize;
        }

        let reset = view.leaves(0, longest);
        let mut verdict = Summary::new(admitted, detail);
        for (index, tier) in tiers.iter().enumerate() {
            verdict.tier(index, reset, || {
                let left = tier.threshold().saturating_sub(view.live(*tier));
                let wanted = if admitted { left + 1 } else { cost };
                (left, view.wait(*tier, wanted))
            });
        }
        let until =
            |units| tiers.iter().map(|tier| view.wait(*tier, units)).max().unwrap_or_default();
        let mark =
            Mark { at: charged.unwrap_or(now), charged: self.stamps().generation().charged() };
        let mut outcome = verdict.outcome(mark, cost, until);
        let (own, newest) = (view.own, view.held.newest(0));
        if own > 0 {
            // What is written counts on when an override is taken back.
            outcome.lasts = outcome.lasts.max(written.longest_period());
        }
        // A clock that stepped back leaves units in the future; from here on they are of now.
        let records = op == Op::Take;
        if records && newest > Some(now) {
            self.stamps_mut().clamp(now);
        }
        if records && own == 0 {
            // A policy that asks for more is known from its first call on, also if that is refused.
            self.stamps_mut().keep_at_least(keep);
        }
        if records && own > 0 {
            NeedsRoom::unless_fits(self.growth(own, keep, id), room)?;
            // Only the newest units decide: what is older than the threshold's worth goes.
            self.stamps_mut().add(now, own, keep);
            if let Some(id) = id {
                self.name(Named { id, stamp: now });
            }
        }
        Ok(outcome)
    }

    /// The bytes that it takes more on the heap to record a call of so many units.
    #[inline]
    fn growth(&self, own: usize, keep: usize, id: Option<u64>) -> usize {
        let stamps = self.stamps().growth(own, keep);
        match self {
            _ if id.is_none() => stamps,
            Self::Plain(_) => stamps + both_bytes(NAMES),
            Self::Named(both) if both.1.len() == both.1.capacity() => {
                stamps + both.1.len() * size_of::<Named>()
            }
            Self::Named(_) => stamps,
        }
    }

    /// The memory that it has on the heap.
    pub(crate) fn heap_bytes(&self) -> usize {
        match self {
            Self::Plain(stamps) => stamps.heap_bytes(),
            Self::Named(both) => both.0.heap_bytes() + both_bytes(both.1.capacity()),
        }
    }

    /// When the call of this id was charged, if that still counts.
    fn charged(&self, id: u64, now: Timestamp, longest: Micros) -> Option<Timestamp> {
        let Self::Named(both) = self else { return None };
        let call = both.1.iter().find(|call| call.id == id)?;
        (call.stamp + longest > now).then_some(call.stamp)
    }

    /// Takes units out again; those of one instant are all alike.
    pub(crate) fn refund(&mut self, refund: Refund<'_>) {
        let Refund { cost, mark, id, .. } = refund;
        if self.stamps().generation().charged() != mark.charged {
            return;
        }
        let mark = mark.at;
        if let Some(id) = id {
            // One call of several decisions: what one of them has given back is gone, also if the
            // id was charged again since.
            let Self::Named(both) = self else { return };
            let is_it = |call: &Named| call.id == id && call.stamp == mark;
            let Some(at) = both.1.iter().position(is_it) else { return };
            both.1.swap_remove(at);
        }
        let stamps = self.stamps_mut();
        let end = stamps.ring().partition_point(|stamp| *stamp <= mark);
        let start = stamps.ring().partition_point(|stamp| *stamp < mark);
        stamps.remove(start.max(end.saturating_sub(cost as usize)), end);
    }

    fn stamps(&self) -> &Timestamps {
        match self {
            Self::Plain(stamps) => stamps,
            Self::Named(both) => &both.0,
        }
    }

    fn stamps_mut(&mut self) -> &mut Timestamps {
        match self {
            Self::Plain(stamps) => stamps,
            Self::Named(both) => &mut both.0,
        }
    }

    /// Records a call by its id; the room doubles as needed.
    fn name(&mut self, call: Named) {
        let oldest = self.stamps().ring().get(0);
        match self {
            Self::Plain(stamps) => {
                let mut named = Vec::with_capacity(NAMES);
                named.push(call);
                *self = Self::Named(Box::new((stamps.take(), named)));
            }
            Self::Named(both) => {
                // What has left the log is known by its name no longer.
                both.1.retain(|it| Some(it.stamp) >= oldest && it.id != call.id);
                if both.1.len() == both.1.capacity() {
                    both.1.reserve_exact(both.1.len());
                }
                both.1.push(call);
            }
        }
    }
}

impl View<'_> {
    /// The units in `(now - period, now]`.
    fn live(&self, tier: Tier) -> u32 {
        let (held, has_left) = (self.held, |stamp: &Timestamp| *stamp + tier.micros() <= self.now);
        let expired = match (held.get(0), held.newest(0)) {
            // Mostly none of them has left, or all have.
            (Some(oldest), _) if !has_left(&oldest) => 0,
            (_, Some(newest)) if has_left(&newest) => held.len(),
            _ => held.partition_point(has_left),
        };
        let mut live = held.len() - expired + self.own;
        if self.own > 0 {
            live = live.min(self.keep);
        }
        u32::try_from(live).unwrap_or(u32::MAX)
    }

    /// How long until the tier has room for this many units; 0 for more than it ever has.
    fn wait(&self, tier: Tier, units: u32) -> Micros {
        let after = tier.threshold().checked_sub(units);
        after.map_or(Micros::ZERO, |after| self.leaves(after, tier.micros()))
    }

    /// How long until the unit that `after` units are newer than has left a window of this length.
    fn leaves(&self, after: u32, period: Micros) -> Micros {
        let stamp = match (after as usize).checked_sub(self.own) {
            None => self.now,
            Some(after) => match self.held.newest(after) {
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
        let request = Request { policy, written: policy, op: Op::Take, cost, id: None };
        let decided = log.decide(Timestamp::new(now), request, Detail::Full, usize::MAX);
        let Outcome { admitted, tier, remaining, wait, reset, .. } = decided.unwrap();
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
        let peek = Request { policy: &policy, written: &policy, op: Op::Peek, cost: 1, id: None };
        let peeked = log.decide(Timestamp::new(50 * SECOND), peek, Detail::Full, 0).unwrap();
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
