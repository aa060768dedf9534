//! Promises of the lines of a process under every schedule of threads.

use std::{
    pin::Pin,
    task::{Context, Poll, Waker},
    time::Duration,
};

use crate::{
    Limiter, Policy,
    decision::{Answer, Decision},
    sync::{Thread, advance, each, each_bounded, with},
};

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3_600);
const LINE: Policy = Policy::sliding_window("line", SECOND, 1);
const FLIGHT: Policy = Policy::concurrency_limit("flight", 1);

type Call = Pin<Box<dyn Future<Output = Answer> + Send>>;

/// Returns a call that may wait and has not arrived yet.
fn patient(limiter: &Limiter, policy: &'static Policy) -> Call {
    let limiter = limiter.clone();
    Box::pin(async move { limiter.check(policy, "alice").max_wait(HOUR).await })
}

/// Starts a call, which has to wait.
fn arrive(limiter: &Limiter, policy: &'static Policy) -> Call {
    let mut call = patient(limiter, policy);
    assert!(poll(&mut call).is_none());
    call
}

/// Polls a call that is woken until it sleeps again.
fn poll(call: &mut Call) -> Option<Decision> {
    let mut context = Context::from_waker(Waker::noop());
    (0..9).find_map(|_| match call.as_mut().poll(&mut context) {
        Poll::Ready(answer) => Some(answer.expect("an admission")),
        Poll::Pending => None,
    })
}

/// Awaits a future that is ready.
fn now<T>(future: impl Future<Output = T>) -> T {
    match Box::pin(future).as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("memory needs no await"),
    }
}

fn take(limiter: &Limiter, policy: &Policy) -> Decision {
    now(async { limiter.check(policy, "alice").await }).expect("room")
}

/// Nobody waits any more, and no turn lies ahead: after a period there is room.
fn assert_at_rest(limiter: &Limiter) {
    assert!(limiter.inner.queues.is_empty());
    advance(SECOND);
    take(limiter, &LINE);
}

#[test]
fn a_call_that_leaves_a_reset_and_a_wake_up_at_once_make_nobody_later() {
    each_bounded(|| {
        let limiter = Limiter::in_memory();
        take(&limiter, &LINE);
        let [mut first, second, mut third] = [(); 3].map(|()| arrive(&limiter, &LINE));
        let resetting = limiter.clone();
        let others: [Thread<()>; 2] = [
            Box::new(move || drop(second)),
            Box::new(move || now(resetting.reset(&LINE, "alice")).expect("memory")),
        ];
        let mut has_passed = false;
        let passes = &mut has_passed;
        with(others, || {
            advance(SECOND);
            *passes = poll(&mut first).is_some();
        });
        assert!(has_passed || poll(&mut first).is_some());
        // It has the turn of the second.
        advance(SECOND);
        assert!(poll(&mut third).is_some());
        assert_at_rest(&limiter);
    });
}

#[test]
fn a_refund_reaches_a_call_that_arrives_at_once() {
    each(|| {
        let limiter = Limiter::in_memory();
        let charge = take(&limiter, &LINE);
        let mut call = patient(&limiter, &LINE);
        let refund: Thread<()> = Box::new(move || charge.settle(0));
        let mut passed = None;
        let passes = &mut passed;
        with([refund], || *passes = poll(&mut call));
        let passed = passed.or_else(|| poll(&mut call));
        assert!(passed.expect("there is room").waited().is_zero());
        assert_at_rest(&limiter);
    });
}

#[test]
fn calls_that_arrive_and_leave_at_once_have_one_turn_each() {
    each_bounded(|| {
        let limiter = Limiter::in_memory();
        take(&limiter, &LINE);
        let leaving = arrive(&limiter, &LINE);
        let [mut one, mut other] = [(); 2].map(|()| patient(&limiter, &LINE));
        let others: [Thread<Option<Call>>; 2] = [
            Box::new(move || {
                assert!(poll(&mut other).is_none());
                Some(other)
            }),
            Box::new(move || {
                drop(leaving);
                None
            }),
        ];
        let mut calls = with(others, || {
            assert!(poll(&mut one).is_none());
            Some(one)
        });
        for waiting in [1, 0] {
            advance(SECOND);
            calls.retain_mut(|call| call.as_mut().is_some_and(|call| poll(call).is_none()));
            assert_eq!(calls.len(), waiting);
        }
        assert_at_rest(&limiter);
    });
}

#[test]
fn a_permit_that_is_free_at_once_with_an_arrival_is_not_missed() {
    each_bounded(|| {
        let limiter = Limiter::in_memory();
        let held = take(&limiter, &FLIGHT);
        let leaving = arrive(&limiter, &FLIGHT);
        let mut call = patient(&limiter, &FLIGHT);
        let others: [Thread<()>; 2] =
            [Box::new(move || drop(held)), Box::new(move || drop(leaving))];
        let mut passed = None;
        let passes = &mut passed;
        with(others, || *passes = poll(&mut call));
        let passed = passed.or_else(|| poll(&mut call));
        assert!(passed.expect("a permit").has_permit());
        assert!(limiter.inner.queues.is_empty());
    });
}
