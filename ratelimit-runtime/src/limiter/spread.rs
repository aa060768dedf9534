//! The waits that clients of a shared limit are told: each another one, so that they do not come
//! back together.
//!
//! A client that is refused while others wait gets the time after theirs: as many as the limit
//! admits in one period come together, and the next ones a period later. Clients wait for whole
//! seconds, so a period is a second longer here. One that repeats its call too early keeps its
//! time.

use std::{
    collections::{HashMap, hash_map::RandomState},
    hash::BuildHasher,
    time::Duration,
};

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::{caller::Caller, error::Exceeded};

/// The number of limits and clients that are known. Beyond it all are forgotten, and get the exact
/// waits again.
const MAX_KNOWN: usize = 4_096;

/// The periods over which clients are spread. Beyond them the next clients get the first times
/// again.
const PERIODS: u32 = 4;

/// Clients count whole seconds: without this they would come back just before the units are free.
const SECOND: Duration = Duration::from_secs(1);

/// The clients that wait, by hashes of limits and clients.
#[derive(Default)]
pub(super) struct Spread {
    known: Mutex<HashMap<u64, Turns>>,
    hashes: RandomState,
}

/// The times that were told to the clients of a limit, or to one of them.
#[derive(Clone, Copy)]
struct Turns {
    /// The first refusal since the limit was reset. Times that were told before are none any more.
    since: Instant,
    first: Instant,
    latest: Instant,
    /// The units that were refused.
    units: u32,
}

impl Spread {
    /// Returns the wait of a client.
    pub(super) fn turn(
        &self,
        limit: (&'static str, &Caller),
        client: Option<Caller>,
        error: &Exceeded,
        cost: u32,
    ) -> Duration {
        let now = Instant::now();
        let exact = now + error.retry_after();
        let own = client.map(|client| self.hashes.hash_one((limit, client)));
        let limit = self.hashes.hash_one(limit);
        let mut known = self.known.lock();
        if known.len() >= MAX_KNOWN {
            known.clear();
        }
        let since = known.get(&limit).map_or(now, |it| it.since);
        let waiting = |of: &u64| known.get(of).copied().filter(|it| it.latest > now);
        if let Some(own) = own.as_ref().and_then(waiting).filter(|own| own.since == since) {
            return own.latest.max(exact) - now;
        }
        let before = waiting(&limit);
        let after = before.and_then(|it| it.after(error, cost));
        let turns = after.unwrap_or(Turns { since, first: exact, latest: exact, units: cost });
        let turns = Turns { latest: turns.latest.max(exact), ..turns };
        known.insert(limit, turns);
        if let Some(own) = own {
            known.insert(own, turns);
        }
        turns.latest - now
    }

    /// Forgets the times that were told to the clients of a limit.
    pub(super) fn forget(&self, limit: (&'static str, &Caller)) {
        self.known.lock().remove(&self.hashes.hash_one(limit));
    }
}

impl Turns {
    /// Returns the turns with that of the next client; `None` after the last period.
    fn after(self, error: &Exceeded, cost: u32) -> Option<Self> {
        let quota = error.quota().max(1);
        let periods = Some(self.units / quota).filter(|periods| *periods < PERIODS)?;
        // The units of a period come free one after the other, the last one as the whole quota is
        // back.
        let until_last = error.reset_after().saturating_sub(error.retry_after());
        let in_period =
            until_last.min(error.period()) * (self.units % quota) / quota.saturating_sub(1).max(1);
        let later = (error.period() + SECOND) * periods + in_period;
        let units = self.units.saturating_add(cost);
        Some(Self { latest: self.first + later, units, ..self })
    }
}
