//! Properties of the deny cache under every schedule of threads.

use std::sync::Arc;

use super::*;
use crate::{
    caller::Caller,
    key::Key,
    request::Op,
    sync::{Thread, each, with},
};

const POLICY: Policy = Policy::sliding_window("p", Duration::from_secs(60), 5);
const REQUEST: Request<'_> = Request::new(&POLICY, Op::Take, 1);
const NOW: Timestamp = Timestamp::new(1_000_000_000_000);
const SECOND: Duration = Duration::from_secs(1);
const MICRO: Duration = Duration::from_micros(1);

fn key() -> Key {
    Key::compose("", KeyRef::new(&POLICY, Caller::from("alice").parts()))
}

fn refused(wait: Duration) -> Outcome {
    let wait = Micros::from(wait);
    Outcome::refused(wait, wait)
}

fn admitted(remaining: u32) -> Outcome {
    Outcome { admitted: true, remaining, ..refused(SECOND) }
}

/// Returns the round trip of a call without latency.
fn at(sent: Timestamp) -> RoundTrip {
    RoundTrip { sent, answered: sent }
}

fn new() -> Arc<DenyCache> {
    Arc::new(DenyCache::new(1, 10 * SECOND))
}

fn wait_at(cache: &DenyCache, now: Timestamp) -> Option<u64> {
    cache
        .get(key().as_key_ref(), REQUEST, Micros::ZERO, true, || now)
        .map(|outcome| outcome.wait.get())
}

#[test]
fn a_refusal_never_refuses_beyond_its_instant() {
    each(|| {
        let (cache, start) = (new(), NOW);
        let [earlier, later] = [(); 2].map(|()| Arc::clone(&cache));
        let insert = |cache: &DenyCache, sent, wait| {
            cache.insert(key().as_key_ref(), REQUEST, refused(wait), at(sent));
        };
        // The later one ends first: units were refunded meanwhile.
        let found = with(
            [
                Box::new(move || {
                    insert(&earlier, start, 3 * SECOND);
                    None
                }) as Thread<Option<u64>>,
                Box::new(move || {
                    insert(&later, start + SECOND, SECOND);
                    None
                }),
            ],
            || wait_at(&cache, start + SECOND),
        );
        assert!(found.iter().flatten().all(|wait| [1_000_000, 2_000_000].contains(wait)));
        // Whichever reply came first, the later call's is effective.
        assert_eq!(wait_at(&cache, start + (2 * SECOND - MICRO)), Some(1));
        assert_eq!(wait_at(&cache, start + 2 * SECOND), None);
    });
}

#[test]
fn one_of_concurrent_calls_revalidates() {
    each(|| {
        let (cache, sent) = (new(), NOW);
        cache.insert(key().as_key_ref(), REQUEST, refused(60 * SECOND), at(sent));
        let later = sent + 10 * SECOND;
        let other = || -> Thread<Option<u64>> {
            let cache = Arc::clone(&cache);
            Box::new(move || wait_at(&cache, later))
        };
        let found = with([other(), other()], || wait_at(&cache, later));
        assert_eq!(found.iter().filter(|wait| wait.is_none()).count(), 1);
    });
}

#[test]
fn an_invalidated_refusal_is_not_found() {
    each(|| {
        let (cache, now) = (new(), NOW);
        cache.insert(key().as_key_ref(), REQUEST, refused(SECOND), at(now));
        let other = Arc::clone(&cache);
        // A call that was sent before the invalidation is refused meanwhile.
        let late = move || {
            other.insert(key().as_key_ref(), REQUEST, refused(SECOND), at(now));
            wait_at(&other, now)
        };
        with([Box::new(late) as Thread<_>], || {
            cache.invalidate(key().as_key_ref(), now);
            None
        });
        assert_eq!(wait_at(&cache, now), None);
    });
}

#[test]
fn an_admission_removes_earlier_refusals() {
    each(|| {
        let (cache, start) = (new(), NOW);
        cache.insert(key().as_key_ref(), REQUEST, refused(60 * SECOND), at(start));
        let later = start + SECOND;
        let others = [
            (refused(60 * SECOND), RoundTrip { sent: start, answered: later }),
            (admitted(4), RoundTrip { sent: later, answered: later }),
        ];
        let others = others.map(|(outcome, trip)| -> Thread<Option<u64>> {
            let cache = Arc::clone(&cache);
            Box::new(move || {
                cache.insert(key().as_key_ref(), REQUEST, outcome, trip);
                wait_at(&cache, later)
            })
        });
        with(others, || wait_at(&cache, later));
        assert_eq!(wait_at(&cache, later), None);
        // A later refusal is inserted.
        let sent = later + MICRO;
        cache.insert(key().as_key_ref(), REQUEST, refused(SECOND), at(sent));
        assert_eq!(wait_at(&cache, sent), Some(1_000_000));
    });
}
