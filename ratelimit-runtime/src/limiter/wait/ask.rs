//! The questions of waiting calls to their stores, and what follows from the answers.
//!
//! A store that has to be awaited is asked by a task of its own, so that a turn which is promised to a
//! dropped call is received, too.

use std::{future::poll_fn, pin::Pin, sync::Arc, task::Poll};

use tokio::time::Instant;

use super::{
    lines::{Aftermath, FreedTurn, TurnCheck, wake},
    waiter::Waiter,
};
use crate::{
    error::UnavailableReason,
    key::Key,
    limiter::{Inner, Limiter, check::Call, permit::Decided},
    memory::MemoryStore,
    policy::Policy,
    redis::{Content, start},
    request::Request,
    time::Micros,
};

/// A question that a task awaits. A task that ends without an answer has lost its runtime.
struct Question(Option<Arc<Waiter>>);

impl Question {
    /// Asks Redis for a turn.
    async fn ask(mut self) {
        let Some(waiter) = &self.0 else { return };
        let overridden = waiter.overridden();
        let request = waiter.request(overridden.as_ref());
        let decided = waiter.call().decide(request).await;
        // At the end of its wait, the call has its answer from `on_store_error`.
        let again =
            if request.max_wait > Micros::ZERO { waiter.asks_again(&decided) } else { None };
        if let Some(waiter) = self.0.take() {
            waiter.receive_answer(decided, again);
        }
    }
}

impl Drop for Question {
    fn drop(&mut self) {
        if let Some(waiter) = self.0.take() {
            let lost = Err(UnavailableReason::Disconnected).into();
            let again = waiter.asks_again(&lost);
            waiter.receive_answer(lost, again);
        }
    }
}

/// A check that a task awaits, as a [`Question`].
struct CheckTask {
    limiter: Limiter,
    check: Option<TurnCheck>,
}

impl CheckTask {
    /// Asks Redis for the standing of a line's first turn.
    async fn run(mut self, key: Key) {
        let Some(TurnCheck { claim, outcome, .. }) = &self.check else { return };
        let Some(redis) = self.limiter.inner.backend.redis() else { return };
        let sent = Instant::now();
        let standing = redis.advance(&key, claim.place(*outcome)).await;
        if let Some(check) = self.check.take() {
            self.limiter.follow(self.limiter.inner.lines.checked(&check, standing, sent));
        }
    }
}

impl Drop for CheckTask {
    fn drop(&mut self) {
        if let Some(check) = self.check.take() {
            let unknown = Err(UnavailableReason::Disconnected);
            self.limiter.follow(self.limiter.inner.lines.checked(&check, unknown, Instant::now()));
        }
    }
}

/// Asks for the turns of calls. Redis receives the questions in this order.
pub(super) fn ask(waiters: Vec<Arc<Waiter>>) {
    let mut awaited: Vec<Pin<Box<dyn Future<Output = ()> + Send>>> = Vec::new();
    for waiter in waiters {
        match waiter.decide_now() {
            Some(decided) => waiter.receive_answer(decided, None),
            None => awaited.push(Box::pin(Question(Some(waiter)).ask())),
        }
    }
    if !awaited.is_empty() {
        start(poll_fn(move |context| {
            awaited.retain_mut(|question| question.as_mut().poll(context).is_pending());
            if awaited.is_empty() { Poll::Ready(()) } else { Poll::Pending }
        }));
    }
}

impl Waiter {
    /// Returns what the call asks a store for now.
    fn request<'a>(&'a self, overridden: Option<&'a Policy>) -> Request<'a> {
        let Call { policy, options, .. } = self.call();
        let left = self.ends().saturating_duration_since(Instant::now());
        let request = Request::new(overridden.unwrap_or(policy), options.op, options.cost);
        let max_line = self.max_line();
        Request { written: policy, id: options.id, max_wait: left.into(), max_line, ..request }
    }

    /// Decides the call if memory or the deny cache can.
    fn decide_now(&self) -> Option<Decided> {
        let (call, overridden) = (self.call(), self.overridden());
        let request = self.request(overridden.as_ref());
        let backend = &call.limiter.inner.backend;
        if backend.memory().is_some() {
            let outcome = backend.decide_now(request, call.caller, call.options.on_store_error)?;
            return Some(call.in_memory(request, outcome));
        }
        let refusal = backend.cached_refusal(request, call.caller, request.max_wait.into())?;
        Some(Ok(refusal).into())
    }

    /// Receives an answer, and follows it. Without one the call asks `again` at that time.
    fn receive_answer(self: &Arc<Self>, decided: Decided, again: Option<Instant>) {
        let (claim, outcome) = (self.claim(), decided.outcome);
        let limiter = &self.call().limiter;
        limiter.follow(self.receive(decided, again, &claim));
        // A reset may have come between the decision and its receipt. The call, or another one that has its
        // turn now, may also have left meanwhile.
        if let Ok(outcome) = outcome
            && outcome.turn() > Micros::ZERO
            && let Some(store) = limiter.local_store(self.is_remote(outcome.decided_by))
            && !store.is_promised(self.key.as_key_ref(), claim.place(outcome))
        {
            let id = self.line_id(outcome.decided_by);
            limiter.follow(limiter.inner.lines.lose(&id, &claim, outcome));
        }
    }
}

impl Inner {
    /// Lets the calls that wait follow the commands on Redis that nobody awaits.
    pub(in crate::limiter) fn follow_deliveries(self: &Arc<Self>) {
        let Some(redis) = self.backend.redis() else { return };
        let limiter = Arc::downgrade(self);
        redis.on_delivery(Box::new(move |key, content| {
            if let Some(limiter) = limiter.upgrade() {
                limiter.lines.delivered(key, content);
            }
        }));
    }
}

impl Limiter {
    /// Makes the changes that follow a move in a line.
    pub(in crate::limiter) fn follow(&self, after: Aftermath) {
        let Aftermath { woken, anew, freed, permits } = after;
        for freed in freed {
            self.give_back(&freed);
        }
        drop(permits);
        wake(woken);
        ask(anew);
    }

    /// Gives back a turn that nobody takes. A charge under a request id is kept for the next call with
    /// this id.
    fn give_back(&self, freed: &FreedTurn) {
        let FreedTurn { waiter, claim, outcome } = freed;
        if claim.id.is_some() || claim.policy.tiers().is_empty() || !outcome.decided_by.counts() {
            return;
        }
        let key = waiter.key.as_key_ref();
        let leave = claim.place(*outcome).leave();
        match self.inner.backend.settle_here(key, leave, outcome.decided_by) {
            Some((redis, key)) => redis.post(key, Content::Leave(leave)),
            None => self.inner.lines.hurry(key),
        }
    }

    /// Returns the store in memory that promises turns, unless Redis does.
    fn local_store(&self, is_remote: bool) -> Option<&MemoryStore> {
        let backend = &self.inner.backend;
        if is_remote {
            return None;
        }
        backend.memory().or_else(|| Some(backend.redis()?.fallback()))
    }

    /// Asks for the standing of a line's first turn.
    pub(super) fn check_line(&self, check: TurnCheck, key: &Key) {
        if let Some(store) = self.local_store(check.id.is_remote) {
            let standing = store.advance(key.as_key_ref(), check.claim.place(check.outcome));
            self.follow(self.inner.lines.checked(&check, Ok(standing), Instant::now()));
        } else {
            start(CheckTask { limiter: self.clone(), check: Some(check) }.run(key.clone()));
        }
    }
}
