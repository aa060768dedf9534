//! The progress of a waiting call, from its arrival to its answer.

use std::{mem, sync::Arc, time::Duration};

use tokio::time::Instant;

use super::{
    line::{Claim, LineId, NextStep},
    lines::{Aftermath, FreedTurn, LineState, Lines, TurnCheck},
    permit_queue::{PermitQueue, PermitStep},
    waiter::{WaitStage, Waiter},
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
    /// It asks again.
    Ask,
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

    /// Begins to ask for a turn. Returns `false` if calls before this one wait for a permit: it then waits
    /// behind them, or is refused.
    pub(super) fn begin(self: &Arc<Self>, takes_permit: bool) -> bool {
        let next = if takes_permit && !self.lines().is_empty() {
            self.lines().change(|state| match state.queues.get_mut(&self.text) {
                None => WaitStage::Asking,
                Some(queue) if queue.has_room(self.max_line()) => {
                    queue.push(Arc::clone(self));
                    WaitStage::Queued
                }
                Some(_) => WaitStage::Answered(Ok(Outcome::busy()).into()),
            })
        } else {
            WaitStage::Asking
        };
        let is_asking = matches!(next, WaitStage::Asking);
        *self.stage.lock() = next;
        is_asking
    }

    /// Receives the answer of a store. Without one the call asks `again` at that time.
    pub(super) fn receive(
        self: &Arc<Self>,
        decided: Decided,
        again: Option<Instant>,
        claim: &Claim,
    ) -> Aftermath {
        let mut after = Aftermath::default();
        let outcome = decided.outcome.ok();
        let admitted = outcome.filter(|outcome| outcome.admitted && outcome.decided_by.counts());
        let is_busy = outcome.is_some_and(|outcome| outcome.is_busy);
        self.lines().change(|state| {
            let mut stage = self.stage.lock();
            let is_dropped = matches!(*stage, WaitStage::Dropped);
            if !is_busy || is_dropped {
                state.leave_queue(self, &mut after);
            }
            // Calls before it may still sleep, by a reply that came later after its turn.
            let turn = admitted.map(|outcome| (outcome, self.line_id(outcome.decided_by)));
            let turn = turn.filter(|(outcome, id)| {
                outcome.turn() > Micros::ZERO || state.lines.contains_key(id)
            });
            if let Some((outcome, id)) = turn {
                after.woken.extend(state.enter_line(self, &id, outcome, claim));
                if is_dropped {
                    state.leave_line(self, &id, &mut after);
                    after.permits.push(decided.permit);
                } else {
                    *stage = WaitStage::InLine(id, decided.permit);
                }
            } else if is_dropped {
                if let Some(outcome) = outcome.filter(|outcome| outcome.admitted) {
                    after.freed.push(FreedTurn {
                        waiter: Arc::clone(self),
                        claim: *claim,
                        outcome,
                    });
                }
                after.permits.push(decided.permit);
            } else if is_busy && self.is_queued(state) {
                let pause = outcome.map(|outcome| outcome.more).filter(|it| *it > Micros::ZERO);
                if let (Some(pause), Some(queue)) = (pause, state.queues.get_mut(&self.text)) {
                    queue.pause_for(pause.into());
                }
                *stage = WaitStage::Queued;
            } else {
                *stage = again.map_or(WaitStage::Answered(decided), WaitStage::Paused);
            }
            after.woken.push(Arc::clone(self));
        });
        after
    }

    /// Returns `true` if the call waits for a permit: it is in the queue, or there is room for it.
    fn is_queued(self: &Arc<Self>, state: &mut LineState) -> bool {
        let is_remote = self.is_remote(DecidedBy::Store);
        let queue = state.queues.entry(self.text.clone());
        let queue = queue.or_insert_with(|| PermitQueue::new(is_remote));
        let is_queued = queue.still_waits(self)
            || queue.has_room(self.max_line()) && {
                queue.push(Arc::clone(self));
                true
            };
        if queue.is_empty() {
            state.queues.remove(&self.text);
        }
        is_queued
    }

    /// Returns the call's next step. Until `grace`, which is set when its turn has come, it lets others pass
    /// first.
    pub(super) fn look(self: &Arc<Self>, grace: &mut Grace) -> (Look, Aftermath) {
        let (now, mut after) = (Instant::now(), Aftermath::default());
        let look = self.lines().change(|state| {
            let mut stage = self.stage.lock();
            match mem::take(&mut *stage) {
                WaitStage::InLine(id, permit) => {
                    let look = self.look_in_line(state, &id, now, grace, &mut after);
                    match look {
                        Ok(outcome) => Look::Answered(Decided { outcome: Ok(outcome), permit }),
                        Err(look) => {
                            *stage = WaitStage::InLine(id, permit);
                            look
                        }
                    }
                }
                WaitStage::Queued => {
                    let queue = state.queues.get_mut(&self.text);
                    match queue.map_or(PermitStep::Over, |queue| queue.look(self, self.ends(), now))
                    {
                        PermitStep::Ask => {
                            *stage = WaitStage::Asking;
                            Look::Ask
                        }
                        PermitStep::Sleep(until) => {
                            *stage = WaitStage::Queued;
                            Look::Sleep(until)
                        }
                        PermitStep::Over => {
                            state.leave_queue(self, &mut after);
                            Look::Answered(Ok(Outcome::busy()).into())
                        }
                    }
                }
                WaitStage::Paused(until) if now >= until => {
                    *stage = WaitStage::Asking;
                    Look::Ask
                }
                WaitStage::Paused(until) => {
                    *stage = WaitStage::Paused(until);
                    Look::Sleep(Some(until))
                }
                WaitStage::Answered(decided) => Look::Answered(decided),
                other => {
                    *stage = other;
                    Look::Await
                }
            }
        });
        (look, after)
    }

    /// Returns the outcome of a call that passes, or its next step.
    fn look_in_line(
        self: &Arc<Self>,
        state: &mut LineState,
        id: &LineId,
        now: Instant,
        grace: &mut Grace,
        after: &mut Aftermath,
    ) -> Result<Outcome, Look> {
        let line = state.lines.get_mut(id).expect("a call in line has a line");
        match line.step(self, now).expect("a call in line has a turn") {
            NextStep::PassAfter(others)
                if grace.is_none_or(|(end, before)| now < end || others < before) =>
            {
                if grace.is_none() {
                    after.woken = line.before(self);
                }
                if grace.is_none_or(|(_, before)| others < before) {
                    *grace = Some((now + GRACE, others));
                }
                Err(Look::Sleep(grace.map(|(end, _)| end)))
            }
            NextStep::Pass | NextStep::PassAfter(_) => {
                let (outcome, moved) = line.pass(self).expect("a call in line has a turn");
                after.woken.extend(moved);
                state.remove_if_empty(id);
                Ok(outcome)
            }
            NextStep::Check => {
                Err(line.begin_check(now).map_or(Look::Sleep(None), |(claim, outcome)| {
                    Look::Check(Box::new(TurnCheck { id: id.clone(), claim, outcome }))
                }))
            }
            NextStep::Sleep(until) => Err(Look::Sleep(until)),
        }
    }

    /// Takes the call out of its line, to ask anew or because it is dropped.
    pub(super) fn withdraw(self: &Arc<Self>, next: WaitStage) -> Aftermath {
        let mut after = Aftermath::default();
        self.lines().change(|state| {
            let mut stage = self.stage.lock();
            match mem::replace(&mut *stage, next) {
                WaitStage::InLine(id, permit) => {
                    state.leave_line(self, &id, &mut after);
                    after.permits.push(permit);
                }
                WaitStage::Queued => state.leave_queue(self, &mut after),
                WaitStage::Answered(decided) => {
                    if let Some(outcome) = decided.outcome.ok().filter(|it| it.admitted) {
                        let (waiter, claim) = (Arc::clone(self), self.claim());
                        after.freed.push(FreedTurn { waiter, claim, outcome });
                    }
                    after.permits.push(decided.permit);
                }
                // The answer to a call that asks is received by the task that awaits it.
                WaitStage::Asking
                | WaitStage::Paused(_)
                | WaitStage::Outside
                | WaitStage::Dropped => {}
            }
        });
        after
    }

    /// Returns the turn of a call in line.
    pub(super) fn turn(self: &Arc<Self>) -> Option<Instant> {
        self.lines().change(|state| match &*self.stage.lock() {
            WaitStage::InLine(id, _) => state.lines.get(id)?.turn(self),
            _ => None,
        })
    }

    pub(super) fn line_id(&self, decided_by: DecidedBy) -> LineId {
        LineId { key: self.text.clone(), is_remote: self.is_remote(decided_by) }
    }
}
