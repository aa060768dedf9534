//! The line of the algorithms that count: calls that wait for their turns. The same rule as
//! `per_tier_line.lua`.
//!
//! While turns lie ahead, a call is decided as if it came at the last one. A call that may wait
//! takes its units at the time at which it is admitted there.

mod state;
#[cfg(test)]
mod tests;

use std::{collections::VecDeque, mem, ptr};

use super::{AskForRoom, counts::Counts, packed::Generation, summary::behind};
use crate::{
    policy::{Policy, StateKind},
    request::{LinePlace, Mark, Op, Outcome, Request, Settle},
    time::{Micros, Timestamp},
};

/// A clock that is behind the last promise by more than this has stepped back.
const STEP: Micros = Micros::new(1_000_000);

/// The room of the first turns.
const FIRST_TURNS: usize = 4;

/// A state with turns that lie ahead; at least one.
#[derive(Clone)]
#[cfg_attr(test, derive(Debug, PartialEq))]
pub(crate) struct TurnsAhead {
    /// The counts without the turns.
    base: Counts,
    /// The counts with all turns, as of the last one.
    tail: Counts,
    /// In the order of their instants. Those that have come are part of the base by the next call.
    turns: VecDeque<PromisedTurn>,
    /// The time of the last promise.
    promised: Timestamp,
}

/// The charge of a waiting call. Those of equal numbers are alike.
#[derive(Clone, Copy)]
#[cfg_attr(test, derive(Debug, PartialEq))]
struct PromisedTurn {
    at: Timestamp,
    units: u32,
    /// The generation in its mark. A bucket that is full when the turn comes gets it. If the bucket
    /// is not full by then, it keeps its generation, and such a charge is not given back.
    generation: Generation,
}

/// A turn before it is promised.
struct TurnPromise {
    turn: PromisedTurn,
    /// The counts with all turns and this one.
    tail: Counts,
    outcome: Outcome,
}

impl PromisedTurn {
    /// Adds the units of the turn, whatever room there is.
    fn count_in(self, counts: &mut Counts) {
        counts.add_turn(self.at, self.units, self.generation);
    }
}

impl TurnsAhead {
    /// Decides a call while turns lie ahead.
    fn decide(
        &mut self,
        now: Timestamp,
        request: Request<'_>,
        room: AskForRoom<'_>,
    ) -> Option<Outcome> {
        // A copy, if the policy is a new one: nothing has changed yet if there is no room.
        let grown = (!self.tail.has_counts(now, request)).then(|| {
            let mut line = self.clone();
            line.add_counts(now, request);
            line
        });
        let line = grown.as_ref().unwrap_or(self);
        let promise = line.first_turn(line.end(now), now, request);
        let turns = if promise.is_some() { line.turns_missing() } else { 0 };
        let bytes = line.heap_bytes() + turns * size_of::<PromisedTurn>();
        if !room(bytes.saturating_sub(self.heap_bytes())) {
            return None;
        }
        if let Some(line) = grown {
            *self = line;
        }
        Some(match promise {
            Some(promise) => self.promise(promise, now),
            None => self.refuse(now, request),
        })
    }

    /// Returns the refusal of a call that does not wait.
    fn peek(mut self, now: Timestamp, request: Request<'_>) -> Outcome {
        self.fold(now);
        // A peek would not add the counts to this copy, which is thrown away.
        self.add_counts(now, Request { op: Op::Take, ..request });
        self.refuse(now, request)
    }

    /// Returns the memory on the heap, with this value itself.
    pub(super) fn heap_bytes(&self) -> usize {
        let counts = self.base.heap_bytes() + self.tail.heap_bytes();
        size_of::<Self>() + counts + self.turns.capacity() * size_of::<PromisedTurn>()
    }

    /// Returns the turns by which the list grows for one more.
    fn turns_missing(&self) -> usize {
        let is_full = self.turns.len() == self.turns.capacity();
        if is_full { self.turns.len().max(FIRST_TURNS) } else { 0 }
    }

