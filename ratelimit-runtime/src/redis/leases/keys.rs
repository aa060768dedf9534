//! The keys of one set: hot ones with their stock, and the calls of cold ones.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use tokio::sync::{Notify, watch};

use super::stock::Stock;
use crate::{
    key::{Lookup, StoredCaller},
    policy::Policy,
    time::{Micros, Timestamp},
};

/// Calls within the length of a lease, after which a key is hot.
const MAX_COLD_CALLS: u32 = 3;

/// The most hot keys of a set, and the most cold ones.
pub(super) const WAYS: usize = 16;

/// A set of keys.
#[derive(Default)]
pub(super) struct LeaseSet {
    pub(super) hot: Vec<HotKey>,
    /// The oldest comes first.
    cold: Vec<ColdKey>,
}

pub(super) struct HotKey {
    hash: u64,
    caller: StoredCaller,
    policy: Policy,
    pub(super) stock: Stock,
    /// The units of the calls that wait for the next exchange.
    pub(super) pending: Arc<AtomicU64>,
    pub(super) signals: Arc<Signals>,
}

/// The calls of a key that is not hot. A key of the same hash counts as the same.
pub(super) struct ColdKey {
    hash: u64,
    since: Timestamp,
    calls: u32,
}

/// The signals between the calls of a hot key and its task.
#[derive(Default)]
pub(super) struct Signals {
    /// Wakes the task.
    pub(super) task: Notify,
    /// Signalled after each exchange, and when the task ends.
    pub(super) exchanged: watch::Sender<()>,
}

/// A call that waits for an exchange.
pub(super) struct WaitingForUnits {
    pub(super) exchanged: watch::Receiver<()>,
    pub(super) pending: Arc<AtomicU64>,
    cost: u32,
    pub(super) signals: Arc<Signals>,
    /// `true` if the key has no task yet.
    pub(super) is_first: bool,
}

impl Drop for WaitingForUnits {
    fn drop(&mut self) {
        self.pending.fetch_sub(self.cost.into(), Ordering::Relaxed);
    }
}

impl HotKey {
    pub(super) fn new(lookup: Lookup<'_>, policy: &Policy, stock: Stock) -> Self {
        let Lookup { key, hash } = lookup;
        let (caller, policy) = (StoredCaller::new(key.caller), *policy);
        Self { hash, caller, policy, stock, pending: Arc::default(), signals: Arc::default() }
    }

    /// Lets a call wait for the next exchange.
    pub(super) fn wait(&self, cost: u32, is_first: bool) -> WaitingForUnits {
        self.pending.fetch_add(cost.into(), Ordering::Relaxed);
        WaitingForUnits {
            exchanged: self.signals.exchanged.subscribe(),
            pending: Arc::clone(&self.pending),
            cost,
            signals: Arc::clone(&self.signals),
            is_first,
        }
    }

    pub(super) fn is_of(&self, Lookup { key, hash }: &Lookup<'_>) -> bool {
        self.hash == *hash
            && self.caller.is(&key.caller)
            && self.policy.full_name() == key.name
            && self.policy.state() == key.state
    }
}

impl LeaseSet {
    #[inline(always)]
    pub(super) fn find(&mut self, lookup: &Lookup<'_>, policy: &Policy) -> Option<&mut HotKey> {
        #[expect(clippy::manual_find, reason = "a closure would be called for each key")]
        for hot in &mut self.hot {
            if hot.is_of(lookup) && hot.policy.limits_as(policy) {
                return Some(hot);
            }
        }
        None
    }

    pub(super) fn of_task(&mut self, signals: &Arc<Signals>) -> Option<&mut HotKey> {
        self.hot.iter_mut().find(|it| Arc::ptr_eq(&it.signals, signals))
    }

    /// Counts a call of a cold key. Returns `true` if the key is hot now.
    pub(super) fn heats(&mut self, hash: u64, length: Micros, now: Timestamp) -> bool {
        let Some(at) = self.cold.iter().position(|it| it.hash == hash) else {
            self.push_cold(ColdKey { hash, since: now, calls: 1 });
            return false;
        };
        let key = &mut self.cold[at];
        if now >= key.since + length {
            (key.since, key.calls) = (now, 0);
        }
        // `cool` sets it ahead: the key stays cold until then.
        if now >= key.since {
            key.calls += 1;
        }
        if key.calls <= MAX_COLD_CALLS || self.hot.len() >= WAYS {
            return false;
        }
        self.cold.remove(at);
        true
    }

    fn push_cold(&mut self, key: ColdKey) {
        self.cold.retain(|it| it.hash != key.hash);
        if self.cold.len() >= WAYS {
            self.cold.remove(0);
        }
        self.cold.push(key);
    }

    /// Ends a hot key, which then stays cold until `since`.
    pub(super) fn cool(&mut self, signals: &Arc<Signals>, since: Timestamp) {
        if let Some(at) = self.hot.iter().position(|it| Arc::ptr_eq(&it.signals, signals)) {
            let HotKey { hash, .. } = self.hot.remove(at);
            self.push_cold(ColdKey { hash, since, calls: 0 });
        }
    }
}
