//! The line of a log: calls that wait for their turns.
//!
//! While turns lie ahead, a call is decided as if it came at the last one. A call that may wait
//! takes its units at the time at which it is admitted there.

#[cfg(test)]
mod tests;

use super::{CallEntries, Log};
use crate::{
    algorithms::AskForRoom,
    policy::Policy,
    request::{Charged, LinePlace, Op, Outcome, Request, Standing},
    time::{Micros, Timestamp},
};

impl Log {
    fn entries(&self) -> Option<&CallEntries> {
        if let Self::Entries(entries) = self { Some(entries) } else { None }
    }

    /// Returns the last turn that was promised. It may have come.
    #[inline]
    pub(super) fn last_turn(&self) -> Timestamp {
        self.entries().map_or(Timestamp::default(), CallEntries::last_turn)
    }

    /// Decides a call that may wait, or comes while others do.
    #[cold]
    pub(super) fn decide_in_line(
        &mut self,
        now: Timestamp,
        request: Request<'_>,
        room: AskForRoom<'_>,
    ) -> Option<Outcome> {
        let end = self.last_turn().max(now);
        if let Some(turn) = self.turn(end, now, request) {
            let mut outcome = self.decide_at(turn, now, request, true, room)?;
            outcome.turn = turn - now;
            if let Self::Entries(entries) = self
                // A call that passes now begins no line.
                && turn > now
            {
                entries.promise(turn);
            }
            return Some(outcome);
        }
        let promised = self.promised(now, request);
        let refused = match promised {
            // A repeated call, which cannot wait for the turn of its charge.
            Some(_) => Request { id: None, op: Op::Peek, ..request },
            None => request,
        };
        // Without a line nobody is before the call, and its numbers are those of now.
        let outcome = self.decide_at(end, now, refused, end == now, room)?;
        Some(match promised {
            Some(turn) => Outcome { wait: turn - now, ..outcome },
            None => outcome,
        })
    }

    /// Returns the time for which the call is decided, unless it is refused.
    fn turn(&self, end: Timestamp, now: Timestamp, request: Request<'_>) -> Option<Timestamp> {
        if request.op == Op::Peek {
            return None;
        }
        let fits = |turn: Timestamp| turn - now <= request.max_wait;
        if let Some(turn) = self.promised(now, request) {
            return Some(turn).filter(|turn| fits(*turn));
        }
        // A recorded refusal would count its own units before its turn.
        let policy = &request.policy.without_count_rejected();
        let request = Request { policy, ..request };
        let forecast = self.forecast(end, now, request, true);
        // The turn of the charge has come: a repetition needs no turn of its own.
        if forecast.charged.is_some() {
            return None;
        }
        let waits = policy.tiers().iter().map(|tier| forecast.wait(*tier, request.cost));
        let wait = if forecast.admitted { Micros::ZERO } else { waits.max().unwrap_or_default() };
        let turn = end + wait;
        let entries = self.entries();
        let ahead = entries.map_or(0, |entries| entries.turns_ahead(now));
        // A call that passes now takes no place in the line.
        let has_place = turn == now || ahead < request.max_line as usize;
        let is_full = entries.is_some_and(|it| it.full_until(now, request).is_some());
        Some(turn).filter(|turn| fits(*turn) && has_place && !is_full)
    }

    /// Returns the turn of the charge that the call repeats, if it lies ahead.
    fn promised(&self, now: Timestamp, request: Request<'_>) -> Option<Timestamp> {
        let charge = self.entries()?.named(request.id?)?;
        Some(charge.stamp).filter(|turn| *turn > now)
    }

    /// Returns the time of a place's charge, unless it is gone.
    pub(crate) fn turn_of(&self, place: LinePlace<'_>) -> Option<Timestamp> {
        let Charged::Entry(entry) = place.mark.charged else { return None };
        self.entries()?.stamp(place, entry)
    }

    /// Admits nobody before `ends`: see [`State::pause`](crate::algorithms::State::pause).
    pub(crate) fn pause(&mut self, now: Timestamp, ends: Timestamp, policy: &Policy) -> Micros {
        self.entries_mut().pause(now, ends, Request::new(policy, Op::Take, 0));
        self.lasts(now, now)
    }

    /// Moves the first turn that lies ahead forwards, if it is the one of this place and has room.
    /// Returns the turn, unless the charge is gone.
    pub(crate) fn advance(&mut self, now: Timestamp, place: LinePlace<'_>) -> Option<Standing> {
        let Charged::Entry(entry) = place.mark.charged else { return None };
        let Self::Entries(entries) = self else { return None };
        entries.advance(now, place, entry)
    }
}
