//! The progress of a waiting call, from its arrival to its answer.

use std::{mem, sync::Arc, time::Duration};

use tokio::time::Instant;

use super::{
    lines::{Aftermath, KeyQueue, Lines, TurnCheck},
    permit_queue::PermitStep,
    seats::{NextStep, Seat},
    waiter::{Question, WaitStage, Waiter},
};
use crate::{
    limiter::permit::Decided,
    request::{DecidedBy, Outcome},
    time::Micros,
};

/// The time for which a call whose turn has come lets those before it pass first, whose turn has come too. It
/// begins anew when one of them passes. Their futures may not be polled.
const GRACE: Duration = Duration::from_millis(1);

/// The end of a [`GRACE`], and the number of calls before.
pub(super) type Grace = Option<(Instant, usize)>;

/// The next step of a waiting call.
pub(super) enum Look {
    Answered(Decided),
    /// It looks again: a question is asked.
    Again,
    /// It asks a store for the first turn of its line.
    Check(Box<TurnCheck>),
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
                    *stage = if self.is_queued(queue) {
                        WaitStage::Queued
                    } else {
                        WaitStage::Answered(Ok(Outcome::busy()).into())
                    };
                }
                WaitStage::Outside | WaitStage::Paused(_) => {
                    *stage = after.ask(self);
                }
                WaitStage::InLine { is_remote, .. } => {
                    after.woken.extend(queue.line(*is_remote).hurry_each());
                }
                WaitStage::Queued | WaitStage::Asking(_) => {
                    after.woken.extend(queue.permits.hurry());
                }
                WaitStage::Answered(_) => {}
            }
        };
        self.lines().change(&self.text, arrive).1
    }

    /// Returns `true` if the call waits for a permit: it is in the queue, or there is room for it.
    fn is_queued(self: &Arc<Self>, queue: &mut KeyQueue) -> bool {
        let is_remote = self.is_remote(DecidedBy::Store);
        queue.permits.still_waits(self) || queue.permits.push(self, is_remote, self.max_line())
    }

    /// Returns the call's next step. Until `grace`, which is set when its turn has come, it lets others pass
    /// first.
    pub(super) fn look(self: &Arc<Self>, grace: &mut Grace) -> (Look, Aftermath) {
        let now = Instant::now();
        self.lines().change(&self.text, |queue, after| {
            let mut stage = self.stage.lock();
            let (look, next) = match mem::take(&mut *stage) {
                WaitStage::InLine { is_remote, permit } => {
                    match self.look_in_line(queue, is_remote, now, grace, after) {
                        Ok(outcome) => {
                            let outcome = Ok(outcome);
                            (Look::Answered(Decided { outcome, permit }), WaitStage::Outside)
                        }
                        Err(look) => (look, WaitStage::InLine { is_remote, permit }),
                    }
                }
                WaitStage::Queued => match queue.permits.look(self, self.ends(), now) {
                    PermitStep::Ask => (Look::Again, after.ask(self)),
                    PermitStep::Sleep(until) => (Look::Sleep(until), WaitStage::Queued),
                    PermitStep::Over => {
                        after.woken.extend(queue.permits.leave(self));
                        (Look::Answered(Ok(Outcome::busy()).into()), WaitStage::Outside)
                    }
                },
                WaitStage::Paused(until) if now < until => {
                    (Look::Sleep(Some(until)), WaitStage::Paused(until))
                }
                WaitStage::Paused(_) => (Look::Again, after.ask(self)),
                WaitStage::Answered(decided) => (Look::Answered(decided), WaitStage::Outside),
                other => (Look::Await, other),
            };
            *stage = next;
            look
        })
    }

    /// Returns the outcome of a call that passes, or its next step.
    fn look_in_line(
        self: &Arc<Self>,
        queue: &mut KeyQueue,
        is_remote: bool,
        now: Instant,
        grace: &mut Grace,
        after: &mut Aftermath,
    ) -> Result<Outcome, Look> {
        let line = queue.line(is_remote);
        match line.step(self, now).expect("a call in line has a turn") {
            NextStep::PassAfter(others)
                if grace.is_none_or(|(end, before)| now < end || others < before) =>
            {
                if grace.is_none() {
                    after.woken.extend(line.before(self));
                }
                if grace.is_none_or(|(_, before)| others < before) {
                    *grace = Some((now + GRACE, others));
                }
                Err(Look::Sleep(grace.map(|(end, _)| end)))
            }
            NextStep::Pass | NextStep::PassAfter(_) => {
                let (seat, moved) = line.pass(self).expect("a call in line has a turn");
                after.woken.extend(moved);
                Ok(seat.outcome_under(&self.policy()))
            }
            NextStep::Check => Err(line.begin_check(now).map_or(Look::Sleep(None), |seat| {
                let Seat { claim, outcome, ref waiter, .. } = *seat;
                let (waiter, policy) = (Arc::clone(waiter), waiter.policy());
                Look::Check(Box::new(TurnCheck { waiter, is_remote, claim, outcome, policy }))
            })),
            NextStep::Sleep(until) => Err(Look::Sleep(until)),
        }
    }

    /// Takes the call out of its line. The answer to a question that is out is given back once it comes.
    pub(super) fn withdraw(self: &Arc<Self>) -> Aftermath {
        let withdraw = |queue: &mut KeyQueue, after: &mut Aftermath| match mem::take(
            &mut *self.stage.lock(),
        ) {
            WaitStage::InLine { is_remote, permit } => {
                after.free(queue.line(is_remote).leave(self));
                after.permits.push(permit);
            }
            WaitStage::Queued | WaitStage::Asking(_) => {
                after.woken.extend(queue.permits.leave(self));
            }
            WaitStage::Answered(decided) => {
                after.give_back(self, &self.claim(), decided);
            }
            WaitStage::Outside | WaitStage::Paused(_) => {}
        };
        self.lines().change(&self.text, withdraw).1
    }

    /// Returns the turn of a call in line.
    pub(super) fn turn(self: &Arc<Self>) -> Option<Instant> {
        let turn = |queue: &mut KeyQueue, _: &mut Aftermath| match &*self.stage.lock() {
            WaitStage::InLine { is_remote, .. } => queue.line(*is_remote).turn(self),
            _ => None,
        };
        self.lines().change(&self.text, turn).0
    }
}

