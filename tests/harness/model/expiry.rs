//! The expiry of states: a caller whose state has expired is as one without calls.

use super::{
    By, Model,
    entries::{Bucket, full},
    states::State,
    turns::Turns,
    units::Units,
};

/// The time for which a state still counts after it has become equal to an empty one.
const LINGERS: u64 = 1_000_000;

impl Model {
    /// Forgets the callers whose states have expired by `now`. Those of a script never do: its
    /// times are not those of its server.
    pub(super) fn forget_expired(&mut self, now: u64) {
        if self.by == By::Number {
            let expired = self.expiries.extract_if(|_, ends| *ends + LINGERS <= now);
            for (caller, _) in expired {
                self.callers.remove(&caller);
                self.lines.remove(&caller);
                *self.forgotten.entry(caller).or_default() += 1;
            }
        }
    }

    /// Returns how often the state of a caller has expired.
    pub fn forgotten(&self, caller: usize) -> u64 {
        self.forgotten.get(&caller).copied().unwrap_or_default()
    }

    /// Sets the expiry of a caller's state that was written. No state expires earlier than before,
    /// except a log whose newest unit was given back, and as below.
    pub(super) fn extend(&mut self, caller: usize, at_least: u64) {
        let ends = self.ends(caller);
        let state = self.callers.get_mut(&caller).filter(|_| self.by == By::Number);
        let Some(state) = state else { return };
        let expires = self.expiries.entry(caller).or_default();
        *expires = match state {
            State::Units(log) => log.ends(*expires),
            _ => ends.max(*expires),
        };
        *expires = at_least.max(*expires);
    }

    /// Sets the expiry of a caller's state after units were given back. That of a line stays, and
    /// that of a log of single units follows the newest one.
    pub(super) fn shorten(&mut self, caller: usize, now: u64) {
        let follows = |state: &State| matches!(state, State::Units(log) if !log.charges.is_empty());
        if self.callers.get(&caller).is_some_and(follows) {
            return;
        }
        let ends = self.ends_without_turns(caller, now);
        if let (Some(ends), Some(expires)) = (ends, self.expiries.get_mut(&caller)) {
            *expires = ends.max(now).min(*expires);
        }
    }

    /// Returns the time from which a caller's state is equal to an empty one. While turns lie
    /// ahead, that is the state with them.
    pub fn ends(&self, caller: usize) -> u64 {
        let turns = self.lines.get(&caller).and_then(Turns::ends);
        turns.or_else(|| Some(self.callers.get(&caller)?.ends())).unwrap_or(0)
    }
}

impl Units {
    /// The time after which all units are older than any policy counts. Without units it is as
    /// before.
    fn ends(&mut self, before: u64) -> u64 {
        let Some(newest) = self.charges.last() else {
            (self.period, self.was_emptied) = (0, true);
            return before;
        };
        if std::mem::take(&mut self.was_emptied) {
            self.period = self.period.max(before.saturating_sub(newest.at));
        }
        newest.at + self.period
    }
}

impl State {
    /// The time from which the state is equal to an empty one.
    pub(super) fn ends(&self) -> u64 {
        let ends = match self {
            Self::Units(log) => log.charges.last().map(|newest| newest.at + log.period),
            Self::Calls(log) => log.ends(),
            Self::Windows(kept) => {
                let ends = kept.entries.iter().map(|it| Some(it.open?.0 + it.period));
                ends.flatten().max()
            }
            Self::Counters(kept) => {
                let windows = kept.entries.iter().map(|it| match (it.previous, it.current) {
                    (0, 0) => 0,
                    (_, 0) => it.period * (it.window + 1),
                    _ => it.period * (it.window + 2),
                });
                windows.max()
            }
            Self::Buckets(kept) => kept.entries.iter().map(Bucket::full_at).max(),
        };
        ends.unwrap_or(0)
    }
}

impl Bucket {
    fn full_at(&self) -> u64 {
        let missing = (full(self.tier) - self.level).unsigned_abs();
        let until = missing.div_ceil(self.tier.threshold.into());
        self.at + u64::try_from(until).expect("a time")
    }
}
