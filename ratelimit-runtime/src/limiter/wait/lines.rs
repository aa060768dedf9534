//! The calls of a limiter that wait, in one queue for each key.
//!
//! One lock guards all queues and the progress of their calls. It is held for moves within a queue. Stores
//! are asked, and permits are dropped, without it.

use std::{collections::HashMap, mem, sync::Arc, time::Duration};

use tokio::time::Instant;

use super::{
    permit_queue::PermitQueue,
    seats::{Line, Seat},
    waiter::{Question, WaitStage, Waiter, text_of},
};
use crate::{
    decision::Permit,
    error::UnavailableReason,
    key::KeyRef,
    policy::Policy,
    request::Standing,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Timestamp,
};

/// All calls of a limiter that wait.
pub(in crate::limiter) struct Lines {
    queues: Mutex<HashMap<Box<[u8]>, KeyQueue>>,
    /// The number of queues, readable without the lock.
    count: AtomicUsize,
    /// `true` if other processes change turns and permits too.
    is_remote: bool,
}

/// The calls that wait under one key: those with a turn, and those that wait for a permit.
pub(super) struct KeyQueue {
    pub(super) line: Line<Arc<Waiter>>,
    pub(super) permits: PermitQueue<Arc<Waiter>>,
}

/// The changes that follow a move, to be made without the lock.
#[must_use = "a call whose question is not asked waits forever"]
#[derive(Default)]
pub(in crate::limiter) struct Aftermath {
    /// Calls that look again.
    pub(super) woken: Vec<Arc<Waiter>>,
    /// Questions to a store, in this order.
    pub(super) asked: Vec<Question>,
    /// Turns that nobody takes.
    pub(super) freed: Vec<Seat<Arc<Waiter>>>,
    /// The first turn of a line, for whose standing a store is asked.
    pub(super) checked: Option<Seat<Arc<Waiter>>>,
    /// A call whose turn a pause has moved: a store is asked for all turns of its line.
    pub(super) moved: Option<Arc<Waiter>>,
    /// Permits that are dropped.
    pub(super) permits: Vec<Option<Arc<dyn Permit>>>,
    /// The text of a key under which a call found no permit, and the time after which its queue looks again.
    pub(super) later: Option<(Box<[u8]>, Duration)>,
}

impl Lines {
    pub(in crate::limiter) fn new(is_remote: bool) -> Self {
        Self { queues: Mutex::default(), count: AtomicUsize::new(0), is_remote }
    }

