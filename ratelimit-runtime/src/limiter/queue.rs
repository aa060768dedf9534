//! The queue of a key: its calls that wait in this process, for their turns and for permits.
//!
//! A turn belongs to the queue, and the call at its place passes at it. When a call leaves, those behind it
//! move up to earlier turns, and the last turn is given back to the store. [`step`] has the progress of a call,
//! and [`permits`] the order in which calls ask for permits. A change returns what follows from it as an
//! [`Aftermath`], because stores are asked without the lock of the queues.

#[cfg(all(test, not(ratelimit_loom)))]
mod model;
mod permits;
mod queued_turn;
mod queues;
mod step;
#[cfg(test)]
mod tests;
mod waiter;

use std::{collections::BTreeMap, mem, sync::Arc, time::Duration};

use tokio::time::Instant;

use self::queued_turn::TurnPosition;
pub(super) use self::{
    queued_turn::QueuedTurn,
    queues::Queues,
    step::NextStep,
    waiter::{Question, Waiter, wake},
};
use super::backend::Decided;
use crate::{
    decision::Permit,
    error::UnavailableReason,
    policy::Policy,
    request::{Standing, next_id},
    time::Timestamp,
};

/// The time for which a turn on Redis counts as promised after it was last seen there.
const SEEN: Duration = Duration::from_secs(1);

/// The calls of one key that wait.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a fact of its own, and several hold at once"
)]
#[derive(Default)]
#[cfg_attr(test, derive(Clone))]
pub(super) struct KeyQueue {
    /// The stages of all calls, by their numbers.
    calls: BTreeMap<u64, WaitStage>,
    /// The promised turns, in their order.
    turns: BTreeMap<TurnPosition, QueuedTurn>,
    /// The number of turns that have been added.
    added: u64,
    /// The calls that wait for a permit, in the order of their arrival.
    permits: BTreeMap<u64, Arc<Waiter>>,
    /// The call of these for which a question is out.
    asking: Option<u64>,
    /// `true` if a permit may be free.
    may_be_free: bool,
    /// The time from which a call asks again for a permit that another process may have freed.
    asks_again: Option<Instant>,
    /// `true` if other processes change turns and permits too.
    is_remote: bool,
    /// The maximum number of calls that wait for a permit.
    max_line: usize,
    /// `true` if each call that gets first asks for its turn. In memory that costs
    /// nothing; after an override, turns may come nearer.
    asks_each: bool,
    /// The time at which the first turn was last known to be promised.
    seen: Option<Instant>,
    /// The last question to a store for the first turn.
    asked: Option<TurnQuestion>,
    /// `true` if the first turn may have come nearer.
    hurries: bool,
    /// `true` if a pause has moved the first turn, until the turns behind it are known.
    pub(super) is_moving: bool,
    /// The grace of calls that have not passed, although they were woken.
    grace: Option<Grace>,
    after: Aftermath,
}

/// The progress of a call in a queue.
#[cfg_attr(test, derive(Clone))]
enum WaitStage {
    /// The [`Question`] of this number is out.
    Asking(u64),
    /// It has the turn at this position, and maybe a permit.
    InLine(TurnPosition, Option<Arc<dyn Permit>>),
    /// It waits for a permit.
    Queued,
    /// Redis could not decide it. It asks again at this time.
    Paused(Instant),
    /// It has its answer, and the turn that has come already.
    Answered(Decided, Option<Box<QueuedTurn>>),
}

/// The changes that follow a move, to be made without the lock.
#[must_use = "a call whose question is not asked waits forever"]
#[derive(Default)]
#[cfg_attr(test, derive(Clone))]
pub(super) struct Aftermath {
    /// Calls that look again.
    pub(super) woken: Vec<Arc<Waiter>>,
    /// Questions to a store, in this order.
    pub(super) asked: Vec<Question>,
    /// Turns that nobody takes.
    pub(super) freed: Vec<QueuedTurn>,
    /// The first turn of a queue, for whose standing a store is asked.
    pub(super) checked: Option<QueuedTurn>,
    /// Permits that are dropped.
    pub(super) permits: Vec<Option<Arc<dyn Permit>>>,
    /// The text of a key under which a call found no permit, and the time after which its queue looks again.
    pub(super) later: Option<(Arc<[u8]>, Duration)>,
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

impl KeyQueue {
    fn new(is_remote: bool, max_line: u32) -> Self {
        let max_line = usize::try_from(max_line).unwrap_or(usize::MAX);
        Self { is_remote, asks_each: !is_remote, max_line, ..Self::default() }
    }

    fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// Asks a call's store for a turn, a permit or both.
    fn ask(&mut self, waiter: &Arc<Waiter>) {
        let number = next_id();
        let stage = self.calls.insert(waiter.number, WaitStage::Asking(number));
        if let Some(WaitStage::InLine(_, permit)) = stage {
            self.after.permits.push(permit);
        }
        self.after.asked.push(Question { waiter: Arc::clone(waiter), number });
    }

    fn first(&self) -> Option<&QueuedTurn> {
        self.turns.values().next()
    }

    fn wake_first(&mut self) {
        self.after.woken.extend(self.turns.values().next().map(|first| Arc::clone(&first.waiter)));
    }

    /// Returns the turn of a call by the clock of this process.
    pub(super) fn turn(&self, waiter: &Waiter) -> Option<Instant> {
        match self.calls.get(&waiter.number) {
            Some(WaitStage::InLine(position, _)) => Some(self.turns[position].comes),
            _ => None,
        }
    }

    /// Returns the position of a turn. Only those of its instant are compared.
    fn position_of(&self, turn: &QueuedTurn) -> Option<TurnPosition> {
        let at = turn.outcome.mark.at;
        let mut turns = self.turns.range((at, 0)..=(at, u64::MAX));
        turns.find(|(_, own)| own.is_charged_as(turn)).map(|(position, _)| *position)
    }

    /// Adds a turn behind those that are earlier or the same. Replies may come in another order than their
    /// turns, and late: a call before this one passes no later.
    fn insert(&mut self, turn: QueuedTurn) -> TurnPosition {
        self.is_moving &= !self.turns.is_empty();
        self.added += 1;
        let (position, mut comes) = ((turn.outcome.mark.at, self.added), turn.comes);
        let before = self.turns.range_mut(..position).rev().map(|(_, before)| before);
        for before in before.take_while(|before| before.comes > comes) {
            before.comes = comes;
            self.after.woken.push(Arc::clone(&before.waiter));
        }
        if let Some((_, next)) = self.turns.range(position..).next() {
            comes = comes.min(next.comes);
        }
        self.turns.insert(position, QueuedTurn { comes, ..turn });
        self.hurries |= self.asks_each && self.is_first(position);
        position
    }

    fn is_first(&self, position: TurnPosition) -> bool {
        self.turns.keys().next() == Some(&position)
    }

    /// Frees the turn of a call that leaves. Those behind it with the same charge move up, and the turn of the last
    /// of them is given back.
    fn free(&mut self, position: TurnPosition) {
        let mut turns = self.turns.range_mut(position..);
        let (_, mut own) = turns.next().expect("a turn of the queue");
        let (claim, mut last) = (own.claim, position);
        for (at, behind) in turns.filter(|(_, behind)| claim.is_shared_with(&behind.claim)) {
            mem::swap(&mut own.waiter, &mut behind.waiter);
            if let Some(WaitStage::InLine(position, _)) = self.calls.get_mut(&own.waiter.number) {
                *position = last;
            }
            self.after.woken.push(Arc::clone(&own.waiter));
            (own, last) = (behind, *at);
        }
        let freed = self.remove(last);
        self.after.freed.push(freed);
    }

    /// Removes a turn. If it was the first, the next one may have come nearer with it.
    fn remove(&mut self, position: TurnPosition) -> QueuedTurn {
        let is_first = self.is_first(position);
        let turn = self.turns.remove(&position).expect("a turn of the queue");
        self.grace = None;
        if is_first {
            let has_moved = self.asked.as_mut().map(|asked| mem::take(&mut asked.has_moved));
            self.hurries |= has_moved == Some(true) || self.asks_each;
            self.wake_first();
        }
        turn
    }

    /// Moves a turn to another time.
    fn move_turn(&mut self, position: TurnPosition, at: Timestamp) {
        let mut turn = self.turns.remove(&position).expect("a turn of the queue");
        turn.outcome.mark.at = at;
        let moved = (at, position.1);
        if let Some(WaitStage::InLine(position, _)) = self.calls.get_mut(&turn.waiter.number) {
            *position = moved;
        }
        self.turns.insert(moved, turn);
    }

    /// Lets the first call ask at once whether its turn has come nearer.
    pub(super) fn hurry(&mut self) {
        self.hurries = true;
        self.wake_first();
    }

    /// Lets each call that gets first ask whether its turn comes nearer under another policy.
    fn hurry_each(&mut self) {
        self.asks_each = true;
        self.hurry();
    }