    pub(super) fn kind(&self) -> StateKind {
        self.base.kind()
    }

    /// Returns the counts with all turns.
    pub(super) fn tail(&self) -> &Counts {
        &self.tail
    }

    /// Returns the last turn, or now.
    fn end(&self, now: Timestamp) -> Timestamp {
        self.turns.back().map_or(now, |last| last.at.max(now))
    }

    /// Returns the time until the state decides like an absent one: that of the tail, by which the
    /// base is replaced at the last turn. A turn that has come may have left the base a debt, where
    /// the tail had no unit left to take. The debt counts only in a tail that is made anew from the
    /// base, and with each such tail the state gets a new expiry.
    fn lasts(&self, now: Timestamp) -> Micros {
        let end = self.end(now);
        end - now + self.tail.lasts(end)
    }

    /// Returns `true` if no turn lies ahead, or the promises are forgotten: the clock has stepped
    /// back.
    fn is_over(&self, now: Timestamp) -> bool {
        self.end(now) == now || self.promised > now + STEP
    }

    /// Moves the turns that have come to the base.
    fn fold(&mut self, now: Timestamp) {
        let ahead = self.turns.partition_point(|turn| turn.at <= now);
        for turn in self.turns.drain(..ahead) {
            turn.count_in(&mut self.base);
        }
    }

    /// Counts for the policy of a call from now on, unless it does so already.
    fn add_counts(&mut self, now: Timestamp, request: Request<'_>) {
        if !self.tail.has_counts(now, request) {
            self.base.decide(now, Request { cost: 0, ..request });
            self.renew_tail();
        }
    }

    /// Counts all turns anew.
    fn renew_tail(&mut self) {
        self.tail = self.base.clone();
        for turn in &self.turns {
            turn.count_in(&mut self.tail);
        }
    }

    /// Returns the first turn from `end` on at which the call is admitted; nothing if it cannot
    /// wait until then, would pass now, or finds the line full.
    fn first_turn(
        &self,
        end: Timestamp,
        now: Timestamp,
        request: Request<'_>,
    ) -> Option<TurnPromise> {
        let policy = request.policy.without_count_rejected();
        let request = unrecorded(request, &policy);
        let Request { cost, max_wait, max_line, .. } = request;
        let first = self.tail.peek(end, Request { op: Op::Peek, ..request });
        let turn = if first.admitted { end } else { end + first.wait };
        let ahead = turn - now;
        if ahead == Micros::ZERO || ahead > max_wait || self.turns.len() >= max_line as usize {
            return None;
        }
        let mut tail = self.tail.clone();
        let taken = tail.decide(turn, request);
        if !taken.admitted {
            return None;
        }
        let turn = PromisedTurn { at: turn, units: cost, generation: tail.generation() };
        let mark = Mark { at: turn.at, ..taken.mark };
        let outcome = Outcome { turn: ahead, lasts: ahead + taken.lasts, mark, ..taken };
        Some(TurnPromise { turn, tail, outcome })
    }

    /// Promises a turn.
    fn promise(&mut self, promise: TurnPromise, now: Timestamp) -> Outcome {
        let TurnPromise { turn, tail, outcome } = promise;
        // Exactly as many as `decide` has asked room for.
        self.turns.reserve_exact(self.turns_missing());
        self.turns.push_back(turn);
        (self.tail, self.promised) = (tail, now);
        outcome
    }

