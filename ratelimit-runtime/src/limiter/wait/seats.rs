//! The line of this process under one key: its waiting calls, and the turns that a store has promised them.
//!
//! A turn belongs to the line, and the call at its place passes at it. When a call leaves, those behind it
//! move up to earlier turns, and the last turn is given back to the store.

#[cfg(all(test, not(ratelimit_loom)))]
mod model;
#[cfg(test)]
mod tests;

use std::{collections::VecDeque, mem, time::Duration};

use tokio::time::Instant;

use crate::{
    policy::{Policy, Tier},
    request::{Outcome, Place, Standing},
    time::Timestamp,
};

/// The time for which a turn on Redis counts as promised after it was last seen there.
pub(super) const SEEN: Duration = Duration::from_secs(1);

/// The pause of a call whose turn has come, while it lets calls before it pass first.
const NAP: Duration = Duration::from_millis(1);

/// The number of naps after which a call passes those before it, whose futures are not polled. After each one
/// its runtime has polled all that were woken: a process that stands still for long has slept for one.
const NAPS: u32 = 3;

/// The waiting calls of one key, in the order of their turns.
#[cfg_attr(test, derive(Clone, Debug))]
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
    /// The time at which a pause had moved the first turn, until the turns behind it are known.
    moving: Option<Instant>,
    /// The grace of calls that have not passed, although they were woken.
    grace: Option<Grace>,
}

#[derive(Clone, Copy)]
#[cfg_attr(test, derive(Debug))]
struct Grace {
    /// The end of the present nap.
    ends: Instant,
    naps: u32,
}

#[derive(Clone, Copy)]
#[cfg_attr(test, derive(Debug))]
struct TurnQuestion {
    at: Instant,
    is_answered: bool,
    /// `true` if the turn has come nearer: the next one may then, too.
    has_moved: bool,
}

/// A promised turn, and the call that passes at it.
#[derive(Clone)]
#[cfg_attr(test, derive(Debug))]
pub(super) struct Seat<W> {
    /// The store's answer, with the numbers of the turn.
    pub(super) outcome: Outcome,
    /// The turn by the clock of this process.
    pub(super) turn: Instant,
    /// The time of the answer.
    pub(super) promised: Instant,
    pub(super) claim: Claim,
    /// `true` if a call behind it has passed it: its future is not polled.
    pub(super) is_asleep: bool,
    /// `true` if a pause has moved it: it may be beyond the wait of its call.
    pub(super) is_moved: bool,
    pub(super) waiter: W,
}

/// The charge that a turn stands for. Calls of one charge can pass at each other's turns.
#[derive(Clone, Copy, PartialEq, Eq)]
#[cfg_attr(test, derive(Debug))]
pub(super) struct Claim {
    pub(super) policy: Policy,
    pub(super) cost: u32,
    pub(super) id: Option<u64>,
}

/// The next step of a waiting call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NextStep {
    /// Its wait ends: it passes, or has waited for a permit for as long as it may.
    End,
    /// It asks for a permit.
    Ask,
    /// It asks its store for the standing of the first turn.
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

    /// Returns `true` if an override to this policy may forbid the turn. Counts that are carried to the
    /// numbers of a higher limit are rounded, and must refuse nobody.
    pub(super) fn is_laxer_than(&self, now: &Policy) -> bool {
        let before = &self.policy;
        let is_kept = |(before, now): (&Tier, &Tier)| {
            before.period() >= now.period() && before.threshold() <= now.threshold()
        };
        before.tiers().len() != now.tiers().len()
            || !before.tiers().iter().zip(now.tiers()).all(is_kept)
            || before.burst_size() > now.burst_size()
    }
}

impl<W> Seat<W> {
    /// Returns `true` if both have the same mark and claim. In a state without entries, calls of one instant may.
    pub(super) fn has_turn_of(&self, other: &Self) -> bool {
        self.outcome.mark == other.outcome.mark && self.claim == other.claim
    }

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
        let (seats, seen, asked, hurries, moving, grace) = Default::default();
        Self { seats, is_remote, asks_each: !is_remote, seen, asked, hurries, moving, grace }
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
    pub(super) fn has(&self, turn: &Seat<W>) -> bool {
        self.seats.iter().any(|seat| seat.has_turn_of(turn))
    }

