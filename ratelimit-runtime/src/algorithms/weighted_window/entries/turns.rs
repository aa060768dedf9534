//! The entries that lie ahead: the turns of waiting calls.

use super::CallEntries;
use crate::{
    policy::Tier,
    request::{EntryMark, Op, Place, Request, Standing},
    time::Timestamp,
};

impl CallEntries {
    /// Returns the last turn that was promised. It may have come.
    #[inline]
    pub(in super::super) fn last_turn(&self) -> Timestamp {
        self.last_turn
    }

    /// Returns the number of turns that lie ahead.
    pub(in super::super) fn turns_ahead(&self, now: Timestamp) -> usize {
        self.entries.len() - self.entries.partition_point(|entry| entry.stamp <= now)
    }

    /// Promises a turn, which no earlier one follows.
    pub(in super::super) fn promise(&mut self, turn: Timestamp) {
        self.last_turn = self.last_turn.max(turn);
    }

    /// Forgets the last turn once it has come.
    pub(super) fn forget_line(&mut self, now: Timestamp) {
        if self.last_turn <= now {
            self.last_turn = Timestamp::default();
        }
    }

    /// Ends the line at the newest entry, once the last turn at `left` is given back.
    pub(in super::super) fn end_line(&mut self, now: Timestamp, left: Timestamp) {
        if left == self.last_turn && left > now {
            self.last_turn = self.newest().unwrap_or_default();
            self.forget_line(now);
        }
    }

    /// Returns the stamp of a call's charge, unless it is gone or settled.
    pub(in super::super) fn stamp(&self, place: Place<'_>, entry: EntryMark) -> Option<Timestamp> {
        let at = self.position(place.mark.at, entry).filter(|_| self.is_of(entry))?;
        Some(self.entries[at].stamp)
    }

    /// Moves the first turn that lies ahead to the earliest time at which it has room, if it is the one
    /// of this call. Returns the call's turn.
    pub(in super::super) fn advance(
        &mut self,
        now: Timestamp,
        place: Place<'_>,
        entry: EntryMark,
    ) -> Option<Standing> {
        let at = self.stamp(place, entry)?;
        let index = self.position(at, entry)?;
        let is_first = index == 0 || self.entries[index - 1].stamp <= now;
        let earliest = if is_first { self.earliest(now, place, index) } else { None };
        let to = earliest.filter(|earliest| *earliest < at).unwrap_or(at);
        let has_room = !is_first || earliest.is_some_and(|earliest| earliest <= at.max(now));
        if to < at {
            self.entries[index].stamp = to;
            let id = self.entries[index].id;
            let named = place.id.and_then(|name| self.named.charged_at(name, at));
            if let Some(named) = named.filter(|named| named.entry == id) {
                named.stamp = to;
            }
            self.keep_for(to, now, Request::new(place.policy, Op::Take, place.cost));
            self.end_line(now, at);
        }
        Some(Standing { at: to, turn: to - now, has_room })
    }

    /// Returns the time from which on the entries before this one leave its call room in all tiers.
    fn earliest(&self, now: Timestamp, place: Place<'_>, index: usize) -> Option<Timestamp> {
        let room = |tier: &Tier| {
            let most = u64::from(tier.threshold().checked_sub(place.cost)?);
            let period = tier.micros();
            let before = self.sum_before(index);
            let live = before - self.sum_before(self.expired(period, now).min(index));
            match live.checked_sub(most).filter(|excess| *excess > 0) {
                Some(excess) => Some(self.leaving(period, now, excess)? + period),
                None => Some(now),
            }
        };
        place.policy.tiers().iter().map(room).try_fold(now, |latest, room| Some(latest.max(room?)))
    }
}
