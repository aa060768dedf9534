mod pause;

use super::*;
use crate::{
    request::{Charged, Mark},
    time::{Micros, Timestamp},
};

const SECOND: Duration = Duration::from_secs(1);
const MILLI: Duration = Duration::from_millis(1);
const POLICY: Policy = Policy::sliding_window("p", SECOND, 1).weighted();

/// A line whose turns are some seconds after its beginning.
struct TestLine {
    start: Instant,
    line: Line<char>,
}

impl TestLine {
    /// A line on Redis.
    fn new(waiters: &[(char, u64, u32)]) -> Self {
        Self::of(true, waiters)
    }

    /// A line in memory.
    fn local(waiters: &[(char, u64, u32)]) -> Self {
        Self::of(false, waiters)
    }

    fn of(is_remote: bool, waiters: &[(char, u64, u32)]) -> Self {
        let mut seats = Self { start: Instant::now(), line: Line::new(is_remote) };
        for (waiter, turn, cost) in waiters {
            seats.add(*waiter, *turn, *cost, Duration::ZERO);
        }
        seats
    }

    fn at(&self, seconds: u64) -> Instant {
        self.start + SECOND * u32::try_from(seconds).unwrap()
    }

    /// Adds a call whose reply came so late.
    fn add(&mut self, waiter: char, turn: u64, cost: u32, late: Duration) -> Vec<char> {
        let claim = Claim { policy: POLICY, cost, id: None };
        self.add_claim(waiter, turn, &claim, late)
    }

    fn add_claim(&mut self, waiter: char, turn: u64, claim: &Claim, late: Duration) -> Vec<char> {
        let mark = Mark {
            at: Timestamp::new(turn * 1_000_000),
            charged: Charged::Generation(u64::from(u32::from(waiter))),
        };
        let seat = Seat {
            outcome: Outcome::admitted(0, Micros::ZERO, Micros::ZERO, mark),
            turn: self.at(turn) + late,
            promised: self.start + late,
            claim: *claim,
            is_asleep: false,
            is_moved: false,
            waiter,
        };
        self.line.insert(seat).1
    }

    /// Removes a call. Returns the second whose turn is free, and the calls that look again.
    fn leave(&mut self, waiter: char) -> (u64, Vec<char>) {
        let (freed, moved) = self.line.leave(&waiter).unwrap();
        (freed.outcome.mark.at.get() / 1_000_000, moved)
    }

    /// Returns the calls with the seconds of their turns.
    fn order(&self) -> Vec<(char, u64)> {
        self.line
            .seats
            .iter()
            .map(|seat| (seat.waiter, (seat.turn - self.start).as_secs()))
            .collect()
    }

    fn begin_check(&mut self, now: Instant) -> Seat<char> {
        self.line.begin_check(now).unwrap().clone()
    }

    fn step(&mut self, waiter: char, seconds: u64) -> NextStep {
        self.step_at(waiter, self.at(seconds))
    }

    fn step_at(&mut self, waiter: char, now: Instant) -> NextStep {
        self.line.step(&waiter, now, &mut Vec::new())
    }
}

#[test]
fn a_call_that_leaves_passes_its_turn_on_to_those_behind_it_with_the_same_charge() {
    let mut seats =
        TestLine::new(&[('a', 1, 1), ('b', 2, 1), ('c', 3, 5), ('d', 4, 1), ('e', 5, 1)]);
    assert_eq!(seats.leave('b'), (5, vec!['d', 'e']));
    assert_eq!(seats.order(), [('a', 1), ('d', 2), ('c', 3), ('e', 4)]);
    // Nobody behind it takes five units.
    assert_eq!(seats.leave('c'), (3, vec![]));
    assert_eq!(seats.leave('a'), (4, vec!['d', 'e']));
    assert_eq!(seats.order(), [('d', 1), ('e', 2)]);
    assert!(seats.line.leave(&'a').is_none());
}

#[test]
fn a_turn_under_a_request_id_is_passed_on_to_nobody() {
    let mut seats = TestLine::new(&[('a', 1, 1)]);
    for (waiter, turn, id) in [('b', 2, Some(7)), ('c', 3, None), ('d', 4, Some(7))] {
        seats.add_claim(waiter, turn, &Claim { policy: POLICY, cost: 1, id }, Duration::ZERO);
    }
    assert_eq!(seats.leave('b'), (2, vec![]));
    assert_eq!(seats.leave('a'), (3, vec!['c']));
    assert_eq!(seats.order(), [('c', 1), ('d', 4)]);
}