    /// Returns the turn of a call by the clock of this process.
    pub(super) fn turn(&self, waiter: &W) -> Option<Instant> {
        Some(self.seats[self.index(waiter)?].turn)
    }

    /// Returns the index of a call. A call that arrives is near the end, and one that passes near the start.
    fn index(&self, waiter: &W) -> Option<usize> {
        let is_it = |index: &usize| self.seats[*index].waiter == *waiter;
        let last = self.seats.len().checked_sub(1)?;
        (0..=last / 2).flat_map(|index| [index, last - index]).find(is_it)
    }

    /// Adds a call behind those with an earlier or the same turn. Replies may come in another order than
    /// their turns, and late: a call before this one passes no later. Returns its index, and the calls that
    /// are to look again.
    pub(super) fn insert(&mut self, seat: Seat<W>) -> (usize, Vec<W>) {
        let at = seat.outcome.mark.at;
        let index = self.seats.partition_point(|before| before.outcome.mark.at <= at);
        let mut moved = Vec::new();
        let before = self.seats.range_mut(..index).rev();
        for before in before.take_while(|before| before.turn > seat.turn) {
            before.turn = seat.turn;
            moved.push(before.waiter.clone());
        }
        self.moving = self.moving.filter(|_| !self.seats.is_empty());
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
                mem::swap(&mut before[index].is_asleep, &mut behind[0].is_asleep);
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

    fn remove(&mut self, index: usize, moved: &mut Vec<W>) -> Seat<W> {
        let seat = self.seats.remove(index).expect("a seat of the line");
        self.grace = None;
        if index == 0 {
            let has_moved = self.asked.as_mut().map(|asked| mem::take(&mut asked.has_moved));
            self.hurries |= has_moved == Some(true) || self.asks_each;
            moved.extend(self.first());
        }
        seat
    }

    /// Returns a function from a turn to the time until which it counts as promised. The first turn is checked for
    /// all. Its promise may be older than a call's own.
    fn known_until(&self) -> impl Fn(&Seat<W>) -> Instant + use<W> {
        let (first, seen) = (self.seats.front().map(|first| first.promised), self.seen);
        move |seat| {
            let promised = first.map_or(seat.promised, |first| first.min(seat.promised));
            seen.map_or(promised, |seen| seen.max(promised)) + SEEN
        }
    }

    /// Removes the calls whose turns have come, and are not known to be promised any more.
    pub(super) fn take_unknown(&mut self, now: Instant) -> VecDeque<Seat<W>> {
        let known_until = self.known_until();
        self.take_all(|seat| seat.turn <= now && known_until(seat) <= now)
    }

    /// Returns the next step of a call of the line. Wakes those that it lets pass first.
    pub(super) fn step(&mut self, waiter: &W, now: Instant, woken: &mut Vec<W>) -> NextStep {
        let index = self.index(waiter).expect("a call in line has a turn");
        let (seat, asks_until) = (&self.seats[index], self.asks_until(now));
        let known = self.known_until()(seat);
        if seat.turn > now {
            let may_ask = index == 0 && asks_until.is_none() && (self.hurries || self.is_remote);
            let next = self.asked.map_or(known, |asked| known.max(asked.at + SEEN));
            return match may_ask {
                false => NextStep::Sleep(Some(seat.turn)),
                true if self.hurries || next <= now => NextStep::Check,
                true => NextStep::Sleep(Some(seat.turn.min(next))),
            };
        }
        if (self.is_remote || self.moving.is_some()) && known <= now {
            return asks_until.map_or(NextStep::Check, |end| NextStep::Sleep(Some(end)));
        }
        if self.moving.is_some() {
            return NextStep::Sleep(Some(known));
        }
        self.let_pass(index, now, woken).map_or(NextStep::End, |nap| NextStep::Sleep(Some(nap)))
    }

    /// Returns the end of the next nap of a call whose turn has come, if calls before it are to pass first.
    fn let_pass(&mut self, index: usize, now: Instant, woken: &mut Vec<W>) -> Option<Instant> {
        let before = || self.seats.range(..index).filter(|seat| !seat.is_asleep);
        before().next()?;
        let grace = match self.grace {
            Some(grace) if now < grace.ends => grace,
            Some(Grace { naps: NAPS, .. }) => {
                self.seats.range_mut(..index).for_each(|seat| seat.is_asleep = true);
                return None;
            }
            last => {
                woken.extend(before().map(|seat| seat.waiter.clone()));
                Grace { ends: now + NAP, naps: last.map_or(1, |grace| grace.naps + 1) }
            }
        };
        self.grace = Some(grace);
        Some(grace.ends)
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
        let looks = seats.take_while(|(index, seat)| *index == 0 || seat.turn <= now);
        looks.map(|(_, seat)| seat.waiter.clone()).collect()
    }

    /// Returns the turns, in order.
    pub(super) fn seats(&self) -> impl Iterator<Item = &Seat<W>> {
        self.seats.iter()
    }

    /// Moves the turns that a store was asked for to the later ones that it has after a pause.
    pub(super) fn move_to(&mut self, asked: &[Seat<W>], turns: &[Option<Timestamp>]) {
        self.moving = None;
        for (seat, turn) in asked.iter().zip(turns) {
            let turn = turn.filter(|turn| *turn > seat.outcome.mark.at);
            let own = self.seats.iter_mut().find(|own| own.has_turn_of(seat));
            if let (Some(turn), Some(own)) = (turn, own) {
                own.turn += (turn - own.outcome.mark.at).into();
                (own.outcome.mark.at, own.is_moved) = (turn, true);
            }
        }
        self.seats.make_contiguous().sort_by_key(|seat| seat.outcome.mark.at);
        let mut next = None;
        for seat in self.seats.iter_mut().rev() {
            seat.turn = next.map_or(seat.turn, |next| seat.turn.min(next));
            next = Some(seat.turn);
        }
    }

    /// Receives the standing of a turn from the store's reply, asked for at `seen` and received at `now`. Returns
    /// `true` if a pause has moved it, until the turns behind it are known.
    pub(super) fn stands(
        &mut self,
        turn: &Seat<W>,
        standing: Standing,
        seen: Instant,
        now: Instant,
    ) -> bool {
        self.seen = self.seen.max(Some(seen));
        let is_it = |seat: &Seat<W>| seat.has_turn_of(turn);
        let Some(index) = self.seats.iter().position(is_it) else {
            return self.moving.is_some();
        };
        let seat = &mut self.seats[index];
        let (own, has_moved) = (now + standing.turn.into(), standing.at < seat.outcome.mark.at);
        let is_later = standing.at > seat.outcome.mark.at;
        seat.is_moved |= is_later;
        seat.turn = if is_later { own } else { seat.turn.min(own) };
        self.asked = self.asked.map(|asked| TurnQuestion { has_moved, ..asked });
        seat.outcome.mark.at = standing.at;
        // The question was about the first turn. That may have passed since, and left another one of the same
        // instant.
        let first = self.seats.partition_point(|it| it.outcome.mark.at < standing.at);
        if has_moved && first < index {
            self.seats.make_contiguous()[first..=index].rotate_right(1);
        }
        self.moving = self.moving.or(is_later.then_some(now));
        self.moving.is_some()
    }

    /// Removes the calls of these seats, in order. The one that is first then asks whether it comes nearer.
    pub(super) fn take_all(&mut self, is_taken: impl Fn(&Seat<W>) -> bool) -> VecDeque<Seat<W>> {
        let (taken, left) = mem::take(&mut self.seats).into_iter().partition(is_taken);
        (self.seats, self.hurries, self.grace) = (left, true, None);
        taken
    }
}
