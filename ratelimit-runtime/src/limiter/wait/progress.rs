//! The progress of a waiting call, from its arrival to its answer.

use std::{mem, sync::Arc, time::Duration};

use tokio::time::Instant;

use super::{
    lines::{Aftermath, KeyQueue, Lines},
    seats::{NextStep, Seat},
    waiter::{Question, WaitStage, Waiter},
};
use crate::{
    limiter::permit::Decided,
    request::{DecidedBy, Outcome},
    time::Micros,
};

/// The next step of a waiting call, as its future takes it.
pub(super) enum Look {
    Answered(Decided),
    /// It looks again: a store is asked.
    Again,
    /// It sleeps, at most until then.
    Sleep(Option<Instant>),
    /// It sleeps until a store has answered.
    Await,
}

impl Waiter {
    fn lines(&self) -> &Lines {
        &self.call().limiter.inner.lines
    }

    /// Lets a call ask for its turn, unless calls before it wait for a permit: it then waits behind them, or
    /// is refused. One that has arrived before keeps its place, and looks whether it has come nearer under
    /// another policy.
    pub(super) fn arrive(self: &Arc<Self>, takes_permit: bool) -> Aftermath {
        let arrive = |queue: &mut KeyQueue, after: &mut Aftermath| {
            let mut stage = self.stage.lock();
            match &*stage {
                WaitStage::Outside | WaitStage::Paused(_)
                    if takes_permit && !queue.permits.is_empty() =>
                {
                    *stage = if queue.permits.waits(self, self.ends(), self.max_line()) {
                        WaitStage::Queued
                    } else {
                        WaitStage::Answered(Ok(Outcome::busy()).into())
                    };
                }
                WaitStage::Outside | WaitStage::Paused(_) => after.ask(self, &mut stage),
                WaitStage::InLine(_) => after.woken.extend(queue.line.hurry_each()),
                WaitStage::Queued | WaitStage::Asking(_) => queue.permits.hurry(),
                WaitStage::Answered(_) => {}
            }
        };
        self.lines().change(&self.text, arrive).1
    }

    /// Returns the call's next step.
    pub(super) fn look(self: &Arc<Self>) -> (Look, Aftermath) {
        let now = Instant::now();
        self.lines().change(&self.text, |KeyQueue { line, permits }, after| {
            let mut stage = self.stage.lock();
            let step = match &*stage {
                WaitStage::Outside | WaitStage::Asking(_) => return Look::Await,
                WaitStage::InLine(_) => line.step(self, now, &mut after.woken),
                WaitStage::Queued if now < self.ends() => NextStep::Sleep(Some(self.ends())),
                WaitStage::Paused(until) if now < *until => NextStep::Sleep(Some(*until)),
                WaitStage::Paused(_) => NextStep::Ask,
                WaitStage::Queued | WaitStage::Answered(_) => NextStep::End,
            };
            match step {
                NextStep::Ask => after.ask(self, &mut stage),
                NextStep::Check => after.checked = line.begin_check(now).cloned(),
                NextStep::Sleep(until) => return Look::Sleep(until),
                NextStep::End => {
                    return Look::Answered(match mem::take(&mut *stage) {
                        WaitStage::InLine(permit) => {
                            let (seat, moved) = line.pass(self).expect("a call in line has a turn");
                            after.woken.extend(moved);
                            Decided { outcome: Ok(seat.outcome_under(&self.policy())), permit }
                        }
                        WaitStage::Answered(decided) => decided,
                        _ => {
                            permits.leave(self);
                            Ok(Outcome::busy()).into()
                        }
                    });
                }
            }
            Look::Again
        })
    }

    /// Takes the call out of its line. The answer to a question that is out is given back once it comes.
    pub(super) fn withdraw(self: &Arc<Self>) -> Aftermath {
        let withdraw = |queue: &mut KeyQueue, after: &mut Aftermath| match mem::take(
            &mut *self.stage.lock(),
        ) {
            WaitStage::InLine(permit) => {
                if let Some((seat, moved)) = queue.line.leave(self) {
                    after.woken.extend(moved);
                    after.freed.push(seat);
                }
                after.permits.push(permit);
            }
            WaitStage::Queued | WaitStage::Asking(_) => queue.permits.leave(self),
            WaitStage::Answered(Decided { outcome, permit }) => {
                let outcome = outcome.ok().filter(|outcome| outcome.admitted);
                after.freed.extend(outcome.map(|outcome| self.question().seat(outcome)));
                after.permits.push(permit);
            }
            WaitStage::Outside | WaitStage::Paused(_) => {}
        };
        self.lines().change(&self.text, withdraw).1
    }

    /// Returns the time until the turn of a call in line.
    pub(super) fn until_turn(self: &Arc<Self>) -> Option<Duration> {
        Some(self.lines().turn(self)?.duration_since(Instant::now()))
    }
}

impl Question {
    /// Receives the answer of a store. Without one the call asks `again` at that time. After an outdated answer the
    /// calls behind its turn come nearer. What nobody takes is given back.
    pub(super) fn receive(&self, decided: Decided, again: Option<Instant>) -> Aftermath {
        let Self { waiter, number, claim } = self;
        let outcome = decided.outcome.ok();
        let is_busy = outcome.is_some_and(|outcome| outcome.is_busy());
        let seat = outcome.filter(|outcome| outcome.admitted && outcome.decided_by.counts());
        let seat = seat.map(|outcome| self.seat(outcome));
        let receive = |KeyQueue { line, permits }: &mut KeyQueue, after: &mut Aftermath| {
            let mut stage = waiter.stage.lock();
            let is_current = matches!(*stage, WaitStage::Asking(asked) if asked == *number);
            // An override may have come since the question.
            let is_overridden = waiter.policy() != claim.policy;
            if is_current && !is_busy {
                permits.leave(waiter);
            }
            // Calls before it may still sleep: each learns late that its turn has come, if its reply was late.
            let is_in_line = |seat: &Seat<_>| {
                let is_behind = !line.is_empty() && seat.outcome.decided_by != DecidedBy::Fallback;
                seat.outcome.turn() > Micros::ZERO || is_behind
            };
            if let Some(seat) = seat.as_ref().filter(|seat| is_in_line(seat)) {
                let (index, moved) = line.insert(seat.clone());
                after.woken.extend(moved);
                if is_current {
                    *stage = WaitStage::InLine(decided.permit);
                } else {
                    let (freed, moved) = line.leave_at(index);
                    after.woken.extend(moved);
                    after.freed.push(freed);
                    after.permits.push(decided.permit);
                }
                if is_overridden {
                    after.woken.extend(line.hurry_each());
                }
            } else if !is_current {
                after.freed.extend(seat);
                after.permits.push(decided.permit);
            } else if is_busy && permits.waits(waiter, waiter.ends(), waiter.max_line()) {
                let pause = outcome.map_or(Micros::ZERO, |it| it.more).into();
                after.later = permits.found_none(waiter, pause).map(|it| (waiter.text.clone(), it));
                *stage = WaitStage::Queued;
            } else if is_overridden && !is_busy && decided.is_refused() {
                after.ask(waiter, &mut stage);
            } else {
                *stage = again.map_or(WaitStage::Answered(decided), WaitStage::Paused);
            }
            after.woken.push(Arc::clone(waiter));
        };
        waiter.lines().change(&waiter.text, receive).1
    }
}
