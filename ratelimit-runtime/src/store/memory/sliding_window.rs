//! The exact log in plain Rust: the same rule as `store/redis/sliding_window.lua`.

use std::collections::VecDeque;

use crate::{
    policy::Policy,
    store::{Outcome, Request},
};

/// When each unit was admitted, oldest first; never more than the largest threshold.
#[derive(Default)]
pub(super) struct Log {
    stamps: VecDeque<u64>,
}

impl Log {
    pub(super) fn decide(&mut self, now: u64, request: Request<'_>) -> Outcome {
        let outcome = self.judge(now, request);
        if outcome.admitted && request.record {
            let tiers = request.policy.tiers();
            let keep = tiers.iter().map(|tier| tier.threshold() as usize).max().unwrap_or(0);
            let cost = request.cost as usize;
            // Only the newest units decide: what is older than the threshold's worth goes.
            let surplus = (self.stamps.len() + cost).saturating_sub(keep);
            self.stamps.drain(..surplus);
            self.stamps.extend(std::iter::repeat_n(now, cost));
        }
        outcome
    }

    /// When the last unit has left the longest window.
    pub(super) fn expires(&self, policy: &Policy) -> u64 {
        self.stamps.back().map_or(0, |newest| newest.saturating_add(longest_period(policy)))
    }

    fn judge(&self, now: u64, request: Request<'_>) -> Outcome {
        let Request { policy, cost, .. } = request;
        let newest = if cost > 0 { Some(now) } else { self.stamps.back().copied() };
        let mut admitted = Outcome {
            admitted: true,
            tier: 0,
            remaining: u32::MAX,
            wait: 0,
            reset: until(now, newest, longest_period(policy)),
        };
        let mut refused: Option<Outcome> = None;
        for (index, tier) in policy.tiers().iter().enumerate() {
            let (period, threshold) = (tier.micros(), tier.threshold());
            let live = self.live(now, period);
            let left = threshold.saturating_sub(live);
            if cost > left || live > threshold {
                // The unit that has to leave so that this call finds its place.
                let leaves = self.newest(threshold - cost);
                let wait = until(now, leaves, period);
                if refused.is_none_or(|refused| wait > refused.wait) {
                    let reset = until(now, self.stamps.back().copied(), longest_period(policy));
                    refused = Some(Outcome {
                        admitted: false,
                        tier: index,
                        remaining: left,
                        wait,
                        reset,
                    });
                }
                continue;
            }
            let remaining = left - cost;
            let wait = match (live, cost) {
                (0, 0) => 0,
                (0, _) => period,
                (live, _) => until(now, self.newest(live - 1), period),
            };
            if remaining < admitted.remaining
                || (remaining == admitted.remaining && wait > admitted.wait)
            {
                admitted = Outcome { tier: index, remaining, wait, ..admitted };
            }
        }
        refused.unwrap_or(admitted)
    }

    /// The units in `(now - period, now]`.
    fn live(&self, now: u64, period: u64) -> u32 {
        let expired = self.stamps.partition_point(|stamp| stamp.saturating_add(period) <= now);
        u32::try_from(self.stamps.len() - expired).unwrap_or(u32::MAX)
    }

    /// The stamp of the unit that `after` units are newer than.
    fn newest(&self, after: u32) -> Option<u64> {
        let index = self.stamps.len().checked_sub(after as usize + 1)?;
        self.stamps.get(index).copied()
    }
}

/// How long from `now` until a unit of this stamp has left a window of this length.
fn until(now: u64, stamp: Option<u64>, period: u64) -> u64 {
    stamp.map_or(0, |stamp| stamp.saturating_add(period).saturating_sub(now))
}

fn longest_period(policy: &Policy) -> u64 {
    policy.tiers().iter().map(|tier| tier.micros()).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const SECOND: u64 = 1_000_000;

    fn take(log: &mut Log, policy: &Policy, now: u64, cost: u32) -> (bool, usize, u32, u64, u64) {
        let Outcome { admitted, tier, remaining, wait, reset } =
            log.decide(now, Request { policy, cost, record: true });
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
