//! The round trips of exchanges, beside which a lease may be short.

use std::{collections::HashMap, mem};

use crate::{policy::Policy, sync::Mutex, time::Micros};

/// The round trips of which the shortest is compared: one is long by chance.
const MEASURED: usize = 3;

/// The round trips of each limit since the last comparison; none once it is logged.
#[derive(Default)]
pub(super) struct Trips(Mutex<HashMap<&'static str, Option<Vec<Micros>>>>);

impl Trips {
    /// Logs once for each limit that its leases are shorter than three round trips.
    pub(super) fn measured(&self, policy: &Policy, trip: Micros) {
        let Some(lease) = policy.get_lease() else { return };
        if let Some(trip) = self.too_long(policy, trip) {
            tracing::warn!(
                policy = policy.name(),
                ?lease,
                round_trip = ?std::time::Duration::from(trip),
                "a rate limit's lease is shorter than three round trips to Redis, and much of it is \
                 over when it arrives; make it longer"
            );
        }
    }

    /// Returns the shortest of several round trips, if three of it are longer than a lease.
    fn too_long(&self, policy: &Policy, trip: Micros) -> Option<Micros> {
        let mut limits = self.0.lock();
        let limit = limits.entry(policy.name()).or_insert_with(|| Some(Vec::new()));
        let trips = limit.as_mut()?;
        trips.push(trip);
        if trips.len() < MEASURED {
            return None;
        }
        let shortest = mem::take(trips).into_iter().min()?;
        let is_long = policy.lease_micros().is_some_and(|it| it.get() < 3 * shortest.get());
        is_long.then(|| {
            *limit = None;
            shortest
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const fn lease(name: &'static str) -> Policy {
        Policy::fixed_window(name, Duration::from_secs(60), 1_000).lease(Duration::from_millis(300))
    }

    #[test]
    fn one_long_trip_is_chance_and_three_are_told_once_for_each_limit() {
        let trips = Trips::default();
        let measured = |name, millis: u64| {
            let told = trips.too_long(&lease(name), Micros::new(millis * 1_000));
            told.map(|trip| trip.get() / 1_000)
        };
        for millis in [500, 500, 100, 500, 90, 500] {
            assert_eq!(measured("near", millis), None, "{millis}");
        }
        for (millis, told) in [(500, None), (101, None), (200, Some(101)), (500, None)] {
            assert_eq!(measured("far", millis), told, "{millis}");
        }
        assert_eq!([500, 500, 500].map(|millis| measured("far", millis)), [None; 3]);
        assert_eq!([500, 500, 500].map(|it| measured("near", it)), [None, None, Some(500)]);
    }
}
