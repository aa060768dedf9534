//! Units on lease: for a hot key, this process takes units of Redis ahead, and decides in memory until
//! they are used or the lease ends.
//!
//! - Exact: Redis counts units on lease as taken. A lease is used only until its end, counted from before
//!   the command was sent. What is not used goes back by the command that takes the next lease.
//! - Adaptive: a key is hot after a few calls within the length of a lease. A task then takes
//!   as many units as the calls are likely to ask for, at most the process's share. The key is cold again
//!   once calls stop; a cold key's calls are decided by Redis.
//! - Bounded: a fixed number of sets, and of keys in a set. Further keys stay cold.

mod demand;
mod keys;
mod stock;
mod task;
#[cfg(test)]
mod tests;

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::time::{Instant, timeout_at};

use self::{
    keys::{HotKey, LeaseSet, Signals, WaitingForUnits},
    stock::{LeaseStep, Sent, Stock, StockAnswer},
};
use super::{RedisBackend, script::Grant};
use crate::{
    error::UnavailableReason,
    key::{Key, KeyHasher, KeyRef},
    request::{Op, Outcome, Request, Settle},
    sync::Mutex,
    time::{Micros, Timestamp},
};

/// The time after a failed exchange in which a key stays cold.
const HOLD_OFF: Micros = Micros::new(250_000);

const SETS: usize = 64;

/// The keys of this process under policies with a lease.
pub(super) struct Leases {
    /// Allocated by the first call under such a policy.
    sets: OnceLock<Box<[Mutex<LeaseSet>]>>,
    hasher: KeyHasher,
    /// The longest time for which a refusal of Redis is repeated.
    ttl: Micros,
    /// The leases that could not be given back.
    lost: AtomicUsize,
}

/// The answer to a call.
enum LeaseAnswer {
    Decided(Outcome),
    Wait(WaitingForUnits),
    /// Redis decides.
    Direct,
}

impl Leases {
    pub(super) fn new(ttl: Duration) -> Self {
        let (sets, hasher, lost) = (OnceLock::new(), KeyHasher::new(), AtomicUsize::new(0));
        Self { sets, hasher, ttl: ttl.into(), lost }
    }

    fn set(&self, hash: u64) -> &Mutex<LeaseSet> {
        let sets = self.sets.get_or_init(|| (0..SETS).map(|_| Mutex::default()).collect());
        let index = (hash >> 32) as usize % SETS;
        &sets[index]
    }

    /// Decides a call of a hot key, if units or a refusal are at hand.
    #[inline]
    fn take(
        &self,
        key: KeyRef<'_>,
        request: Request<'_>,
        now: impl FnOnce() -> Timestamp,
    ) -> Option<Outcome> {
        let lookup = self.hasher.lookup(key);
        let mut set = self.set(lookup.hash).lock();
        let hot = set.find(&lookup, request.policy)?;
        match hot.stock.take(request.cost, now()) {
            StockAnswer::Decided(outcome) => Some(outcome),
            StockAnswer::Wait | StockAnswer::Direct => None,
        }
    }

    /// Asks for the units of a call. One that `is_new` is counted.
    fn ask(
        &self,
        key: KeyRef<'_>,
        request: Request<'_>,
        is_new: bool,
        now: Timestamp,
    ) -> LeaseAnswer {
        let Request { policy, cost, .. } = request;
        let lookup = self.hasher.lookup(key);
        let mut set = self.set(lookup.hash).lock();
        if let Some(hot) = set.find(&lookup, policy) {
            return match hot.stock.take(cost, now) {
                StockAnswer::Decided(outcome) => LeaseAnswer::Decided(outcome),
                StockAnswer::Direct => LeaseAnswer::Direct,
                StockAnswer::Wait => {
                    let waiting = hot.wait(cost, false);
                    if is_new {
                        hot.stock.add_demand(cost);
                    }
                    hot.signals.task.notify_one();
                    LeaseAnswer::Wait(waiting)
                }
            };
        }
        let Some(length) = policy.lease_micros().filter(|_| is_new) else {
            return LeaseAnswer::Direct;
        };
        if !set.heats(lookup.hash, length, now) {
            return LeaseAnswer::Direct;
        }
        let Some(mut stock) = Stock::new(policy, self.ttl, now) else { return LeaseAnswer::Direct };
        let StockAnswer::Wait = stock.take(cost, now) else { return LeaseAnswer::Direct };
        stock.add_demand(cost);
        let hot = HotKey::new(lookup, policy, stock);
        let waiting = hot.wait(cost, true);
        set.hot.push(hot);
        LeaseAnswer::Wait(waiting)
    }

    /// Returns the next step of a key's task. Its last one makes the key cold.
    fn step(&self, hash: u64, signals: &Arc<Signals>, now: Timestamp) -> LeaseStep {
        let mut set = self.set(hash).lock();
        let Some(hot) = set.of_task(signals) else { return LeaseStep::End };
        let step = hot.stock.step(hot.pending.load(Ordering::Relaxed), now);
        if step == LeaseStep::End {
            set.cool(signals, now);
        }
        step
    }

