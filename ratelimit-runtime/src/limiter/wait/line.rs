//! The line of this process under one key: its waiting calls, and the turns that a store has promised them.
//!
//! A turn belongs to the line, and the call at its place passes at it. When a call leaves, those behind it
//! move up to earlier turns, and the last turn is given back to the store.

#[cfg(test)]
mod tests;

use std::{mem, time::Duration};

use tokio::time::Instant;

use crate::{
    policy::Policy,
    request::{Outcome, Place, Standing},
};

/// The time for which a turn on Redis counts as promised after it was last seen there.
pub(super) const SEEN: Duration = Duration::from_secs(1);

/// The waiting calls of one key, in the order of their turns.
pub(super) struct Line<W> {
    seats: Vec<Seat<W>>,
    /// `true` if other processes change the turns too.
    is_remote: bool,
    /// The time at which the first turn was last known to be promised.
    seen: Option<Instant>,
    /// The last question to a store for the first turn.
    asked: Option<TurnQuestion>,
    /// `true` if the first turn may have come nearer. In memory that is asked for each call that gets
    /// first: a refund may have come between the store's answer and its receipt.
    hurries: bool,
    /// `true` if the first turn has come nearer: the next one may then, too.
    has_moved: bool,
}

#[derive(Clone, Copy)]
struct TurnQuestion {
    at: Instant,
    is_answered: bool,
}

/// The key of a line, and the store that has promised its turns.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct LineId {
    pub(super) key: Box<[u8]>,
    /// `true` if the turns are those of a server, which others change too.
    pub(super) is_remote: bool,
}

/// A promised turn, and the call that passes at it.
pub(super) struct Seat<W> {
    /// The store's answer, with the numbers of the turn.
    pub(super) outcome: Outcome,
    /// The turn by the clock of this process.
    pub(super) turn: Instant,
    /// The time of the answer.
    pub(super) promised: Instant,
    pub(super) claim: Claim,
    pub(super) waiter: W,
}

/// The charge that a turn stands for. Calls of one charge can pass at each other's turns.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Claim {
    pub(super) policy: Policy,
    pub(super) cost: u32,
    pub(super) id: Option<u64>,
}

/// The next step of a waiting call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NextStep {
    /// It passes.
    Pass,
    /// It passes after so many calls that are before it, whose turn has come too.
    PassAfter(usize),
    /// It asks Redis whether the first turn is still promised.
    Check,
    /// It sleeps, at most until then.
    Sleep(Option<Instant>),
}

/// The turn that nobody takes after a call has left.
pub(super) struct Freed<W> {
    pub(super) outcome: Outcome,
    pub(super) claim: Claim,
    /// The calls whose turns have changed, or that are first now.
    pub(super) moved: Vec<W>,
}

impl Claim {
    /// A charge under a request id is that of its call alone.
    fn is_shared_with(&self, other: &Self) -> bool {
        self.id.is_none() && self == other
    }

    /// Returns the place of a charge in its store's line.
    pub(super) fn place(&self, outcome: Outcome) -> Place<'_> {
        Place { policy: &self.policy, cost: self.cost, mark: outcome.mark, id: self.id }
    }
}

impl<W: Clone + PartialEq> Line<W> {
    pub(super) fn new(is_remote: bool) -> Self {
        let (seen, asked, hurries, has_moved) = Default::default();
        Self { seats: Vec::new(), is_remote, seen, asked, hurries, has_moved }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.seats.is_empty()
    }

    /// Returns the time until which a question that is out counts.
    fn asks_until(&self, now: Instant) -> Option<Instant> {
        let asked = self.asked.filter(|asked| !asked.is_answered && now < asked.at + SEEN);
        asked.map(|asked| asked.at + SEEN)
    }

    fn first(&self) -> Option<W> {
        self.seats.first().map(|first| first.waiter.clone())
    }

    /// Returns `true` if a call of the line has this turn.
    pub(super) fn has(&self, claim: &Claim, outcome: Outcome) -> bool {
        self.index_of_turn(claim, outcome).is_some()
    }

    /// Returns the turn of a call by the clock of this process.
    pub(super) fn turn(&self, waiter: &W) -> Option<Instant> {
        Some(self.seats[self.index(waiter)?].turn)
    }

    fn index(&self, waiter: &W) -> Option<usize> {
        self.seats.iter().position(|seat| seat.waiter == *waiter)
    }

    /// Returns the first of the turns with this charge and mark: without entries, several calls of one
    /// instant have one mark.
    fn index_of_turn(&self, claim: &Claim, outcome: Outcome) -> Option<usize> {
        let is_it = |seat: &Seat<W>| seat.outcome.mark == outcome.mark && seat.claim == *claim;
        self.seats.iter().position(is_it)
    }

    /// Adds a call behind those with an earlier or the same turn. Replies may come in another order than
    /// their turns, and late: a call before this one passes no later. Returns the calls that are to look
    /// again.
    pub(super) fn insert(&mut self, seat: Seat<W>) -> Vec<W> {
        let at = seat.outcome.mark.at;
        let index = self.seats.partition_point(|before| before.outcome.mark.at <= at);
        let mut moved = Vec::new();
        for before in &mut self.seats[..index] {
            if before.turn > seat.turn {
                before.turn = seat.turn;
                moved.push(before.waiter.clone());
            }
        }
        let next = self.seats.get(index).map_or(seat.turn, |next| next.turn);
        self.seats.insert(index, Seat { turn: seat.turn.min(next), ..seat });
        self.hurries |= index == 0 && !self.is_remote;
        moved
    }

