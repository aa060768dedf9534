//! The states in which calls wait: how a line begins, goes on, and ends.

use std::collections::VecDeque;

use super::{FIRST_TURNS, TurnsAhead, unrecorded};
use crate::{
    algorithms::{AskForRoom, State, counts::Counts},
    request::{LinePlace, Op, Outcome, Request, Settle, Standing},
    time::{Micros, Timestamp},
};

impl State {
    /// Decides a call that may wait, or comes while others do.
    #[cold]
    pub(in crate::algorithms) fn decide_in_line(
        &mut self,
        now: Timestamp,
        request: Request<'_>,
        room: AskForRoom<'_>,
    ) -> Option<Outcome> {
        let at_once = Request { max_wait: Micros::ZERO, ..request };
        if request.op == Op::Peek {
            return match self.line_mut() {
                Some(line) if line.is_over(now) => Some(line.tail.peek(now, at_once)),
                Some(line) => Some(line.clone().peek(now, request)),
                None => self.decide(now, at_once, room),
            };
        }
        self.catch_up(now);
        if let Some(line) = self.line_mut() {
            return line.decide(now, request, room);
        }
        let Some((line, outcome)) = self.begin_line(now, request) else {
            return self.decide(now, at_once, room);
        };
        if !room(line.heap_bytes().saturating_sub(self.heap_bytes())) {
            return None;
        }
        *self = Self::Line(Box::new(line));
        Some(outcome)
    }

    /// Changes the units of a call while others wait.
    #[cold]
    pub(in crate::algorithms) fn settle_in_line(
        &mut self,
        now: Timestamp,
        settle: &Settle,
    ) -> Micros {
        self.catch_up(now);
        let Some(line) = self.line_mut() else { return self.settle(now, settle) };
        line.settle(now, settle);
        let lasts = line.lasts(now);
        self.end_line();
        lasts
    }

    /// Returns `true` if the turn of this place is promised.
    #[cold]
    #[cfg(test)]
    pub(in crate::algorithms) fn has_turn(&self, place: LinePlace<'_>) -> bool {
        self.line().is_some_and(|line| line.index(place.mark, place.cost).is_some())
    }

    /// Moves the turn of this place forwards, if it is the first and has room earlier. Returns the
    /// turn, unless it lies ahead and is gone, and the time for which the state then counts.
    #[cold]
    pub(in crate::algorithms) fn advance_turn(
        &mut self,
        now: Timestamp,
        place: LinePlace<'_>,
    ) -> Option<(Standing, Micros)> {
        let line = self.line_mut()?;
        let (at, has_room) = line.advance(now, place)?;
        let lasts = line.lasts(now);
        self.end_line();
        Some((Standing { at, turn: at - now, has_room }, lasts))
    }

    #[cfg(test)]
    pub(super) fn line(&self) -> Option<&TurnsAhead> {
        if let Self::Line(line) = self { Some(line) } else { None }
    }

    fn line_mut(&mut self) -> Option<&mut TurnsAhead> {
        if let Self::Line(line) = self { Some(line) } else { None }
    }

    /// Returns the state with the turn of a call that cannot pass now, unless it is refused.
    fn begin_line(&self, now: Timestamp, request: Request<'_>) -> Option<(TurnsAhead, Outcome)> {
        let mut base = Counts::of(self)?;
        let policy = request.policy.without_count_rejected();
        // A call that passes now needs no line: `decide` takes its units.
        if base.decide(now, unrecorded(request, &policy)).admitted {
            return None;
        }
        let turns = VecDeque::with_capacity(FIRST_TURNS);
        let mut line = TurnsAhead { tail: base.clone(), base, turns, promised: now };
        let promise = line.first_turn(now, now, request)?;
        let outcome = line.promise(promise, now);
        Some((line, outcome))
    }

    /// Counts the turns that have come.
    pub(super) fn catch_up(&mut self, now: Timestamp) {
        let Some(line) = self.line_mut() else { return };
        if line.is_over(now) {
            let counts = line.tail.clone();
            *self = counts.into_state();
        } else {
            line.fold(now);
        }
    }

    /// Ends a line without turns.
    fn end_line(&mut self) {
        if let Some(line) = self.line_mut().filter(|line| line.turns.is_empty()) {
            let counts = line.base.clone();
            *self = counts.into_state();
        }
    }
}
