//! Units on lease: for a hot key, this process takes units of Redis ahead, and decides in memory
//! until they are used or the lease ends.
//!
//! - Exact: Redis counts units on lease as taken. A lease is used only until its end, counted from
//!   before the command was sent. What is not used goes back by the command that takes the next
//!   lease.
//! - Adaptive: a key is hot after a few calls within the length of a lease. A task then takes as
//!   many units as the calls are likely to ask for, at most the process's share. The key is cold
//!   again once calls stop; a cold key's calls are decided by Redis.
//! - Bounded: a fixed number of sets, and of keys in a set. Further keys stay cold.

mod demand;
mod keys;
#[cfg(all(test, not(ratelimit_loom)))]
#[path = "../../../tests/models/leases.rs"]
mod model;
mod stock;
mod task;
#[cfg(test)]
mod tests;
mod trips;

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
    stock::{LeaseStep, Stock, StockAnswer},
    task::LeaseTask,
    trips::Trips,
};
use super::{deny_cache::RoundTrip, script::Grant, store::RedisStore};
use crate::{
    error::{Replied, UnavailableReason},
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
    store: Arc<RedisStore>,
    /// Allocated by the first call under such a policy.
    sets: OnceLock<Box<[Mutex<LeaseSet>]>>,
    hasher: KeyHasher,
    /// The longest time for which a refusal of Redis is repeated.
    ttl: Micros,
    /// The leases that could not be given back.
    lost: AtomicUsize,
    trips: Trips,
}

impl Leases {
    pub(super) fn new(store: Arc<RedisStore>, ttl: Duration) -> Arc<Self> {
        Arc::new(Self {
            store,
            sets: OnceLock::new(),
            hasher: KeyHasher::new(),
            ttl: ttl.into(),
            lost: AtomicUsize::new(0),
            trips: Trips::default(),
        })
    }

    fn set(&self, hash: u64) -> &Mutex<LeaseSet> {
        let sets = self.sets.get_or_init(|| (0..SETS).map(|_| Mutex::default()).collect());
        let index = (hash >> 32) as usize % SETS;
        &sets[index]
    }

    fn now(&self) -> Timestamp {
        self.store.clock().now()
    }

    /// Decides a call of a hot key by units on lease, or by what Redis has replied with them, if
    /// they are at hand.
    #[inline]
    pub(super) fn take(&self, key: KeyRef<'_>, request: Request<'_>) -> Option<Outcome> {
        if !is_leasable(request) {
            return None;
        }
        let lookup = self.hasher.lookup(key);
        let mut set = self.set(lookup.hash).lock();
        let hot = set.find(&lookup, request.policy)?;
        // Without `?`, which copies the outcome once more: 25 instructions.
        if let Some(Ok(outcome)) = hot.stock.take(request.cost, self.now()) {
            Some(outcome)
        } else {
            None
        }
    }

    /// Asks for the units of a call. One that `is_new` is counted.
    fn ask(
        &self,
        key: KeyRef<'_>,
        request: Request<'_>,
        is_new: bool,
        now: Timestamp,
    ) -> StockAnswer<WaitingForUnits> {
        let Request { policy, cost, .. } = request;
        let lookup = self.hasher.lookup(key);
        let mut set = self.set(lookup.hash).lock();
        if let Some(hot) = set.find(&lookup, policy) {
            let answer = hot.stock.take(cost, now)?;
            return Some(answer.map_err(|()| {
                if is_new {
                    hot.stock.demand.add(cost);
                }
                hot.signals.task.notify_one();
                hot.wait(cost, false)
            }));
        }
        let is_hot = |length| is_new && set.heats(lookup.hash, length, now);
        if !policy.lease_micros().is_some_and(is_hot) {
            return None;
        }
        let mut stock = Stock::new(policy, self.ttl, now)?;
        // A new stock has no units: this asks whether a lease may have enough for the call.
        stock.take(cost, now)?.err()?;
        stock.demand.add(cost);
        let hot = HotKey::new(lookup, policy, stock);
        let waiting = hot.wait(cost, true);
        set.hot.push(hot);
        Some(Err(waiting))
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

    /// Receives the reply to an exchange. Returns `false` if the next step is the key's last one.
    fn receive(&self, hash: u64, signals: &Arc<Signals>, grant: Grant, at: RoundTrip) -> bool {
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

    /// Decides a call by units on lease, and waits for them until the deadline. Returns nothing if
    /// Redis is to decide it.
    pub(super) async fn decide(
        self: &Arc<Self>,
        key: &Key,
        request: Request<'_>,
        deadline: Instant,
    ) -> Option<Replied<Outcome>> {
        if !is_leasable(request) {
            return None;
        }
        let mut is_new = true;
        loop {
            let mut waiting = match self.ask(key.as_key_ref(), request, is_new, self.now())? {
                Ok(outcome) => return Some(Ok(outcome)),
                Err(waiting) => waiting,
            };
            is_new = false;
            if waiting.is_first {
                LeaseTask::start(self, key, request.policy, &waiting.signals);
            }
            if timeout_at(deadline, waiting.exchanged.changed()).await.is_err() {
                // Redis does not answer the key's task. Calls ask it themselves for a while.
                let hash = self.hasher.lookup(key.as_key_ref()).hash;
                self.cool(hash, &waiting.signals, self.now() + HOLD_OFF);
                return Some(Err(UnavailableReason::DeadlineExceeded));
            }
        }
    }

    /// Gives the units of a call back to their lease, if that lasts.
    pub(super) fn give_back(&self, key: KeyRef<'_>, settle: Settle) {
        let now = self.now();
        self.change(key, |stock| stock.give_back(settle.mark, settle.lowered(), now));
    }

    /// Gives all leases back. Returns the number of those that could not be.
    pub(super) async fn give_all_back(&self) -> usize {
        let lost = self.lost.load(Ordering::Relaxed);
        // For an exchange that is under way, and for the one that gives its units back.
        let ends = Instant::now() + 2 * self.store.deadline;
        let sets = || self.sets.get().into_iter().flatten();
        let (mut closing, mut left) = (Vec::new(), 0);
        for set in sets() {
            for hot in &mut set.lock().hot {
                hot.stock.close();
                hot.signals.task.notify_one();
                closing.push(Arc::clone(&hot.signals));
            }
        }
        for signals in closing {
            // Before the look at the set, so that no exchange is missed.
            let mut exchanged = signals.exchanged.subscribe();
            while sets().any(|set| set.lock().of_task(&signals).is_some()) {
                if timeout_at(ends, exchanged.changed()).await.is_err() {
                    left += 1;
                    break;
                }
            }
        }
        left + self.lost.load(Ordering::Relaxed) - lost
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
