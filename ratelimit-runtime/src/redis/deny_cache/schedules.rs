//! What holds of remembered refusals however threads meet at them.

use std::sync::Arc;

use super::*;
use crate::{
    caller::Caller,
    request::{DecidedBy, Mark, Op},
    sync::{each, with},
    time::Micros,
};

const POLICY: Policy = Policy::sliding_window("p", Duration::from_secs(60), 5);
const REQUEST: Request<'_> =
    Request { policy: &POLICY, written: &POLICY, op: Op::Take, cost: 1, id: None };
const SECOND: Duration = Duration::from_secs(1);
const MICRO: Duration = Duration::from_micros(1);

fn key() -> Key {
    Key::compose("", &POLICY, Caller::from("alice").parts())
}

fn refused(wait: Duration) -> Outcome {
    let wait = Micros::from(wait);
    let (tier, remaining, decided_by) = (0, 0, DecidedBy::Store);
    let (more, reset, lasts, mark) = (wait, wait, wait, Mark::NONE);
    Outcome { admitted: false, tier, remaining, wait, more, reset, lasts, mark, decided_by }
}

fn admitted(remaining: u32) -> Outcome {
    Outcome { admitted: true, remaining, ..refused(SECOND) }
}

/// The trip of a call that was answered at once.
fn at(sent: Instant) -> Trip {
    Trip { sent, answered: sent }
}

fn refusals() -> Arc<DenyCache> {
    Arc::new(DenyCache::new(1, 10 * SECOND))
}

fn wait_at(refusals: &DenyCache, now: Instant) -> Option<u64> {
    refusals.find(&key(), REQUEST, Duration::ZERO, now).map(|outcome| outcome.wait.get())
}

#[test]
fn a_refusal_never_refuses_beyond_its_instant() {
    each(|| {
        let (refusals, start) = (refusals(), Instant::now());
        let [earlier, later] = [(); 2].map(|()| Arc::clone(&refusals));
        let keep = |refusals: &DenyCache, sent, wait| {
            refusals.keep(&key(), REQUEST, refused(wait), at(sent));
        };
        // The later of the two is over first: something was given back meanwhile.
        let found = with(
            [
                Box::new(move || {
                    keep(&earlier, start, 3 * SECOND);
                    None
                }) as Box<dyn FnOnce() -> Option<u64>>,
                Box::new(move || {
                    keep(&later, start + SECOND, SECOND);
                    None
                }),
            ],
            || wait_at(&refusals, start + SECOND),
        );
        assert!(found.iter().flatten().all(|wait| [1_000_000, 2_000_000].contains(wait)));
        // Whichever answer came first, the later call's is what holds.
        assert_eq!(wait_at(&refusals, start + 2 * SECOND - MICRO), Some(1));
        assert_eq!(wait_at(&refusals, start + 2 * SECOND), None);
    });
}

#[test]
fn of_calls_at_once_one_asks_the_store() {
    each(|| {
        let (refusals, sent) = (refusals(), Instant::now());
        refusals.keep(&key(), REQUEST, refused(60 * SECOND), at(sent));
        let later = sent + 10 * SECOND;
        let other = || -> Box<dyn FnOnce() -> Option<u64>> {
            let refusals = Arc::clone(&refusals);
            Box::new(move || wait_at(&refusals, later))
        };
        let found = with([other(), other()], || wait_at(&refusals, later));
        assert_eq!(found.iter().filter(|wait| wait.is_none()).count(), 1);
    });
}

#[test]
fn what_is_forgotten_is_found_no_more() {
    each(|| {
        let (refusals, now) = (refusals(), Instant::now());
        refusals.keep(&key(), REQUEST, refused(SECOND), at(now));
        let other = Arc::clone(&refusals);
        // A call that was sent before is refused meanwhile.
        let late = move || {
            other.keep(&key(), REQUEST, refused(SECOND), at(now));
            wait_at(&other, now)
        };
        with([Box::new(late) as Box<dyn FnOnce() -> _>], || {
            refusals.forget(&key(), now);
            None
        });
        assert_eq!(wait_at(&refusals, now), None);
    });
}

#[test]
fn an_admitted_call_ends_what_was_refused_before() {
    each(|| {
        let (refusals, start) = (refusals(), Instant::now());
        refusals.keep(&key(), REQUEST, refused(60 * SECOND), at(start));
        let later = start + SECOND;
        let others = [
            (refused(60 * SECOND), Trip { sent: start, answered: later }),
            (admitted(4), Trip { sent: later, answered: later }),
        ];
        let others = others.map(|(outcome, trip)| -> Box<dyn FnOnce() -> Option<u64>> {
            let refusals = Arc::clone(&refusals);
            Box::new(move || {
                refusals.keep(&key(), REQUEST, outcome, trip);
                wait_at(&refusals, later)
            })
        });
        with(others, || wait_at(&refusals, later));
        assert_eq!(wait_at(&refusals, later), None);
        // One that was refused after it is kept.
        let sent = later + MICRO;
        refusals.keep(&key(), REQUEST, refused(SECOND), at(sent));
        assert_eq!(wait_at(&refusals, sent), Some(1_000_000));
    });
}
