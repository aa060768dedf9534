//! What holds of a breaker however threads meet at it.

use super::*;
use crate::sync::{advance, each, with};

const LOST: UnavailableReason = UnavailableReason::Disconnected;

fn no_name(_: usize) -> String {
    String::new()
}

fn fail(breakers: &Breakers, times: u32) {
    for _ in 0..times {
        breakers.permit(0).expect("leave to ask").failed(LOST, no_name);
    }
}

fn open() -> Arc<Breakers> {
    let breakers = Arc::new(Breakers::default());
    fail(&breakers, FAILURES);
    breakers
}

/// Nobody is shut out for longer than the longest pause, and what is open is known to be.
fn assert_well(breakers: &Breakers) {
    let breaker = breakers.of(0);
    let failures = breaker.failures.load(Ordering::Relaxed);
    assert_eq!(breaker.state().open.is_some(), failures >= FAILURES, "{failures} failures");
    advance(LONGEST_PAUSE);
    assert!(breakers.permit(0).is_ok());
}

/// What a call may do that has leave to look.
type End = fn(Permit);

fn dropped(_: Permit) {}

fn failed(permit: Permit) {
    permit.failed(LOST, no_name);
}

fn succeeded(permit: Permit) {
    permit.succeeded(no_name);
}

fn look(breakers: &Breakers, looking: &Mutex<u32>, end: End) {
    let Ok(permit) = breakers.permit(0) else { return };
    if permit.probe.is_some() {
        *looking.lock().unwrap() += 1;
        // Between the two locks another thread may come.
        assert_eq!(*looking.lock().unwrap(), 1, "calls that look at once");
        *looking.lock().unwrap() -= 1;
    }
    end(permit);
}

fn one_at_a_time(ends: [End; 3]) {
    each(move || {
        let (breakers, looking) = (open(), Arc::new(Mutex::new(0)));
        advance(FIRST_PAUSE);
        let [first, second, own] = ends;
        let other = |end: End| -> Box<dyn FnOnce()> {
            let (breakers, looking) = (Arc::clone(&breakers), Arc::clone(&looking));
            Box::new(move || look(&breakers, &looking, end))
        };
        with([other(first), other(second)], || look(&breakers, &looking, own));
        assert_well(&breakers);
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
        let breakers = Arc::new(Breakers::default());
        fail(&breakers, FAILURES - 2);
        let [one, other, own] = [(); 3].map(|()| breakers.permit(0).unwrap());
        with(
            [
                Box::new(move || failed(one)) as Box<dyn FnOnce()>,
                Box::new(move || succeeded(other)),
            ],
            || failed(own),
        );
        assert_well(&breakers);
    });
}

#[test]
fn an_answer_of_a_call_under_way_and_a_probe_leave_it_open_or_closed() {
    each(|| {
        let breakers = Arc::new(Breakers::default());
        let under_way = breakers.permit(0).unwrap();
        fail(&breakers, FAILURES);
        advance(FIRST_PAUSE);
        let probe = breakers.permit(0).unwrap();
        assert!(probe.probe.is_some());
        with([Box::new(move || succeeded(under_way)) as Box<dyn FnOnce()>], || failed(probe));
        assert_well(&breakers);
    });
}

#[test]
fn threads_that_meet_a_server_at_once_know_the_same_of_it() {
    each(|| {
        let breakers = Arc::new(Breakers::default());
        let other = Arc::clone(&breakers);
        let fail = |breakers: &Breakers| failed(breakers.permit(1).unwrap());
        with([Box::new(move || fail(&other)) as Box<dyn FnOnce()>], || fail(&breakers));
        assert_eq!(breakers.of(1).failures.load(Ordering::Relaxed), 2);
    });
}
