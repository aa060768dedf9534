//! The line of this process under one key: its waiting calls, and the turns that a store has promised them.
//!
//! A turn belongs to the line, and the call at its place passes at it. When a call leaves, those behind it
//! move up to earlier turns, and the last turn is given back to the store.

#[cfg(test)]
mod tests;

use std::{collections::VecDeque, mem, time::Duration};

use tokio::time::Instant;

use crate::{
    policy::Policy,
    request::{Outcome, Place, Standing},
};

/// The time for which a turn on Redis counts as promised after it was last seen there.
pub(super) const SEEN: Duration = Duration::from_secs(1);

/// The waiting calls of one key, in the order of their turns.
pub(super) struct Line<W> {
    seats: VecDeque<Seat<W>>,
    /// `true` if other processes change the turns too.
    is_remote: bool,
    /// `true` if each call that gets first asks for its turn. In memory a refund may have come between the
    /// store's answer and its receipt; after an override, turns may come nearer.
    asks_each: bool,
    /// The time at which the first turn was last known to be promised.
    seen: Option<Instant>,
    /// The last question to a store for the first turn.
    asked: Option<TurnQuestion>,
    /// `true` if the first turn may have come nearer.
    hurries: bool,
}

#[derive(Clone, Copy)]
struct TurnQuestion {
    at: Instant,
    is_answered: bool,
    /// `true` if the turn has come nearer: the next one may then, too.
    has_moved: bool,
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

impl<W> Seat<W> {
    /// Returns the outcome with the numbers of the policy that the call waits under now.
    pub(super) fn outcome_under(&self, policy: &Policy) -> Outcome {
        let Self { outcome, claim, .. } = self;
        if claim.policy == *policy {
            return *outcome;
        }
        let quota = |policy: &Policy, tier| policy.quota_of(policy.tier_of(tier));
        let used = quota(&claim.policy, outcome.tier).saturating_sub(outcome.remaining);
        let tier = if usize::from(outcome.tier) < policy.tiers().len() { outcome.tier } else { 0 };
        let remaining = quota(policy, tier).saturating_sub(used);
        Outcome { tier, remaining, ..*outcome }
    }
}

impl<W: Clone + PartialEq> Line<W> {
    pub(super) fn new(is_remote: bool) -> Self {
        let (seats, seen, asked, hurries) = Default::default();
        Self { seats, is_remote, asks_each: !is_remote, seen, asked, hurries }
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
        self.seats.front().map(|first| first.waiter.clone())
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
    /// their turns, and late: a call before this one passes no later. Returns its index, and the calls that
    /// are to look again.
    pub(super) fn insert(&mut self, seat: Seat<W>) -> (usize, Vec<W>) {
        let at = seat.outcome.mark.at;
        let index = self.seats.partition_point(|before| before.outcome.mark.at <= at);
        let mut moved = Vec::new();
        for before in self.seats.range_mut(..index) {
            if before.turn > seat.turn {
                before.turn = seat.turn;
                moved.push(before.waiter.clone());
            }
        }
        let next = self.seats.get(index).map_or(seat.turn, |next| next.turn);
        self.seats.insert(index, Seat { turn: seat.turn.min(next), ..seat });
        self.hurries |= index == 0 && self.asks_each;
        (index, moved)
    }

    /// Removes a call, as [`leave_at`](Self::leave_at).
    pub(super) fn leave(&mut self, waiter: &W) -> Option<(Seat<W>, Vec<W>)> {
        Some(self.leave_at(self.index(waiter)?))
    }

    /// Removes the call at an index. Those behind it with the same charge move up. Returns it on the turn of
    /// the last of them, which is free, and the calls whose turns have changed, or that are first now.
    pub(super) fn leave_at(&mut self, mut index: usize) -> (Seat<W>, Vec<W>) {
        let (mut moved, seats) = (Vec::new(), self.seats.make_contiguous());
        for next in index + 1..seats.len() {
            if seats[index].claim.is_shared_with(&seats[next].claim) {
                let (before, behind) = seats.split_at_mut(next);
                mem::swap(&mut before[index].waiter, &mut behind[0].waiter);
                moved.push(before[index].waiter.clone());
                index = next;
            }
        }
        (self.remove(index, &mut moved), moved)
    }

    /// Removes a call that passes. Returns its seat, and the call that is first now.
    pub(super) fn pass(&mut self, waiter: &W) -> Option<(Seat<W>, Vec<W>)> {
        let mut moved = Vec::new();
        Some((self.remove(self.index(waiter)?, &mut moved), moved))
    }

    /// Removes the call that has this turn. Returns its seat, and the call that is first now.
    pub(super) fn take(&mut self, claim: &Claim, outcome: Outcome) -> Option<(Seat<W>, Vec<W>)> {
        let mut moved = Vec::new();
        Some((self.remove(self.index_of_turn(claim, outcome)?, &mut moved), moved))
    }

    fn remove(&mut self, index: usize, moved: &mut Vec<W>) -> Seat<W> {
        let seat = self.seats.remove(index).expect("a seat of the line");
        if index == 0 {
            let has_moved = self.asked.as_mut().map(|asked| mem::take(&mut asked.has_moved));
            self.hurries |= has_moved == Some(true) || self.asks_each;
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
        self.seats.range(..index).map(|seat| seat.waiter.clone()).collect()
    }

    /// Lets the first call ask at once whether its turn has come nearer, and returns it.
    pub(super) fn hurry(&mut self) -> Option<W> {
        self.hurries = true;
        self.first()
    }

    /// Lets each call that gets first ask whether its turn comes nearer under another policy. Returns the one
    /// that is first now.
    pub(super) fn hurry_each(&mut self) -> Option<W> {
        self.asks_each = true;
        self.hurry()
    }

    /// Begins to ask for the first turn, and returns its seat.
    pub(super) fn begin_check(&mut self, now: Instant) -> Option<&Seat<W>> {
        let has_moved = self.asked.is_some_and(|asked| asked.has_moved);
        self.asked = Some(TurnQuestion { at: now, is_answered: false, has_moved });
        self.hurries = false;
        self.seats.front()
    }

    /// Ends a check. Returns the calls that are to look again: the first, and those whose turn has come.
    pub(super) fn end_check(&mut self, now: Instant) -> Vec<W> {
        self.asked = self.asked.map(|asked| TurnQuestion { is_answered: true, ..asked });
        let seats = self.seats.iter().enumerate();
        let looks = seats.filter(|(index, seat)| *index == 0 || seat.turn <= now);
        looks.map(|(_, seat)| seat.waiter.clone()).collect()
    }

    /// Receives the standing of a turn from the store's reply, asked for at `seen` and received at `now`.
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
        let has_moved = standing.at < seat.outcome.mark.at;
        self.asked = self.asked.map(|asked| TurnQuestion { has_moved, ..asked });
        seat.outcome.mark.at = standing.at;
        seat.turn = seat.turn.min(now + standing.turn.into());
        // The one that was asked for was the first. It may have passed, and left a turn of the same instant.
        let first = self.seats.partition_point(|it| it.outcome.mark.at < standing.at);
        if has_moved && first < index {
            self.seats.make_contiguous()[first..=index].rotate_right(1);
        }
    }

    /// Removes all calls, in order.
    pub(super) fn take_all(&mut self) -> VecDeque<Seat<W>> {
        mem::take(&mut self.seats)
    }

    /// Removes the calls whose turn has come, in order.
    pub(super) fn take_due(&mut self, now: Instant) -> VecDeque<Seat<W>> {
        let due = self.seats.partition_point(|seat| seat.turn <= now);
        self.seats.drain(..due).collect()
    }
}
