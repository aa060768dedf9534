//! Permits in memory: for each caller with calls in flight, their number.
//!
//! They are a table beside the entries of a shard, under its lock. An entry may expire and be
//! evicted while calls are in flight, and a reset leaves them. The table is not part of the store's
//! bounds: it has an element only while a call is in flight, which takes more memory itself.

use hashbrown::HashTable;

use crate::{
    key::{KeyRef, Lookup, StoredCaller},
    policy::{PolicyName, StateKind},
};

/// The callers of a shard that have calls in flight.
#[derive(Default)]
pub(super) struct PermitTable(HashTable<CallerPermits>);

/// The calls of one caller in flight; at least one.
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

    /// Adds a call, and returns the caller's calls in flight.
    #[inline]
    pub(super) fn hold(&mut self, lookup: &Lookup<'_>) -> u32 {
        let Lookup { key: KeyRef { state, name, caller }, hash } = *lookup;
        if let Some(held) = self.0.find_mut(hash, |it| it.is(lookup)) {
            held.calls += 1;
            return held.calls;
        }
        let caller = StoredCaller::new(caller);
        let held = CallerPermits { hash, state, name, caller, calls: 1 };
        self.0.insert_unique(hash, held, |it| it.hash);
        1
    }

    /// Removes a call.
    #[inline]
    pub(super) fn release(&mut self, lookup: &Lookup<'_>) {
        let Ok(mut held) = self.0.find_entry(lookup.hash, |it| it.is(lookup)) else { return };
        held.get_mut().calls -= 1;
        if held.get().calls == 0 {
            held.remove();
        }
        if self.0.capacity() > 64 && self.0.len() < self.0.capacity() / 4 {
            self.0.shrink_to(self.0.len() * 2, |it| it.hash);
        }
    }
}
