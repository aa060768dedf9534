//! Refusals of the store, repeated until the instant before which the store could not admit the
//! call: a flood on one exhausted key does not reach the store.
//!
//! Exact: a wait is counted from before the call was sent, so that it never ends a microsecond too
//! late. Of one refusal follow those of all larger costs, and of smaller thresholds: see
//! [`Staircase`]. Any answer of the store replaces what it contradicts, and what is older than the
//! time to live. So a reset or a refund by another process is seen soon: once in a while one call
//! asks the store all the same. Bounded: a fixed number of rows, of entries in a row, and of steps
//! in an entry; a newer one pushes out an older one.

#[cfg(all(test, not(ratelimit_loom)))]
mod beside_store;
#[cfg(all(test, ratelimit_loom))]
mod schedules;
mod staircase;
#[cfg(test)]
mod tests;

use std::{hash::BuildHasher, sync::PoisonError, time::Duration};

use hashbrown::DefaultHashBuilder;
use tokio::time::Instant;

use self::staircase::Staircase;
use crate::{
    key::Key,
    policy::Policy,
    request::{Op, Outcome, Request},
    sync::{Mutex, MutexGuard},
};

pub(super) struct DenyCache {
    /// Each key has its row, which it shares.
    rows: Box<[Mutex<Set>]>,
    /// The most that a row holds.
    room: usize,
    hasher: DefaultHashBuilder,
    ttl: Duration,
}

#[derive(Default)]
struct Set {
    /// The oldest comes first. One key has several where its policies cannot be compared.
    entries: Vec<Entry>,
    /// When refusals of one of the keys were last forgotten: what was sent before is not kept.
    forgotten: Option<Instant>,
}

/// With room for one alone, two exhausted keys in one row would push out each other at each call.
const ROOM: usize = 8;

struct Entry {
    key: Box<[u8]>,
    steps: Staircase,
}

/// When a call was sent to the store, and when its answer came.
#[derive(Clone, Copy)]
pub(super) struct Trip {
    pub(super) sent: Instant,
    pub(super) answered: Instant,
}

impl DenyCache {
    pub(super) fn new(entries: usize, ttl: Duration) -> Self {
        let room = entries.clamp(1, ROOM);
        let rows = (0..entries / room).map(|_| Mutex::default()).collect();
        Self { rows, room, hasher: DefaultHashBuilder::default(), ttl }
    }

    /// The refusal that the store would give as well, if it takes longer than the call may wait:
    /// one that waits has to know how long.
    pub(super) fn find(
        &self,
        key: &Key,
        request: Request<'_>,
        max_wait: Duration,
        now: Instant,
    ) -> Option<Outcome> {
        if !is_repeatable(request) {
            return None;
        }
        let mut row = self.row(key)?;
        let at = row.position(key, request.policy)?;
        let steps = &mut row.entries[at].steps;
        let found = steps.find(request, self.ttl, now);
        if steps.is_empty() {
            row.entries.remove(at);
        }
        found.filter(|outcome| Duration::from(outcome.wait) > max_wait)
    }

    /// Takes in an answer of the store.
    pub(super) fn keep(&self, key: &Key, request: Request<'_>, outcome: Outcome, trip: Trip) {
        let Some(mut row) = self.row(key) else { return };
        let is_older = row.forgotten.is_some_and(|forgotten| trip.sent <= forgotten);
        let is_refuted = |it: &Entry| it.is_of(key) && it.steps.is_refuted(request, outcome, trip);
        if row.entries.iter().any(is_refuted) {
            // How much more can be had under other policies, or by other costs, is not known.
            row.forget(key, trip.answered);
        } else if let Some(at) = row.position(key, request.policy) {
            row.entries[at].steps.end_asking();
        }
        if !outcome.admitted && !is_older && !request.policy.counts_rejected() {
            let mut entry = row.take(key, request.policy, self.room);
            entry.steps.add(request, outcome, trip, self.ttl);
            if !entry.steps.is_empty() {
                row.entries.push(entry);
            }
        }
    }

    /// Forgets what the store has refused of this key to calls that were sent until now.
    pub(super) fn forget(&self, key: &Key, now: Instant) {
        if let Some(mut row) = self.row(key) {
            row.forget(key, now);
        }
    }

    fn row(&self, key: &Key) -> Option<MutexGuard<'_, Set>> {
        let rows = u64::try_from(self.rows.len()).ok().filter(|rows| *rows > 0)?;
        let index = usize::try_from(self.hasher.hash_one(key.as_bytes()) % rows).ok()?;
        Some(self.rows[index].lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Set {
    fn position(&self, key: &Key, policy: &Policy) -> Option<usize> {
        self.entries.iter().position(|it| it.is_of(key) && it.steps.is_about(policy))
    }

    /// Takes out the entry that there is, or makes room for a new one.
    fn take(&mut self, key: &Key, policy: &Policy, room: usize) -> Entry {
        if let Some(at) = self.position(key, policy) {
            return self.entries.remove(at);
        }
        if self.entries.len() == room {
            self.entries.remove(0);
        }
        Entry { key: key.as_bytes().into(), steps: Staircase::new(policy) }
    }

    fn forget(&mut self, key: &Key, now: Instant) {
        self.forgotten = Some(now);
        self.entries.retain(|it| !it.is_of(key));
    }
}

impl Entry {
    fn is_of(&self, key: &Key) -> bool {
        *self.key == *key.as_bytes()
    }
}

/// Where refused calls are recorded each changes the next one's wait; a call with an id may have
/// been admitted before.
fn is_repeatable(request: Request<'_>) -> bool {
    request.op == Op::Take && request.id.is_none() && !request.policy.counts_rejected()
}
