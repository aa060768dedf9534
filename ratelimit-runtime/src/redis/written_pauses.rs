//! The pauses that this process has written to Redis. Its memory store has a copy of each, for
//! outages.

use std::collections::HashMap;

use super::deny_cache::RoundTrip;
use crate::{
    key::Key,
    policy::StateKind,
    request::{Outcome, OutcomeKind, Request},
    sync::Mutex,
    time::Timestamp,
};

#[derive(Default)]
pub(super) struct WrittenPauses(Mutex<HashMap<Box<[u8]>, Written>>);

struct Written {
    /// The time at which Redis had it.
    at: Timestamp,
    /// The earliest time of its end.
    ends: Timestamp,
}

impl WrittenPauses {
    /// Adds a pause that Redis has written, which lasts at least until `ends`.
    pub(super) fn add(&self, key: &Key, at: Timestamp, ends: Timestamp) {
        let mut pauses = self.0.lock();
        // Those that are over make room first, so that the map does not grow with time.
        if pauses.len() == pauses.capacity() {
            pauses.retain(|_, pause| at < pause.ends);
        }
        pauses.insert(key.as_bytes().into(), Written { at, ends });
    }

    /// Forgets the pause of a key.
    pub(super) fn forget(&self, key: &Key) {
        self.0.lock().remove(key.as_bytes());
    }

    /// Returns `true` if an answer of Redis shows that the pause of the key is over before its
    /// time: another process has reset the key. The pause is forgotten then.
    pub(super) fn are_ended_by(
        &self,
        key: &Key,
        request: Request<'_>,
        outcome: Outcome,
        trip: RoundTrip,
    ) -> bool {
        // A call that takes nothing passes a pause.
        let is_of_window = matches!(outcome.kind, OutcomeKind::Plain | OutcomeKind::Gated);
        let takes = request.cost > 0 && is_of_window;
        if !takes || request.policy.state() != StateKind::SlidingWindow {
            return false;
        }
        let passes = trip.answered + if outcome.admitted { outcome.turn } else { outcome.wait };
        let mut written = self.0.lock();
        let is_ended = written
            .get(key.as_bytes())
            .is_some_and(|pause| pause.at <= trip.sent && passes < pause.ends);
        if is_ended {
            written.remove(key.as_bytes());
        }
        is_ended
    }
}
