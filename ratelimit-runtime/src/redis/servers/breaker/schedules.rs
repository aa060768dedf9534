//! Properties of a breaker under every schedule of threads.

use super::*;
use crate::sync::{Thread, advance, each, with};

const LOST: UnavailableReason = UnavailableReason::Disconnected;

fn new() -> Arc<Breaker> {
    Breaker::new(String::new())
}

fn fail(breaker: &Arc<Breaker>, times: u32) {
    for _ in 0..times {
        breaker.guard(false).expect("a permitted command").failed(LOST);
    }
}

fn open() -> Arc<Breaker> {
    let breaker = new();
    fail(&breaker, FAILURE_THRESHOLD);
    breaker
}

/// Asserts that a probe is permitted after the longest pause, and that state and count agree.
fn assert_consistent(breaker: &Arc<Breaker>) {
    let failures = breaker.failures.load(Ordering::Relaxed);
    assert_eq!(
        breaker.state.lock().open().is_some(),
        failures >= FAILURE_THRESHOLD,
        "{failures} failures"
    );
    advance(BACKOFF.longest);
    assert!(breaker.guard(false).is_ok());
}

/// The end of a probe.
type End = fn(BreakerGuard);

fn dropped(_: BreakerGuard) {}

fn failed(guard: BreakerGuard) {
    guard.failed(LOST);
}

fn succeeded(guard: BreakerGuard) {
    guard.succeeded();
}

fn probe(breaker: &Arc<Breaker>, probing: &Mutex<u32>, end: End) {
    let Ok(guard) = breaker.guard(false) else { return };
    if guard.probe.is_some() {
        *probing.lock() += 1;
        // Another thread may run between the two locks.
        assert_eq!(*probing.lock(), 1, "concurrent probes");
        *probing.lock() -= 1;
    }
    end(guard);
}

fn one_at_a_time(ends: [End; 3]) {
    each(move || {
        let (breaker, probing) = (open(), Arc::new(Mutex::new(0)));
        advance(BACKOFF.first);
        let [first, second, own] = ends;
        let other = |end: End| -> Thread<()> {
            let (breaker, probing) = (Arc::clone(&breaker), Arc::clone(&probing));
            Box::new(move || probe(&breaker, &probing, end))
        };
        with([other(first), other(second)], || probe(&breaker, &probing, own));
        assert_consistent(&breaker);
    });
}

#[test]
fn one_probe_at_a_time_is_permitted_when_some_are_dropped() {
    one_at_a_time([dropped, failed, dropped]);
}

#[test]
fn one_probe_at_a_time_is_permitted_when_one_succeeds() {
    one_at_a_time([dropped, succeeded, failed]);
}

#[test]
fn a_reply_and_the_failure_that_opens_leave_it_open_or_closed() {
    each(|| {
        let breaker = new();
        fail(&breaker, FAILURE_THRESHOLD - 2);
        let [one, other, own] = [(); 3].map(|()| breaker.guard(false).unwrap());
        with(
            [Box::new(move || failed(one)) as Thread<()>, Box::new(move || succeeded(other))],
            || failed(own),
        );
        assert_consistent(&breaker);
    });
}

#[test]
fn a_reply_to_a_call_under_way_and_a_probe_leave_it_open_or_closed() {
    each(|| {
        let breaker = new();
        let under_way = breaker.guard(false).unwrap();
        fail(&breaker, FAILURE_THRESHOLD);
        advance(BACKOFF.first);
        let probe = breaker.guard(false).unwrap();
        assert!(probe.probe.is_some());
        with([Box::new(move || succeeded(under_way)) as Thread<()>], || failed(probe));
        assert_consistent(&breaker);
    });
}
