//! Questions for the first turn of a queue.

use super::super::turn_line::SEEN;
use super::*;
use crate::error::UnavailableReason;

#[test]
fn the_first_call_asks_for_its_turn_once_a_second_and_others_only_when_it_has_not() {
    let mut seats = TestQueue::new(&[('a', 3, 1), ('b', 3, 1), ('c', 4, 1)]);
    assert_eq!(seats.step('a', 0), Next::Sleep(seats.at(1)));
    assert_eq!(seats.step('b', 0), Next::Sleep(seats.at(3)));
    assert_eq!(seats.step('a', 1), Next::Check);
    assert_eq!(seats.step('b', 1), Next::Sleep(seats.at(3)));
    // Its future is not polled.
    assert_eq!(seats.step('b', 3), Next::Check);
    let now = seats.at(3);
    let first = seats.begin_check(now);
    let answered = Next::Sleep(seats.at(4));
    assert_eq!([seats.step('a', 3), seats.step('b', 3)], [answered; 2]);
    let standing = Standing { at: first.outcome.mark.at, turn: Micros::ZERO, has_room: true };
    seats.stands(&first, standing, now);
    assert_eq!(seats.end_check(now), ['a', 'b']);
    let after_others = Next::Sleep(now + NAP);
    assert_eq!([seats.step('a', 3), seats.step('b', 3)], [Next::Pass, after_others]);
    // Seen with the first one.
    seats.pass('a');
    let (_, moved) = seats.pass('b');
    assert_eq!(moved, ['c']);
    assert_eq!(seats.step_at('c', now + SECOND / 2), Next::Sleep(seats.at(4)));
    assert_eq!(seats.step('c', 4), Next::Check);
}

/// The answer to a later call tells nothing of the turns before it.
#[test]
fn a_call_waits_for_the_check_of_the_turns_before_its_own() {
    let mut seats = TestQueue::new(&[('a', 0, 1)]);
    seats.add('b', 0, 1, SECOND / 2);
    let now = seats.at(1);
    assert_eq!([seats.step('a', 1), seats.step('b', 1)], [Next::Check; 2]);
    let first = seats.begin_check(now);
    assert_eq!(seats.step('b', 1), Next::Sleep(now + SEEN));
    assert_eq!(seats.step('b', 2), Next::Check);
    let standing = Standing { at: first.outcome.mark.at, turn: Micros::ZERO, has_room: true };
    seats.stands(&first, standing, now);
    assert_eq!(seats.end_check(now), ['a', 'b']);
    let after_others = Next::Sleep(now + NAP);
    assert_eq!([seats.step('a', 1), seats.step('b', 1)], [Next::Pass, after_others]);
}

#[test]
fn a_turn_that_has_moved_comes_earlier_and_never_later_and_the_next_call_asks_for_its_own() {
    let mut seats = TestQueue::new(&[('a', 5, 1), ('b', 6, 1), ('c', 7, 1)]);
    let stands = |seconds: u64| Standing {
        at: Timestamp::new(2_000_000),
        turn: Micros::new(seconds * 1_000_000),
        has_room: true,
    };
    let now = seats.at(0);
    seats.queue.hurry();
    assert_eq!(seats.woken(), ['a']);
    assert_eq!(seats.step('a', 0), Next::Check);
    for turn in [2, 8] {
        let first = seats.begin_check(now);
        seats.stands(&first, stands(turn), now);
        assert_eq!(seats.end_check(now), ['a']);
        assert_eq!(seats.order(), [('a', 2), ('b', 6), ('c', 7)]);
        if turn == 2 {
            assert!(seats.queue.line.asked.unwrap().has_moved);
        }
    }
    assert_eq!(seats.step('a', 0), Next::Sleep(seats.at(1)));
    // The second answer moved nothing.
    seats.pass('a');
    assert_eq!(seats.step('b', 0), Next::Sleep(seats.at(1)));
    let first = seats.begin_check(now);
    seats.stands(&first, stands(2), now);
    seats.end_check(now);
    seats.pass('b');
    assert_eq!(seats.step('c', 0), Next::Check);
}

/// A refund may have come between the answer of memory and its receipt.
#[test]
fn in_memory_each_call_that_gets_first_asks_once_whether_it_may_come_nearer() {
    let mut seats = TestQueue::local(&[('a', 3, 1), ('b', 4, 2), ('c', 5, 1)]);
    for (first, others) in [('a', "bc"), ('b', "c"), ('c', "")] {
        assert_eq!(seats.step(first, 0), Next::Check);
        for other in others.chars() {
            assert!(matches!(seats.step(other, 0), Next::Sleep(_)));
        }
        seats.begin_check(seats.at(0));
        seats.end_check(seats.at(0));
        assert!(matches!(seats.step(first, 2), Next::Sleep(_)));
        // One leaves the line, the others pass.
        if first == 'b' { drop(seats.leave(first)) } else { drop(seats.pass(first)) }
    }
}

#[test]
fn under_another_policy_each_call_that_gets_first_on_redis_asks_too() {
    let mut seats = TestQueue::new(&[('a', 3, 1), ('b', 4, 1), ('c', 5, 1)]);
    assert!(matches!(seats.step('a', 0), Next::Sleep(_)));
    seats.queue.hurry_each();
    assert_eq!(seats.woken(), ['a']);
    for first in ['a', 'b', 'c'] {
        assert_eq!(seats.step(first, 0), Next::Check);
        seats.begin_check(seats.at(0));
        seats.end_check(seats.at(0));
        assert!(matches!(seats.step(first, 0), Next::Sleep(_)));
        seats.pass(first);
    }
}

#[test]
fn a_store_that_does_not_answer_is_asked_once_a_second() {
    let mut seats = TestQueue::new(&[('a', 9, 1)]);
    assert_eq!(seats.step('a', 1), Next::Check);
    seats.begin_check(seats.at(1));
    seats.end_check(seats.at(1));
    assert_eq!(seats.step('a', 1), Next::Sleep(seats.at(2)));
    assert_eq!(seats.step('a', 2), Next::Check);
    // Its turn does not wait for it.
    assert_eq!(seats.step('a', 9), Next::Check);
}

#[tokio::test(start_paused = true)]
async fn a_check_that_fails_takes_only_turns_that_are_not_known_any_more() {
    let mut seats = TestQueue::new(&[('a', 0, 1), ('b', 0, 1), ('c', 2, 1)]);
    let mut fails = || {
        let first = seats.begin_check(Instant::now());
        let failed = Err(UnavailableReason::Disconnected);
        seats.queue.receive_standing(&first, &POLICY, failed, Instant::now());
        seats.asked_anew()
    };
    tokio::time::advance(SEEN.saturating_sub(MILLI)).await;
    assert_eq!(fails(), "");
    tokio::time::advance(MILLI).await;
    assert_eq!(fails(), "ab");
    assert_eq!(seats.order().len(), 1);
}
