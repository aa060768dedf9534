//! The lines of this process: calls that wait for a turn, or for a permit, by the key that they wait under.
//!
//! One lock guards all lines and the progress of their calls. It is held for moves within a line. Stores
//! are asked, and permits are dropped, without it.

use std::{collections::HashMap, mem, sync::Arc};

use tokio::time::Instant;

use super::{
    line::{Claim, Freed, Line, LineId, Seat},
    permit_queue::PermitQueue,
    waiter::{WaitStage, Waiter, text_of},
};
use crate::{
    decision::Permit,
    error::UnavailableReason,
    key::KeyRef,
    redis::Content,
    request::{Outcome, Standing},
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicUsize, Ordering},
    },
};

type Waiters = Vec<Arc<Waiter>>;

/// All lines and queues of a limiter.
#[derive(Default)]
pub(in crate::limiter) struct Lines {
    state: Mutex<LineState>,
    /// The number of lines and queues, readable without the lock.
    count: AtomicUsize,
}

#[derive(Default)]
pub(super) struct LineState {
    pub(super) lines: HashMap<LineId, Line<Arc<Waiter>>>,
    pub(super) queues: HashMap<Box<[u8]>, PermitQueue<Arc<Waiter>>>,
}

/// A question for the first turn of a line.
#[derive(Clone)]
pub(super) struct TurnCheck {
    pub(super) id: LineId,
    pub(super) claim: Claim,
    pub(super) outcome: Outcome,
}

/// The changes that follow a move, to be made without the lock.
#[derive(Default)]
pub(in crate::limiter) struct Aftermath {
    /// Calls that look again.
    pub(super) woken: Waiters,
    /// Calls that ask for a turn anew, in this order.
    pub(super) anew: Waiters,
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
    /// Changes the lines.
    pub(super) fn change<T>(&self, change: impl FnOnce(&mut LineState) -> T) -> T {
        let mut state: MutexGuard<'_, LineState> = self.state.lock();
        let changed = change(&mut state);
        self.count.store(state.lines.len() + state.queues.len(), Ordering::SeqCst);
        changed
    }

    /// Returns `true` if no call waits.
    #[inline]
    pub(in crate::limiter) fn is_empty(&self) -> bool {
        self.count.load(Ordering::SeqCst) == 0
    }

    /// Returns `true` if calls of this process wait for a permit of the key.
    pub(in crate::limiter) fn has_queue(&self, key: KeyRef<'_>) -> bool {
        !self.is_empty() && self.state.lock().queues.contains_key(&text_of(key))
    }

    /// Removes the turns of a key that was reset. Their calls are to ask anew.
    pub(in crate::limiter) fn reset(&self, key: KeyRef<'_>) -> Aftermath {
        let mut after = Aftermath::default();
        if !self.is_empty() {
            let key = text_of(key);
            self.change(|state| {
                for is_remote in [false, true] {
                    let id = LineId { key: key.clone(), is_remote };
                    if let Some(mut line) = state.lines.remove(&id) {
                        after.ask_anew(line.take_all());
                    }
                }
            });
        }
        after
    }

    /// Removes a turn that its store has lost, if a call still has it. The call is to ask anew.
    pub(super) fn lose(&self, id: &LineId, claim: &Claim, outcome: Outcome) -> Aftermath {
        let mut after = Aftermath::default();
        self.change(|state| {
            let Some(line) = state.lines.get_mut(id) else { return };
            if let Some((seat, moved)) = line.take(claim, outcome) {
                after.woken.extend(moved);
                after.ask_anew(vec![seat]);
            }
            state.remove_if_empty(id);
        });
        after
    }

