//! The deny cache: refusals of Redis, repeated until the instant from which Redis may admit the
//! call. A flood on one exhausted key does not reach Redis.
//!
//! - Exact: a wait is counted from before the command was sent, so that it never ends a microsecond
//!   too late. A refusal implies those of larger costs and of smaller thresholds: see
//!   [`RefusalSteps`].
//! - Revalidated: an answer of Redis removes the refusals that it contradicts. Once per TTL one
//!   call is sent although its refusal is cached, so that a reset or refund by another process
//!   takes effect.
//! - Bounded: a fixed number of sets, of entries in a set, and of steps in an entry. A new one
//!   evicts the oldest.

#[cfg(all(test, not(ratelimit_loom)))]
mod against_store;
#[cfg(all(test, not(ratelimit_loom)))]
#[path = "../../../tests/models/deny_cache.rs"]
mod model;
#[cfg(all(test, ratelimit_loom))]
mod schedules;
mod steps;
#[cfg(test)]
mod tests;

use std::time::Duration;

use self::steps::RefusalSteps;
use crate::{
    key::{KeyHasher, KeyRef, Lookup, StoredCaller},
    policy::Policy,
    request::{Op, Outcome, Request},
    sync::{Mutex, MutexGuard},
    time::{Micros, Timestamp},
};

/// A set-associative cache of refusals.
pub(super) struct DenyCache {
    /// A key's hash chooses its set.
    sets: Box<[Mutex<Set>]>,
    /// The most entries of a set.
    ways: usize,
    hasher: KeyHasher,
    ttl: Duration,
}

/// The instants when a call was sent to Redis, rather too early than too late, and when its reply
/// came.
#[derive(Clone, Copy, Debug)]
pub(super) struct RoundTrip {
    pub(super) sent: Timestamp,
    pub(super) answered: Timestamp,
}

#[derive(Default)]
#[cfg_attr(test, derive(Clone, Debug))]
struct Set {
    /// The oldest comes first. A key has several while policies that cannot be compared share it.
    entries: Vec<CacheEntry>,
    /// The last invalidation of one of the keys. A refusal sent before it is not inserted.
    invalidated_at: Option<Timestamp>,
}

/// The most ways. With one, two exhausted keys in one set would evict each other at each call.
const MAX_WAYS: usize = 8;

#[cfg_attr(test, derive(Clone, Debug))]
struct CacheEntry {
    hash: u64,
    /// The parts of the caller; the rest of the key is in the policy of the steps.
    caller: StoredCaller,
    steps: RefusalSteps,
}

impl DenyCache {
    pub(super) fn new(entries: usize, ttl: Duration) -> Self {
        let ways = entries.clamp(1, MAX_WAYS);
        let sets = (0..entries / ways).map(|_| Mutex::default()).collect();
        Self { sets, ways, hasher: KeyHasher::new(), ttl }
    }

    /// Returns the refusal that Redis would return, if its wait is longer than `max_wait`: a call
    /// that waits needs the exact one from Redis. A call that `may_revalidate` is sent to Redis if
    /// it gets none.
    ///
    /// `now` is called once if it is needed, and not under the lock.
    #[inline]
    pub(super) fn get(
        &self,
        key: KeyRef<'_>,
        request: Request<'_>,
        max_wait: Micros,
        may_revalidate: bool,
        now: impl FnOnce() -> Timestamp,
    ) -> Option<Outcome> {
        if !is_cacheable(request) {
            return None;
        }
        let (key, now) = (self.hasher.lookup(key), now());
        let mut set = self.set(key.hash)?;
        let at = set.position(&key, request.policy)?;
        let steps = &mut set.entries[at].steps;
        if let Some(refusal) = steps.get(request, now) {
            // Without `filter`, which copies the outcome once more.
            return if refusal.wait > max_wait { Some(refusal) } else { None };
        }
        if may_revalidate {
            steps.revalidate(request, self.ttl, now);
            if steps.is_empty() {
                set.entries.remove(at);
            }
        }
        None
    }

    /// Inserts a refusal of Redis. Removes what an outcome contradicts.
    pub(super) fn insert(
        &self,
        key: KeyRef<'_>,
        request: Request<'_>,
        outcome: Outcome,
        trip: RoundTrip,
    ) {
        let key = self.hasher.lookup(key);
        let Some(mut set) = self.set(key.hash) else { return };
        let is_older = set.invalidated_at.is_some_and(|at| trip.sent <= at);
        let is_contradicted = |it: &CacheEntry| {
            it.is_of(&key) && it.steps.is_contradicted(request, outcome, trip.answered)
        };
        if set.entries.iter().any(is_contradicted) {
            // The units left under other policies, or for other costs, are unknown.
            set.invalidate(&key, trip.answered);
        } else if let Some(at) = set.position(&key, request.policy) {
            set.entries[at].steps.receive(request, outcome);
        }
        if !outcome.admitted && !is_older && !request.policy.counts_rejected() {
            let mut entry = set.take(&key, request.policy, self.ways);
            entry.steps.insert(request, outcome, trip.sent, self.ttl);
            if !entry.steps.is_empty() {
                set.entries.push(entry);
            }
        }
    }

    /// Removes the refusals of this key whose calls were sent up to now.
    pub(super) fn invalidate(&self, key: KeyRef<'_>, now: Timestamp) {
        let key = self.hasher.lookup(key);
        if let Some(mut set) = self.set(key.hash) {
            set.invalidate(&key, now);
        }
    }

    #[inline]
    fn set(&self, hash: u64) -> Option<MutexGuard<'_, Set>> {
        // The upper half as a fraction of all sets.
        let index = ((hash >> 32) * self.sets.len() as u64) >> 32;
        let set = self.sets.get(usize::try_from(index).ok()?)?;
        Some(set.lock())
    }
}

impl Set {
    #[inline(always)]
    fn position(&self, key: &Lookup<'_>, policy: &Policy) -> Option<usize> {
        // Without a closure, which would be called for each entry.
        for (at, entry) in self.entries.iter().enumerate() {
            if entry.is_of(key) && entry.steps.is_comparable(policy) {
                return Some(at);
            }
        }
        None
    }

    /// Removes and returns the entry of the key, or a new one for which the oldest is evicted.
    fn take(&mut self, key: &Lookup<'_>, policy: &Policy, ways: usize) -> CacheEntry {
        if let Some(at) = self.position(key, policy) {
            return self.entries.remove(at);
        }
        if self.entries.len() == ways {
            self.entries.remove(0);
        }
        let Lookup { key, hash } = *key;
        CacheEntry { hash, caller: StoredCaller::new(key.caller), steps: RefusalSteps::new(policy) }
    }

    fn invalidate(&mut self, key: &Lookup<'_>, now: Timestamp) {
        self.invalidated_at = Some(now);
        self.entries.retain(|it| !it.is_of(key));
    }
}

impl CacheEntry {
    #[inline]
    fn is_of(&self, Lookup { key, hash }: &Lookup<'_>) -> bool {
        self.hash == *hash && self.caller.is(&key.caller) && self.steps.is_of(key.state, key.name)
    }
}

/// Returns `true` if the same request gets the same refusal again. Where refusals are recorded,
/// each changes the next wait; a call with an id may have been admitted before.
fn is_cacheable(request: Request<'_>) -> bool {
    request.op == Op::Take && request.id.is_none() && !request.policy.counts_rejected()
}
