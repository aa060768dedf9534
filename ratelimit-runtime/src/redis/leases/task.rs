//! The task of a hot key, which exchanges its leases.

use std::sync::{Arc, atomic::Ordering};

use tokio::time::timeout;

use super::{HOLD_OFF, LeaseStep, Leases, Signals};
use crate::{
    background,
    key::Key,
    policy::Policy,
    redis::{
        deny_cache::RoundTrip,
        script::{LeaseCall, LeaseRequest},
        store::RedisStore,
    },
    request::{Op, Request, next_id},
    time::Micros,
};

/// The task of a hot key. Dropped before its end, as by a panic, it makes the key cold.
pub(super) struct LeaseTask {
    /// The number of this task among those that share a key, also under another policy.
    id: u64,
    leases: Arc<Leases>,
    key: Key,
    hash: u64,
    policy: Policy,
    signals: Arc<Signals>,
    /// The time after the end in which the key stays cold.
    hold_off: Micros,
}

impl Drop for LeaseTask {
    fn drop(&mut self) {
        self.leases.cool(self.hash, &self.signals, self.leases.now() + self.hold_off);
    }
}

impl LeaseTask {
    /// Starts the task of a key that is hot now.
    pub(super) fn start(leases: &Arc<Leases>, key: &Key, policy: &Policy, signals: &Arc<Signals>) {
        let hash = leases.hasher.lookup(key.as_key_ref()).hash;
        let (leases, signals) = (Arc::clone(leases), Arc::clone(signals));
        let (id, key) = (next_id(), key.clone());
        let task = Self { id, leases, key, hash, policy: *policy, signals, hold_off: Micros::ZERO };
        background::spawn(task.run());
    }

    async fn run(mut self) {
        loop {
            match self.leases.step(self.hash, &self.signals, self.leases.now()) {
                LeaseStep::Sleep(time) => {
                    let _ = timeout(time.into(), self.signals.task.notified()).await;
                }
                LeaseStep::Exchange(request) => {
                    if !self.exchange(request).await {
                        return;
                    }
                    self.signals.exchanged.send_replace(());
                }
                LeaseStep::End => return,
            }
        }
    }

    /// Gives a lease back, and takes another one. Returns `false` if the task is to end.
    async fn exchange(&mut self, request: LeaseRequest) -> bool {
        let Self { id, leases, key, policy, .. } = &*self;
        let RedisStore { servers, deny_cache, .. } = &*leases.store;
        let is_unused = request.returned.is_some_and(|it| it.used < it.units);
        if is_unused {
            // What is given back shortens waits.
            deny_cache.invalidate(key.as_key_ref(), leases.now());
        }
        // Rather too early: a lease must not be used for longer than Redis counts it.
        let sent = leases.store.clock().surely_past();
        let call = LeaseCall::new(key, policy, *id, request);
        let reply = servers.exchange(&call, leases.store.deadline_from_now()).await;
        let trip = RoundTrip { sent, answered: leases.now() };
        match reply {
            Ok(Some(grant)) => {
                leases.trips.measured(policy, trip.answered - sent);
                // A grant without units is the refusal of one.
                let taken = Request::new(policy, Op::Take, grant.units.max(1));
                deny_cache.insert(key.as_key_ref(), taken, grant.outcome(), trip);
                if !leases.receive(self.hash, &self.signals, grant, trip) {
                    self.hold_off = HOLD_OFF;
                }
                return true;
            }
            // The last lease was given back: the key is cold.
            Ok(None) => {}
            Err(_) => {
                // Redis is away: this process may decide alone, and has used a part of the limit
                // already.
                let used = request.returned.map_or(0, |ended| ended.used);
                if used > 0 {
                    let taken = Request::new(policy, Op::Take, used);
                    let _ = leases.store.fallback.decide(key.as_key_ref(), taken);
                }
                if is_unused {
                    leases.lost.fetch_add(1, Ordering::Relaxed);
                }
                self.hold_off = HOLD_OFF;
            }
        }
        false
    }
}
