//! The memory of a store: its bounds, and the part of it that each limit holds.
//!
//! Entered when a key comes, grows or goes, and by no other call.

use hashbrown::HashMap;
use smallvec::SmallVec;

use crate::time::{Micros, Timestamp};

/// A limit takes more only while it holds at most this many times what is then left free.
///
/// A limit alone fills three quarters of the store. Of `n` limits that fill it together, each has
/// `3 / (3n + 1)` of it, and one more limit always finds room.
const TIMES_FREE: usize = 3;

/// How long no call of a limit finds the store full before the next one that does is an event.
const PERIOD_OF_FULLNESS: Micros = Micros::new(60_000_000);

/// Keys, and the bytes that they take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Holding {
    pub(super) keys: usize,
    pub(super) bytes: usize,
}

/// Keys that have gone, by the name of their limit; mostly they are of one.
#[derive(Debug, Default)]
pub(super) struct Gone(SmallVec<[(&'static str, Holding); 1]>);

pub(super) struct Ledger {
    most: Holding,
    held: Holding,
    /// By name. As many as there are policies, whose names are part of the program.
    limits: HashMap<&'static str, Account>,
}

#[derive(Default)]
struct Account {
    held: Holding,
    /// When a call last found no room.
    found_full: Option<Timestamp>,
}

impl Holding {
    fn add(&mut self, more: Self) {
        self.keys += more.keys;
        self.bytes += more.bytes;
    }

    fn subtract(&mut self, less: Self) {
        self.keys -= less.keys;
        self.bytes -= less.bytes;
    }
}

impl Gone {
    pub(super) fn add(&mut self, name: &'static str, bytes: usize) {
        let one = Holding { keys: 1, bytes };
        match self.0.iter_mut().rfind(|(other, _)| *other == name) {
            Some((_, held)) => held.add(one),
            None => self.0.push((name, one)),
        }
    }

    pub(super) fn total(&self) -> Holding {
        let mut total = Holding::default();
        self.0.iter().for_each(|(_, held)| total.add(*held));
        total
    }
}

impl Ledger {
    pub(super) fn new(most: Holding) -> Self {
        Self { most, held: Holding::default(), limits: HashMap::new() }
    }

    pub(super) fn held(&self) -> Holding {
        self.held
    }

    pub(super) fn held_by(&self, limit: &'static str) -> Holding {
        self.limits.get(limit).map_or_else(Holding::default, |account| account.held)
    }

    /// Returns `true` if the limit may take this much more.
    pub(super) fn has_room(&self, limit: &'static str, more: Holding) -> bool {
        has_room(self.most, self.held, self.held_by(limit), more)
    }

    /// Takes this much more for the limit, if there is room.
    pub(super) fn take(&mut self, limit: &'static str, more: Holding) -> bool {
        let own = &mut self.limits.entry(limit).or_default().held;
        let has_room = has_room(self.most, self.held, *own, more);
        if has_room {
            own.add(more);
            self.held.add(more);
        }
        has_room
    }

    pub(super) fn give_back(&mut self, gone: &Gone) {
        for (limit, held) in &gone.0 {
            self.give(limit, *held);
        }
    }

    /// Gives back what the limit does not hold any more.
    pub(super) fn give(&mut self, limit: &'static str, less: Holding) {
        self.held.subtract(less);
        self.limits.entry(limit).or_default().held.subtract(less);
    }

    /// Records that a call of the limit found no room. Returns `true` if it is the first in a
    /// period of fullness.
    pub(super) fn record_full(&mut self, limit: &'static str, now: Timestamp) -> bool {
        let before = self.limits.entry(limit).or_default().found_full.replace(now);
        before.is_none_or(|before| (now - before).max(before - now) >= PERIOD_OF_FULLNESS)
    }
}

/// Returns `true` if a limit that holds `own` of the `held` may take `more`.
fn has_room(most: Holding, held: Holding, own: Holding, more: Holding) -> bool {
    let fits = |most: usize, held: usize, own: usize, more: usize| {
        let free = held.checked_add(more).and_then(|held| most.checked_sub(held));
        more == 0 || free.is_some_and(|free| own <= free.saturating_mul(TIMES_FREE))
    };
    fits(most.keys, held.keys, own.keys, more.keys)
        && fits(most.bytes, held.bytes, own.bytes, more.bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: Holding = Holding { keys: 1, bytes: 10 };
    const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];

    fn ledger(keys: usize, bytes: usize) -> Ledger {
        Ledger::new(Holding { keys, bytes })
    }

    /// Fills the store by these limits in turn, and returns the keys of each.
    fn fill(ledger: &mut Ledger, limits: &[&'static str]) -> Vec<usize> {
        let mut is_taken = true;
        while is_taken {
            is_taken = false;
            for limit in limits {
                is_taken |= ledger.take(limit, KEY);
            }
        }
        limits.iter().map(|limit| ledger.held_by(limit).keys).collect()
    }

    #[test]
    fn a_limit_alone_fills_three_quarters_and_several_leave_room_for_one_more() {
        for most in [ledger(13_000, usize::MAX), ledger(usize::MAX, 130_000)] {
            let mut ledger = most;
            assert_eq!(fill(&mut ledger, &["a"]), [9_750]);
            // The next one has three quarters of what is left.
            assert_eq!(fill(&mut ledger, &["b"]), [2_437]);
            let mut gone = Gone::default();
            for name in ["a", "b"] {
                (0..ledger.held_by(name).keys).for_each(|_| gone.add(name, 10));
            }
            ledger.give_back(&gone);
            assert_eq!(ledger.held(), Holding::default());
            let shares = fill(&mut ledger, &NAMES[..4]);
            assert_eq!(shares, [3_000; 4]);
            assert!(ledger.has_room("e", KEY));
        }
    }

    #[test]
    fn however_many_limits_fill_it_one_more_finds_room() {
        for count in 1..NAMES.len() {
            for most in 3 * count + 1..200 {
                let mut ledger = ledger(most, usize::MAX);
                fill(&mut ledger, &NAMES[..count]);
                assert!(ledger.take(NAMES[count], KEY), "{most} for {count}");
                assert!(ledger.held().keys <= most);
            }
        }
    }

    #[test]
    fn a_store_of_one_key_takes_one_and_a_store_without_bounds_all() {
        assert_eq!(fill(&mut ledger(1, usize::MAX), &["a"]), [1]);
        let mut ledger = ledger(usize::MAX, usize::MAX);
        assert!(ledger.take("a", Holding { keys: usize::MAX / 2, bytes: usize::MAX / 2 }));
        assert!(ledger.take("a", KEY));
        assert!(!ledger.take("b", Holding { keys: 1, bytes: usize::MAX }));
    }

    #[test]
    fn a_key_that_grows_needs_bytes_and_no_key() {
        let mut ledger = ledger(4, 1_000);
        fill(&mut ledger, &["a", "b"]);
        assert!(!ledger.has_room("a", KEY));
        assert!(ledger.take("a", Holding { keys: 0, bytes: 500 }));
        assert!(!ledger.take("a", Holding { keys: 0, bytes: 500 }));
        assert!(ledger.take("b", Holding { keys: 0, bytes: 300 }));
    }

    #[test]
    fn a_period_of_fullness_ends_when_no_call_has_found_it_full_for_a_minute() {
        let mut ledger = ledger(0, 0);
        let first: Vec<_> = [5, 6, 60_000_005, 120_000_005, 120_000_006, 3]
            .map(|now| ledger.record_full("a", Timestamp::new(now)))
            .into();
        assert_eq!(first, [true, false, false, true, false, true]);
        assert!(ledger.record_full("b", Timestamp::new(3)));
    }
}