    /// Removes a call. Those behind it with the same charge move up, and the turn of the last of them is
    /// free.
    pub(super) fn leave(&mut self, waiter: &W) -> Option<Freed<W>> {
        let mut at = self.index(waiter)?;
        let mut moved = Vec::new();
        for next in at + 1..self.seats.len() {
            if self.seats[at].claim.is_shared_with(&self.seats[next].claim) {
                let (before, behind) = self.seats.split_at_mut(next);
                mem::swap(&mut before[at].waiter, &mut behind[0].waiter);
                moved.push(before[at].waiter.clone());
                at = next;
            }
        }
        let Seat { outcome, claim, .. } = self.remove(at, &mut moved);
        Some(Freed { outcome, claim, moved })
    }

    /// Removes a call that passes. Returns its outcome, and the call that is first now.
    pub(super) fn pass(&mut self, waiter: &W) -> Option<(Outcome, Vec<W>)> {
        let index = self.index(waiter)?;
        let mut moved = Vec::new();
        let seat = self.remove(index, &mut moved);
        Some((seat.outcome, moved))
    }

    /// Removes the call that has this turn. Returns its seat, and the call that is first now.
    pub(super) fn take(&mut self, claim: &Claim, outcome: Outcome) -> Option<(Seat<W>, Vec<W>)> {
        let index = self.index_of_turn(claim, outcome)?;
        let mut moved = Vec::new();
        let seat = self.remove(index, &mut moved);
        Some((seat, moved))
    }

    fn remove(&mut self, index: usize, moved: &mut Vec<W>) -> Seat<W> {
        let seat = self.seats.remove(index);
        if index == 0 {
            self.hurries |= mem::take(&mut self.has_moved) || !self.is_remote;
            moved.extend(self.first());
        }
        seat
    }

    /// Returns the next step of a call; none if it is not in the line.
    pub(super) fn step(&self, waiter: &W, now: Instant) -> Option<NextStep> {
        let index = self.index(waiter)?;
        let seat = &self.seats[index];
        // A call waits for the check of a turn before its own, which may be the older promise.
        let promised = seat.promised.min(self.seats[0].promised);
        let known = self.seen.map_or(promised, |seen| seen.max(promised)) + SEEN;
        if seat.turn <= now {
            let is_known = !self.is_remote || now < known;
            return Some(match (is_known, index) {
                (true, 0) => NextStep::Pass,
                (true, others) => NextStep::PassAfter(others),
                (false, _) => {
                    self.asks_until(now).map_or(NextStep::Check, |end| NextStep::Sleep(Some(end)))
                }
            });
        }
        if index > 0 || self.asks_until(now).is_some() || !(self.hurries || self.is_remote) {
            return Some(NextStep::Sleep(Some(seat.turn)));
        }
        let next = self.asked.map_or(known, |asked| known.max(asked.at + SEEN));
        let is_next = self.hurries || next <= now;
        Some(if is_next { NextStep::Check } else { NextStep::Sleep(Some(seat.turn.min(next))) })
    }

    /// Returns the calls before this one.
    pub(super) fn before(&self, waiter: &W) -> Vec<W> {
        let index = self.index(waiter).unwrap_or(0);
        self.seats[..index].iter().map(|seat| seat.waiter.clone()).collect()
    }

    /// Lets the first call ask at once whether its turn has come nearer, and returns it.
    pub(super) fn hurry(&mut self) -> Option<W> {
        self.hurries = true;
        self.first()
    }

    /// Begins to ask for the first turn, and returns it.
    pub(super) fn begin_check(&mut self, now: Instant) -> Option<(Claim, Outcome)> {
        let Seat { claim, outcome, .. } = self.seats.first()?;
        self.asked = Some(TurnQuestion { at: now, is_answered: false });
        self.hurries = false;
        Some((*claim, *outcome))
    }

    /// Ends a check. Returns the calls that are to look again: the first, and those whose turn has come.
    pub(super) fn end_check(&mut self, now: Instant) -> Vec<W> {
        self.asked = self.asked.map(|asked| TurnQuestion { is_answered: true, ..asked });
        let seats = self.seats.iter().enumerate();
        let looks = seats.filter(|(index, seat)| *index == 0 || seat.turn <= now);
        looks.map(|(_, seat)| seat.waiter.clone()).collect()
    }

    /// Receives the standing of a turn, as a store has told it by `now` about a moment after `seen`.
    pub(super) fn stands(
        &mut self,
        (claim, asked): (&Claim, Outcome),
        standing: Standing,
        seen: Instant,
        now: Instant,
    ) {
        self.seen = self.seen.max(Some(seen));
        let Some(index) = self.index_of_turn(claim, asked) else { return };
        let seat = &mut self.seats[index];
        self.has_moved = standing.at < seat.outcome.mark.at;
        seat.outcome.mark.at = standing.at;
        seat.turn = seat.turn.min(now + standing.turn.into());
        // The one that was asked for was the first. It may have passed, and left a turn of the same instant.
        let first = self.seats.partition_point(|it| it.outcome.mark.at < standing.at);
        if self.has_moved && first < index {
            self.seats[first..=index].rotate_right(1);
        }
    }

    /// Removes all calls, in order.
    pub(super) fn take_all(&mut self) -> Vec<Seat<W>> {
        mem::take(&mut self.seats)
    }

    /// Removes the calls whose turn has come, in order.
    pub(super) fn take_due(&mut self, now: Instant) -> Vec<Seat<W>> {
        let due = self.seats.partition_point(|seat| seat.turn <= now);
        self.seats.drain(..due).collect()
    }
}
