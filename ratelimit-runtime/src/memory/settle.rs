//! The units of decided calls, and the memory of their keys.

use super::{MemoryStore, budget::Usage, report_keys, shard::ShardTable};
use crate::{
    key::KeyRef,
    request::{Op, Request, Settle},
    sync::MutexGuard,
};

impl MemoryStore {
    /// Changes the units of a call in its key, as far as they still count. Units beyond those that it
    /// took count from now on.
    pub(crate) fn settle(&self, key: KeyRef<'_>, mut settle: Settle) {
        if settle.raised() > 0 && !self.has_state(key, settle) {
            // The caller's state has expired. The next one starts with what such a call can take.
            let policy = &settle.policy(key.name);
            let most = policy.explicit_burst().unwrap_or(settle.tier.threshold());
            let cost = settle.raised().min(most);
            let request = Request::new(policy, Op::Take, cost);
            match self.decide(key, request) {
                Ok(outcome) if outcome.admitted => {
                    settle.to -= cost;
                    settle.mark.charged = outcome.mark.charged;
                }
                // Another call was faster, and its state takes the rest too; or memory is full.
                Ok(_) | Err(_) => {}
            }
        }
        if settle.from != settle.to {
            let (lookup, counted) = (self.hasher.lookup(key), self.clock.counted());
            let mut table = self.shard(&lookup).lock();
            let now = self.clock.ordered(counted, &mut table.latest);
            let Some(entry) = table.find_mut(&lookup) else { return };
            let before = entry.bytes();
            entry.settle(now, settle);
            let after = entry.bytes();
            if before != after {
                self.resize(table, key, before, after);
            }
        }
    }

    /// Follows the memory of a key that has changed. What a call has taken is kept, also beyond the
    /// store's bounds.
    #[cold]
    pub(super) fn resize(
        &self,
        table: MutexGuard<'_, ShardTable>,
        key: KeyRef<'_>,
        before: usize,
        after: usize,
    ) {
        let [taken, released] = [(after, before), (before, after)]
            .map(|(more, less)| Usage { keys: 0, bytes: more.saturating_sub(less) });
        let mut budget = self.budget();
        budget.add(key.name.text(), taken);
        budget.release(key.name.text(), released);
        drop(budget);
        drop(table);
        report_keys(taken, released);
    }

    /// Returns `true` if the key has a state, or if the one of the settled charge was reset.
    fn has_state(&self, key: KeyRef<'_>, settle: Settle) -> bool {
        let (lookup, counted) = (self.hasher.lookup(key), self.clock.counted());
        let mut table = self.shard(&lookup).lock();
        let now = self.clock.ordered(counted, &mut table.latest);
        table.find_mut(&lookup).is_some() || now < settle.ends()
    }
}
