//! The questions of waiting calls to their stores, and what follows from the answers.
//!
//! Redis is asked by a task of the background thread, so that a turn which is promised to a dropped call is
//! received, too.

use std::{
    collections::VecDeque,
    pin::pin,
    sync::Arc,
    task::{Context, Waker},
    time::Duration,
};

use tokio::time::{Instant, sleep};

use super::{
    lines::{Aftermath, wake},
    seats::Seat,
    waiter::{Question, Waiter},
};
use crate::{
    key::KeyRef,
    limiter::{
        Inner, Limiter,
        permit::{Decided, InMemory},
    },
    overrides::Enforcement,
    redis::{Content, start},
    request::{Place, Request},
    time::Micros,
};

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
        let (waiter, call) = (&self.waiter, self.waiter.call());
        let left = waiter.ends().saturating_duration_since(Instant::now());
        let policy = &self.claim.policy;
        let policy = if policy == call.policy { call.policy } else { policy };
        let (max_wait, max_line) = (left.into(), waiter.max_line());
        Request { max_wait, max_line, ..call.request_under(policy) }
    }

    /// Decides the call if memory or the deny cache can.
    fn decide_now(&self) -> Option<Decided> {
        let (call, request) = (self.waiter.call(), self.request());
        let backend = &call.limiter.inner.backend;
        let outcome = backend.decide_now(request, call.caller, call.options.on_store_error)?;
        let permit = call.permit_in_memory(&request, &outcome).map(InMemory::shared);
        Some(Decided { outcome, permit })
    }

    /// Asks Redis, and follows the answer.
    async fn ask_redis(self) {
        let (waiter, request) = (&self.waiter, self.request());
        let decided = waiter.call().decide(request, waiter.asked()).await;
        // At the end of its wait, the call has its answer from `on_store_error`.
        let may_wait = request.max_wait > Micros::ZERO;
        let again = if may_wait { waiter.asks_again(&decided) } else { None };
        waiter.call().limiter.follow(self.receive(decided, again));
    }
}

impl Inner {
    /// Lets the calls that wait follow the commands on Redis that nobody awaits.
    pub(in crate::limiter) fn follow_deliveries(self: &Arc<Self>) {
        let Some(redis) = self.backend.redis() else { return };
        let limiter = Arc::downgrade(self);
        redis.on_delivery(Box::new(move |key, content| {
            if let Some(inner) = limiter.upgrade() {
                Limiter { inner }.delivered(key, content);
            }
        }));
    }
}

impl Limiter {
    /// Makes the changes after a move in a line, and then those that they cause. Redis receives their commands in
    /// the same order.
    pub(in crate::limiter) fn follow(&self, after: Aftermath) {
        let mut moves = VecDeque::from([after]);
        while let Some(after) = moves.pop_front() {
            let Aftermath { woken, asked, freed, checked, moved, permits, later } = after;
            for seat in &freed {
                self.give_back(seat, !asked.is_empty());
            }
            drop(permits);
            wake(woken);
            for question in asked {
                self.ask(question, &mut moves);
            }
            if let Some(seat) = checked {
                self.check_turn(seat, &mut moves);
            }
            if let Some(waiter) = moved {
                self.move_line(waiter);
            }
            if let Some((text, pause)) = later {
                self.look_later(text, pause);
            }
        }
    }

    /// Lets the first call that waits for a permit of the key ask for the one that is free now.
    pub(in crate::limiter) fn permit_is_free(&self, key: KeyRef<'_>) {
        self.follow(self.inner.lines.permit_is_free(key));
    }

    /// Makes the changes after a posted command has arrived on Redis. A leave brings the calls of this process
    /// nearer only by the next check.
    fn delivered(&self, key: KeyRef<'_>, content: Content) {
        match content {
            Content::Settle(settle) if settle.lowered() > 0 => self.inner.lines.hurry(key),
            Content::Settle(_) | Content::Leave(_) => {}
            Content::Release { .. } => self.permit_is_free(key),
        }
    }

    /// Looks again after a pause whether other processes have freed a permit.
    fn look_later(&self, text: Box<[u8]>, pause: Duration) {
        let limiter = Arc::downgrade(&self.inner);
        start(async move {
            sleep(pause).await;
            if let Some(inner) = limiter.upgrade() {
                let after = inner.lines.look_for_permit(&text);
                Self { inner }.follow(after);
            }
        });
    }

