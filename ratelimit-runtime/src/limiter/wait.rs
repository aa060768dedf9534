//! Calls that may wait: each asks a store for a turn once, and passes when its turn has come.
//!
//! A call arrives, and asks its store. It is refused, passes, or gets a turn and sleeps until it
//! comes. If no permit is free, it sleeps until it gets one. [`queue`](super::queue) has the calls
//! of each key, and [`ask`] the questions to stores.

mod ask;
#[cfg(all(test, ratelimit_loom))]
mod schedules;

use std::{future::poll_fn, pin::pin, sync::Arc, task::Poll};

use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};

use super::{
    Limiter,
    admission::Admission,
    owned_call::OwnedCall,
    queue::{KeyQueue, NextStep, Waiter},
};
use crate::{
    decision::{Answer, CallEnd},
    telemetry::{Recorder, Waiting},
};

/// A call that may wait. It leaves its queue when this is dropped.
struct PatientCall {
    limiter: Limiter,
    waiter: Arc<Waiter>,
}

impl Drop for PatientCall {
    fn drop(&mut self) {
        self.change(|queue| queue.withdraw(&self.waiter));
    }
}

impl Limiter {
    /// Decides a call that may wait. An override that changes its effective policy leaves it in its
    /// queue.
    pub(super) async fn wait<A: Admission>(self, call: OwnedCall, recorder: Recorder) -> Answer<A> {
        let waiter = Waiter::new(self.inner.backend.prefix(), call);
        let patient = PatientCall { limiter: self, waiter };
        let PatientCall { limiter, waiter } = &patient;
        let (call, mut waiting) = (waiter.call.of(limiter), None);
        // Subscribes before the first look-up, so that no change is missed.
        let mut changes = limiter.overrides().changed();
        'effective: loop {
            let effective = call.effective();
            let is_overridden = || {
                let now = call.effective();
                now.answer().is_some()
                    || now.enforcement != effective.enforcement
                    || now.policy() != effective.policy()
            };
            let end = || patient.end_wait(&mut waiting);
            if let Some(answer) = call.answer_without_store(&effective, recorder, end) {
                return answer;
            }
            let (policy, request) = (effective.policy(), call.request(&effective));
            let decided = if call.may_wait(&effective) {
                patient.change(|queue| queue.arrive(waiter, request.takes_permit()));
                loop {
                    let step = patient.change(|queue| queue.step(waiter, policy, Instant::now()));
                    let until = match step {
                        // It may have been refused before an override.
                        NextStep::End(decided) if decided.is_refused() && is_overridden() => {
                            continue 'effective;
                        }
                        NextStep::End(decided) => break decided,
                        NextStep::Again => continue,
                        NextStep::Await => None,
                        NextStep::Sleep(until) => Some(until),
                    };
                    // While a store is asked, the call may still pass at once.
                    if until.is_some() && waiting.is_none() {
                        let turn = || patient.change(|queue| queue.turn(waiter));
                        let left = || Some(turn()?.duration_since(Instant::now()));
                        recorder.record_wait(policy, left, || call.caller_digest());
                        waiting = Some(Waiting::new(call.counters));
                    }
                    // Nobody else may look at the clock when an override begins or ends.
                    let turn = limiter.overrides().next_turn(call.policy, call.caller);
                    let turn = turn.map(|left| Instant::now() + left);
                    let until = until.into_iter().chain(turn).min();
                    let is_changed = waiter.sleep(until, &mut changes).await;
                    if (is_changed || turn.is_some()) && is_overridden() {
                        continue 'effective;
                    }
                }
            } else {
                // A peek, no units, or a dry run, which an override may have begun meanwhile.
                patient.change(|queue| queue.withdraw(waiter));
                call.decide(&effective, request, waiter.asked()).await
            };
            let end = patient.end_wait(&mut waiting);
            return call.finish(&effective, recorder, &decided.outcome, decided.permit, end);
        }
    }
}

impl PatientCall {
    /// Changes the queue of the call, and makes the changes that follow.
    fn change<T>(&self, change: impl FnOnce(&mut KeyQueue) -> T) -> T {
        let (changed, after) = self.limiter.inner.queues.change(&self.waiter.text, change);
        self.limiter.follow(after);
        changed
    }

    /// Ends the wait of a call that has its answer, if there was one.
    fn end_wait(&self, waiting: &mut Option<Waiting>) -> CallEnd {
        let Some(waiting) = waiting.take() else { return CallEnd::default() };
        let waited = self.waiter.arrived.elapsed();
        waiting.end(waited);
        CallEnd { waited, candidate: None }
    }
}

impl Waiter {
    /// Sleeps until the call is to look again. Returns `true` if overrides have changed.
    async fn sleep(&self, until: Option<Instant>, changes: &mut watch::Receiver<u64>) -> bool {
        let (mut woken, mut overridden) = (pin!(self.changed.notified()), pin!(changes.changed()));
        let mut timer = until.map(|until| Box::pin(sleep_until(until)));
        poll_fn(|context| {
            // No error comes: the limiter of this call keeps the sender.
            if let Poll::Ready(Ok(())) = overridden.as_mut().poll(context) {
                return Poll::Ready(true);
            }
            let is_over = timer.as_mut().is_some_and(|it| it.as_mut().poll(context).is_ready());
            let is_woken = woken.as_mut().poll(context).is_ready();
            if is_over || is_woken { Poll::Ready(false) } else { Poll::Pending }
        })
        .await
    }
}
