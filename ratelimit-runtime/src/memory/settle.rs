//! The units of decided calls, and the memory of their keys.

use super::{
    MemoryStore,
    budget::Usage,
    report_keys,
    shard::{Entry, ShardTable},
};
use crate::{
    key::KeyRef,
    policy::StateKind,
    request::{Op, Request, Settle},
    sync::{MutexGuard, atomic::Ordering},
    time::Timestamp,
};

impl MemoryStore {
    /// Changes the units of a call in its key, as far as they still count. Units beyond those that
    /// it took count from now on.
    #[inline]
    pub(crate) fn settle(&self, key: KeyRef<'_>, settle: &Settle) {
        self.settle_at(self.clock.counted(), key, settle);
    }

    /// Changes the units of a call at a time that was [counted](super::Clock::counted).
    pub(crate) fn settle_at(&self, counted: Option<Timestamp>, key: KeyRef<'_>, settle: &Settle) {
        let is_expired = settle.raised() > 0 && !self.has_state(counted, key, settle);
        let renewed = is_expired.then(|| self.renewed(counted, key, settle));
        let settle = renewed.as_ref().unwrap_or(settle);
        if settle.from != settle.to {
            self.change(counted, key, |entry, now| entry.settle(now, settle));
        }
        if settle.lifts_block {
            self.lift_block(counted, key, settle.mark.at, settle.lowered());
        }
    }

    /// Starts a state in place of one that has expired, with what such a call can take. Returns the
    /// settle of the rest.
    #[cold]
    fn renewed(&self, counted: Option<Timestamp>, key: KeyRef<'_>, settle: &Settle) -> Settle {
        let policy = &settle.policy(key.name);
        let most = policy.get_burst().unwrap_or(settle.threshold);
        let cost = settle.raised().min(most);
        let request = Request::new(policy, Op::Take, cost);
        let mut rest = *settle;
        match self.decide_at(counted, key, request) {
            Ok(outcome) if outcome.admitted => {
                rest.to -= cost;
                rest.mark.charged = outcome.mark.charged;
            }
            // Another call was faster, and its state takes the rest too; or memory is full.
            Ok(_) | Err(_) => {}
        }
        rest
    }

    /// Changes the entry of a key, if there is one, at a time that was
    /// [counted](super::Clock::counted).
    #[inline]
    pub(super) fn change<T>(
        &self,
        counted: Option<Timestamp>,
        key: KeyRef<'_>,
        change: impl FnOnce(&mut Entry, Timestamp) -> T,
    ) -> Option<T> {
        let lookup = self.hasher.lookup(key);
        let shard = self.shard(&lookup);
        let mut table = shard.lock();
        let now = self.clock.ordered(counted, &mut table.latest);
        let at = table.position(&lookup)?;
        let entry = table.entries.get_mut(at).filter(|entry| !entry.is_forgotten(now))?;
        let (before, until) = (entry.state.heap_bytes(), entry.expires);
        let changed = change(entry, now);
        let (after, expires) = (entry.state.heap_bytes(), entry.expires);
        if expires < until {
            // Searches for room know it.
            table.entries.bring_forward(at, expires);
            let next = shard.next_expiry.load(Ordering::Relaxed).min(expires.get());
            shard.next_expiry.store(next, Ordering::Relaxed);
        }
        if before != after {
            self.resize(table, key, before, after);
        }
        Some(changed)
    }

    /// Follows the memory of a key that has changed. What a call has taken is kept, also beyond the
    /// store's bounds.
    #[cold]
    fn resize(
        &self,
        table: MutexGuard<'_, ShardTable>,
        key: KeyRef<'_>,
        before: usize,
        after: usize,
    ) {
        let [taken, released] = [(after, before), (before, after)]
            .map(|(more, less)| Usage { keys: 0, bytes: more.saturating_sub(less) });
        let mut budget = self.budget.lock();
        budget.add(key.name.text(), taken);
        budget.release(key.name.text(), released);
        drop(budget);
        drop(table);
        report_keys(taken, released);
    }

    /// Returns `true` if the key has a state, or if the one of the settled charge was reset. A
    /// state whose window of the calendar is over counts as none.
    fn has_state(&self, counted: Option<Timestamp>, key: KeyRef<'_>, settle: &Settle) -> bool {
        let lookup = self.hasher.lookup(key);
        let mut table = self.shard(&lookup).lock();
        let now = self.clock.ordered(counted, &mut table.latest);
        now < settle.ends()
            || settle.state != StateKind::CalendarWindow && table.find_mut(&lookup, now).is_some()
    }
}
