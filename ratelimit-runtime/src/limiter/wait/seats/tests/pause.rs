//! A line that a pause has moved.

use super::*;

/// The answer that has the turns behind the first one may be lost.
#[test]
fn a_line_that_a_pause_has_moved_stands_still_until_all_its_turns_are_known() {
    for is_remote in [true, false] {
        let mut seats = TestLine::of(is_remote, &[('a', 2, 1), ('b', 3, 1)]);
        let at = |second: u64| Timestamp::new(second * 1_000_000);
        let standing = |now: u64| Standing {
            at: at(5),
            turn: Micros::new((5 - now) * 1_000_000),
            has_room: true,
        };
        for now in [1, 2, 3] {
            let first = seats.begin_check(seats.at(now));
            assert!(seats.line.stands(&first, standing(now), seats.at(now), seats.at(now)));
            seats.line.end_check(seats.at(now));
            // The turn of `b` came before the answer.
            assert_eq!(
                seats.step('b', 3.max(now)),
                [NextStep::Check, NextStep::Check, NextStep::Sleep(Some(seats.at(4))),]
                    [usize::try_from(now).unwrap() - 1]
            );
        }
        assert_eq!(seats.order(), [('a', 5), ('b', 3)]);
        let asked: Vec<_> = seats.line.seats().cloned().collect();
        seats.line.move_to(&asked, &[Some(at(5)), Some(at(6))]);
        assert_eq!(seats.order(), [('a', 5), ('b', 6)]);
        let first = seats.begin_check(seats.at(4));
        assert!(!seats.line.stands(&first, standing(4), seats.at(4), seats.at(4)));
        seats.line.end_check(seats.at(4));
        assert_eq!(seats.step_at('a', seats.at(5) - MILLI), NextStep::Sleep(Some(seats.at(5))));
        seats.line.pass(&'a').unwrap();
        // A line that ends is forgotten with its move.
        let first = seats.begin_check(seats.at(5));
        let later = Standing { at: at(9), turn: Micros::new(4_000_000), has_room: true };
        assert!(seats.line.stands(&first, later, seats.at(5), seats.at(5)));
        seats.line.take_all(|_| true);
        seats.add('c', 5, 1, SECOND * 5);
        seats.line.seen = Some(seats.at(10));
        assert_eq!(seats.step('c', 10), NextStep::End);
    }
}
