//! The entries that lie ahead: the turns of waiting calls.

use super::{CallEntries, CallEntry};
use crate::{
    policy::Tier,
    request::{Charged, EntryMark, LinePlace, Mark, Op, Request, Standing},
    time::{Micros, Timestamp},
};

impl CallEntries {
    /// Returns the last turn that was promised. It may have come.
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
            self.last_turn = self.newest().unwrap_or_default().max(self.pause);
            self.forget_line(now);
        }
    }

    /// Returns the time until which nobody is admitted.
    pub(in super::super) fn pause_left(&self, now: Timestamp) -> Micros {
        self.pause - now
    }

    /// Admits nobody before `ends`, unless a longer pause goes on. The turns that lie ahead come as
    /// much later as the first of them has to, so that no window of them gets more units.
    pub(in super::super) fn pause(
        &mut self,
        now: Timestamp,
        ends: Timestamp,
        request: Request<'_>,
    ) {
        if ends <= self.pause {
            return;
        }
        self.drop_surplus(now, request);
        self.keep_for(now.max(self.last_turn), now, request);
        let first = self.entries.partition_point(|entry| entry.stamp <= now);
        // Behind the last turn are the entries of a clock that has stepped back.
        let is_turn = |entry: &&CallEntry| entry.stamp <= self.last_turn;
        let later =
            self.entries.get(first).filter(is_turn).map_or(Micros::ZERO, |it| ends - it.stamp);
        for entry in self.entries.range_mut(first..) {
            entry.stamp = entry.stamp + later;
        }
        self.named.move_after(now, later);
        for kept in self.kept.iter_mut().filter(|it| it.used > now) {
            kept.used = kept.used + later;
        }
        (self.last_turn, self.pause) = ((self.last_turn + later).max(ends), ends);
    }

    /// Returns the stamp of a call's charge, unless it is gone or settled.
    pub(in super::super) fn stamp(
        &self,
        place: LinePlace<'_>,
        entry: EntryMark,
    ) -> Option<Timestamp> {
        let at = self.position(place.mark).filter(|_| self.is_of(entry))?;
        Some(self.entries[at].stamp)
    }

    /// Moves the first turn that lies ahead to the earliest time at which it has room, if it is the
    /// one of this call. Returns the call's turn.
    pub(in super::super) fn advance(
        &mut self,
        now: Timestamp,
        place: LinePlace<'_>,
        entry: EntryMark,
    ) -> Option<Standing> {
        let at = self.stamp(place, entry)?;
        let index = self.position(Mark { at, charged: Charged::Entry(entry) })?;
        let is_first = index == 0 || self.entries[index - 1].stamp <= now;
        let earliest = if is_first { self.earliest(now, place, index) } else { None };
        let to = earliest.filter(|earliest| *earliest < at).unwrap_or(at);
        // A turn behind others is not looked at before it is the first.
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
    fn earliest(&self, now: Timestamp, place: LinePlace<'_>, index: usize) -> Option<Timestamp> {
        let start = now.max(self.pause);
        let room = |tier: &Tier| {
            // Under a policy of now, the call may be larger than the whole tier.
            let most = u64::from(tier.threshold().checked_sub(place.cost)?);
            let period = tier.micros();
            let before = self.sum_before(index);
            let live = before - self.sum_before(self.expired(period, now).min(index));
            match live.checked_sub(most).filter(|excess| *excess > 0) {
                Some(excess) => Some(self.leaving(period, now, excess)? + period),
                None => Some(start),
            }
        };
        place
            .policy
            .tiers()
            .iter()
            .map(room)
            .try_fold(start, |latest, room| Some(latest.max(room?)))
    }
}
