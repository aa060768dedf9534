//! What holds of a breaker however threads meet at it.

use super::*;
use crate::sync::{advance, each, with};

const LOST: UnavailableReason = UnavailableReason::Disconnected;

fn new() -> Arc<Breaker> {
    Breaker::new(String::new())
}

fn fail(breaker: &Arc<Breaker>, times: u32) {
    for _ in 0..times {
        breaker.trial().expect("leave to ask").failed(LOST);
    }
}

fn open() -> Arc<Breaker> {
    let breaker = new();
    fail(&breaker, FAILURES);
    breaker
}

/// Nobody is shut out for longer than the longest pause, and what is open is known to be.
fn assert_well(breaker: &Arc<Breaker>) {
    let failures = breaker.failures.load(Ordering::Relaxed);
    assert_eq!(breaker.state().open.is_some(), failures >= FAILURES, "{failures} failures");
    advance(LONGEST_PAUSE);
    assert!(breaker.trial().is_ok());
}

/// What a call may do that has leave to look.
type End = fn(Trial);

fn dropped(_: Trial) {}

fn failed(trial: Trial) {
    trial.failed(LOST);
}

fn succeeded(trial: Trial) {
    trial.succeeded();
}

fn look(breaker: &Arc<Breaker>, looking: &Mutex<u32>, end: End) {
    let Ok(trial) = breaker.trial() else { return };
    if trial.probe.is_some() {
        *looking.lock().unwrap() += 1;
        // Between the two locks another thread may come.
        assert_eq!(*looking.lock().unwrap(), 1, "calls that look at once");
        *looking.lock().unwrap() -= 1;
    }
    end(trial);
}

fn one_at_a_time(ends: [End; 3]) {
    each(move || {
        let (breaker, looking) = (open(), Arc::new(Mutex::new(0)));
        advance(FIRST_PAUSE);
        let [first, second, own] = ends;
        let other = |end: End| -> Box<dyn FnOnce()> {
            let (breaker, looking) = (Arc::clone(&breaker), Arc::clone(&looking));
            Box::new(move || look(&breaker, &looking, end))
        };
        with([other(first), other(second)], || look(&breaker, &looking, own));
        assert_well(&breaker);
    });
}

#[test]
fn one_call_at_a_time_looks_when_some_are_dropped() {
    one_at_a_time([dropped, failed, dropped]);
}

#[test]
fn one_call_at_a_time_looks_when_one_finds_the_server() {
    one_at_a_time([dropped, succeeded, failed]);
}

#[test]
fn an_answer_and_the_failure_that_opens_leave_it_open_or_closed() {
    each(|| {
        let breaker = new();
        fail(&breaker, FAILURES - 2);
        let [one, other, own] = [(); 3].map(|()| breaker.trial().unwrap());
        with(
            [
                Box::new(move || failed(one)) as Box<dyn FnOnce()>,
                Box::new(move || succeeded(other)),
            ],
            || failed(own),
        );
        assert_well(&breaker);
    });
}

#[test]
fn an_answer_of_a_call_under_way_and_a_probe_leave_it_open_or_closed() {
    each(|| {
        let breaker = new();
        let under_way = breaker.trial().unwrap();
        fail(&breaker, FAILURES);
        advance(FIRST_PAUSE);
        let probe = breaker.trial().unwrap();
        assert!(probe.probe.is_some());
        with([Box::new(move || succeeded(under_way)) as Box<dyn FnOnce()>], || failed(probe));
        assert_well(&breaker);
    });
}
