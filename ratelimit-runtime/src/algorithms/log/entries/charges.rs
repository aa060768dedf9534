//! The charges among the entries of a log: each is settled once, by its mark.

use super::{CallEntries, CallEntry, NOBODY};
use crate::{
    request::{Charged, EntryMark, Mark},
    time::Timestamp,
};

impl CallEntries {
    /// Returns `true` if this is the state in which the charge was made.
    pub(in super::super) fn is_of(&self, entry: EntryMark) -> bool {
        self.generation.number() == entry.birth()
    }

    /// Returns the position of a charge of this log that is not settled yet.
    pub(in super::super) fn position(&self, mark: Mark) -> Option<usize> {
        let Mark { at, charged } = mark;
        // Mostly the latest call is settled.
        if let (Charged::Entry(entry), Some(newest)) = (charged, self.entries.back())
            && (newest.stamp, u64::from(newest.id)) == (at, entry.id())
            && !entry.is_joined()
        {
            return Some(self.entries.len() - 1);
        }
        let first = self.entries.partition_point(|it| it.stamp < at);
        let of_then = || self.entries.range(first..).take_while(|it| it.stamp == at);
        let Charged::Entry(entry) = charged else {
            // It was made while the log had units alone.
            let is_unit = |it: &CallEntry| it.id == NOBODY && it.units == 1;
            return of_then().position(is_unit).map(|index| first + index);
        };
        let is_it = |it: &CallEntry| u64::from(it.id) == entry.id();
        let found = of_then().position(is_it);
        // A pause has moved it since.
        let moved = || self.was_paused().then(|| self.entries.range(first..).position(is_it));
        found
            .or_else(|| moved().flatten())
            .filter(|_| !entry.is_joined())
            .map(|index| first + index)
    }

    pub(in super::super) fn units(&self, at: usize) -> u32 {
        self.entries[at].units
    }

    /// Lowers a charge, once.
    #[inline]
    pub(in super::super) fn lower(&mut self, at: usize, to: u32) {
        let less = u64::from(self.entries[at].units - to);
        // Without its id no second settle finds it.
        (self.entries[at].units, self.entries[at].id) = (to, NOBODY);
        for entry in self.entries.range_mut(at..) {
            entry.sum -= less;
        }
        if to == 0 {
            self.entries.remove(at);
        }
    }

    /// Adds what a charge takes beyond its units, which are settled now; nothing the second time.
    pub(in super::super) fn raise(
        &mut self,
        now: Timestamp,
        charge: Option<usize>,
        charged: Charged,
        units: u32,
    ) {
        let Charged::Entry(entry) = charged else {
            // A unit without an id, which its decision settles once.
            self.insert(now, units, NOBODY);
            return;
        };
        let excess = entry.id() + 1;
        match charge {
            Some(at) => self.entries[at].id = NOBODY,
            // It was raised before: its excess is there.
            None if self.entries.iter().any(|it| u64::from(it.id) == excess) => return,
            None => {}
        }
        self.insert(now, units, u32::try_from(excess).unwrap_or(NOBODY));
    }

    /// Adds units that no call settles any more.
    pub(in super::super) fn add_nameless(&mut self, now: Timestamp, units: u32) {
        self.insert(now, units, NOBODY);
    }
}
