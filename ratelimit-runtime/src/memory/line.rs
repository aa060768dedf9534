//! The turns of waiting calls in memory.

use super::MemoryStore;
use crate::{
    key::KeyRef,
    request::{Place, Standing},
};

impl MemoryStore {
    /// Returns `true` if the key has the charge of a place.
    pub(crate) fn is_promised(&self, key: KeyRef<'_>, place: Place<'_>) -> bool {
        let lookup = self.hasher.lookup(key);
        let mut table = self.shard(&lookup).lock();
        table.find_mut(&lookup).is_some_and(|entry| entry.state.is_promised(place))
    }

    /// Moves the first turn that lies ahead forwards, if it is the one of this place and has room.
    /// Returns the turn, unless the charge is gone.
    pub(crate) fn advance(&self, key: KeyRef<'_>, place: Place<'_>) -> Option<Standing> {
        let (lookup, counted) = (self.hasher.lookup(key), self.clock.counted());
        let mut table = self.shard(&lookup).lock();
        let now = self.clock.ordered(counted, &mut table.latest);
        table.find_mut(&lookup)?.state.advance(now, place)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{
        Policy,
        caller::Caller,
        request::{Op, Request},
        time::Micros,
    };

    #[test]
    fn a_place_is_kept_until_it_is_left_or_its_key_is_reset() {
        let policy = Policy::sliding_window("p", Duration::from_secs(60), 1).weighted();
        let caller = Caller::from("alice");
        let key = KeyRef::new(&policy, caller.parts());
        let store = MemoryStore::new(100, usize::MAX);
        let hour = Micros::from(Duration::from_secs(3_600));
        let request = Request { max_wait: hour, max_line: 9, ..Request::new(&policy, Op::Take, 1) };
        let places: Vec<_> = (0..3)
            .map(|_| Place {
                policy: &policy,
                cost: 1,
                mark: store.decide(key, request).unwrap().mark,
                id: None,
            })
            .collect();
        assert!(places.iter().all(|place| store.is_promised(key, *place)));
        store.settle(key, places[1].leave());
        let held = places.iter().map(|place| store.is_promised(key, *place));
        assert_eq!(held.collect::<Vec<_>>(), [true, false, true]);
        let standing = store.advance(key, places[2]).unwrap();
        assert!(standing.at < places[2].mark.at);
        assert!(standing.turn <= Duration::from_secs(60).into());
        store.reset(key);
        assert!(!store.is_promised(key, places[0]));
        assert_eq!(store.advance(key, places[0]), None);
    }
}
