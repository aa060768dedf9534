//! The naps that a call takes whose turn has come, before it passes others.

use super::*;

#[test]
fn calls_of_one_instant_pass_in_the_order_of_their_arrival() {
    let mut seats = TestQueue::local(&[('a', 1, 1), ('b', 1, 1), ('c', 1, 1)]);
    let now = seats.at(1);
    assert_eq!(seats.step_at('a', now - MILLI), Next::Check);
    seats.begin_check(now - MILLI);
    seats.end_check(now - MILLI);
    assert_eq!(seats.step_at('a', now - MILLI), Next::Sleep(now));
    let after_others = Next::Sleep(now + NAP);
    assert_eq!(seats.step_at('b', now), after_others);
    assert_eq!(seats.step('a', 1), Next::Pass);
    assert_eq!(seats.woken(), ['a']);
    // A process that stands still for long has slept for one nap.
    let now = now + SECOND / 2;
    for nap in [0, 1] {
        let nap = now + NAP * nap;
        assert_eq!(seats.step_at('b', nap), Next::Sleep(nap + NAP));
        assert_eq!(seats.step_at('c', nap), Next::Sleep(nap + NAP));
    }
    // The future of the first is not polled. Nobody waits for it once more.
    let now = now + 2 * NAP;
    for name in ['b', 'c', 'a'] {
        let step = seats.queue.step(&waiter(name, 60 * SECOND), &POLICY, now);
        assert!(matches!(step, NextStep::End(decided) if decided.outcome.unwrap().admitted));
    }
    assert!(seats.queue.calls.is_empty());
}

#[test]
fn a_call_passes_after_its_naps_although_others_leave_the_line_behind_it() {
    let leaving = ['d', 'e', 'f'];
    let mut seats = TestQueue::local(&[('a', 1, 1), ('b', 1, 1)]);
    for name in leaving {
        seats.add(name, 9, 2, Duration::ZERO);
    }
    let mut now = seats.at(1);
    for name in leaving {
        assert_eq!(seats.step_at('b', now), Next::Sleep(now + NAP));
        seats.leave(name);
        now += NAP;
    }
    assert_eq!(seats.step_at('b', now), Next::Pass);
}

#[test]
fn the_next_first_call_is_given_all_naps() {
    let mut seats = TestQueue::local(&[('a', 1, 1), ('b', 1, 1), ('c', 1, 1)]);
    let now = seats.at(1);
    assert_eq!(seats.step_at('c', now), Next::Sleep(now + NAP));
    seats.leave('a');
    for nap in 1..4 {
        let now = now + NAP * nap;
        assert_eq!(seats.step_at('c', now), Next::Sleep(now + NAP));
    }
    assert_eq!(seats.step_at('c', now + NAP * 4), Next::Pass);
}

/// It is blocked while its turn comes, and then dropped.
#[test]
fn a_call_that_others_have_passed_gives_its_turn_back_if_it_leaves() {
    let mut seats = TestQueue::local(&[('a', 1, 1), ('b', 1, 1)]);
    let a = seats.turn('a').waiter;
    for nap in 0..=3 {
        let now = seats.at(1) + NAP * nap;
        assert_eq!(seats.step_at('b', now) == Next::Pass, nap == 3);
    }
    let now = seats.at(1) + NAP * 3;
    seats.queue.step(&waiter('b', 60 * SECOND), &POLICY, now);
    seats.queue.withdraw(&a);
    let freed: Vec<_> = seats.queue.after.freed.iter().map(|turn| name(&turn.waiter)).collect();
    assert_eq!(freed, ['a']);
    assert!(seats.queue.calls.is_empty());
}
