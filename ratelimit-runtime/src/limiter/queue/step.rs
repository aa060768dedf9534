//! The progress of a call in its queue, from its arrival to its answer.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use super::{
    KeyQueue, WaitStage,
    queued_turn::{QueuedTurn, TurnPosition},
    turn_line::{Grace, SEEN, TurnQuestion},
    waiter::{Question, Waiter},
};
use crate::{
    limiter::backend::Decided,
    policy::Policy,
    request::{DecidedBy, Outcome},
    time::Micros,
};

/// The pause of a call whose turn has come, while it lets calls before it pass first.
pub(super) const NAP: Duration = Duration::from_millis(1);

/// The number of naps after which a call passes those before it, whose futures are not polled.
/// After each one its runtime has polled all that were woken: a process that stands still for long
/// has slept for one.
const NAPS: u32 = 3;

/// The next step of a waiting call.
pub(in crate::limiter) enum NextStep {
    /// It has its answer, and is in the queue no more.
    End(Decided),
    /// It looks again: a store is asked.
    Again,
    /// It sleeps, at most until then.
    Sleep(Instant),
    /// It sleeps until a store has answered.
    Await,
}

impl KeyQueue {
    /// Lets a call ask for its turn, unless calls before it wait for a permit: it then waits behind
    /// them, or is refused. One that has arrived before keeps its place, and looks whether it has
    /// come nearer under another policy.
    pub(in crate::limiter) fn arrive(&mut self, waiter: &Arc<Waiter>, takes_permit: bool) {
        match self.calls.get(&waiter.number) {
            None | Some(WaitStage::Paused(_)) if !takes_permit || self.permits.is_empty() => {
                self.ask(waiter);
            }
            None | Some(WaitStage::Paused(_)) => {
                let stage = if self.permits.waits(waiter) {
                    WaitStage::Queued
                } else {
                    WaitStage::Answered(Ok(Outcome::busy()).into(), None)
                };
                self.calls.insert(waiter.number, stage);
            }
            Some(WaitStage::InLine(..)) => self.hurry_each(),
            // Under another policy there may be more permits than at the last question.
            Some(WaitStage::Queued | WaitStage::Asking(_)) => self.permits.freed(),
            Some(WaitStage::Answered(..)) => {}
        }
    }

    /// Takes the next step of a call that waits under this policy.
    pub(in crate::limiter) fn step(
        &mut self,
        waiter: &Arc<Waiter>,
        policy: &Policy,
        now: Instant,
    ) -> NextStep {
        match self.calls.get(&waiter.number) {
            Some(WaitStage::InLine(position, _)) => {
                if let Some(next) = self.step_in_line(*position, now) {
                    return next;
                }
            }
            Some(WaitStage::Queued) if now < waiter.ends() => {
                return NextStep::Sleep(waiter.ends());
            }
            Some(WaitStage::Paused(until)) if now < *until => return NextStep::Sleep(*until),
            Some(WaitStage::Paused(_)) => {
                self.ask(waiter);
                return NextStep::Again;
            }
            Some(WaitStage::Queued | WaitStage::Answered(..)) => {}
            Some(WaitStage::Asking(_)) | None => return NextStep::Await,
        }
        self.permits.leave(waiter);
        NextStep::End(match self.calls.remove(&waiter.number) {
            Some(WaitStage::Answered(decided, None)) => decided,
            Some(WaitStage::Answered(Decided { permit, .. }, Some(turn))) => {
                Decided { outcome: Ok(turn.outcome_under(policy)), permit }
            }
            // The wait for a permit is over.
            _ => Ok(Outcome::busy()).into(),
        })
    }

    /// Takes the next step of the call at a turn: it sleeps until the turn comes, and checks before
    /// whether the store still has it. Returns nothing if the call passes: it has its answer.
    fn step_in_line(&mut self, position: TurnPosition, now: Instant) -> Option<NextStep> {
        let (turn, is_first) = (&self.line.turns[&position], self.line.is_first(position));
        let (comes, known) = (turn.comes, self.line.known_until()(turn));
        // A question without an answer for so long counts as lost, and another one is asked.
        let is_out = self.line.asked.filter(|asked| !asked.is_answered && now < asked.at + SEEN);
        Some(if comes > now {
            // In memory nobody else moves turns: without a change there is nothing to check.
            let may_check = is_first && is_out.is_none() && (self.line.hurries || self.is_remote);
            // A failed check does not prolong `known`, and would be repeated at once.
            let next = self.line.asked.map_or(known, |asked| known.max(asked.at + SEEN));
            match may_check {
                true if self.line.hurries || next <= now => self.check(now),
                true => NextStep::Sleep(comes.min(next)),
                false => NextStep::Sleep(comes),
            }
        } else if (self.is_remote || self.line.is_moving) && known <= now {
            match is_out {
                Some(asked) => NextStep::Sleep(asked.at + SEEN),
                None => self.check(now),
            }
        } else if self.line.is_moving {
            // A pause has moved the first turn, and perhaps this one: it does not pass yet.
            NextStep::Sleep(known)
        } else {
            NextStep::Sleep(self.pass(position, now)?)
        })
    }

