//! The questions of waiting calls to their stores, and what follows from the answers.
//!
//! A store that has to be awaited is asked by a task of its own, so that a turn which is promised to a
//! dropped call is received, too.

use std::{future::poll_fn, pin::Pin, sync::Arc, task::Poll};

use tokio::time::Instant;

use super::{
    lines::{Aftermath, FreedTurn, TurnCheck, wake},
    waiter::Question,
};
use crate::{
    error::UnavailableReason,
    key::Key,
    limiter::{Inner, Limiter, check::Call, permit::Decided},
    memory::MemoryStore,
    overrides::Enforcement,
    redis::{Content, RedisBackend, start},
    request::{Request, Settle},
    time::Micros,
};

/// A question that a task awaits. A task that ends without an answer has lost its runtime.
struct OpenQuestion(Option<Question>);

impl OpenQuestion {
    /// Asks Redis for a turn.
    async fn ask(mut self) {
        let Some(question) = &self.0 else { return };
        let request = question.request();
        let decided = question.waiter.call().decide(request).await;
        // At the end of its wait, the call has its answer from `on_store_error`.
        let may_wait = request.max_wait > Micros::ZERO;
        let again = if may_wait { question.waiter.asks_again(&decided) } else { None };
        if let Some(question) = self.0.take() {
            question.receive_answer(decided, again);
        }
    }
}

impl Drop for OpenQuestion {
    fn drop(&mut self) {
        if let Some(question) = self.0.take() {
            let lost = Err(UnavailableReason::Disconnected).into();
            let again = question.waiter.asks_again(&lost);
            question.receive_answer(lost, again);
        }
    }
}

/// A turn on Redis that is given back, at the latest by a posted command.
struct OpenLeave {
    redis: Arc<RedisBackend>,
    key: Key,
    leave: Option<Settle>,
}

impl OpenLeave {
    /// Gives the turn back.
    async fn send(mut self) {
        if let Some(leave) = self.leave
            && self.redis.settle(&self.key, leave).await.is_ok()
        {
            self.leave = None;
        }
    }
}

impl Drop for OpenLeave {
    fn drop(&mut self) {
        if let Some(leave) = self.leave.take() {
            self.redis.post(self.key.clone(), Content::Leave(leave));
        }
    }
}

/// A check that a task awaits, as an [`OpenQuestion`].
struct CheckTask {
    limiter: Limiter,
    check: Option<TurnCheck>,
}

impl CheckTask {
    /// Asks Redis for the standing of a line's first turn.
    async fn run(mut self) {
        let Some(check) = &self.check else { return };
        let Some(redis) = self.limiter.inner.backend.redis() else { return };
        let sent = Instant::now();
        let standing = redis.advance(&check.waiter.key, check.place()).await;
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

/// Asks for the turns of calls, after others are given back. Redis receives the commands in this order.
fn ask(leaves: Vec<OpenLeave>, questions: Vec<Question>) {
    let mut awaited: Vec<Pin<Box<dyn Future<Output = ()> + Send>>> = Vec::new();
    for mut question in questions {
        question.renew();
        match question.decide_now() {
            Some(decided) => question.receive_answer(decided, None),
            None => awaited.push(Box::pin(OpenQuestion(Some(question)).ask())),
        }
    }
    if !awaited.is_empty() {
        let leaves = leaves.into_iter().map(|leave| Box::pin(leave.send()) as _);
        awaited.splice(..0, leaves);
        start(poll_fn(move |context| {
            awaited.retain_mut(|question| question.as_mut().poll(context).is_pending());
            if awaited.is_empty() { Poll::Ready(()) } else { Poll::Pending }
        }));
    }
}

impl Question {
    /// Asks under the policy of now: the call may not have seen an override yet.
    fn renew(&mut self) {
        let effective = self.waiter.call().effective();
        if effective.enforcement == Enforcement::On {
            self.waiter.wait_under(effective.policy());
            self.claim = self.waiter.claim();
        }
    }

    /// Returns the request to the store.
    fn request(&self) -> Request<'_> {
        let Call { policy: written, options, .. } = self.waiter.call();
        let left = self.waiter.ends().saturating_duration_since(Instant::now());
        let policy = if self.claim.policy == *written { written } else { &self.claim.policy };
        let request = Request::new(policy, options.op, options.cost);
        let max_line = self.waiter.max_line();
        Request { written, id: options.id, max_wait: left.into(), max_line, ..request }
    }

    /// Decides the call if memory or the deny cache can.
    fn decide_now(&self) -> Option<Decided> {
        let (call, request) = (self.waiter.call(), self.request());
        let backend = &call.limiter.inner.backend;
        if backend.memory().is_some() {
            let outcome = backend.decide_now(request, call.caller, call.options.on_store_error)?;
            return Some(call.in_memory(request, outcome));
        }
        let refusal = backend.cached_refusal(request, call.caller, request.max_wait.into())?;
        Some(Ok(refusal).into())
    }

    /// Receives an answer, and follows it. Without one the call asks `again` at that time.
    fn receive_answer(self, decided: Decided, again: Option<Instant>) {
        let outcome = decided.outcome;
        let limiter = &self.waiter.call().limiter;
        limiter.follow(self.receive(decided, again));
        // A reset may have come between the decision and its receipt. The call, or another one that has its
        // turn now, may also have left meanwhile.
        if let Ok(outcome) = outcome
            && outcome.turn() > Micros::ZERO
        {
            let (waiter, policy) = (Arc::clone(&self.waiter), self.claim.policy);
            let is_remote = waiter.is_remote(outcome.decided_by);
            let turn = TurnCheck { waiter, is_remote, claim: self.claim, outcome, policy };
            if let Some(store) = limiter.local_store(is_remote)
                && !store.is_promised(self.waiter.key.as_key_ref(), turn.place())
            {
                limiter.follow(limiter.inner.lines.lose(&turn));
            }
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
        let Aftermath { woken, asked, freed, permits } = after;
        let leaves = freed.iter().filter_map(|freed| self.give_back(freed)).collect();
        drop(permits);
        wake(woken);
        ask(leaves, asked);
    }

    /// Gives back a turn that nobody takes, or returns the command that does. A charge under a request id is
    /// kept for the next call with this id.
    fn give_back(&self, freed: &FreedTurn) -> Option<OpenLeave> {
        let FreedTurn { waiter, claim, outcome } = freed;
        if claim.id.is_some() || claim.policy.tiers().is_empty() || !outcome.decided_by.counts() {
            return None;
        }
        let key = waiter.key.as_key_ref();
        let leave = claim.place(*outcome).leave();
        let Some((redis, key)) = self.inner.backend.settle_here(key, leave, outcome.decided_by)
        else {
            self.inner.lines.hurry(key);
            return None;
        };
        Some(OpenLeave { redis: Arc::clone(redis), key, leave: Some(leave) })
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
    pub(super) fn check_line(&self, check: TurnCheck) {
        if let Some(store) = self.local_store(check.is_remote) {
            let standing = store.advance(check.waiter.key.as_key_ref(), check.place());
            self.follow(self.inner.lines.checked(&check, Ok(standing), Instant::now()));
        } else {
            start(CheckTask { limiter: self.clone(), check: Some(check) }.run());
        }
    }
}
