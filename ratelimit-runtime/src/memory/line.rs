//! The turns of waiting calls in memory.

use super::{MemoryStore, shard::Entry};
use crate::{
    error::Replied,
    key::KeyRef,
    policy::Policy,
    request::{LinePlace, Op, Request, Standing},
    time::{Micros, Timestamp},
};

impl MemoryStore {
    /// Returns `true` if the key has the charge of a place, or its turn has come.
    #[cfg(test)]
    pub(crate) fn is_promised(&self, key: KeyRef<'_>, place: LinePlace<'_>) -> bool {
        let is_promised = |entry: &mut Entry, now| entry.state.is_promised(now, place);
        self.change(self.clock.counted(), key, is_promised).unwrap_or(false)
    }

    /// Returns the times of charges, none for one that is gone.
    pub(crate) fn turns(
        &self,
        key: KeyRef<'_>,
        places: &[LinePlace<'_>],
    ) -> Vec<Option<Timestamp>> {
        let turns = |entry: &mut Entry, _| {
            places.iter().map(|place| entry.state.turn_of(*place)).collect::<Vec<_>>()
        };
        self.change(self.clock.counted(), key, turns).unwrap_or_default()
    }

    /// Admits nobody under a key of a sliding window before the end of a pause. Returns `false`,
    /// and changes nothing, if the time `ends` has come.
    ///
    /// # Errors
    ///
    /// [`StoreFull`](UnavailableReason::StoreFull) if there is no room for the key.
    pub(crate) fn pause(
        &self,
        key: KeyRef<'_>,
        policy: &Policy,
        length: Micros,
        ends: Option<Timestamp>,
    ) -> Replied<bool> {
        let counted = self.clock.counted();
        let pause = |entry: &mut Entry, now| {
            let is_timely = ends.is_none_or(|ends| ends > now);
            if is_timely {
                entry.pause(now, now + length, policy);
            }
            is_timely
        };
        loop {
            if let Some(is_timely) = self.change(counted, key, pause) {
                return Ok(is_timely);
            }
            // A call of no units makes room for the key.
            let policy = policy.without_concurrency();
            self.decide_at(counted, key, Request::new(&policy, Op::Take, 0))?;
        }
    }

    /// Moves the first turn that lies ahead forwards, if it is the one of this place and has room.
    /// Returns the turn, unless the charge is gone.
    pub(crate) fn advance(&self, key: KeyRef<'_>, place: LinePlace<'_>) -> Option<Standing> {
        self.change(self.clock.counted(), key, |entry, now| entry.advance(now, place))?
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{Policy, caller::Caller, request::Outcome};

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn a_place_is_kept_until_it_is_left_or_its_key_is_reset() {
        let counting = [Policy::sliding_counter, Policy::fixed_window, Policy::token_bucket];
        let mut policies = counting.map(|new| new("p", MINUTE, 1)).to_vec();
        policies.push(Policy::sliding_window("p", MINUTE, 1));
        for policy in policies {
            hold_places(policy);
        }
    }

    fn hold_places(policy: Policy) {
        let caller = Caller::from("alice");
        let key = KeyRef::new(&policy, caller.parts());
        let store = MemoryStore::new(100, usize::MAX);
        let hour = Micros::from(Duration::from_secs(3_600));
        let request = Request { max_wait: hour, max_line: 9, ..Request::new(&policy, Op::Take, 1) };
        let places: Vec<_> = (0..3)
            .map(|_| LinePlace {
                policy: &policy,
                cost: 1,
                mark: store.decide(key, request).unwrap().mark,
                id: None,
            })
            .collect();
        assert!(places.iter().all(|place| store.is_promised(key, *place)));
        store.settle(key, &places[1].leave());
        let held = places.iter().map(|place| store.is_promised(key, *place));
        assert_eq!(held.collect::<Vec<_>>(), [true, false, true]);
        let standing = store.advance(key, places[2]).unwrap();
        assert!(standing.at < places[2].mark.at, "{policy:?}");
        store.reset(key);
        assert!(!store.is_promised(key, places[0]));
        assert_eq!(store.advance(key, places[0]), None);
    }

    #[test]
    fn a_line_takes_memory_until_nobody_waits() {
        let caller = Caller::from("alice");
        let store = MemoryStore::new(100, usize::MAX);
        let used = || store.budget.lock().used().bytes;
        let minute = Policy::token_bucket("p", MINUTE, 1);
        let moment = Policy::token_bucket("p", Duration::from_millis(1), 1);
        let keys = [&minute, &moment].map(|policy| KeyRef::new(policy, caller.parts()));
        let at_once = |policy| Request::new(policy, Op::Take, 1);
        let waiting = |policy| {
            let max_wait = Duration::from_secs(3_600).into();
            Request { max_wait, max_line: 9, ..at_once(policy) }
        };
        let place =
            |outcome: Outcome| LinePlace { policy: &minute, cost: 1, mark: outcome.mark, id: None };
        let passed = place(store.decide(keys[0], at_once(&minute)).unwrap());
        let without = used();
        let line = [(); 6].map(|()| place(store.decide(keys[0], waiting(&minute)).unwrap()));
        for place in &line[1..] {
            assert!(used() > without);
            store.settle(keys[0], &place.leave());
        }
        assert!(used() > without);
        store.settle(keys[0], &passed.leave());
        let standing = store.advance(keys[0], line[0]).unwrap();
        assert_eq!((standing.turn, used()), (Micros::ZERO, without));

        store.reset(keys[0]);
        while store.decide(keys[1], waiting(&moment)).unwrap().turn == Micros::ZERO {}
        assert!(used() > without);
        // The next call after the last turn ends the line.
        while used() > without {
            store.decide(keys[1], at_once(&moment)).unwrap();
        }
        store.decide(keys[1], waiting(&moment)).unwrap();
        store.reset(keys[1]);
        assert_eq!(used(), 0);
    }
}
