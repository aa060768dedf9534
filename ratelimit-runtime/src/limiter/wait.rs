//! Calls that may wait: each asks a store for a turn once, and passes when its turn has come.
//!
//! A call arrives, and asks its store. It is refused, passes, or gets a turn and sleeps until it comes. If no
//! permit is free, it sleeps until it gets one. [`queue`](super::queue) has the calls of each key, and
//! [`ask`] the questions to stores.

mod ask;
#[cfg(all(test, ratelimit_loom))]
mod schedules;

use std::{
    future::{poll_fn, ready},
    pin::{Pin, pin},
    sync::Arc,
    task::Poll,
    time::Duration,
};

use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};

use super::{
    Limiter,
    admission::Admission,
    backend::Decided,
    call::Call,
    owned_call::OwnedCall,
    queue::{KeyQueue, NextStep, Waiter},
};
use crate::{
    decision::{Answer, Permit},
    overrides::Effective,
    telemetry::{Recorder, Waiting},
};

/// The permit of a call that has waited, and for how long.
struct Waited {
    permit: Option<Arc<dyn Permit>>,
    waited: Duration,
}

impl Permit for Waited {
    fn is_held(&self) -> bool {
        self.permit.as_ref().is_some_and(|permit| permit.is_held())
    }

    fn give_back(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        match &self.permit {
            Some(permit) => permit.give_back(),
            None => Box::pin(ready(())),
        }
    }

    fn waited(&self) -> Duration {
        self.waited
    }

    fn wait_alone(&self) -> Option<Arc<dyn Permit>> {
        Some(Arc::new(Self { permit: None, waited: self.waited }))
    }
}

/// The future's side of a call that may wait. The call leaves its queue when this is dropped.
struct PatientCall {
    limiter: Limiter,
    waiter: Arc<Waiter>,
    recorder: Recorder,
}

impl Drop for PatientCall {
    fn drop(&mut self) {
        self.change(|queue| queue.withdraw(&self.waiter));
    }
}

impl Limiter {
    /// Decides a call that may wait. An override that changes its effective policy leaves it in its queue.
    pub(super) async fn wait<A: Admission>(self, call: OwnedCall, recorder: Recorder) -> Answer<A> {
        let waiter = Waiter::new(self.inner.backend.prefix(), call);
        let patient = PatientCall { limiter: self, waiter, recorder };
        let (call, mut waiting) = (patient.call(), None);
        // Subscribes before the first look-up, so that no change is missed.
        let mut changes = call.limiter.overrides().changed();
        loop {
            let effective = call.effective();
            let permit = || patient.end_wait(&mut waiting, None);
            if let Some(answer) = call.answer_without_store(&effective, recorder, permit) {
                return answer;
            }
            let decided = if call.may_wait(&effective) {
                let takes_permit = call.request(&effective).takes_permit();
                patient.change(|queue| queue.arrive(&patient.waiter, takes_permit));
                let answer = patient.answer(&effective, &mut changes, &mut waiting);
                let Some(decided) = answer.await else { continue };
                decided
            } else {
                patient.change(|queue| queue.withdraw(&patient.waiter));
                call.decide(call.request(&effective), patient.waiter.asked()).await
            };
            let permit = patient.end_wait(&mut waiting, decided.permit);
            return call.finish(&effective, recorder, &decided.outcome, permit);
        }
    }
}

impl PatientCall {
    fn call(&self) -> Call<'_> {
        self.waiter.call.of(&self.limiter)
    }

    /// Changes the queue of the call, and makes the changes that follow.
    fn change<T>(&self, change: impl FnOnce(&mut KeyQueue) -> T) -> T {
        let (changed, after) = self.limiter.inner.queues.change(&self.waiter.text, change);
        self.limiter.follow(after);
        changed
    }

    /// Waits for the answer. Returns nothing if an override has changed the effective policy.
    async fn answer(
        &self,
        before: &Effective<'_>,
        changes: &mut watch::Receiver<u64>,
        waiting: &mut Option<Waiting>,
    ) -> Option<Decided> {
        let (call, policy) = (self.call(), before.policy());
        let is_overridden = || {
            let now = call.effective();
            now.answer().is_some()
                || now.enforcement != before.enforcement
                || now.policy() != policy
        };
        loop {
            let step = self.change(|queue| queue.step(&self.waiter, policy, Instant::now()));
            let until = match step {
                // It may have been refused before an override.
                NextStep::End(decided) if decided.is_refused() && is_overridden() => return None,
                NextStep::End(decided) => return Some(decided),
                NextStep::Again => continue,
                NextStep::Await => None,
                NextStep::Sleep(until) => {
                    waiting.get_or_insert_with(|| {
                        let turn = || self.change(|queue| queue.turn(&self.waiter));
                        let left = || Some(turn()?.duration_since(Instant::now()));
                        self.recorder.record_wait(policy, left, || call.caller_digest());
                        Waiting::new(call.counters)
                    });
                    Some(until)
                }
            };
            if self.sleep(until, changes).await && is_overridden() {
                return None;
            }
        }
    }

    /// Ends the wait of a call that has its answer. Returns its permit, which has the time waited if there was one.
    fn end_wait(
        &self,
        waiting: &mut Option<Waiting>,
        permit: Option<Arc<dyn Permit>>,
    ) -> Option<Arc<dyn Permit>> {
        let Some(waiting) = waiting.take() else { return permit };
        let waited = self.waiter.arrived.elapsed();
        waiting.end(waited);
        Some(Arc::new(Waited { permit, waited }))
    }

    /// Sleeps until the call is to look again. Returns `true` if overrides have changed.
    async fn sleep(&self, until: Option<Instant>, changes: &mut watch::Receiver<u64>) -> bool {
        let mut woken = pin!(self.waiter.changed.notified());
        let mut overridden = pin!(changes.changed());
        let mut timer = until.map(|until| Box::pin(sleep_until(until)));
        poll_fn(|context| {
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