#[test]
fn a_turn_of_another_policy_is_not_passed_on() {
    let mut seats = TestLine::new(&[('a', 1, 1)]);
    let stricter = POLICY.tier(SECOND * 60, 2);
    seats.add_claim('b', 2, &Claim { policy: stricter, cost: 1, id: None }, Duration::ZERO);
    assert_eq!(seats.leave('a'), (1, vec!['b']));
    assert_eq!(seats.order(), [('b', 2)]);
}

#[test]
fn a_late_reply_makes_nobody_overtake() {
    let mut seats = TestLine::new(&[]);
    seats.add('a', 2, 1, SECOND * 3);
    // Its turn is later, and its reply was faster.
    assert_eq!(seats.add('b', 3, 1, Duration::ZERO), ['a']);
    assert_eq!(seats.order(), [('a', 3), ('b', 3)]);
    // A reply that comes after that of a later turn.
    assert!(seats.add('c', 1, 1, SECOND * 9).is_empty());
    assert_eq!(seats.order(), [('c', 3), ('a', 3), ('b', 3)]);
}

#[test]
fn calls_of_one_instant_pass_in_the_order_of_their_arrival() {
    let mut seats = TestLine::local(&[('a', 1, 1), ('b', 1, 1), ('c', 1, 1)]);
    let now = seats.at(1);
    assert_eq!(seats.step_at('a', now - MILLI), NextStep::Check);
    seats.line.begin_check(now - MILLI).unwrap();
    seats.line.end_check(now - MILLI);
    assert_eq!(seats.step_at('a', now - MILLI), NextStep::Sleep(Some(now)));
    let mut woken = Vec::new();
    let after_others = NextStep::Sleep(Some(now + NAP));
    assert_eq!(seats.line.step(&'b', now, &mut woken), after_others);
    assert_eq!(seats.step('a', 1), NextStep::End);
    assert_eq!(woken, ['a']);
    // A process that stands still for long has slept for one nap.
    let now = now + SECOND / 2;
    for nap in [0, 1] {
        let nap = now + NAP * nap;
        assert_eq!(seats.step_at('b', nap), NextStep::Sleep(Some(nap + NAP)));
        assert_eq!(seats.step_at('c', nap), NextStep::Sleep(Some(nap + NAP)));
    }
    // The future of the first is not polled. Nobody waits for it once more.
    let now = now + 2 * NAP;
    assert_eq!(seats.step_at('b', now), NextStep::End);
    seats.line.pass(&'b').unwrap();
    assert_eq!(seats.step_at('c', now), NextStep::End);
    assert_eq!(seats.step_at('a', now), NextStep::End);
}

#[test]
fn the_first_call_asks_for_its_turn_once_a_second_and_others_only_when_it_has_not() {
    let mut seats = TestLine::new(&[('a', 3, 1), ('b', 3, 1), ('c', 4, 1)]);
    assert_eq!(seats.step('a', 0), NextStep::Sleep(Some(seats.at(1))));
    assert_eq!(seats.step('b', 0), NextStep::Sleep(Some(seats.at(3))));
    assert_eq!(seats.step('a', 1), NextStep::Check);
    assert_eq!(seats.step('b', 1), NextStep::Sleep(Some(seats.at(3))));
    // Its future is not polled.
    assert_eq!(seats.step('b', 3), NextStep::Check);
    let now = seats.at(3);
    let first = seats.begin_check(now);
    let answered = NextStep::Sleep(Some(seats.at(4)));
    assert_eq!([seats.step('a', 3), seats.step('b', 3)], [answered; 2]);
    let standing = Standing { at: first.outcome.mark.at, turn: Micros::ZERO, has_room: true };
    seats.line.stands(&first, standing, now, now);
    assert_eq!(seats.line.end_check(now), ['a', 'b']);
    let after_others = NextStep::Sleep(Some(now + NAP));
    assert_eq!([seats.step('a', 3), seats.step('b', 3)], [NextStep::End, after_others]);
    // Seen with the first one.
    seats.line.pass(&'a').unwrap();
    let (_, moved) = seats.line.pass(&'b').unwrap();
    assert_eq!(moved, ['c']);
    assert_eq!(seats.step_at('c', now + SECOND / 2), NextStep::Sleep(Some(seats.at(4))));
    assert_eq!(seats.step('c', 4), NextStep::Check);
}

/// The answer to a later call tells nothing of the turns before it.
#[test]
fn a_call_waits_for_the_check_of_the_turns_before_its_own() {
    let mut seats = TestLine::new(&[('a', 0, 1)]);
    seats.add('b', 0, 1, SECOND / 2);
    let now = seats.at(1);
    assert_eq!([seats.step('a', 1), seats.step('b', 1)], [NextStep::Check; 2]);
    let first = seats.begin_check(now);
    assert_eq!(seats.step('b', 1), NextStep::Sleep(Some(now + SEEN)));
    assert_eq!(seats.step('b', 2), NextStep::Check);
    let standing = Standing { at: first.outcome.mark.at, turn: Micros::ZERO, has_room: true };
    seats.line.stands(&first, standing, now, now);
    assert_eq!(seats.line.end_check(now), ['a', 'b']);
    let after_others = NextStep::Sleep(Some(now + NAP));
    assert_eq!([seats.step('a', 1), seats.step('b', 1)], [NextStep::End, after_others]);
}

