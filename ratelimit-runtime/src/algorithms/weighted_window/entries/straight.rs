//! Units of a log that one policy decides alone, at its latest instant: most calls. By `WeightedLog::decide` a call of
//! several units takes twice as many instructions (`--bench instructions`).

use super::{CROWDED, CallEntries};
use crate::{
    policy::Policy,
    request::{Mark, PlainOutcome},
    time::{Micros, Timestamp},
};

impl CallEntries {
    /// Takes units of a window, or refuses one. Returns nothing for a call that needs the long way.
    #[inline(never)]
    pub(in super::super) fn take_units(
        &mut self,
        now: Timestamp,
        policy: &Policy,
        units: u32,
    ) -> Option<PlainOutcome> {
        let [tier] = policy.tiers() else { return None };
        let period = tier.micros();
        let is_alone = matches!(self.kept[..], [kept] if kept.period == period);
        let is_latest = self.newest() <= Some(now) && self.last_turn.max(self.pause) <= now;
        if !is_alone || !is_latest || self.entries.len() >= CROWDED {
            return None;
        }
        let expired = self.expired(period, now);
        let before = self.sum_before(expired);
        let sum = self.entries.back().map_or(before, |newest| newest.sum) + u64::from(units);
        let Some(left) = u64::from(tier.threshold()).checked_sub(sum - before) else {
            let excess = sum - before - u64::from(tier.threshold());
            return if units == 1 { self.refuse_one(now, policy, period, excess) } else { None };
        };
        if expired == 0 && !self.has_spare() {
            return None;
        }
        self.drop_first(expired);
        self.kept[0].used = now;
        self.forget_line(now);
        self.last = self.last.wrapping_add(2).max(2);
        let id = self.last;
        self.insert(now, units, id);
        let oldest = self.entries.front().map_or(now, |oldest| oldest.stamp);
        let mark = Mark { at: now, charged: self.charged(id, false) };
        let left = u32::try_from(left).unwrap_or(u32::MAX);
        Some(PlainOutcome::taken(left, oldest + period - now, period, mark))
    }

    /// Refuses a unit until so many of the live ones have left.
    fn refuse_one(
        &mut self,
        now: Timestamp,
        policy: &Policy,
        period: Micros,
        excess: u64,
    ) -> Option<PlainOutcome> {
        let (leaves, newest) = (self.leaving(period, now, excess)?, self.newest()?);
        self.drop_first(self.expired(period, now));
        self.kept[0].used = now;
        self.forget_line(now);
        PlainOutcome::refused(now, policy, 1, (leaves + period - now, newest + period - now))
    }
}