    /// Asks for the turn of a call.
    fn ask(&self, mut question: Question, moves: &mut VecDeque<Aftermath>) {
        question.renew();
        let Some(decided) = question.decide_now() else { return start(question.ask_redis()) };
        let (outcome, lines) = (decided.outcome, &self.inner.lines);
        moves.push_back(question.receive(decided, None));
        // A reset may have come between the decision and its receipt. The call, or another one that has its
        // turn now, may also have left meanwhile.
        if let Some(store) = self.inner.backend.memory()
            && let Ok(outcome) = outcome
            && outcome.turn() > Micros::ZERO
        {
            let seat = question.seat(outcome);
            let policy = &seat.claim.policy;
            let (key, place) = (seat.waiter.key.as_key_ref(), seat.claim.place(outcome));
            if !store.is_promised(key, place) {
                moves.push_back(lines.checked(&seat, policy, Ok(None), seat.promised));
            } else if store.turns(key, &[place]).iter().any(|turn| *turn > Some(place.mark.at)) {
                self.move_line(Arc::clone(&seat.waiter));
            }
        }
    }

    /// Gives back a turn that nobody takes. A charge under a request id is kept for the next call with this
    /// id. Redis receives the command before the questions that follow.
    fn give_back(&self, seat: &Seat<Arc<Waiter>>, is_followed: bool) {
        let Seat { waiter, claim, outcome, .. } = seat;
        if claim.id.is_some() || claim.policy.tiers().is_empty() || !outcome.decided_by.counts() {
            return;
        }
        let (key, leave) = (waiter.key.as_key_ref(), claim.place(*outcome).leave());
        let Some((redis, key)) = self.inner.backend.settle_here(key, leave, outcome.decided_by)
        else {
            return self.inner.lines.hurry(key);
        };
        if !is_followed {
            return redis.post(key, Content::Leave(leave));
        }
        let redis = Arc::clone(redis);
        start(async move {
            if redis.settle(&key, leave).await.is_err() {
                redis.post(key, Content::Leave(leave));
            }
        });
    }

    /// Moves the line of a call as [`move_turns`](Self::move_turns), in the background.
    fn move_line(&self, waiter: Arc<Waiter>) {
        let limiter = self.clone();
        let moving = async move { limiter.move_turns(waiter.key.as_key_ref()).await };
        if self.is_in_memory() {
            // It awaits nothing.
            let _ = pin!(moving).poll(&mut Context::from_waker(Waker::noop()));
        } else {
            start(moving);
        }
    }

    /// Moves the turns of a key's line to those that its store has after a pause.
    pub(in crate::limiter) async fn move_turns(&self, key: KeyRef<'_>) {
        let seats = self.inner.lines.turns(key);
        let Some(first) = seats.first() else { return };
        let places: Vec<_> = seats.iter().map(|seat| seat.claim.place(seat.outcome)).collect();
        let turns = match (self.inner.backend.memory(), self.inner.backend.redis()) {
            (Some(store), _) => Ok(store.turns(key, &places)),
            (_, Some(redis)) => redis.turns(&first.waiter.key, &places).await,
            _ => return,
        };
        // Without an answer, the first call asks for its turn within a second.
        if let Ok(turns) = turns {
            self.follow(self.inner.lines.moved(&seats, &turns));
        }
    }

    /// Asks for the standing of a turn, under the policy that its call waits under now.
    fn check_turn(&self, seat: Seat<Arc<Waiter>>, moves: &mut VecDeque<Aftermath>) {
        let (limiter, policy, asked) = (self.clone(), seat.waiter.policy(), Instant::now());
        if let Some(store) = self.inner.backend.memory() {
            let place = Place { policy: &policy, ..seat.claim.place(seat.outcome) };
            let standing = store.advance(seat.waiter.key.as_key_ref(), place);
            return moves.push_back(self.inner.lines.checked(&seat, &policy, Ok(standing), asked));
        }
        start(async move {
            let Some(redis) = limiter.inner.backend.redis() else { return };
            let place = Place { policy: &policy, ..seat.claim.place(seat.outcome) };
            let standing = redis.advance(&seat.waiter.key, place).await;
            limiter.follow(limiter.inner.lines.checked(&seat, &policy, standing, asked));
        });
    }
}
