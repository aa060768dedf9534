//! Calls that may wait: each asks a store for a turn once, and passes when its turn has come.
//!
//! A call arrives, and asks its store. It is refused, passes, or gets a [turn](seats) and sleeps until it
//! comes. If no permit is free, it sleeps in the [queue](permit_queue) for permits and asks again. The queues
//! of all keys of a limiter are its [`Lines`].

mod ask;
mod lines;
mod permit_queue;
mod progress;
#[cfg(all(test, ratelimit_loom))]
mod schedules;
mod seats;
mod waiter;

use std::{future::poll_fn, pin::pin, sync::Arc, task::Poll};

use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};

pub(super) use self::lines::Lines;
use self::{progress::Look, waiter::Waiter};
use super::{
    admission::Admission,
    call::OwnedCall,
    permit::{Decided, Wrapped},
};
use crate::{
    decision::{Answer, Permit},
    overrides::Effective,
    telemetry::{Recorder, Waiting},
};

/// A waiting call, which leaves its line when it is dropped.
struct InLine(Arc<Waiter>);

impl Drop for InLine {
    fn drop(&mut self) {
        self.0.call().limiter.follow(self.0.withdraw());
    }
}

impl OwnedCall {
    /// Decides a call that may wait. An override that changes its effective policy leaves it in its line.
    pub(super) async fn wait<A: Admission>(self, recorder: Recorder) -> Answer<A> {
        let in_line = InLine(Waiter::new(self));
        let (waiter, call) = (&in_line.0, in_line.0.call());
        // Subscribes before the first look-up, so that no change is missed.
        let mut changes = call.limiter.overrides().changed();
        let mut waiting = None;
        loop {
            let effective = call.effective();
            let permit = || waiter.end_wait(&mut waiting, None);
            if let Some(answer) = call.answer_without_store(&effective, recorder, permit) {
                return answer;
            }
            let decided = if call.may_wait(&effective) {
                waiter.wait_under(effective.policy());
                call.limiter.follow(waiter.arrive(call.request(&effective).takes_permit()));
                let answer = waiter.answer(&effective, recorder, &mut changes, &mut waiting);
                let Some(decided) = answer.await else { continue };
                decided
            } else {
                call.limiter.follow(waiter.withdraw());
                call.decide(call.request(&effective), waiter.asked()).await
            };
            let permit = waiter.end_wait(&mut waiting, decided.permit);
            return call.finish(&effective, recorder, &decided.outcome, permit);
        }
    }
}

impl Waiter {
    /// Waits for the answer. Returns nothing if an override has changed the effective policy.
    async fn answer(
        self: &Arc<Self>,
        before: &Effective<'_>,
        recorder: Recorder,
        changes: &mut watch::Receiver<u64>,
        waiting: &mut Option<Waiting>,
    ) -> Option<Decided> {
        let call = self.call();
        let is_overridden = || {
            let now = call.effective();
            now.answer().is_some()
                || now.enforcement != before.enforcement
                || now.policy() != before.policy()
        };
        loop {
            let (look, after) = self.look();
            call.limiter.follow(after);
            let until = match look {
                // It may have been refused before an override.
                Look::Answered(decided) if decided.is_refused() && is_overridden() => return None,
                Look::Answered(decided) => return Some(decided),
                Look::Again => continue,
                Look::Await => None,
                Look::Sleep(until) => {
                    waiting.get_or_insert_with(|| {
                        let digest = || call.caller_digest();
                        recorder.record_wait(before.policy(), || self.until_turn(), digest);
                        Waiting::new(call.counters)
                    });
                    until
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
        let waited = self.arrived.elapsed();
        waiting.end(waited);
        Some(Wrapped::around(permit, waited, None))
    }

    /// Sleeps until the call is to look again. Returns `true` if overrides have changed.
    async fn sleep(&self, until: Option<Instant>, changes: &mut watch::Receiver<u64>) -> bool {
        let (mut woken, mut overridden) = (pin!(self.changed.notified()), pin!(changes.changed()));
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
