//! The questions of waiting calls to their stores, and what follows from the answers.
//!
//! Redis is asked by a task of the background thread, so that a turn which is promised to a dropped
//! call is received, too.

use std::{
    collections::VecDeque,
    pin::pin,
    sync::{Arc, atomic::Ordering},
    task::{Context, Waker},
    time::Duration,
};

use tokio::time::{Instant, sleep};

use crate::{
    background,
    key::KeyRef,
    limiter::{
        Limiter,
        backend::Decided,
        call::Call,
        handle::Inner,
        queue::{Aftermath, KeyQueue, Question, QueuedTurn, Waiter, wake},
    },
    overrides::Effective,
    policy::Policy,
    redis::Content,
    request::{LinePlace, OnStoreError, Request},
    telemetry,
    time::Micros,
};

impl Waiter {
    /// Returns the request of a question under the policy of now: the call may not have seen an
    /// override yet.
    fn request<'r>(&self, call: Call<'r>, effective: &'r Effective<'_>) -> Request<'r> {
        let left = self.ends().saturating_duration_since(Instant::now());
        let (max_wait, max_line) = (left.into(), call.limiter.inner.queues.max_line);
        Request { max_wait, max_line, ..call.request(effective) }
    }
}

impl Inner {
    /// Lets the calls that wait follow the commands on Redis that nobody awaits.
    pub(in crate::limiter) fn follow_deliveries(self: &Arc<Self>) {
        let Some(redis) = self.backend.redis() else { return };
        // Weak: the limiter owns the store, which owns this function.
        let limiter = Arc::downgrade(self);
        redis.on_delivery(Box::new(move |key, content| {
            if let Some(inner) = limiter.upgrade() {
                Limiter { inner }.delivered(key, content);
            }
        }));
    }
}

impl Limiter {
    /// Makes the changes after a move in a queue, and then those that they cause. Redis receives
    /// their commands in the same order.
    pub(in crate::limiter) fn follow(&self, after: Aftermath) {
        // Memory decides under the lock of all queues.
        telemetry::reports_later(|| self.make_moves(after));
    }

    fn make_moves(&self, after: Aftermath) {
        let mut moves = VecDeque::from([after]);
        while let Some(after) = moves.pop_front() {
            let Aftermath { woken, asked, freed, checked, permits, later } = after;
            for turn in &freed {
                self.give_back(turn, !asked.is_empty());
            }
            // Before the questions, which may ask for what this frees.
            drop(permits);
            wake(woken);
            for question in asked {
                self.ask(question, &mut moves);
            }
            if let Some(turn) = checked {
                let checking = self.clone().check_turn(turn);
                if self.is_in_memory() {
                    // It awaits nothing.
                    let _ = pin!(checking).poll(&mut Context::from_waker(Waker::noop()));
                } else {
                    background::start(checking);
                }
            }
            if let Some((key, pause)) = later {
                self.look_later(key, pause);
            }
        }
    }

    /// Changes the queue of a call.
    fn change(&self, waiter: &Waiter, change: impl FnOnce(&mut KeyQueue)) -> Aftermath {
        self.inner.queues.change(&waiter.text, change).1
    }

    /// Lets the first call that waits for a permit of the key ask for the one that is free now.
    pub(in crate::limiter) fn permit_is_free(&self, key: KeyRef<'_>) {
        self.follow(self.inner.queues.change_if_any(key, KeyQueue::permit_is_free));
    }

    /// Makes the changes after a posted command has arrived on Redis. A leave brings the calls of
    /// this process nearer only by the next check.
    fn delivered(&self, key: KeyRef<'_>, content: Content) {
        match content {
            Content::Settle(settle) if settle.lowered() > 0 => self.inner.queues.hurry(key),
            // A settle at more units brings nobody nearer.
            Content::Settle(_) | Content::Leave(_) => {}
            Content::Release { .. } => self.permit_is_free(key),
        }
    }

    /// Looks again after a pause whether other processes have freed a permit.
    fn look_later(&self, key: Arc<[u8]>, pause: Duration) {
        // Weak: a task that sleeps keeps no limiter alive that the program has dropped.
        let limiter = Arc::downgrade(&self.inner);
        background::start(async move {
            sleep(pause).await;
            if let Some(inner) = limiter.upgrade() {
                // No change: each one lets the first call ask for a permit if it is time to.
                let ((), after) = inner.queues.change(&key, |_| {});
                Self { inner }.follow(after);
            }
        });
    }

    /// Asks for the turn of a call: at once if memory or the deny cache can decide it.
    fn ask(&self, question: Question, moves: &mut VecDeque<Aftermath>) {
        let waiter = Arc::clone(&question.waiter);
        // The version before the policy: an override between the two counts as a later one.
        let (call, version) = (waiter.call.of(self), self.overrides().version());
        let effective = call.effective();
        let (policy, request) = (effective.policy(), waiter.request(call, &effective));
        let decide = || {
            let (backend, on_store_error) = (&self.inner.backend, call.on_store_error(policy));
            let outcome = backend.decide_now(request, call.caller, on_store_error)?;
            Some(Decided { outcome, permit: call.permit_of(&request, &outcome) })
        };
        if self.is_in_memory() {
            // Under the lock, so that a refund, a reset or a pause that comes next finds the call
            // in its queue.
            let decide = || decide().expect("memory decides at once");
            moves.push_back(self.receive(&question, policy, version, None, decide));
        } else if let Some(decided) = decide() {
            moves.push_back(self.receive(&question, policy, version, None, || decided));
        } else {
            background::start(self.clone().ask_redis(question));
        }
    }

