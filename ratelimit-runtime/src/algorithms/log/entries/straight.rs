//! Units of a log that one policy decides alone, at its latest instant: most calls. By
//! `Log::decide` a call of several units takes twice as many instructions (`--bench instructions`).

use super::{super::request_ids::NamedCharge, CROWDED, CallEntries};
use crate::{
    request::{PlainAnswer, PlainNumbers, Request},
    time::Timestamp,
};

impl CallEntries {
    /// Takes units of a window, or refuses one. Returns nothing for a call that needs the long way.
    #[inline(never)]
    pub(in super::super) fn take_units<A: PlainAnswer>(
        &mut self,
        now: Timestamp,
        request: Request<'_>,
    ) -> Option<A> {
        let Request { policy, cost: units, id: name, .. } = request;
        let [tier] = policy.tiers() else { return None };
        let (period, most) = (tier.micros(), u64::from(tier.threshold()));
        let is_alone = matches!(self.kept[..], [kept] if kept.period == period);
        // A clock that stepped back, a line and a pause need the long way.
        let is_latest = self.newest() <= Some(now) && self.last_turn.max(self.pause) <= now;
        let is_new = |name| !self.named.is_full() && self.named.get(name).is_none();
        let is_charged_now = name.is_none_or(is_new);
        if !is_alone || !is_latest || !is_charged_now || self.entries.len() >= CROWDED {
            return None;
        }
        let expired = self.expired(period, now);
        let before = self.sum_before(expired);
        let sum = self.entries.back().map_or(before, |newest| newest.sum) + u64::from(units);
        let left = most.checked_sub(sum - before);
        let refused = match left {
            // A refusal of several units also has the time at which fewer are free.
            None if units > 1 => return None,
            None => Some((self.leaving(period, now, sum - before - most)?, self.newest()?)),
            // The buffer has to grow, and only the long way asks for memory.
            Some(_) if expired == 0 && !self.has_spare() => return None,
            Some(_) => None,
        };
        if let Some((leaves, newest)) = refused {
            return A::refused_unit(policy, 1, leaves + period - now, newest + period - now);
        }
        self.drop_first(expired);
        self.kept[0].used = now;
        self.forget_line(now);
        self.last = self.last.wrapping_add(2).max(2);
        let id = self.last;
        self.insert(now, units, id);
        if let Some(name) = name {
            self.named.add(NamedCharge { id: name, stamp: now, entry: id });
        }
        Some(A::taken(period, || {
            let oldest = self.entries.front().map_or(now, |oldest| oldest.stamp);
            let remaining = left.and_then(|left| u32::try_from(left).ok()).unwrap_or(u32::MAX);
            PlainNumbers {
                remaining,
                wait: oldest + period - now,
                charged: self.charged(id, false),
            }
        }))
    }
}