    /// Refuses a call behind others, and records the refusal if its policy counts it.
    fn refuse(&mut self, now: Timestamp, request: Request<'_>) -> Outcome {
        let Request { policy, cost, .. } = request;
        let (end, mut tail) = (self.end(now), self.tail.clone());
        if policy.counts_rejected() && cost > 0 {
            let recorded = Request { op: Op::Take, ..request };
            tail.decide(end, recorded);
            // In the base as well: `renew_tail` makes the next tail of it.
            self.base.decide(now, recorded);
            self.tail = tail.clone();
        }
        let policy = policy.without_count_rejected();
        let peek = |cost| {
            let request = Request { op: Op::Peek, cost, ..request };
            tail.peek(end, unrecorded(request, &policy))
        };
        // A look of no units has the numbers of the tier. That of the call has its wait.
        let (all, own) = (peek(0), peek(cost));
        let wait_of = |it: Outcome| if it.admitted { Micros::ZERO } else { it.wait };
        let (admitted, mark) = (cost == 0, Mark::NONE);
        // No tier refuses a call that has room, and comes only behind others.
        let tier = if admitted || !own.admitted { own.tier } else { 0 };
        let refused = Outcome { admitted, tier, wait: wait_of(own), mark, ..all };
        let ahead = end - now;
        Outcome { lasts: ahead + all.lasts, ..behind(refused, ahead, wait_of(peek(1))) }
    }

    /// Changes the units of a call: those of a turn that lies ahead, or those of the base.
    fn settle(&mut self, now: Timestamp, settle: &Settle) {
        let Settle { from, to, mark, .. } = *settle;
        let is_changed = match self.index(mark, from) {
            Some(index) if settle.lowered() > 0 && !self.may_lower(index) => false,
            Some(index) if to == 0 => self.turns.remove(index).is_some(),
            Some(index) => mem::replace(&mut self.turns[index].units, to) != to,
            // Of several windows each stays open: one without a unit would start later, and last
            // into a turn that was promised after its end.
            None => {
                let least = self.base.has_linked_windows().into();
                self.base.settle(now, settle, least).is_some()
            }
        };
        if is_changed {
            self.renew_tail();
        }
    }

    /// Returns `true` if each turn behind this one keeps its room when the turn has fewer units.
    /// With windows of several periods, one of them could then start later, and last into such a
    /// turn.
    fn may_lower(&self, index: usize) -> bool {
        let is_last = self.turns.back().is_some_and(|last| last.at == self.turns[index].at);
        is_last || !self.base.has_linked_windows()
    }

    /// Moves the turn of this place to the earliest time at which it has room, if no other lies
    /// before it. Returns the turn, and `false` if it has room only later.
    fn advance(&mut self, now: Timestamp, place: LinePlace<'_>) -> Option<(Timestamp, bool)> {
        let index = self.index(place.mark, place.cost)?;
        let first = self.turns.partition_point(|turn| turn.at <= now);
        let at = self.turns[index].at;
        let is_alone = self.turns.len() == first + 1;
        // Several windows start with a turn: an earlier one may let later turns come too early.
        if self.turns[first].at < at || (self.base.has_linked_windows() && !is_alone) {
            return Some((at, true));
        }
        let mut base = self.base.clone();
        for turn in self.turns.range(..first) {
            turn.count_in(&mut base);
        }
        let policy = place.policy.without_count_rejected();
        let request = Request::new(&policy, Op::Take, place.cost);
        let taken = base.decide(now, request);
        let to = if taken.admitted { now } else { now + taken.wait };
        if to >= at || !(taken.admitted || base.peek(to, request).admitted) {
            return Some((at, to <= at));
        }
        let moved = PromisedTurn { at: to, ..self.turns.remove(index)? };
        self.turns.insert(first, moved);
        self.fold(now);
        self.renew_tail();
        Some((to, true))
    }

    /// Returns the position of a turn.
    fn index(&self, mark: Mark, units: u32) -> Option<usize> {
        let first = self.turns.partition_point(|turn| turn.at < mark.at);
        let alike = self.turns.range(first..).take_while(|turn| turn.at == mark.at);
        let is_it =
            |turn: &PromisedTurn| turn.units == units && turn.generation.charged() == mark.charged;
        alike.clone().position(is_it).map(|position| first + position)
    }
}

/// Returns the call under its policy without recorded refusals, decided at once.
fn unrecorded<'a>(request: Request<'a>, policy: &'a Policy) -> Request<'a> {
    // An override is known by its address: without one, both stay the same place.
    let is_own = ptr::eq(request.policy, request.written);
    let written = if is_own { policy } else { request.written };
    Request { policy, written, ..request }
}