    /// Lets calls ask anew. A turn that their store may still have is given back first. The call that is first
    /// then asks whether it comes nearer.
    pub(super) fn ask_anew(&mut self, is_taken: impl Fn(&QueuedTurn) -> bool) {
        if !self.turns.values().any(&is_taken) {
            return;
        }
        let turns = mem::take(&mut self.turns).into_iter();
        let (taken, left): (BTreeMap<_, _>, _) = turns.partition(|(_, turn)| is_taken(turn));
        (self.turns, self.hurries, self.grace) = (left, true, None);
        for turn in taken.into_values() {
            self.ask(&turn.waiter);
            self.after.freed.push(turn);
        }
    }

    /// Returns a function from a turn to the time until which it counts as promised. The first turn is checked for
    /// all. Its promise may be older than a call's own.
    fn known_until(&self) -> impl Fn(&QueuedTurn) -> Instant + use<> {
        let (first, seen) = (self.first().map(|first| first.promised), self.seen);
        move |turn| {
            let promised = first.map_or(turn.promised, |first| first.min(turn.promised));
            seen.map_or(promised, |seen| seen.max(promised)) + SEEN
        }
    }

    /// Receives the standing of a turn under a policy, as of `seen`; none if its store has lost it. Redis may then
    /// have lost all turns.
    pub(super) fn receive_standing(
        &mut self,
        turn: &QueuedTurn,
        policy: &Policy,
        standing: Result<Option<Standing>, UnavailableReason>,
        seen: Instant,
    ) {
        // Without a position, the call may have left, and taken its turn out of the store.
        let (position, is_remote, now) = (self.position_of(turn), self.is_remote, Instant::now());
        match standing {
            Ok(None) if position.is_some() => {
                self.ask_anew(|own| is_remote || own.is_charged_as(turn));
            }
            Ok(None) => {}
            // Turns are kept if their policy is the present one, or stricter.
            Ok(Some(Standing { has_room: false, .. }))
                if position.is_some() && turn.claim.is_laxer_than(policy) =>
            {
                self.ask_anew(|own| own.claim.is_laxer_than(policy));
            }
            Ok(Some(standing)) => self.stands(position, standing, seen, now),
            Err(_) => {
                let known_until = self.known_until();
                self.ask_anew(|turn| turn.comes <= now && known_until(turn) <= now);
            }
        }
        self.end_check(now);
    }

    /// Lets the first call look again after a check, and those whose turn has come.
    fn end_check(&mut self, now: Instant) {
        self.asked = self.asked.map(|asked| TurnQuestion { is_answered: true, ..asked });
        let turns = self.turns.values().enumerate();
        let looks = turns.take_while(|(index, turn)| *index == 0 || turn.comes <= now);
        self.after.woken.extend(looks.map(|(_, turn)| Arc::clone(&turn.waiter)));
    }

    /// Moves a turn to its standing, asked for at `seen` and received at `now`.
    fn stands(
        &mut self,
        position: Option<TurnPosition>,
        standing: Standing,
        seen: Instant,
        now: Instant,
    ) {
        self.seen = self.seen.max(Some(seen));
        let Some(position) = position else { return };
        let turn = self.turns.get_mut(&position).expect("a turn of the queue");
        let (comes, before) = (now + standing.turn.into(), position.0);
        let is_later = standing.at > before;
        turn.is_moved |= is_later;
        turn.comes = if is_later { comes } else { turn.comes.min(comes) };
        self.is_moving |= is_later;
        let has_moved = standing.at < before;
        self.asked = self.asked.map(|asked| TurnQuestion { has_moved, ..asked });
        self.move_turn(position, standing.at);
    }

    /// Receives the turns that a store has after a pause, in place of those that it was asked for. A call whose
    /// turn is now beyond its wait asks anew: others may have left.
    pub(super) fn receive_turns(&mut self, asked: &[QueuedTurn], turns: &[Option<Timestamp>]) {
        self.is_moving = false;
        // The last one first, so that no turn is moved to another one's time.
        for (turn, at) in asked.iter().zip(turns).rev() {
            let before = turn.outcome.mark.at;
            if let Some(at) = at.filter(|at| *at > before)
                && let Some(position) = self.position_of(turn)
            {
                let own = self.turns.get_mut(&position).expect("a turn of the queue");
                own.comes += (at - before).into();
                own.is_moved = true;
                self.move_turn(position, at);
            }
        }
        let mut next = None;
        for turn in self.turns.values_mut().rev() {
            turn.comes = next.map_or(turn.comes, |next| turn.comes.min(next));
            next = Some(turn.comes);
            // Some sleep until the queue is asked for once more.
            self.after.woken.push(Arc::clone(&turn.waiter));
        }
        self.ask_anew(|turn| turn.is_moved && turn.comes > turn.waiter.ends());
    }

    /// Returns the turns, in order.
    pub(super) fn turns(&self) -> Vec<QueuedTurn> {
        self.turns.values().cloned().collect()
    }
}
