//! The calls of a limiter that wait, in one queue for each key.
//!
//! One lock guards all queues and the progress of their calls. It is held for moves within a queue. Stores
//! are asked, and permits are dropped, without it.

use std::{collections::HashMap, mem, sync::Arc};

use tokio::time::Instant;

use super::{
    permit_queue::PermitQueue,
    seats::{Claim, Line, Seat},
    waiter::{Question, WaitStage, Waiter, text_of},
};
use crate::{
    decision::Permit,
    error::UnavailableReason,
    key::KeyRef,
    limiter::permit::Decided,
    policy::{Policy, Tier},
    redis::Content,
    request::{Outcome, Place, Standing},
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

type Waiters = Vec<Arc<Waiter>>;

/// All calls of a limiter that wait.
#[derive(Default)]
pub(in crate::limiter) struct Lines {
    queues: Mutex<HashMap<Box<[u8]>, KeyQueue>>,
    /// The number of queues, readable without the lock.
    count: AtomicUsize,
}

/// The calls that wait under one key.
pub(super) struct KeyQueue {
    /// Those with a turn: in memory, and on Redis.
    lines: [Line<Arc<Waiter>>; 2],
    /// Those that wait for a permit.
    pub(super) permits: PermitQueue<Arc<Waiter>>,
}

/// A question for the first turn of a line.
#[derive(Clone)]
pub(super) struct TurnCheck {
    /// The call that has the turn.
    pub(super) waiter: Arc<Waiter>,
    pub(super) is_remote: bool,
    pub(super) claim: Claim,
    pub(super) outcome: Outcome,
    /// The policy that the call waits under.
    pub(super) policy: Policy,
}

/// The changes that follow a move, to be made without the lock.
#[derive(Default)]
pub(in crate::limiter) struct Aftermath {
    /// Calls that look again.
    pub(super) woken: Waiters,
    /// Questions to a store, in this order.
    pub(super) asked: Vec<Question>,
    /// Turns that nobody takes.
    pub(super) freed: Vec<FreedTurn>,
    /// Permits that are dropped.
    pub(super) permits: Vec<Option<Arc<dyn Permit>>>,
}

/// A turn that nobody takes, and a call that waits or waited under its key.
pub(super) struct FreedTurn {
    pub(super) waiter: Arc<Waiter>,
    pub(super) claim: Claim,
    pub(super) outcome: Outcome,
}

impl Lines {
    /// Changes the queue of a key, which exists while calls wait in it.
    pub(super) fn change<T>(
        &self,
        key: &[u8],
        change: impl FnOnce(&mut KeyQueue, &mut Aftermath) -> T,
    ) -> (T, Aftermath) {
        let (mut after, mut queues) = (Aftermath::default(), self.queues.lock());
        let changed = if let Some(queue) = queues.get_mut(key) {
            let changed = change(queue, &mut after);
            if queue.is_empty() {
                queues.remove(key);
            }
            changed
        } else {
            let mut queue = KeyQueue::default();
            let changed = change(&mut queue, &mut after);
            if !queue.is_empty() {
                queues.insert(key.into(), queue);
            }
            changed
        };
        self.count.store(queues.len(), Ordering::SeqCst);
        (changed, after)
    }

    /// Changes the queue of a key, if any call waits.
    fn change_if_any(
        &self,
        key: KeyRef<'_>,
        change: impl FnOnce(&mut KeyQueue, &mut Aftermath),
    ) -> Aftermath {
        if self.is_empty() { Aftermath::default() } else { self.change(&text_of(key), change).1 }
    }

    /// Returns `true` if no call waits.
    #[inline]
    pub(in crate::limiter) fn is_empty(&self) -> bool {
        self.count.load(Ordering::SeqCst) == 0
    }

    /// Returns `true` if calls of this process wait for a permit of the key.
    pub(in crate::limiter) fn has_queue(&self, key: KeyRef<'_>) -> bool {
        let is_it = |queue: &KeyQueue| !queue.permits.is_empty();
        !self.is_empty() && self.queues.lock().get(&text_of(key)).is_some_and(is_it)
    }

    /// Removes the turns of a key that was reset. Their calls are to ask anew.
    pub(in crate::limiter) fn reset(&self, key: KeyRef<'_>) -> Aftermath {
        self.change_if_any(key, |queue, after| {
            queue.lines.iter_mut().for_each(|line| after.ask_anew(line.take_all()));
        })
    }

    /// Lets the first call of the key's lines look whether its turn has come nearer.
    pub(in crate::limiter) fn hurry(&self, key: KeyRef<'_>) {
        let after = self.change_if_any(key, |queue, after| {
            after.woken.extend(queue.lines.iter_mut().filter_map(Line::hurry));
        });
        wake(after.woken);
    }

    /// Follows a command on the key that has arrived on Redis. One by which a call leaves the line brings
    /// no call of this process nearer, except by the next check.
    pub(super) fn delivered(&self, key: KeyRef<'_>, content: Content) {
        match content {
            Content::Settle(settle) if settle.lowered() > 0 => self.hurry(key),
            Content::Settle(_) | Content::Leave(_) => {}
            #[cfg(feature = "redis")]
            Content::Release { .. } => self.permit_is_free(key),
        }
    }

    /// Lets the first call that waits for a permit of the key ask for the one that is free now.
    pub(in crate::limiter) fn permit_is_free(&self, key: KeyRef<'_>) {
        let free = |queue: &mut KeyQueue, after: &mut Aftermath| {
            after.woken.extend(queue.permits.hurry());
        };
        wake(self.change_if_any(key, free).woken);
    }

    /// Removes a turn that its store has lost, if a call still has it. The call is to ask anew.
    pub(super) fn lose(&self, lost: &TurnCheck) -> Aftermath {
        let remove = |queue: &mut KeyQueue, after: &mut Aftermath| {
            if let Some((seat, moved)) = queue.line(lost.is_remote).take(&lost.claim, lost.outcome)
            {
                after.woken.extend(moved);
                after.ask_anew([seat]);
            }
        };
        self.change(&lost.waiter.text, remove).1
    }

    /// Receives the standing of a line's first turn, which was asked for at `seen`.
    pub(super) fn checked(
        &self,
        check: &TurnCheck,
        standing: Result<Option<Standing>, UnavailableReason>,
        seen: Instant,
    ) -> Aftermath {
        let (now, asked) = (Instant::now(), (&check.claim, check.outcome));
        let receive = |queue: &mut KeyQueue, after: &mut Aftermath| {
            let line = queue.line(check.is_remote);
            // Without a turn, its call may have left, and its turn with it.
            let is_kept = !line.has(asked.0, asked.1);
            match standing {
                Ok(Some(standing)) if is_kept || standing.has_room || !check.is_stricter() => {
                    line.stands(asked, standing, seen, now);
                }
                Ok(None) if is_kept => {}
                Ok(_) => after.ask_anew(line.take_all()),
                Err(_) => after.ask_anew(line.take_due(now)),
            }
            after.woken.extend(line.end_check(now));
        };
        self.change(&check.waiter.text, receive).1
    }
}

impl Default for KeyQueue {
    fn default() -> Self {
        Self { lines: [false, true].map(Line::new), permits: PermitQueue::default() }
    }
}

impl KeyQueue {
    fn is_empty(&self) -> bool {
        self.permits.is_empty() && self.lines.iter().all(Line::is_empty)
    }

    /// Returns the line of the turns in memory, or on Redis.
    pub(super) fn line(&mut self, is_remote: bool) -> &mut Line<Arc<Waiter>> {
        &mut self.lines[usize::from(is_remote)]
    }

    /// Adds a call with its turn to a line. Returns its index.
    pub(super) fn enter_line(
        &mut self,
        question: &Question,
        is_remote: bool,
        outcome: Outcome,
        after: &mut Aftermath,
    ) -> usize {
        let (promised, waiter) = (Instant::now(), Arc::clone(&question.waiter));
        let turn = promised + outcome.turn().into();
        let seat = Seat { outcome, turn, promised, claim: question.claim, waiter };
        let (index, moved) = self.line(is_remote).insert(seat);
        after.woken.extend(moved);
        index
    }
}

impl TurnCheck {
    /// Returns the place whose standing is asked for.
    pub(super) fn place(&self) -> Place<'_> {
        Place { policy: &self.policy, ..self.claim.place(self.outcome) }
    }

    /// Returns `true` if an override since the promise may forbid the turn. Counts that are carried to the
    /// numbers of a higher limit are rounded, and must refuse nobody.
    fn is_stricter(&self) -> bool {
        let (before, now) = (&self.claim.policy, &self.policy);
        let is_kept = |(before, now): (&Tier, &Tier)| {
            before.period() >= now.period() && before.threshold() <= now.threshold()
        };
        before.tiers().len() != now.tiers().len()
            || !before.tiers().iter().zip(now.tiers()).all(is_kept)
            || before.explicit_burst() > now.explicit_burst()
    }
}

