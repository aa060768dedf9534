//! What the store has refused is refused here, until the instant before which the store could not
//! admit it: a flood on one exhausted key does not reach the store.
//!
//! Exact: a wait is counted from before the call was sent, so that it never ends a microsecond too
//! late; an entry speaks only for its own key, policy and cost. Bounded: a fixed number of entries,
//! a newer one pushes out an older one. Once in a while one call asks the store all the same, so
//! that a reset or a refund by another process is seen soon.

#[cfg(all(test, ratelimit_loom))]
mod schedules;

use std::{hash::BuildHasher, sync::PoisonError, time::Duration};

use hashbrown::DefaultHashBuilder;
use tokio::time::Instant;

use crate::{
    key::Key,
    policy::Policy,
    store::{Outcome, Request, Source},
    sync::{Mutex, MutexGuard},
};

pub(super) struct Refusals {
    /// Each key has its row, which it shares.
    rows: Box<[Mutex<Row>]>,
    /// The most that a row holds.
    room: usize,
    hasher: DefaultHashBuilder,
    ttl: Duration,
}

#[derive(Default)]
struct Row {
    /// The oldest comes first.
    refusals: Vec<Refusal>,
    /// When refusals of one of the keys were last forgotten: what was sent before is not kept.
    forgotten: Option<Instant>,
}

/// With room for one alone, two exhausted keys in one row would push out each other at each call.
const ROOM: usize = 8;

struct Refusal {
    key: Box<[u8]>,
    policy: Policy,
    cost: u32,
    outcome: Outcome,
    /// When the refused call was sent.
    sent: Instant,
    /// From then on, one call asks the store.
    ask_at: Instant,
}

impl Refusals {
    pub(super) fn new(entries: usize, ttl: Duration) -> Self {
        let room = entries.clamp(1, ROOM);
        let rows = (0..entries / room).map(|_| Mutex::default()).collect();
        Self { rows, room, hasher: DefaultHashBuilder::default(), ttl }
    }

    /// The refusal that the store would repeat, with what is left of its wait.
    pub(super) fn find(&self, key: &Key, request: Request<'_>, now: Instant) -> Option<Outcome> {
        if !is_kept(request) {
            return None;
        }
        let mut row = self.row(key)?;
        let row = &mut row.refusals;
        let at = row.iter().position(|it| it.is_of(key, request))?;
        let refusal = &mut row[at];
        let passed = now.saturating_duration_since(refusal.sent).as_micros();
        let passed = u64::try_from(passed).unwrap_or(u64::MAX);
        let wait = refusal.outcome.wait.checked_sub(passed).filter(|wait| *wait > 0);
        let Some(wait) = wait else {
            row.remove(at);
            return None;
        };
        if now >= refusal.ask_at {
            refusal.ask_at = now + self.ttl;
            return None;
        }
        let reset = refusal.outcome.reset.saturating_sub(passed);
        Some(Outcome { wait, reset, source: Source::Refusals, ..refusal.outcome })
    }

    /// Takes in what the store has answered to a call that was sent then.
    pub(super) fn keep(&self, key: &Key, request: Request<'_>, outcome: Outcome, sent: Instant) {
        if outcome.admitted || !is_kept(request) {
            return;
        }
        if let Some(mut row) = self.row(key) {
            if row.forgotten.is_some_and(|forgotten| sent <= forgotten) {
                return;
            }
            let row = &mut row.refusals;
            row.retain(|it| !it.is_of(key, request));
            if row.len() == self.room {
                row.remove(0);
            }
            row.push(Refusal {
                key: key.as_bytes().into(),
                policy: *request.policy,
                cost: request.cost,
                outcome,
                sent,
                ask_at: sent + self.ttl,
            });
        }
    }

    /// Forgets what the store has refused of this key to calls that were sent until now.
    pub(super) fn forget(&self, key: &Key, now: Instant) {
        if let Some(mut row) = self.row(key) {
            row.forgotten = Some(now);
            row.refusals.retain(|it| *it.key != *key.as_bytes());
        }
    }

