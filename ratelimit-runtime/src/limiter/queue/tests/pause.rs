//! A line that a pause has moved.

use super::*;

/// The answer that has the turns behind the first one may be lost.
#[test]
fn a_line_that_a_pause_has_moved_stands_still_until_all_its_turns_are_known() {
    for is_remote in [true, false] {
        let mut seats = TestQueue::of(is_remote, &[('a', 2, 1), ('b', 3, 1)]);
        let at = |second: u64| Timestamp::new(second * 1_000_000);
        let standing = |turn: u64, now: u64| Standing {
            at: at(turn),
            turn: Micros::new((turn - now) * 1_000_000),
            has_room: true,
        };
        let first = seats.begin_check(seats.at(1));
        let asked: Vec<_> = seats.queue.turns();
        assert!(seats.stands(&first, standing(5, 1), seats.at(1)));
        assert_eq!(seats.end_check(seats.at(1)), ['b']);
        assert_eq!(seats.order(), [('b', 3), ('a', 5)]);
        // The turn of `b` comes before the answer.
        assert_eq!(seats.step('b', 3), Next::Check);
        let known = seats.begin_check(seats.at(3));
        let unmoved = Standing { turn: Micros::ZERO, ..standing(3, 3) };
        assert!(seats.stands(&known, unmoved, seats.at(3)));
        seats.end_check(seats.at(3));
        assert_eq!(seats.step('b', 3), Next::Sleep(seats.at(4)));
        seats.queue.receive_turns(&asked[1..], &[Some(at(6))]);
        assert_eq!(seats.order(), [('a', 5), ('b', 6)]);
        assert_eq!(seats.woken(), ['b', 'a']);
        let first = seats.begin_check(seats.at(4));
        assert!(!seats.stands(&first, standing(5, 4), seats.at(4)));
        seats.end_check(seats.at(4));
        assert_eq!(seats.step_at('a', seats.at(5) - MILLI), Next::Sleep(seats.at(5)));
        seats.pass('a');
        // A line that ends is forgotten with its move.
        let first = seats.begin_check(seats.at(5));
        assert!(seats.stands(&first, standing(9, 5), seats.at(5)));
        assert_eq!(seats.ask_anew(|_| true), "b");
        seats.add('c', 5, 1, SECOND * 5);
        seats.queue.line.seen = Some(seats.at(10));
        assert_eq!(seats.step('c', 10), Next::Pass);
    }
}

#[test]
fn calls_whose_turns_a_pause_has_moved_beyond_their_waits_ask_anew() {
    let mut seats = TestQueue::new(&[('a', 2, 1), ('b', 3, 1)]);
    let asked = seats.queue.turns();
    let late = [2, 120].map(|second| Some(Timestamp::new(second * 1_000_000)));
    seats.queue.receive_turns(&asked, &late);
    assert_eq!(seats.asked_anew(), "b");
    assert_eq!(seats.order(), [('a', 2)]);
}