    /// Asks Redis, and follows the answer.
    async fn ask_redis(self, question: Question) {
        let waiter = &question.waiter;
        // The version is read before the policy, as in `ask`.
        let (call, version) = (waiter.call.of(&self), self.overrides().version());
        let effective = call.effective();
        let (policy, request) = (effective.policy(), waiter.request(call, &effective));
        let decided = call.decide(&effective, request, waiter.asked()).await;
        // At the end of its wait, the call has its answer from `on_store_error`.
        let may_wait = request.max_wait > Micros::ZERO;
        let again = if may_wait { self.asks_again(waiter, policy, &decided) } else { None };
        self.follow(self.receive(&question, policy, version, again, || decided));
    }

    /// Returns the time at which a call that Redis has not decided asks again: after a pause, and
    /// at the latest at the end of its wait. Returns nothing if there is an answer, or if asking
    /// again does not help.
    fn asks_again(&self, waiter: &Waiter, policy: &Policy, decided: &Decided) -> Option<Instant> {
        decided.outcome.err().filter(|reason| reason.may_pass())?;
        let (backend, now) = (&self.inner.backend, Instant::now());
        let redis = backend.redis()?;
        let on_store_error =
            backend.on_store_error(policy.answer(waiter.call.options.on_store_error));
        // Under `deny` this failure is the answer. Other settings decide by one more question,
        // which does not wait.
        if now >= waiter.ends() && on_store_error == OnStoreError::Deny {
            return None;
        }
        let failures = waiter.failures.fetch_add(1, Ordering::Relaxed) + 1;
        Some((now + redis.pause(failures)).min(waiter.ends()))
    }

    /// Receives the answer to a question under a policy, which was that of a version of the
    /// overrides.
    fn receive(
        &self,
        question: &Question,
        policy: &Policy,
        version: u64,
        again: Option<Instant>,
        decided: impl FnOnce() -> Decided,
    ) -> Aftermath {
        self.change(&question.waiter, |queue| {
            let decided = decided();
            // Compared under the lock: a call sees a later override once it has its answer.
            let is_overridden = self.overrides().version() != version;
            queue.receive(question, policy, decided, again, is_overridden, Instant::now());
        })
    }

    /// Gives back a turn that nobody takes. A charge under a request id is kept for the next call
    /// with this id. Redis receives the command before the questions that follow.
    fn give_back(&self, turn: &QueuedTurn, is_followed: bool) {
        let QueuedTurn { waiter, claim, outcome, .. } = turn;
        // Without tiers, or if nobody has counted the call, there is no charge.
        if claim.id.is_some() || claim.policy.tiers().is_empty() || !outcome.decided_by.counts() {
            return;
        }
        let (key, leave) = (waiter.key.as_key_ref(), turn.place().leave());
        let Some((redis, key)) = self.inner.backend.settle_here(key, &leave, outcome.decided_by)
        else {
            // This process had counted the turn, and has given it back already.
            return self.inner.queues.hurry(key);
        };
        if !is_followed {
            return redis.post(key, Content::Leave(leave));
        }
        // Not posted: behind others in the outbox, it could reach Redis after the questions.
        let redis = redis.clone();
        background::start(async move {
            redis.send(key, Content::Leave(leave)).await;
        });
    }

    /// Moves the turns of a key's queue to those that its store has after a pause.
    pub(in crate::limiter) async fn move_turns(&self, key: KeyRef<'_>) {
        let mut turns = Vec::new();
        self.follow(self.inner.queues.change_if_any(key, |queue| turns = queue.turns()));
        let Some(first) = turns.first() else { return };
        let places: Vec<_> = turns.iter().map(QueuedTurn::place).collect();
        // Without an answer, the first call asks for its turn within a second.
        if let Ok(moved) = self.inner.backend.turns(&first.waiter.key, &places).await {
            let receive = |queue: &mut KeyQueue| queue.receive_turns(&turns, &moved);
            self.follow(self.change(&first.waiter, receive));
        }
    }

    /// Asks for the standing of a turn, under the policy that its call waits under now.
    async fn check_turn(self, turn: QueuedTurn) {
        let (waiter, asked) = (&turn.waiter, Instant::now());
        let effective = waiter.call.of(&self).effective();
        let policy = effective.policy();
        let place = LinePlace { policy, ..turn.place() };
        let standing = self.inner.backend.advance(&waiter.key, place).await;
        let receive = |queue: &mut KeyQueue| {
            queue.receive_standing(&turn, policy, standing, asked);
            queue.is_moving()
        };
        let (is_moving, after) = self.inner.queues.change(&waiter.text, receive);
        self.follow(after);
        // A pause has moved the first turn, so that those behind it are looked up as well.
        if is_moving {
            self.move_turns(waiter.key.as_key_ref()).await;
        }
    }
}
