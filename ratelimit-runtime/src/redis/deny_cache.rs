//! The deny cache: refusals of Redis, repeated until the instant from which Redis may admit the call. A
//! flood on one exhausted key does not reach Redis.
//!
//! - Exact: a wait is counted from before the command was sent, so that it never ends a microsecond too
//!   late. A refusal implies those of larger costs and of smaller thresholds: see [`RefusalSteps`].
//! - Revalidated: an answer of Redis removes the refusals that it contradicts. Once per TTL one
//!   call is sent although its refusal is cached, so that a reset or refund by another process
//!   takes effect.
//! - Bounded: a fixed number of sets, of entries in a set, and of steps in an entry. A new one evicts
//!   the oldest.

#[cfg(all(test, not(ratelimit_loom)))]
mod against_store;
#[cfg(all(test, ratelimit_loom))]
mod schedules;
mod steps;
#[cfg(test)]
mod tests;

use std::{hash::BuildHasher, sync::PoisonError, time::Duration};

use hashbrown::DefaultHashBuilder;
use tokio::time::Instant;

use self::steps::RefusalSteps;
pub(super) use self::steps::RoundTrip;
use crate::{
    key::Key,
    policy::Policy,
    request::{Op, Outcome, Request},
    sync::{Mutex, MutexGuard},
};

/// A set-associative cache of refusals.
pub(super) struct DenyCache {
    /// A key's hash chooses its set.
    sets: Box<[Mutex<Set>]>,
    /// The most entries of a set.
    ways: usize,
    hasher: DefaultHashBuilder,
    ttl: Duration,
}

#[derive(Default)]
struct Set {
    /// The oldest comes first. A key has several while policies that cannot be compared share it.
    entries: Vec<CacheEntry>,
    /// The last invalidation of one of the keys. A refusal sent before it is not inserted.
    invalidated_at: Option<Instant>,
}

/// The most ways. With one, two exhausted keys in one set would evict each other at each call.
const MAX_WAYS: usize = 8;

struct CacheEntry {
    key: Box<[u8]>,
    steps: RefusalSteps,
}

impl DenyCache {
    pub(super) fn new(entries: usize, ttl: Duration) -> Self {
        let ways = entries.clamp(1, MAX_WAYS);
        let sets = (0..entries / ways).map(|_| Mutex::default()).collect();
        Self { sets, ways, hasher: DefaultHashBuilder::default(), ttl }
    }

    /// Returns the refusal that Redis would return, if its wait is longer than `max_wait`: a call
    /// that waits needs the exact one from Redis.
    pub(super) fn get(
        &self,
        key: &Key,
        request: Request<'_>,
        max_wait: Duration,
        now: Instant,
    ) -> Option<Outcome> {
        if !is_cacheable(request) {
            return None;
        }
        let mut set = self.set(key)?;
        let at = set.position(key, request.policy)?;
        let steps = &mut set.entries[at].steps;
        let found = steps.get(request, self.ttl, now);
        if steps.is_empty() {
            set.entries.remove(at);
        }
        found.filter(|outcome| Duration::from(outcome.wait) > max_wait)
    }

    /// Inserts a refusal of Redis. Removes what an outcome contradicts.
    pub(super) fn insert(
        &self,
        key: &Key,
        request: Request<'_>,
        outcome: Outcome,
        trip: RoundTrip,
    ) {
        let Some(mut set) = self.set(key) else { return };
        let is_older = set.invalidated_at.is_some_and(|at| trip.sent <= at);
        let is_contradicted =
            |it: &CacheEntry| it.is_of(key) && it.steps.is_contradicted(request, outcome, trip);
        if set.entries.iter().any(is_contradicted) {
            // The units left under other policies, or for other costs, are unknown.
            set.invalidate(key, trip.answered);
        } else if let Some(at) = set.position(key, request.policy) {
            set.entries[at].steps.end_revalidation();
        }
        if !outcome.admitted && !is_older && !request.policy.counts_rejected() {
            let mut entry = set.take(key, request.policy, self.ways);
            entry.steps.insert(request, outcome, trip, self.ttl);
            if !entry.steps.is_empty() {
                set.entries.push(entry);
            }
        }
    }

    /// Removes the refusals of this key whose calls were sent up to now.
    pub(super) fn invalidate(&self, key: &Key, now: Instant) {
        if let Some(mut set) = self.set(key) {
            set.invalidate(key, now);
        }
    }

    fn set(&self, key: &Key) -> Option<MutexGuard<'_, Set>> {
        let sets = u64::try_from(self.sets.len()).ok().filter(|sets| *sets > 0)?;
        let index = usize::try_from(self.hasher.hash_one(key.as_bytes()) % sets).ok()?;
        Some(self.sets[index].lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Set {
    fn position(&self, key: &Key, policy: &Policy) -> Option<usize> {
        self.entries.iter().position(|it| it.is_of(key) && it.steps.is_comparable(policy))
    }

    /// Removes and returns the entry of the key, or a new one for which the oldest is evicted.
    fn take(&mut self, key: &Key, policy: &Policy, ways: usize) -> CacheEntry {
        if let Some(at) = self.position(key, policy) {
            return self.entries.remove(at);
        }
        if self.entries.len() == ways {
            self.entries.remove(0);
        }
        CacheEntry { key: key.as_bytes().into(), steps: RefusalSteps::new(policy) }
    }

    fn invalidate(&mut self, key: &Key, now: Instant) {
        self.invalidated_at = Some(now);
        self.entries.retain(|it| !it.is_of(key));
    }
}

impl CacheEntry {
    fn is_of(&self, key: &Key) -> bool {
        *self.key == *key.as_bytes()
    }
}

/// Returns `true` if the same request gets the same refusal again. Where refusals are recorded, each
/// changes the next wait; a call with an id may have been admitted before.
fn is_cacheable(request: Request<'_>) -> bool {
    request.op == Op::Take && request.id.is_none() && !request.policy.counts_rejected()
}