    fn row(&self, key: &Key) -> Option<MutexGuard<'_, Row>> {
        let rows = u64::try_from(self.rows.len()).ok().filter(|rows| *rows > 0)?;
        let index = usize::try_from(self.hasher.hash_one(key.as_bytes()) % rows).ok()?;
        Some(self.rows[index].lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Refusal {
    fn is_of(&self, key: &Key, request: Request<'_>) -> bool {
        *self.key == *key.as_bytes() && self.policy == *request.policy && self.cost == request.cost
    }
}

/// Where refused calls are recorded each changes the next one's wait; a call with an id may have
/// been admitted before.
fn is_kept(request: Request<'_>) -> bool {
    request.record && request.id.is_none() && !request.policy.counts_rejected()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::caller::Caller;

    const POLICY: Policy = Policy::sliding_window("p", Duration::from_secs(60), 5);
    const REQUEST: Request<'_> = Request { policy: &POLICY, cost: 2, record: true, id: None };
    const REFUSED: Outcome = Outcome {
        admitted: false,
        tier: 0,
        remaining: 1,
        wait: 3_000_000,
        more: 3_000_000,
        reset: 9_000_000,
        mark: 0,
        source: Source::Refusals,
    };

    fn key(caller: &str) -> Key {
        Key::compose("", &POLICY, Caller::from(caller).parts())
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusal_stands_until_its_wait_is_over_and_not_longer() {
        let refusals = Refusals::new(16, Duration::from_secs(10));
        let sent = Instant::now();
        refusals.keep(&key("alice"), REQUEST, REFUSED, sent);
        let at =
            |micros| refusals.find(&key("alice"), REQUEST, sent + Duration::from_micros(micros));
        assert_eq!(at(0), Some(REFUSED));
        assert_eq!(at(1_000_000), Some(Outcome { wait: 2_000_000, reset: 8_000_000, ..REFUSED }));
        assert_eq!(at(2_999_999).map(|outcome| outcome.wait), Some(1));
        assert_eq!(at(3_000_000), None);
    }

    #[tokio::test(start_paused = true)]
    async fn one_call_in_a_while_asks_the_store() {
        let refusals = Refusals::new(16, Duration::from_secs(1));
        let sent = Instant::now();
        refusals.keep(&key("alice"), REQUEST, REFUSED, sent);
        let later = sent + Duration::from_secs(1);
        assert_eq!(refusals.find(&key("alice"), REQUEST, later), None);
        assert!(refusals.find(&key("alice"), REQUEST, later).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn it_speaks_for_no_other_call() {
        let refusals = Refusals::new(1, Duration::from_secs(10));
        let now = Instant::now();
        let keep = || refusals.keep(&key("alice"), REQUEST, REFUSED, now);
        keep();
        let raised = Policy::sliding_window("p", Duration::from_secs(60), 6);
        for other in [
            Request { cost: 1, ..REQUEST },
            Request { cost: 3, ..REQUEST },
            Request { record: false, ..REQUEST },
            Request { id: Some(1), ..REQUEST },
            Request { policy: &raised, ..REQUEST },
        ] {
            assert_eq!(refusals.find(&key("alice"), other, now), None);
        }
        assert_eq!(refusals.find(&key("bob"), REQUEST, now), None);
        refusals.forget(&key("bob"), now);
        assert!(refusals.find(&key("alice"), REQUEST, now).is_some());
        refusals.forget(&key("alice"), now);
        assert_eq!(refusals.find(&key("alice"), REQUEST, now), None);
        // Room for one: the newer refusal takes it.
        keep();
        refusals.keep(&key("bob"), REQUEST, REFUSED, now);
        assert_eq!(refusals.find(&key("alice"), REQUEST, now), None);
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_sent_before_a_reset_is_not_kept_after_it() {
        let refusals = Refusals::new(16, Duration::from_secs(10));
        let sent = Instant::now();
        tokio::time::advance(Duration::from_secs(1)).await;
        let reset = Instant::now();
        refusals.forget(&key("alice"), reset);
        refusals.keep(&key("alice"), REQUEST, REFUSED, sent);
        assert_eq!(refusals.find(&key("alice"), REQUEST, reset), None);
        let sent = reset + Duration::from_micros(1);
        refusals.keep(&key("alice"), REQUEST, REFUSED, sent);
        assert!(refusals.find(&key("alice"), REQUEST, sent).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn exhausted_keys_that_share_a_row_are_both_known() {
        let (refusals, now) = (Refusals::new(2, Duration::from_secs(10)), Instant::now());
        let keep = |caller| refusals.keep(&key(caller), REQUEST, REFUSED, now);
        let is_known = |caller| refusals.find(&key(caller), REQUEST, now).is_some();
        keep("alice");
        keep("bob");
        assert!(is_known("alice") && is_known("bob"));
        // No more than fit: the oldest goes.
        keep("carol");
        assert!(!is_known("alice") && is_known("bob") && is_known("carol"));
    }

    #[tokio::test(start_paused = true)]
    async fn penalties_and_admissions_are_not_kept_and_none_may_be() {
        let penalty = POLICY.count_rejected();
        let penal = Request { policy: &penalty, ..REQUEST };
        let (refusals, now) = (Refusals::new(16, Duration::from_secs(10)), Instant::now());
        refusals.keep(&key("alice"), penal, REFUSED, now);
        refusals.keep(&key("alice"), REQUEST, Outcome { admitted: true, ..REFUSED }, now);
        assert_eq!(refusals.find(&key("alice"), penal, now), None);
        assert_eq!(refusals.find(&key("alice"), REQUEST, now), None);
        let off = Refusals::new(0, Duration::from_secs(10));
        off.keep(&key("alice"), REQUEST, REFUSED, now);
        assert_eq!(off.find(&key("alice"), REQUEST, now), None);
    }
}