    /// Asks the store for the standing of the first turn.
    pub(super) fn check(&mut self, now: Instant) -> NextStep {
        // Kept from the last answer: the turn may be removed before this one comes.
        let has_moved = self.line.asked.is_some_and(|asked| asked.has_moved);
        self.line.asked = Some(TurnQuestion { at: now, is_answered: false, has_moved });
        self.line.hurries = false;
        self.after.checked = self.line.first().cloned();
        NextStep::Again
    }

    /// Lets the call at a turn that has come pass, after those before it. Returns the end of its
    /// next nap if it lets them pass first. If their futures are not polled, they have their
    /// answers then.
    fn pass(&mut self, position: TurnPosition, now: Instant) -> Option<Instant> {
        if !self.line.is_first(position) {
            match self.line.grace {
                Some(grace) if now < grace.ends => return Some(grace.ends),
                Some(Grace { naps: NAPS, .. }) => {}
                last => {
                    let before = self.line.turns.range(..position);
                    self.line.woken.extend(before.map(|(_, turn)| Arc::clone(&turn.waiter)));
                    let (ends, naps) = (now + NAP, last.map_or(1, |grace| grace.naps + 1));
                    self.line.grace = Some(Grace { ends, naps });
                    return Some(ends);
                }
            }
        }
        while let Some((&first, _)) = self.line.turns.first_key_value()
            && first <= position
        {
            let turn = self.line.remove(first);
            let number = turn.waiter.number;
            if let Some(WaitStage::InLine(_, permit)) = self.calls.remove(&number) {
                let decided = Decided { outcome: Ok(turn.outcome), permit };
                self.calls.insert(number, WaitStage::Answered(decided, Some(Box::new(turn))));
            }
        }
        None
    }

    /// Takes a call out of the queue. The answer to a question that is out is given back once it
    /// comes.
    pub(in crate::limiter) fn withdraw(&mut self, waiter: &Waiter) {
        match self.calls.remove(&waiter.number) {
            Some(WaitStage::InLine(position, permit)) => {
                self.free(position);
                self.after.permits.push(permit);
            }
            Some(WaitStage::Answered(decided, turn)) => {
                self.after.freed.extend(turn.map(|turn| *turn));
                self.after.permits.push(decided.permit);
            }
            Some(WaitStage::Queued | WaitStage::Asking(_)) => self.permits.leave(waiter),
            Some(WaitStage::Paused(_)) | None => {}
        }
    }

    /// Receives a store's answer under a policy, which an override may have changed since. Without
    /// a decision the call asks `again` at that time. What nobody takes is given back. If an answer
    /// is outdated, the calls behind its turn come nearer.
    pub(in crate::limiter) fn receive(
        &mut self,
        question: &Question,
        policy: &Policy,
        decided: Decided,
        again: Option<Instant>,
        is_overridden: bool,
        now: Instant,
    ) {
        let Question { waiter, number } = question;
        let stage = self.calls.get(&waiter.number);
        let is_current = matches!(stage, Some(WaitStage::Asking(asked)) if asked == number);
        let outcome = decided.outcome.ok();
        let is_busy = outcome.is_some_and(|outcome| outcome.is_busy());
        let counted = outcome.filter(|outcome| outcome.admitted && outcome.decided_by.counts());
        let turn = counted.map(|outcome| QueuedTurn::new(waiter, policy, outcome, now));
        // Calls before it may still sleep: each learns late that its turn has come, if its reply
        // was late.
        let is_in_line = counted.is_some_and(|outcome| {
            // The fallback counts by itself, so that its calls are behind none of the store's.
            let is_behind =
                !self.line.turns.is_empty() && outcome.decided_by != DecidedBy::Fallback;
            outcome.turn > Micros::ZERO || is_behind
        });
        if is_current && !is_busy {
            self.permits.leave(waiter);
        }
        self.line.woken.push(Arc::clone(waiter));
        let stage = if let Some(turn) = turn.clone().filter(|_| is_in_line) {
            // Also if nobody wants it any more: `free` then moves those behind it up.
            let position = self.line.insert(turn);
            if is_overridden {
                self.hurry_each();
            }
            if !is_current {
                self.free(position);
                return self.after.permits.push(decided.permit);
            }
            WaitStage::InLine(position, decided.permit)
        } else if !is_current {
            self.after.freed.extend(turn);
            return self.after.permits.push(decided.permit);
        } else if is_busy && self.permits.waits(waiter) {
            let pause = outcome.map_or(Micros::ZERO, |it| it.more).into();
            self.after.later = self.permits.found_none(waiter, pause);
            WaitStage::Queued
        } else if is_overridden && !is_busy && decided.is_refused() {
            // The policy that refused it is gone.
            return self.ask(waiter);
        } else {
            again
                .map_or_else(|| WaitStage::Answered(decided, turn.map(Box::new)), WaitStage::Paused)
        };
        self.calls.insert(waiter.number, stage);
    }
}