impl Aftermath {
    /// Asks a call's store. Returns the stage of the call.
    pub(super) fn ask(&mut self, waiter: &Arc<Waiter>) -> WaitStage {
        let (question, asking) = waiter.question();
        self.asked.push(question);
        asking
    }

    /// Gives the turn of a call that has left to nobody.
    pub(super) fn free(&mut self, left: Option<(Seat<Arc<Waiter>>, Waiters)>) {
        if let Some((Seat { waiter, claim, outcome, .. }, moved)) = left {
            self.woken.extend(moved);
            self.freed.push(FreedTurn { waiter, claim, outcome });
        }
    }

    /// Gives back the answer that a call does not take.
    pub(super) fn give_back(&mut self, waiter: &Arc<Waiter>, claim: &Claim, decided: Decided) {
        if let Some(outcome) = decided.outcome.ok().filter(|outcome| outcome.admitted) {
            self.freed.push(FreedTurn { waiter: Arc::clone(waiter), claim: *claim, outcome });
        }
        self.permits.push(decided.permit);
    }

    /// Lets calls ask anew. A turn that their store may still have is given back first.
    fn ask_anew(&mut self, seats: impl IntoIterator<Item = Seat<Arc<Waiter>>>) {
        for Seat { waiter, claim, outcome, .. } in seats {
            let stage = self.ask(&waiter);
            if let WaitStage::InLine { permit, .. } = mem::replace(&mut *waiter.stage.lock(), stage)
            {
                self.permits.push(permit);
            }
            self.freed.push(FreedTurn { waiter, claim, outcome });
        }
    }
}

/// Wakes calls, so that they look again.
pub(super) fn wake(waiters: impl IntoIterator<Item = Arc<Waiter>>) {
    for waiter in waiters {
        waiter.changed.notify_one();
    }
}
