//! The exact log in plain Rust: the same rule as `store/redis/sliding_window.lua`.

use std::{collections::VecDeque, iter};

use crate::{
    policy::{Policy, Tier},
    store::{Outcome, Refund, Request, verdict::Verdict},
};

/// When each unit was recorded, oldest first; never more than the largest threshold.
#[derive(Default)]
pub(super) struct Log {
    stamps: VecDeque<u64>,
    /// Calls that may be decided again, if there are any.
    #[expect(clippy::box_collection, reason = "few logs have any, it costs the others one word")]
    named: Option<Box<Vec<Named>>>,
}

/// A call with a request id.
struct Named {
    id: u64,
    stamp: u64,
}

/// The log as it is once the call's own units are recorded.
struct View<'a> {
    stamps: &'a VecDeque<u64>,
    now: u64,
    own: usize,
    /// The largest threshold: as many units decide, and are kept.
    keep: usize,
}

impl Log {
    pub(super) fn decide(&mut self, now: u64, request: Request<'_>) -> Outcome {
        let Request { policy, cost, record, id } = request;
        let tiers = policy.tiers();
        let keep = largest_threshold(policy);
        let charged = id.and_then(|id| self.charged(id, now, longest_period(policy)));
        let mut view = View { stamps: &self.stamps, now, own: 0, keep };
        let has_room = tiers.iter().all(|tier| view.has_room(*tier, cost));
        let admitted = charged.is_some() || has_room;
        if charged.is_none() && (admitted || policy.counts_rejected()) {
            view.own = cost as usize;
        }

        let mut verdict = Verdict::new(admitted);
        for (index, tier) in tiers.iter().enumerate() {
            let left = tier.threshold().saturating_sub(view.live(*tier));
            let wanted = if admitted { left + 1 } else { cost };
            let reset = view.leaves(0, longest_period(policy));
            verdict.tier(index, left, view.wait(*tier, wanted), reset);
        }
        let own = view.own;
        if record {
            self.record(now, own, keep);
            if let (Some(id), true) = (id, own > 0) {
                self.named.get_or_insert_default().push(Named { id, stamp: now });
            }
        }
        verdict.outcome(charged.unwrap_or(now))
    }

    /// When the call of this id was charged, if that still counts.
    fn charged(&mut self, id: u64, now: u64, longest: u64) -> Option<u64> {
        let named = self.named.as_mut()?;
        named.retain(|call| call.stamp + longest > now);
        named.iter().find(|call| call.id == id).map(|call| call.stamp)
    }

    /// Takes units out again; those of one instant are all alike.
    pub(super) fn refund(&mut self, refund: Refund<'_>) {
        let Refund { cost, mark, id, .. } = refund;
        if let Some(id) = id {
            // One call of several decisions: what one of them has given back is gone.
            let named = self.named.get_or_insert_default();
            let Some(at) = named.iter().position(|call| call.id == id) else { return };
            named.swap_remove(at);
        }
        let end = self.stamps.partition_point(|stamp| *stamp <= mark);
        let start = self.stamps.partition_point(|stamp| *stamp < mark);
        self.stamps.drain(start.max(end.saturating_sub(cost as usize))..end);
    }

    fn record(&mut self, now: u64, own: usize, keep: usize) {
        // A clock that stepped back leaves units in the future; from here on they are of now.
        for stamp in self.stamps.iter_mut().rev().take_while(|stamp| **stamp > now) {
            *stamp = now;
        }
        if own == 0 {
            return;
        }
        // Only the newest units decide: what is older than the threshold's worth goes.
        let surplus = (self.stamps.len() + own).saturating_sub(keep);
        self.stamps.drain(..surplus.min(self.stamps.len()));
        let own = own.min(keep);
        let needed = self.stamps.len() + own;
        if needed > self.stamps.capacity() {
            // Doubled as usual, but never beyond what is kept.
            let capacity = (self.stamps.capacity() * 2).max(4).min(keep).max(needed);
            self.stamps.reserve_exact(capacity - self.stamps.len());
        }
        self.stamps.extend(iter::repeat_n(now, own));
    }
}

impl View<'_> {
    fn has_room(&self, tier: Tier, cost: u32) -> bool {
        self.live(tier).checked_add(cost).is_some_and(|units| units <= tier.threshold())
    }

    /// The units in `(now - period, now]`.
    fn live(&self, tier: Tier) -> u32 {
        let expired = self.stamps.partition_point(|stamp| *stamp + tier.micros() <= self.now);
        let mut live = self.stamps.len() - expired + self.own;
        if self.own > 0 {
            live = live.min(self.keep);
        }
        u32::try_from(live).unwrap_or(u32::MAX)
    }

    /// How long until the tier has room for this many units.
    fn wait(&self, tier: Tier, units: u32) -> u64 {
        let (live, threshold) = (self.live(tier), tier.threshold());
        if units > threshold || live + units <= threshold {
            return 0;
        }
        self.leaves(threshold - units, tier.micros())
    }

    /// How long until the unit that `after` units are newer than has left a window of this length.
    fn leaves(&self, after: u32, period: u64) -> u64 {
        let stamp = match (after as usize).checked_sub(self.own) {
            None => self.now,
            Some(after) => match self.stamps.len().checked_sub(after + 1) {
                Some(index) => self.stamps[index].min(self.now),
                None => return 0,
            },
        };
        (stamp + period).saturating_sub(self.now)
    }
}

fn longest_period(policy: &Policy) -> u64 {
    policy.tiers().iter().map(|tier| tier.micros()).max().unwrap_or(0)
}

fn largest_threshold(policy: &Policy) -> usize {
    policy.tiers().iter().map(|tier| tier.threshold() as usize).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const SECOND: u64 = 1_000_000;

    fn take(log: &mut Log, policy: &Policy, now: u64, cost: u32) -> (bool, usize, u32, u64, u64) {
        let Outcome { admitted, tier, remaining, wait, reset, .. } =
            log.decide(now, Request { policy, cost, record: true, id: None });
        (admitted, tier, remaining, wait, reset)
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
            assert!(log.stamps.len() <= 3);
        }
    }

    #[test]
    fn units_of_the_future_are_units_of_now() {
        let policy = Policy::sliding_window("p", Duration::from_secs(10), 2);
        let mut log = Log::default();
        take(&mut log, &policy, 100 * SECOND, 1);
        take(&mut log, &policy, 105 * SECOND, 1);
        let look = Request { policy: &policy, cost: 1, record: false, id: None };
        assert_eq!(log.decide(50 * SECOND, look).wait, 10 * SECOND);
        assert_eq!(log.stamps, [100 * SECOND, 105 * SECOND]);
        assert_eq!(take(&mut log, &policy, 50 * SECOND, 1).3, 10 * SECOND);
        assert_eq!(log.stamps, [50 * SECOND, 50 * SECOND]);
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
        assert_eq!(log.stamps.len(), 2);
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
