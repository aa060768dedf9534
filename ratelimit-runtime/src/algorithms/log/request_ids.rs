//! The charges of a log that have a request id, found by their id.

use hashbrown::HashTable;

use crate::time::{Micros, Timestamp};

/// The bytes by which the first id of a log grows the heap, at most.
// Of `hashbrown`: eight places, a control byte each, one more group of 16, and its alignment.
pub(super) const FIRST_BYTES: usize = 8 * (size_of::<NamedCharge>() + 1) + 32;

/// A charge with a request id.
#[derive(Clone, Copy)]
#[cfg_attr(test, derive(Debug, PartialEq))]
pub(crate) struct NamedCharge {
    pub(super) id: u64,
    pub(super) stamp: Timestamp,
    /// The entry of the charge.
    pub(super) entry: u32,
}

/// The latest charge of each id. Those that have left the log stay until their room is needed.
#[derive(Default)]
#[cfg_attr(test, derive(Clone, Debug))]
pub(crate) struct RequestIds(HashTable<NamedCharge>);

/// A request id is a hash already, of 51 bits. The table compares the highest bits of a hash, and
/// finds places by the lowest.
fn hash_of(id: u64) -> u64 {
    id ^ id << 13
}

impl RequestIds {
    pub(super) fn get(&self, id: u64) -> Option<&NamedCharge> {
        self.0.find(hash_of(id), |it| it.id == id)
    }

    /// Returns the charge of this id that was made then.
    pub(super) fn charged_at(&mut self, id: u64, stamp: Timestamp) -> Option<&mut NamedCharge> {
        self.0.find_mut(hash_of(id), |it| it.id == id && it.stamp == stamp)
    }

    /// Moves the charges after `now` to later times.
    pub(super) fn move_after(&mut self, now: Timestamp, by: Micros) {
        for charge in self.0.iter_mut().filter(|it| it.stamp > now) {
            charge.stamp = charge.stamp + by;
        }
    }

    /// Remembers a charge in place of an earlier one of its id. Makes room by dropping those before
    /// `oldest`.
    pub(super) fn remember(&mut self, charge: NamedCharge, oldest: Option<Timestamp>) {
        if let Some(earlier) = self.0.find_mut(hash_of(charge.id), |it| it.id == charge.id) {
            *earlier = charge;
            return;
        }
        if self.is_full() {
            self.0.retain(|it| Some(it.stamp) >= oldest);
        }
        self.add(charge);
    }

    /// Remembers a charge of an id that has none yet.
    #[inline]
    pub(super) fn add(&mut self, charge: NamedCharge) {
        self.0.insert_unique(hash_of(charge.id), charge, |it| hash_of(it.id));
    }

    /// Forgets the charge of this id that was made then.
    pub(super) fn forget(&mut self, id: u64, stamp: Timestamp) {
        if let Ok(found) = self.0.find_entry(hash_of(id), |it| it.id == id && it.stamp == stamp) {
            found.remove();
        }
    }

    pub(super) fn is_full(&self) -> bool {
        self.0.len() == self.0.capacity()
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.0.allocation_size()
    }

    /// Returns the bytes by which the heap grows at most if one more charge is remembered: the
    /// table doubles.
    pub(super) fn growth(&self) -> usize {
        if self.is_full() { FIRST_BYTES.max(self.heap_bytes() + 16) } else { 0 }
    }
}

#[cfg(test)]
impl PartialEq for RequestIds {
    fn eq(&self, other: &Self) -> bool {
        let is_in_other = |charge: &NamedCharge| other.get(charge.id) == Some(charge);
        self.0.len() == other.0.len() && self.0.iter().all(is_in_other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn charge(id: u64, second: u64) -> NamedCharge {
        NamedCharge { id, stamp: Timestamp::new(second), entry: 0 }
    }

    #[test]
    fn the_heap_grows_by_no_more_than_was_said() {
        let mut ids = RequestIds::default();
        for number in 0..10_000 {
            let (before, growth) = (ids.heap_bytes(), ids.growth());
            // Every third one has left the log.
            let oldest = Some(Timestamp::new(number / 3));
            ids.remember(charge(number.wrapping_mul(0x9E37_79B9_7F4A_7C15), number), oldest);
            assert!(ids.heap_bytes() <= before + growth, "{number}");
        }
    }

    #[test]
    fn ids_are_forgotten_only_for_room() {
        let mut ids = RequestIds::default();
        ids.remember(charge(1, 1), None);
        ids.remember(charge(2, 9), Some(Timestamp::new(5)));
        assert!(ids.get(1).is_some());
        for id in 3..99 {
            ids.remember(charge(id, 9), Some(Timestamp::new(5)));
        }
        assert!(ids.get(1).is_none() && (2..99).all(|id| ids.get(id).is_some()));
        ids.forget(7, Timestamp::new(8));
        assert!(ids.get(7).is_some());
        ids.forget(7, Timestamp::new(9));
        assert!(ids.get(7).is_none());
    }
}
