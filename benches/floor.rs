//! The least that an exact limiter does: the hash of a caller, the clock and one locked entry.

use std::{hash::BuildHasher, sync::Mutex, time::Duration};

use foldhash::quality::RandomState;
use governor::clock::{Clock, DefaultClock, Reference};
use hashbrown::HashTable;

/// A limiter of 10^9 calls a second in so many lines. A caller is a tenant and a user.
pub struct Floor {
    callers: Vec<Mutex<HashTable<(String, u32, Duration)>>>,
    hasher: RandomState,
    clock: DefaultClock,
    start: <DefaultClock as Clock>::Instant,
}

impl Default for Floor {
    fn default() -> Self {
        let clock = DefaultClock::default();
        let callers = (0..128).map(|_| Mutex::default()).collect();
        Self { callers, hasher: RandomState::default(), start: clock.now(), clock }
    }
}

impl Floor {
    /// Counts a call of a user, and returns `true` if it is admitted.
    ///
    /// # Panics
    ///
    /// If another call has.
    #[must_use]
    pub fn check(&self, tenant: &str, user: u32) -> bool {
        let hash = |tenant: &str, user: u32| self.hasher.hash_one((tenant, user));
        let own = hash(tenant, user);
        let now = Duration::from(self.clock.now().duration_since(self.start));
        let mut callers = self.callers[(own >> 32) as usize % 128].lock().expect("no panic");
        let is_own = |(a, b, _): &(String, u32, Duration)| a == tenant && *b == user;
        let entry = callers.entry(own, is_own, |(tenant, user, _)| hash(tenant, *user));
        let entry = entry.or_insert_with(|| (tenant.to_owned(), user, Duration::ZERO)).into_mut();
        entry.2 = now.max(entry.2) + Duration::from_nanos(1);
        entry.2 <= now + Duration::from_secs(1)
    }
}
