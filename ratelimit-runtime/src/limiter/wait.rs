//! Calls that may wait: each asks a store for a turn once, and passes when its turn has come.

use std::{
    future::{poll_fn, ready},
    pin::{Pin, pin},
    ptr,
    sync::Arc,
    task::Poll,
    time::Duration,
};

use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};

use super::{
    admission::Admission,
    ask::ask,
    permit::Decided,
    pipeline::PendingCall,
    progress::Look,
    waiter::{WaitStage, Waiter},
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
        let after = self.0.withdraw(WaitStage::Dropped);
        self.0.call().limiter.follow(after);
    }
}

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
}

impl PendingCall {
    /// Decides a call that may wait. It arrives anew as soon as an override changes its effective policy.
    pub(super) async fn wait<A: Admission>(self) -> Answer<A> {
        let in_line = InLine(Waiter::new(self));
        let (waiter, call) = (&in_line.0, in_line.0.call());
        // Subscribes before the first look-up, so that no change is missed.
        let mut changes = call.limiter.overrides().changed();
        let recorder = Recorder::new(call.limiter.inner.is_instrumented, call.counters);
        let mut waiting = None;
        loop {
            let effective = call.effective();
            if let Some(answer) = call.answer_without_store(&effective) {
                return answer;
            }
            if !call.may_wait(&effective) {
                let decided = call.decide(call.request(&effective)).await;
                return call.finish(&effective, recorder, decided);
            }
            waiter.arrive(&effective);
            if let Some(decided) = waiter.answer(&effective, &mut changes, &mut waiting).await {
                let decided = match waiting {
                    Some(waiting) => waiter.pass(decided, waiting),
                    None => decided,
                };
                return call.finish(&effective, recorder, decided);
            }
        }
    }
}

impl Waiter {
    /// Asks for a turn, unless others wait for a permit.
    fn arrive(self: &Arc<Self>, effective: &Effective<'_>) {
        let call = self.call();
        let policy = effective.policy();
        *self.overridden.lock() = (!ptr::eq(policy, call.policy)).then_some(*policy);
        if self.begin(call.request(effective).takes_permit()) {
            ask(vec![Arc::clone(self)]);
        }
    }

    /// Waits for the answer. Returns nothing if an override has changed the effective policy: the call is
    /// then to arrive anew.
    async fn answer(
        self: &Arc<Self>,
        before: &Effective<'_>,
        changes: &mut watch::Receiver<u64>,
        waiting: &mut Option<Waiting>,
    ) -> Option<Decided> {
        let call = self.call();
        let mut has_yielded = false;
        loop {
            let (look, after) = self.look(has_yielded);
            call.limiter.follow(after);
            let until = match look {
                Look::Answered(decided) => return Some(decided),
                Look::Yield => {
                    has_yielded = true;
                    tokio::task::yield_now().await;
                    continue;
                }
                Look::Ask => {
                    ask(vec![Arc::clone(self)]);
                    continue;
                }
                Look::Check(check) => {
                    call.limiter.check_line(*check, &self.key);
                    continue;
                }
                Look::Await => {
                    self.changed.notified().await;
                    continue;
                }
                Look::Sleep(until) => until,
            };
            let is_instrumented = call.limiter.inner.is_instrumented;
            waiting.get_or_insert_with(|| Waiting::new(is_instrumented, call.policy));
            if self.sleep(until, changes).await {
                let now = call.effective();
                if now.enforcement != before.enforcement || now.policy() != before.policy() {
                    call.limiter.follow(self.withdraw(WaitStage::Outside));
                    return None;
                }
            }
        }
    }

    /// Adds to the answer how long the call has waited.
    fn pass(&self, decided: Decided, waiting: Waiting) -> Decided {
        let Decided { outcome, permit } = decided;
        let waited = self.arrived.elapsed();
        waiting.end(waited);
        Decided { outcome, permit: Some(Arc::new(Waited { permit, waited })) }
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