impl Question {
    /// Receives the answer of a store. Without one the call asks `again` at that time. One that is outdated
    /// brings the calls behind its turn nearer, and what nobody takes is given back.
    pub(super) fn receive(&self, decided: Decided, again: Option<Instant>) -> Aftermath {
        let Self { waiter, number, claim } = self;
        let outcome = decided.outcome.ok();
        let admitted = outcome.filter(|outcome| outcome.admitted && outcome.decided_by.counts());
        let is_busy = outcome.is_some_and(|outcome| outcome.is_busy);
        let receive = |queue: &mut KeyQueue, after: &mut Aftermath| {
            let mut stage = waiter.stage.lock();
            let is_current = matches!(*stage, WaitStage::Asking(asked) if asked == *number);
            // An override may have come since the question.
            let is_overridden = waiter.policy() != claim.policy;
            if is_current && !is_busy {
                after.woken.extend(queue.permits.leave(waiter));
            }
            // Calls before it may still sleep, by a reply that came later after its turn.
            let turn = admitted.and_then(|outcome| {
                let is_remote = waiter.is_remote(outcome.decided_by);
                let has_line = !queue.line(is_remote).is_empty();
                (outcome.turn() > Micros::ZERO || has_line).then_some((outcome, is_remote))
            });
            if let Some((outcome, is_remote)) = turn {
                let index = queue.enter_line(self, is_remote, outcome, after);
                if is_current {
                    *stage = WaitStage::InLine { is_remote, permit: decided.permit };
                } else {
                    after.free(Some(queue.line(is_remote).leave_at(index)));
                    after.permits.push(decided.permit);
                }
                if is_overridden {
                    after.woken.extend(queue.line(is_remote).hurry_each());
                }
            } else if !is_current {
                after.give_back(waiter, claim, decided);
            } else if is_busy && waiter.is_queued(queue) {
                let pause = outcome.map(|outcome| outcome.more).filter(|it| *it > Micros::ZERO);
                queue.permits.pause_for(pause.map(Duration::from));
                *stage = WaitStage::Queued;
            } else if is_overridden && outcome.is_some_and(|it| !it.admitted && !is_busy) {
                *stage = after.ask(waiter);
            } else {
                *stage = again.map_or(WaitStage::Answered(decided), WaitStage::Paused);
            }
            after.woken.push(Arc::clone(waiter));
        };
        waiter.lines().change(&waiter.text, receive).1
    }
}