    /// Changes the queue of a key, which exists while calls wait in it. If a permit may be free then, the call
    /// that is first asks for it.
    pub(super) fn change<T>(
        &self,
        key: &[u8],
        change: impl FnOnce(&mut KeyQueue, &mut Aftermath) -> T,
    ) -> (T, Aftermath) {
        let (mut after, mut queues) = (Aftermath::default(), self.queues.lock());
        let changed = if let Some(queue) = queues.get_mut(key) {
            let changed = change(queue, &mut after);
            after.ask_for_permit(queue);
            if queue.is_empty() {
                queues.remove(key);
            }
            changed
        } else {
            let mut queue = KeyQueue::new(self.is_remote);
            let changed = change(&mut queue, &mut after);
            after.ask_for_permit(&mut queue);
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
        self.change_if_any(key, |queue, after| after.ask_anew(queue.line.take_all(|_| true)))
    }

    /// Lets the first call of the key's line ask whether its turn has come nearer.
    pub(in crate::limiter) fn hurry(&self, key: KeyRef<'_>) {
        if !self.is_empty() {
            let hurry = |queue: &mut KeyQueue| queue.line.hurry();
            let first = self.queues.lock().get_mut(&*text_of(key)).and_then(hurry);
            wake(first);
        }
    }

    /// Returns the turn of a call by the clock of this process.
    pub(super) fn turn(&self, waiter: &Arc<Waiter>) -> Option<Instant> {
        self.queues.lock().get(&waiter.text)?.line.turn(waiter)
    }

    /// Lets the first call that waits for a permit of the key ask for the one that is free now.
    pub(super) fn permit_is_free(&self, key: KeyRef<'_>) -> Aftermath {
        self.change_if_any(key, |queue, _| queue.permits.hurry())
    }

    /// Lets the first call that waits for a permit ask again, if it is time.
    pub(super) fn look_for_permit(&self, text: &[u8]) -> Aftermath {
        self.change(text, |_, _| {}).1
    }

    /// Returns the turns of a key's line.
    pub(super) fn turns(&self, key: KeyRef<'_>) -> Vec<Seat<Arc<Waiter>>> {
        if self.is_empty() {
            return Vec::new();
        }
        let queues = self.queues.lock();
        queues.get(&text_of(key)).into_iter().flat_map(|it| it.line.seats()).cloned().collect()
    }

    /// Receives the turns that a store has after a pause, in place of those that it was asked for. A call whose
    /// turn is now beyond its wait asks anew: others may have left.
    pub(super) fn moved(
        &self,
        asked: &[Seat<Arc<Waiter>>],
        turns: &[Option<Timestamp>],
    ) -> Aftermath {
        let Some(first) = asked.first() else { return Aftermath::default() };
        let is_late = |seat: &Seat<Arc<Waiter>>| seat.is_moved && seat.turn > seat.waiter.ends();
        let receive = |KeyQueue { line, .. }: &mut KeyQueue, after: &mut Aftermath| {
            line.move_to(asked, turns);
            // Some sleep until the line is asked for once more.
            after.woken.extend(line.seats().map(|seat| Arc::clone(&seat.waiter)));
            if line.seats().any(is_late) {
                after.ask_anew(line.take_all(is_late));
            }
        };
        self.change(&first.waiter.text, receive).1
    }

    /// Receives the standing of a turn under a policy, as of `seen`; none if its store has lost it. Redis may then
    /// have lost all turns.
    pub(super) fn checked(
        &self,
        checked: &Seat<Arc<Waiter>>,
        policy: &Policy,
        standing: Result<Option<Standing>, UnavailableReason>,
        seen: Instant,
    ) -> Aftermath {
        let now = Instant::now();
        let receive = |KeyQueue { line, .. }: &mut KeyQueue, after: &mut Aftermath| {
            // Otherwise the call may have left, and taken its turn out of the store.
            let is_kept = line.has(checked);
            match standing {
                Ok(None) if is_kept => {
                    let is_lost = |seat: &Seat<_>| self.is_remote || seat.has_turn_of(checked);
                    after.ask_anew(line.take_all(is_lost));
                }
                Ok(None) => {}
                // Turns are kept if their policy is the present one, or stricter.
                Ok(Some(Standing { has_room: false, .. }))
                    if is_kept && checked.claim.is_laxer_than(policy) =>
                {
                    after.ask_anew(line.take_all(|seat| seat.claim.is_laxer_than(policy)));
                }
                Ok(Some(standing)) => {
                    let is_moved = line.stands(checked, standing, seen, now);
                    after.moved = is_moved.then(|| Arc::clone(&checked.waiter));
                }
                Err(_) => after.ask_anew(line.take_unknown(now)),
            }
            after.woken.extend(line.end_check(now));
        };
        self.change(&checked.waiter.text, receive).1
    }
}

impl KeyQueue {
    fn new(is_remote: bool) -> Self {
        Self { line: Line::new(is_remote), permits: PermitQueue::new(is_remote) }
    }

    fn is_empty(&self) -> bool {
        self.permits.is_empty() && self.line.is_empty()
    }
}

impl Aftermath {
    /// Asks a call's store for a turn, a permit or both.
    pub(super) fn ask(&mut self, waiter: &Arc<Waiter>, stage: &mut WaitStage) {
        let question = waiter.question();
        if let WaitStage::InLine(permit) = mem::replace(stage, WaitStage::Asking(question.number)) {
            self.permits.push(permit);
        }
        self.asked.push(question);
    }

    /// Asks for a permit that may be free, for the first call that waits for one.
    fn ask_for_permit(&mut self, queue: &mut KeyQueue) {
        if let Some(waiter) = queue.permits.next() {
            self.ask(&waiter, &mut waiter.stage.lock());
        }
    }

    /// Lets calls ask anew. A turn that their store may still have is given back first.
    fn ask_anew(&mut self, seats: impl IntoIterator<Item = Seat<Arc<Waiter>>>) {
        for seat in seats {
            self.ask(&seat.waiter, &mut seat.waiter.stage.lock());
            self.freed.push(seat);
        }
    }
}

/// Wakes calls, so that they look again.
pub(super) fn wake(waiters: impl IntoIterator<Item = Arc<Waiter>>) {
    for waiter in waiters {
        waiter.changed.notify_one();
    }
}
