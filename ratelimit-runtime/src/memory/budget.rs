//! The memory of a store: its bounds, and the usage of each limit.
//!
//! Changed when a key is inserted, grows or is removed, and by no other call.

use hashbrown::HashMap;
use smallvec::SmallVec;

use super::names::interned;
use crate::{
    policy::PolicyName,
    time::{Micros, Timestamp},
};

/// A limit takes more only while its usage is at most this many times the rest that is then free.
///
/// A limit alone fills three quarters of the store. Of `n` limits that fill it together, each has
/// `3 / (3n + 1)` of it, and one more limit always finds room.
const TIMES_FREE: usize = 3;

/// The time without a call that finds the store full, after which the next one is an event again.
const QUIET_PERIOD: Micros = Micros::new(60_000_000);

/// A number of keys, and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Usage {
    pub(super) keys: usize,
    pub(super) bytes: usize,
}

/// Removed keys by the name of their limit; mostly they are of one.
#[derive(Debug, Default)]
pub(super) struct Removed(SmallVec<[(&'static str, Usage); 1]>);

pub(super) struct Budget {
    bounds: Usage,
    used: Usage,
    /// By name. Names are part of the program, and so their number is bounded.
    limits: HashMap<&'static str, Account>,
    /// How often memory may be asked for before a test fails.
    #[cfg(test)]
    pub(super) asks_left: usize,
}

struct Account {
    name: &'static PolicyName,
    used: Usage,
    /// The time of the last call that found no room.
    found_full: Option<Timestamp>,
}

impl Usage {
    fn add(&mut self, more: Self) {
        self.keys += more.keys;
        self.bytes += more.bytes;
    }

    fn subtract(&mut self, less: Self) {
        self.keys -= less.keys;
        self.bytes -= less.bytes;
    }
}

impl Removed {
    pub(super) fn add(&mut self, name: &'static str, bytes: usize) {
        let one = Usage { keys: 1, bytes };
        match self.0.iter_mut().rfind(|(other, _)| *other == name) {
            Some((_, usage)) => usage.add(one),
            None => self.0.push((name, one)),
        }
    }

    pub(super) fn total(&self) -> Usage {
        let mut total = Usage::default();
        self.0.iter().for_each(|(_, usage)| total.add(*usage));
        total
    }
}

impl Budget {
    pub(super) fn new(bounds: Usage) -> Self {
        Self {
            bounds,
            used: Usage::default(),
            limits: HashMap::new(),
            #[cfg(test)]
            asks_left: usize::MAX,
        }
    }

    pub(super) fn used(&self) -> Usage {
        self.used
    }

    pub(super) fn used_by(&self, limit: &'static str) -> Usage {
        self.limits.get(limit).map_or_else(Usage::default, |account| account.used)
    }

    /// Returns `true` if the limit may take this much more.
    pub(super) fn has_room(&self, limit: &'static str, more: Usage) -> bool {
        has_room(self.bounds, self.used, self.used_by(limit), more)
    }

    /// Takes this much more for the limit, and returns its interned name. Returns nothing, and
    /// takes nothing, if there is no room.
    pub(super) fn take(&mut self, limit: &'static str, more: Usage) -> Option<&'static PolicyName> {
        #[cfg(test)]
        {
            assert!(self.asks_left > 0, "a call asks for memory again and again");
            self.asks_left -= 1;
        }
        let (bounds, used) = (self.bounds, self.used);
        let account = self.account(limit);
        if !has_room(bounds, used, account.used, more) {
            return None;
        }
        account.used.add(more);
        let name = account.name;
        self.used.add(more);
        Some(name)
    }

    /// Takes this much more for the limit, also if there is no room.
    pub(super) fn add(&mut self, limit: &'static str, more: Usage) {
        self.account(limit).used.add(more);
        self.used.add(more);
    }

    fn account(&mut self, limit: &'static str) -> &mut Account {
        let new = || Account { name: interned(limit), used: Usage::default(), found_full: None };
        self.limits.entry(limit).or_insert_with(new)
    }

    pub(super) fn release_all(&mut self, removed: &Removed) {
        for (limit, usage) in &removed.0 {
            self.release(limit, *usage);
        }
    }

    /// Reduces the usage of the limit.
    pub(super) fn release(&mut self, limit: &'static str, less: Usage) {
        self.used.subtract(less);
        self.account(limit).used.subtract(less);
    }

    /// Records a call of the limit that found no room. Returns `true` if it is the first after a
    /// quiet period.
    pub(super) fn record_full(&mut self, limit: &'static str, now: Timestamp) -> bool {
        let before = self.account(limit).found_full.replace(now);
        before.is_none_or(|before| (now - before).max(before - now) >= QUIET_PERIOD)
    }
}

/// Returns `true` if a limit with `own` of the `used` memory may take `more`.
fn has_room(bounds: Usage, used: Usage, own: Usage, more: Usage) -> bool {
    let fits = |bound: usize, used: usize, own: usize, more: usize| {
        let free = used.checked_add(more).and_then(|used| bound.checked_sub(used));
        more == 0 || free.is_some_and(|free| own <= free.saturating_mul(TIMES_FREE))
    };
    fits(bounds.keys, used.keys, own.keys, more.keys)
        && fits(bounds.bytes, used.bytes, own.bytes, more.bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: Usage = Usage { keys: 1, bytes: 10 };
    const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];

    fn budget(keys: usize, bytes: usize) -> Budget {
        Budget::new(Usage { keys, bytes })
    }

    /// Fills the store by these limits in turn, and returns the keys of each.
    fn fill(budget: &mut Budget, limits: &[&'static str]) -> Vec<usize> {
        let mut is_taken = true;
        while is_taken {
            is_taken = false;
            for limit in limits {
                is_taken |= budget.take(limit, KEY).is_some();
            }
        }
        limits.iter().map(|limit| budget.used_by(limit).keys).collect()
    }

    #[test]
    fn a_limit_alone_fills_three_quarters_and_several_leave_room_for_one_more() {
        for most in [budget(13_000, usize::MAX), budget(usize::MAX, 130_000)] {
            let mut budget = most;
            assert_eq!(fill(&mut budget, &["a"]), [9_750]);
            // The next one has three quarters of the rest.
            assert_eq!(fill(&mut budget, &["b"]), [2_437]);
            let mut removed = Removed::default();
            for name in ["a", "b"] {
                (0..budget.used_by(name).keys).for_each(|_| removed.add(name, 10));
            }
            budget.release_all(&removed);
            assert_eq!(budget.used(), Usage::default());
            let shares = fill(&mut budget, &NAMES[..4]);
            assert_eq!(shares, [3_000; 4]);
            assert!(budget.has_room("e", KEY));
        }
    }

    #[test]
    fn however_many_limits_fill_it_one_more_finds_room() {
        for count in 1..NAMES.len() {
            for most in 3 * count + 1..200 {
                let mut budget = budget(most, usize::MAX);
                fill(&mut budget, &NAMES[..count]);
                assert!(budget.take(NAMES[count], KEY).is_some(), "{most} for {count}");
                assert!(budget.used().keys <= most);
            }
        }
    }

    #[test]
    fn a_store_of_one_key_takes_one_and_a_store_without_bounds_all() {
        assert_eq!(fill(&mut budget(1, usize::MAX), &["a"]), [1]);
        let mut budget = budget(usize::MAX, usize::MAX);
        assert!(budget.take("a", Usage { keys: usize::MAX / 2, bytes: usize::MAX / 2 }).is_some());
        assert!(budget.take("a", KEY).is_some());
        assert!(budget.take("b", Usage { keys: 1, bytes: usize::MAX }).is_none());
    }

    #[test]
    fn a_key_that_grows_needs_bytes_and_no_key() {
        let mut budget = budget(4, 1_000);
        fill(&mut budget, &["a", "b"]);
        assert!(!budget.has_room("a", KEY));
        assert!(budget.take("a", Usage { keys: 0, bytes: 500 }).is_some());
        assert!(budget.take("a", Usage { keys: 0, bytes: 500 }).is_none());
        assert!(budget.take("b", Usage { keys: 0, bytes: 300 }).is_some());
    }

    #[test]
    fn the_first_full_call_after_a_quiet_minute_is_an_event() {
        let mut budget = budget(0, 0);
        let first: Vec<_> = [5, 6, 60_000_005, 120_000_005, 120_000_006, 3]
            .map(|now| budget.record_full("a", Timestamp::new(now)))
            .into();
        assert_eq!(first, [true, false, false, true, false, true]);
        assert!(budget.record_full("b", Timestamp::new(3)));
    }
}
