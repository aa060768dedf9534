//! The task of a hot key, which exchanges its leases.

use std::sync::{Arc, atomic::Ordering};

use tokio::time::{Instant, timeout};

use super::{HOLD_OFF, LeaseStep, RedisBackend, Sent, Signals};
use crate::{
    key::Key,
    policy::Policy,
    redis::{
        background,
        deny_cache::RoundTrip,
        script::{LeaseCall, LeaseRequest},
    },
    request::{Op, Request, next_id},
    time::Micros,
};

/// The task of a hot key. Dropped before its end, as by a panic, it makes the key cold.
struct LeaseTask {
    /// The number of this task among those that share a key, also under another policy.
    id: u64,
    backend: Arc<RedisBackend>,
    key: Key,
    hash: u64,
    policy: Policy,
    signals: Arc<Signals>,
    /// The time after the end in which the key stays cold.
    hold_off: Micros,
}

impl Drop for LeaseTask {
    fn drop(&mut self) {
        let leases = &self.backend.leases;
        leases.cool(self.hash, &self.signals, self.backend.clock().now() + self.hold_off);
    }
}

impl RedisBackend {
    /// Starts the task of a key that is hot now.
    pub(super) fn start_leasing(
        self: &Arc<Self>,
        key: &Key,
        policy: Policy,
        signals: &Arc<Signals>,
    ) {
        let hash = self.leases.hasher.lookup(key.as_key_ref()).hash;
        let (backend, signals) = (Arc::clone(self), Arc::clone(signals));
        let hold_off = Micros::ZERO;
        let task =
            LeaseTask { id: next_id(), backend, key: key.clone(), hash, policy, signals, hold_off };
        background::spawn(task.run());
    }
}

impl LeaseTask {
    async fn run(mut self) {
        loop {
            let now = self.backend.clock().now();
            match self.backend.leases.step(self.hash, &self.signals, now) {
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
        let Self { id, backend, key, policy, .. } = &*self;
        let is_unused = request.returned.is_some_and(|it| it.used < it.units);
        if is_unused {
            // What is given back shortens waits.
            backend.deny_cache.invalidate(key.as_key_ref(), backend.clock().now());
        }
        let sent = backend.clock().surely_past();
        let call = LeaseCall::new(key, policy, *id, request);
        let reply = backend.client.exchange(&call, Instant::now() + backend.deadline).await;
        let answered = backend.clock().now();
        match reply {
            Ok(Some(grant)) => {
                let taken = Request::new(policy, Op::Take, grant.units.max(1));
                let trip = RoundTrip { sent, answered };
                backend.deny_cache.insert(key.as_key_ref(), taken, grant.outcome(), trip);
                if backend.leases.receive(self.hash, &self.signals, grant, Sent { sent, answered })
                {
                    return true;
                }
                self.hold_off = HOLD_OFF;
            }
            Ok(None) => {}
            Err(_) => {
                if is_unused {
                    backend.leases.lost.fetch_add(1, Ordering::Relaxed);
                }
                self.hold_off = HOLD_OFF;
            }
        }
        false
    }
}