#[test]
fn a_turn_that_has_moved_comes_earlier_and_never_later_and_the_next_call_asks_for_its_own() {
    let mut seats = TestLine::new(&[('a', 5, 1), ('b', 6, 1), ('c', 7, 1)]);
    let stands = |seconds: u64| Standing {
        at: Timestamp::new(2_000_000),
        turn: Micros::new(seconds * 1_000_000),
        has_room: true,
    };
    let now = seats.at(0);
    assert_eq!(seats.line.hurry(), Some('a'));
    assert_eq!(seats.step('a', 0), NextStep::Check);
    for turn in [2, 8] {
        let first = seats.begin_check(now);
        seats.line.stands(&first, stands(turn), now, now);
        assert_eq!(seats.line.end_check(now), ['a']);
        assert_eq!(seats.order(), [('a', 2), ('b', 6), ('c', 7)]);
        if turn == 2 {
            assert!(seats.line.asked.unwrap().has_moved);
        }
    }
    assert_eq!(seats.step('a', 0), NextStep::Sleep(Some(seats.at(1))));
    // The second answer moved nothing.
    seats.line.pass(&'a').unwrap();
    assert_eq!(seats.step('b', 0), NextStep::Sleep(Some(seats.at(1))));
    let first = seats.begin_check(now);
    seats.line.stands(&first, stands(2), now, now);
    seats.line.end_check(now);
    seats.line.pass(&'b').unwrap();
    assert_eq!(seats.step('c', 0), NextStep::Check);
}

/// A refund may have come between the answer of memory and its receipt.
#[test]
fn in_memory_each_call_that_gets_first_asks_once_whether_it_may_come_nearer() {
    let mut seats = TestLine::local(&[('a', 3, 1), ('b', 4, 2), ('c', 5, 1)]);
    for (first, others) in [('a', "bc"), ('b', "c"), ('c', "")] {
        assert_eq!(seats.step(first, 0), NextStep::Check);
        for other in others.chars() {
            assert!(matches!(seats.step(other, 0), NextStep::Sleep(Some(_))));
        }
        seats.line.begin_check(seats.at(0)).unwrap();
        seats.line.end_check(seats.at(0));
        assert!(matches!(seats.step(first, 2), NextStep::Sleep(Some(_))));
        // One leaves the line, the others pass.
        if first == 'b' { drop(seats.leave(first)) } else { drop(seats.line.pass(&first)) }
    }
}

#[test]
fn under_another_policy_each_call_that_gets_first_on_redis_asks_too() {
    let mut seats = TestLine::new(&[('a', 3, 1), ('b', 4, 1), ('c', 5, 1)]);
    assert!(matches!(seats.step('a', 0), NextStep::Sleep(Some(_))));
    assert_eq!(seats.line.hurry_each(), Some('a'));
    for first in ['a', 'b', 'c'] {
        assert_eq!(seats.step(first, 0), NextStep::Check);
        seats.begin_check(seats.at(0));
        seats.line.end_check(seats.at(0));
        assert!(matches!(seats.step(first, 0), NextStep::Sleep(Some(_))));
        seats.line.pass(&first).unwrap();
    }
}

#[test]
fn a_turn_shows_what_is_left_under_the_policy_of_now() {
    let mut seats = TestLine::new(&[]);
    let claim = Claim { policy: Policy::fixed_window("p", SECOND, 5), cost: 1, id: None };
    seats.add_claim('a', 1, &claim, Duration::ZERO);
    let mut seat = seats.line.pass(&'a').unwrap().0;
    (seat.outcome.remaining, seat.outcome.tier) = (3, 0);
    for (threshold, left) in [(5, 3), (9, 7), (3, 1), (1, 0)] {
        let policy = Policy::fixed_window("p", SECOND, threshold);
        assert_eq!(seat.outcome_under(&policy).remaining, left);
    }
}

