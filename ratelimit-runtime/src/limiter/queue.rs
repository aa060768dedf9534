//! The queue of a key: its calls that wait in this process, for their turns and for permits.
//!
//! A turn belongs to the queue, and the call at its place passes at it. When a call leaves, those
//! behind it move up to earlier turns, and the last turn is given back to the store. [`step`] has
//! the progress of a call, and [`permits`] the order in which calls ask for permits. A change
//! returns what follows from it as an [`Aftermath`], because stores are asked without the lock of
//! the queues.

#[cfg(all(test, not(ratelimit_loom)))]
#[path = "../../../tests/models/line.rs"]
mod model;
mod permits;
mod queued_turn;
mod queues;
mod step;
#[cfg(test)]
mod tests;
mod turn_line;
mod waiter;

use std::{collections::BTreeMap, mem, sync::Arc, time::Duration};

use tokio::time::Instant;

use self::{
    permits::PermitLine,
    queued_turn::TurnPosition,
    turn_line::{TurnLine, TurnQuestion},
};
pub(super) use self::{
    queued_turn::QueuedTurn,
    queues::Queues,
    step::NextStep,
    waiter::{Question, Waiter, wake},
};
use super::backend::Decided;
use crate::{
    decision::Permit,
    error::Replied,
    policy::Policy,
    request::{Standing, next_id},
    time::Timestamp,
};

/// The calls of one key that wait.
#[derive(Default)]
#[cfg_attr(test, derive(Clone))]
pub(super) struct KeyQueue {
    /// The stages of all calls, by their numbers.
    calls: BTreeMap<u64, WaitStage>,
    /// The turns that are promised to some of them.
    line: TurnLine,
    /// Those that wait for a permit.
    permits: PermitLine,
    /// `true` if other processes change turns and permits too.
    is_remote: bool,
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
    /// The text of a key under which a call found no permit, and the time after which its queue
    /// looks again.
    pub(super) later: Option<(Arc<[u8]>, Duration)>,
}

impl KeyQueue {
    fn new(is_remote: bool, max_line: u32) -> Self {
        let (line, permits) = (TurnLine::new(!is_remote), PermitLine::new(is_remote, max_line));
        Self { line, permits, is_remote, ..Self::default() }
    }

    /// Returns what follows from the changes since this was last called.
    fn take_after(&mut self) -> Aftermath {
        Aftermath { woken: mem::take(&mut self.line.woken), ..mem::take(&mut self.after) }
    }

    /// Records that a permit may be free.
    pub(super) fn permit_is_free(&mut self) {
        self.permits.freed();
    }

    /// Asks for a permit that may be free, for the first call that waits for one.
    fn ask_for_permit(&mut self) {
        if let Some(first) = self.permits.next() {
            self.ask(&first);
        }
    }

    /// Asks a call's store for a turn, a permit or both.
    fn ask(&mut self, waiter: &Arc<Waiter>) {
        let number = next_id();
        let stage = self.calls.insert(waiter.number, WaitStage::Asking(number));
        // The question asks for a permit, too: this one would be a second one.
        if let Some(WaitStage::InLine(_, permit)) = stage {
            self.after.permits.push(permit);
        }
        self.after.asked.push(Question { waiter: Arc::clone(waiter), number });
    }

    /// Returns the turn of a call by the clock of this process.
    pub(super) fn turn(&self, waiter: &Waiter) -> Option<Instant> {
        match self.calls.get(&waiter.number) {
            Some(WaitStage::InLine(position, _)) => Some(self.line.turns[position].comes),
            _ => None,
        }
    }

    /// Frees the turn of a call that leaves. Those behind it with the same charge move up, and the
    /// turn of the last of them is given back.
    fn free(&mut self, position: TurnPosition) {
        // Those behind the next first call let it pass for all naps. A call that leaves behind it
        // changes none of them.
        if self.line.is_first(position) {
            self.line.grace = None;
        }
        let mut turns = self.line.turns.range_mut(position..);
        let (_, mut own) = turns.next().expect("a turn of the queue");
        let (claim, mut last) = (own.claim, position);
        for (at, behind) in turns.filter(|(_, behind)| claim.is_shared_with(&behind.claim)) {
            // The call behind takes this turn over, and leaves its own one to the next call.
            mem::swap(&mut own.waiter, &mut behind.waiter);
            if let Some(WaitStage::InLine(position, _)) = self.calls.get_mut(&own.waiter.number) {
                *position = last;
            }
            self.line.woken.push(Arc::clone(&own.waiter));
            (own, last) = (behind, *at);
        }
        let freed = self.line.remove(last);
        self.after.freed.push(freed);
    }