    /// Receives the reply to an exchange. Returns `false` if the task is to end.
    fn receive(&self, hash: u64, signals: &Arc<Signals>, grant: Grant, at: Sent) -> bool {
        let mut set = self.set(hash).lock();
        set.of_task(signals).is_some_and(|hot| {
            // Those that wait ask again.
            hot.pending = Arc::default();
            hot.stock.receive(grant, at)
        })
    }

    /// Makes a key cold until `since`, and wakes its calls.
    fn cool(&self, hash: u64, signals: &Arc<Signals>, since: Timestamp) {
        self.set(hash).lock().cool(signals, since);
        signals.exchanged.send_replace(());
    }

    /// Changes the stocks of a key, under each of its policies.
    fn change(&self, key: KeyRef<'_>, mut change: impl FnMut(&mut Stock)) {
        if self.sets.get().is_none() {
            return;
        }
        let lookup = self.hasher.lookup(key);
        let mut set = self.set(lookup.hash).lock();
        set.hot.iter_mut().filter(|it| it.is_of(&lookup)).for_each(|it| change(&mut it.stock));
    }

    /// Ends the leases of a key: its caller was reset.
    pub(super) fn invalidate(&self, key: KeyRef<'_>) {
        self.change(key, Stock::invalidate);
    }

    /// Lets all leases be given back. Returns what tells that one is.
    fn close(&self) -> Vec<Arc<Signals>> {
        let mut closing = Vec::new();
        for set in self.sets.get().into_iter().flatten() {
            for hot in &mut set.lock().hot {
                hot.stock.close();
                hot.signals.task.notify_one();
                closing.push(Arc::clone(&hot.signals));
            }
        }
        closing
    }

    fn is_hot(&self, signals: &Arc<Signals>) -> bool {
        let mut sets = self.sets.get().into_iter().flatten();
        sets.any(|set| set.lock().of_task(signals).is_some())
    }
}

/// Returns `true` if units on lease may decide the request.
#[inline]
fn is_leasable(request: Request<'_>) -> bool {
    request.policy.lease_micros().is_some()
        && request.op == Op::Take
        && request.id.is_none()
        && request.max_wait == Micros::ZERO
}

impl RedisBackend {
    /// Decides a call by units on lease, or by what Redis has told with them, if they are at hand.
    #[inline]
    pub(crate) fn leased(&self, key: KeyRef<'_>, request: Request<'_>) -> Option<Outcome> {
        if !is_leasable(request) {
            return None;
        }
        self.leases.take(key, request, || self.clock().now())
    }

    /// Decides a call by units on lease, and waits for them until the deadline. Returns nothing if Redis
    /// is to decide it.
    pub(super) async fn decide_on_lease(
        self: &Arc<Self>,
        key: &Key,
        request: Request<'_>,
        deadline: Instant,
    ) -> Option<Result<Outcome, UnavailableReason>> {
        if !is_leasable(request) {
            return None;
        }
        let mut is_new = true;
        loop {
            let asked = self.leases.ask(key.as_key_ref(), request, is_new, self.clock().now());
            is_new = false;
            let mut waiting = match asked {
                LeaseAnswer::Decided(outcome) => return Some(Ok(outcome)),
                LeaseAnswer::Direct => return None,
                LeaseAnswer::Wait(waiting) => waiting,
            };
            if waiting.is_first {
                self.start_leasing(key, *request.policy, &waiting.signals);
            }
            if timeout_at(deadline, waiting.exchanged.changed()).await.is_err() {
                // Redis does not answer the key's task. Calls ask it themselves for a while.
                let hash = self.leases.hasher.lookup(key.as_key_ref()).hash;
                self.leases.cool(hash, &waiting.signals, self.clock().now() + HOLD_OFF);
                return Some(Err(UnavailableReason::DeadlineExceeded));
            }
        }
    }

    /// Gives the units of a call back to their lease, if that lasts.
    pub(crate) fn give_back_to_lease(&self, key: KeyRef<'_>, settle: Settle) {
        let now = self.clock().now();
        self.leases.change(key, |stock| stock.give_back(settle.mark, settle.lowered(), now));
    }

    /// Gives all leases back. Returns the number of those that could not be.
    pub(super) async fn give_leases_back(&self) -> usize {
        let lost = self.leases.lost.load(Ordering::Relaxed);
        let ends = Instant::now() + 2 * self.deadline;
        let mut left = 0;
        for signals in self.leases.close() {
            let mut exchanged = signals.exchanged.subscribe();
            while self.leases.is_hot(&signals) {
                if timeout_at(ends, exchanged.changed()).await.is_err() {
                    left += 1;
                    break;
                }
            }
        }
        left + self.leases.lost.load(Ordering::Relaxed) - lost
    }
}