    /// Lets the first call of the key's lines look whether its turn has come nearer.
    pub(in crate::limiter) fn hurry(&self, key: KeyRef<'_>) {
        if self.is_empty() {
            return;
        }
        let key = text_of(key);
        let woken: Vec<_> = self.change(|state| {
            let ids = [false, true].map(|is_remote| LineId { key: key.clone(), is_remote });
            ids.iter().filter_map(|id| state.lines.get_mut(id)?.hurry()).collect()
        });
        wake(woken);
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

    /// Lets the first call in the key's queue ask for the permit that is free now.
    pub(in crate::limiter) fn permit_is_free(&self, key: KeyRef<'_>) {
        if !self.is_empty() {
            let key = text_of(key);
            wake(self.change(|state| state.queues.get_mut(&key)?.permit_is_free()));
        }
    }

    /// Receives the standing of a line's first turn that a store has told at `seen`.
    pub(super) fn checked(
        &self,
        check: &TurnCheck,
        standing: Result<Option<Standing>, UnavailableReason>,
        seen: Instant,
    ) -> Aftermath {
        let (mut after, now) = (Aftermath::default(), Instant::now());
        self.change(|state| {
            let Some(line) = state.lines.get_mut(&check.id) else { return };
            match standing {
                Ok(Some(standing)) => {
                    line.stands((&check.claim, check.outcome), standing, seen, now);
                }
                // Its call may have left, and its turn with it.
                Ok(None) if line.has(&check.claim, check.outcome) => {
                    after.ask_anew(line.take_all());
                }
                Ok(None) => {}
                Err(_) => after.ask_anew(line.take_due(now)),
            }
            after.woken.extend(line.end_check(now));
            state.remove_if_empty(&check.id);
        });
        after
    }
}

impl LineState {
    pub(super) fn remove_if_empty(&mut self, id: &LineId) {
        if self.lines.get(id).is_some_and(Line::is_empty) {
            self.lines.remove(id);
        }
    }

    /// Removes a call from the queue for a permit.
    pub(super) fn leave_queue(&mut self, waiter: &Arc<Waiter>, after: &mut Aftermath) {
        let Some(queue) = self.queues.get_mut(&waiter.text) else { return };
        after.woken.extend(queue.leave(waiter));
        if queue.is_empty() {
            self.queues.remove(&waiter.text);
        }
    }

    /// Removes a call from its line.
    pub(super) fn leave_line(&mut self, waiter: &Arc<Waiter>, id: &LineId, after: &mut Aftermath) {
        let freed = self.lines.get_mut(id).and_then(|line| line.leave(waiter));
        if let Some(Freed { outcome, claim, moved }) = freed {
            after.woken.extend(moved);
            self.remove_if_empty(id);
            after.freed.push(FreedTurn { waiter: Arc::clone(waiter), claim, outcome });
        }
    }

    /// Adds a call to its line.
    pub(super) fn enter_line(
        &mut self,
        waiter: &Arc<Waiter>,
        id: &LineId,
        outcome: Outcome,
        claim: &Claim,
    ) -> Waiters {
        let promised = Instant::now();
        let turn = promised + outcome.turn().into();
        let seat = Seat { outcome, turn, promised, claim: *claim, waiter: Arc::clone(waiter) };
        let line = self.lines.entry(id.clone()).or_insert_with(|| Line::new(id.is_remote));
        line.insert(seat)
    }
}

impl Aftermath {
    /// Lets calls ask anew. A turn that their store may still have is given back first.
    fn ask_anew(&mut self, seats: Vec<Seat<Arc<Waiter>>>) {
        for Seat { waiter, claim, outcome, .. } in seats {
            let stage = mem::replace(&mut *waiter.stage.lock(), WaitStage::Asking);
            if let WaitStage::InLine(_, permit) = stage {
                self.permits.push(permit);
            }
            self.freed.push(FreedTurn { waiter: Arc::clone(&waiter), claim, outcome });
            self.anew.push(waiter);
        }
    }
}

/// Wakes calls, so that they look again.
pub(super) fn wake(waiters: impl IntoIterator<Item = Arc<Waiter>>) {
    for waiter in waiters {
        waiter.changed.notify_one();
    }
}