    /// Moves a turn to another time.
    fn move_turn(&mut self, position: TurnPosition, at: Timestamp) {
        let mut turn = self.line.turns.remove(&position).expect("a turn of the queue");
        turn.outcome.mark.at = at;
        let moved = (at, position.1);
        if let Some(WaitStage::InLine(position, _)) = self.calls.get_mut(&turn.waiter.number) {
            *position = moved;
        }
        self.line.turns.insert(moved, turn);
    }

    /// Lets calls ask anew. A turn that their store may still have is given back first. The call
    /// that is first then asks whether it comes nearer.
    pub(super) fn ask_anew(&mut self, is_taken: impl Fn(&QueuedTurn) -> bool) {
        // Without a change the line keeps its grace, and its first call need not ask.
        if !self.line.turns.values().any(&is_taken) {
            return;
        }
        let turns = mem::take(&mut self.line.turns).into_iter();
        let (taken, left): (BTreeMap<_, _>, _) = turns.partition(|(_, turn)| is_taken(turn));
        self.line.turns = left;
        self.line.hurries = true;
        // The calls for which others wait may be gone from the line.
        self.line.grace = None;
        for turn in taken.into_values() {
            self.ask(&turn.waiter);
            self.after.freed.push(turn);
        }
    }

    /// Receives the standing of a turn under a policy, as of `seen`; none if its store has lost it.
    /// Redis may then have lost all turns.
    pub(super) fn receive_standing(
        &mut self,
        turn: &QueuedTurn,
        policy: &Policy,
        standing: Replied<Option<Standing>>,
        seen: Instant,
    ) {
        // Without a position, the call may have left, and taken its turn out of the store.
        let position = self.line.position_of(turn);
        let (is_remote, now) = (self.is_remote, Instant::now());
        match standing {
            Ok(None) if position.is_some() => {
                // In memory each next turn is checked as it becomes the first.
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
                // Only turns that have come cannot wait for the next check.
                let known_until = self.line.known_until();
                self.ask_anew(|turn| turn.comes <= now && known_until(turn) <= now);
            }
        }
        self.line.end_check(now);
    }

    /// Moves a turn to its standing, asked for at `seen` and received at `now`.
    fn stands(
        &mut self,
        position: Option<TurnPosition>,
        standing: Standing,
        seen: Instant,
        now: Instant,
    ) {
        // Also if the call has left meanwhile: its store has answered for the line.
        self.line.seen = self.line.seen.max(Some(seen));
        let Some(position) = position else { return };
        let turn = self.line.turns.get_mut(&position).expect("a turn of the queue");
        let (comes, before) = (now + standing.turn.into(), position.0);
        let is_later = standing.at > before;
        turn.is_moved |= is_later;
        // `now` includes the way of the reply, so that of two estimates the earlier one is closer.
        turn.comes = if is_later { comes } else { turn.comes.min(comes) };
        self.line.is_moving |= is_later;
        let has_moved = standing.at < before;
        self.line.asked = self.line.asked.map(|asked| TurnQuestion { has_moved, ..asked });
        self.move_turn(position, standing.at);
    }

    /// Receives the turns that a store has after a pause, in place of those that it was asked for.
    /// A call whose turn is now beyond its wait asks anew: others may have left.
    pub(super) fn receive_turns(&mut self, asked: &[QueuedTurn], turns: &[Option<Timestamp>]) {
        self.line.is_moving = false;
        // The last one first, so that no turn is moved to another one's time.
        for (turn, at) in asked.iter().zip(turns).rev() {
            let before = turn.outcome.mark.at;
            if let Some(at) = at.filter(|at| *at > before)
                && let Some(position) = self.line.position_of(turn)
            {
                let own = self.line.turns.get_mut(&position).expect("a turn of the queue");
                own.comes += (at - before).into();
                own.is_moved = true;
                self.move_turn(position, at);
            }
        }
        let mut next = None;
        for turn in self.line.turns.values_mut().rev() {
            // Estimates differ by the delays of replies: nobody passes after one behind it.
            turn.comes = next.map_or(turn.comes, |next| turn.comes.min(next));
            next = Some(turn.comes);
            // Some sleep until the queue is asked for once more.
            self.line.woken.push(Arc::clone(&turn.waiter));
        }
        self.ask_anew(|turn| turn.is_moved && turn.comes > turn.waiter.ends());
    }

    /// Lets the first call ask at once whether its turn has come nearer.
    pub(super) fn hurry(&mut self) {
        self.line.hurry();
    }

    /// Lets each call that gets first ask whether its turn comes nearer under another policy.
    fn hurry_each(&mut self) {
        self.line.asks_each = true;
        self.hurry();
    }

    /// Returns `true` if a pause has moved the first turn, until the turns behind it are known.
    pub(super) fn is_moving(&self) -> bool {
        self.line.is_moving
    }

    /// Returns the turns, in order.
    pub(super) fn turns(&self) -> Vec<QueuedTurn> {
        self.line.turns.values().cloned().collect()
    }
}
