//! Permits in memory: for each caller with calls in flight, their number.
//!
//! They are a table beside the entries of a shard, under its lock. An entry may expire and be evicted
//! while calls are in flight, and a reset leaves them. The table is not part of the store's bounds: beyond
//! [`KEPT`] callers it has those with calls in flight, which take more memory themselves.

use hashbrown::HashTable;

use crate::{
    key::{Lookup, StoredCaller},
    policy::{PolicyName, StateKind},
};

/// The number of callers up to which one without calls in flight stays: the next call is cheaper.
const KEPT: usize = 64;

/// The callers of a shard that have calls in flight, or had some.
#[derive(Default)]
pub(super) struct PermitTable(HashTable<CallerPermits>);

/// The calls of one caller in flight.
struct CallerPermits {
    hash: u64,
    state: StateKind,
    name: PolicyName,
    caller: StoredCaller,
    calls: u32,
}

impl CallerPermits {
    fn is(&self, lookup: &Lookup<'_>) -> bool {
        let Self { hash, state, name, caller, .. } = self;
        *hash == lookup.hash
            && caller.is(&lookup.key.caller)
            && name.is(&lookup.key.name)
            && *state == lookup.key.state
    }
}

impl PermitTable {
    /// Returns the caller's calls in flight.
    #[inline]
    pub(super) fn held(&self, lookup: &Lookup<'_>) -> u32 {
        self.0.find(lookup.hash, |it| it.is(lookup)).map_or(0, |held| held.calls)
    }

    /// Adds a call.
    #[inline]
    pub(super) fn hold(&mut self, lookup: &Lookup<'_>) {
        match self.0.find_mut(lookup.hash, |it| it.is(lookup)) {
            Some(held) => held.calls += 1,
            None => self.insert(lookup),
        }
    }

    /// Adds the first call of a caller.
    #[inline(never)]
    fn insert(&mut self, lookup: &Lookup<'_>) {
        let held = CallerPermits {
            hash: lookup.hash,
            state: lookup.key.state,
            name: lookup.key.name,
            caller: StoredCaller::new(lookup.key.caller),
            calls: 1,
        };
        self.0.insert_unique(held.hash, held, |it| it.hash);
    }

    /// Removes a call.
    #[inline]
    pub(super) fn release(&mut self, lookup: &Lookup<'_>) {
        if let Some(held) = self.0.find_mut(lookup.hash, |it| it.is(lookup)) {
            held.calls -= 1;
            if held.calls == 0 && self.0.len() > KEPT {
                self.remove(lookup);
            }
        }
    }

    /// Removes a caller without calls.
    #[inline(never)]
    fn remove(&mut self, lookup: &Lookup<'_>) {
        if let Ok(held) = self.0.find_entry(lookup.hash, |it| it.is(lookup)) {
            held.remove();
        }
        if self.0.len() < self.0.capacity() / 4 {
            self.0.shrink_to(self.0.len() * 2, |it| it.hash);
        }
    }
}