/// Without entries in a log, marks of one instant are equal.
#[test]
fn of_turns_with_one_mark_the_one_that_is_asked_for_moves() {
    let mut seats = TestLine::new(&[]);
    let mark = Mark { at: Timestamp::new(9_000_000), charged: Charged::Generation(7) };
    let outcome = Outcome::admitted(0, Micros::ZERO, Micros::ZERO, mark);
    let (turn, promised) = (seats.at(9), seats.start);
    let added = [('a', 2), ('b', 1), ('c', 1)].map(|(waiter, cost)| {
        let claim = Claim { policy: POLICY, cost, id: None };
        Seat { outcome, turn, promised, claim, is_asleep: false, is_moved: false, waiter }
    });
    for seat in &added {
        seats.line.insert(seat.clone());
    }
    assert!(seats.line.has(&added[1]));
    let (now, at) = (seats.at(0), Timestamp::new(2_000_000));
    let standing = Standing { at, turn: Micros::new(2_000_000), has_room: true };
    seats.line.stands(&added[1], standing, now, now);
    assert_eq!(seats.order(), [('b', 2), ('a', 9), ('c', 9)]);
    // The other one of its cost has still its mark, and then nobody has.
    let taken = seats.line.take_all(|seat| seat.has_turn_of(&added[1]));
    assert_eq!(taken.iter().map(|seat| seat.waiter).collect::<String>(), "c");
    assert!(!seats.line.has(&added[1]) && seats.line.has(&added[0]));
}

#[test]
fn a_store_that_does_not_answer_is_asked_once_a_second() {
    let mut seats = TestLine::new(&[('a', 9, 1)]);
    assert_eq!(seats.step('a', 1), NextStep::Check);
    seats.line.begin_check(seats.at(1)).unwrap();
    seats.line.end_check(seats.at(1));
    assert_eq!(seats.step('a', 1), NextStep::Sleep(Some(seats.at(2))));
    assert_eq!(seats.step('a', 2), NextStep::Check);
    // Its turn does not wait for it.
    assert_eq!(seats.step('a', 9), NextStep::Check);
}

#[test]
fn a_line_is_dissolved_in_order_in_full_or_as_far_as_it_is_due() {
    let waiters = [('a', 1, 1), ('b', 2, 1), ('c', 3, 1)];
    let names =
        |seats: VecDeque<Seat<char>>| seats.iter().map(|seat| seat.waiter).collect::<String>();
    let mut seats = TestLine::new(&waiters);
    let now = seats.at(2);
    assert_eq!(names(seats.line.take_all(|seat| seat.turn <= now)), "ab");
    assert_eq!(seats.step('c', 0), NextStep::Check);
    assert_eq!(seats.order(), [('c', 3)]);
    assert_eq!(names(TestLine::new(&waiters).line.take_all(|_| true)), "abc");
}

/// Calls come and leave at random: nobody is later than promised, nobody overtakes one of the same charge,
/// and each turn is taken once or given back.
#[test]
fn a_check_that_fails_takes_only_turns_that_are_not_known_any_more() {
    let mut seats = TestLine::new(&[('a', 0, 1), ('b', 0, 1), ('c', 2, 1)]);
    let known_until = seats.start + SEEN;
    assert!(seats.line.take_unknown(known_until - MILLI).is_empty());
    let taken = seats.line.take_unknown(known_until);
    assert_eq!(taken.iter().map(|seat| seat.waiter).collect::<String>(), "ab");
    assert_eq!(seats.order().len(), 1);
}

#[test]
fn turns_are_passed_on_and_none_is_lost() {
    for seed in 0..200 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut seats = TestLine::new(&[]);
        let (mut promised, mut taken, mut freed) = (Vec::new(), Vec::new(), Vec::new());
        for number in 0..60_u32 {
            let waiter = char::from_u32('a' as u32 + number).unwrap();
            if random.u8(..3) > 0 || seats.order().is_empty() {
                let (turn, cost) = (u64::from(number / 3), random.u32(1..=2));
                seats.add(waiter, turn, cost, Duration::ZERO);
                promised.push((waiter, turn));
            } else {
                let order = seats.order();
                let (leaves, _) = order[random.usize(..order.len())];
                freed.push(seats.leave(leaves).0);
            }
            let order = seats.order();
            assert!(order.is_sorted_by_key(|(_, turn)| *turn));
            for cost in [1, 2] {
                let same = seats.line.seats.iter().filter(|seat| seat.claim.cost == cost);
                assert!(same.map(|seat| seat.waiter).is_sorted(), "{seed}: overtaken");
            }
            for (waiter, turn) in order {
                assert!(
                    promised.contains(&(waiter, turn))
                        || promised.iter().any(|it| it.0 == waiter && it.1 > turn)
                );
            }
        }
        while let Some((first, turn)) = seats.order().first().copied() {
            seats.line.pass(&first).unwrap();
            taken.push(turn);
        }
        taken.extend(freed);
        taken.sort_unstable();
        let mut all: Vec<u64> = promised.iter().map(|(_, turn)| *turn).collect();
        all.sort_unstable();
        assert_eq!(taken, all, "{seed}");
    }
}
