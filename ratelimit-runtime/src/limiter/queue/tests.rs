mod checks;
mod naps;
mod pause;
mod permits;

use super::{
    queued_turn::Claim,
    step::{NAP, NextStep},
    *,
};
use crate::{
    caller::Caller,
    limiter::owned_call::{Options, OwnedCall},
    request::{Charged, Mark, Outcome},
    time::Micros,
};

const SECOND: Duration = Duration::from_secs(1);
const MILLI: Duration = Duration::from_millis(1);
const POLICY: Policy = Policy::sliding_window("p", SECOND, 1);

/// The next step of a call whose turn is promised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Pass,
    Check,
    Sleep(Instant),
}

/// A queue whose turns are some seconds after its beginning.
struct TestQueue {
    start: Instant,
    queue: KeyQueue,
}

/// Returns a call that waits for so long. Its number is that of its name.
pub(super) fn waiter(name: char, max_wait: Duration) -> Arc<Waiter> {
    let call = OwnedCall {
        policy: POLICY,
        caller: Caller::from("alice"),
        observed_as: None,
        counters: None,
        options: Options { max_wait, ..Options::default() },
    };
    let mut waiter = Waiter::new("", call);
    Arc::get_mut(&mut waiter).unwrap().number = u64::from(u32::from(name));
    waiter
}

pub(super) fn name(waiter: &Arc<Waiter>) -> char {
    char::from_u32(u32::try_from(waiter.number).unwrap()).unwrap()
}

impl TestQueue {
    /// A queue on Redis.
    fn new(waiters: &[(char, u64, u32)]) -> Self {
        Self::of(true, waiters)
    }

    /// A queue in memory.
    fn local(waiters: &[(char, u64, u32)]) -> Self {
        Self::of(false, waiters)
    }

    fn of(is_remote: bool, waiters: &[(char, u64, u32)]) -> Self {
        let mut seats = Self { start: Instant::now(), queue: KeyQueue::new(is_remote, 9) };
        for (waiter, turn, cost) in waiters {
            seats.add(*waiter, *turn, *cost, Duration::ZERO);
        }
        seats
    }

    fn at(&self, seconds: u64) -> Instant {
        self.start + SECOND * u32::try_from(seconds).unwrap()
    }

    /// Returns the calls that are to look again.
    fn woken(&mut self) -> Vec<char> {
        mem::take(&mut self.queue.line.woken).iter().map(name).collect()
    }

    /// Adds a call whose reply came so late. Returns the calls whose turns it changes.
    fn add(&mut self, waiter: char, turn: u64, cost: u32, late: Duration) -> Vec<char> {
        let claim = Claim { policy: POLICY, cost, id: None };
        self.add_claim(waiter, turn, &claim, late)
    }

    fn add_claim(&mut self, waiter: char, turn: u64, claim: &Claim, late: Duration) -> Vec<char> {
        let mark = Mark {
            at: Timestamp::new(turn * 1_000_000),
            charged: Charged::Generation(u64::from(u32::from(waiter))),
        };
        let comes = self.at(turn) + late;
        self.add_turn(QueuedTurn {
            comes,
            promised: self.start + late,
            claim: *claim,
            ..turn_of(waiter, Outcome::admitted(0, Micros::ZERO, Micros::ZERO, mark))
        })
    }

    fn add_turn(&mut self, turn: QueuedTurn) -> Vec<char> {
        let number = turn.waiter.number;
        let position = self.queue.line.insert(turn);
        self.queue.calls.insert(number, WaitStage::InLine(position, None));
        self.woken()
    }

    fn turn(&self, name: char) -> QueuedTurn {
        let turn = self.queue.line.turns.values().find(|turn| self::name(&turn.waiter) == name);
        turn.unwrap().clone()
    }

    /// Removes a call. Returns the second whose turn is free, and the calls that look again.
    fn leave(&mut self, waiter: char) -> (u64, Vec<char>) {
        let waiter = self.turn(waiter).waiter;
        self.queue.withdraw(&waiter);
        let freed = self.queue.after.freed.pop().unwrap();
        assert!(self.queue.after.freed.is_empty() && freed.waiter.number == waiter.number);
        (freed.outcome.mark.at.get() / 1_000_000, self.woken())
    }

    /// Lets a call pass. Returns its turn, and the calls that look again.
    fn pass(&mut self, waiter: char) -> (QueuedTurn, Vec<char>) {
        let turn = self.turn(waiter);
        let passed = {
            let position = self.queue.line.position_of(&turn).unwrap();
            self.queue.line.remove(position)
        };
        self.queue.calls.remove(&turn.waiter.number);
        (passed, self.woken())
    }

    /// Lets these calls ask anew, and returns them.
    fn ask_anew(&mut self, is_taken: impl Fn(&QueuedTurn) -> bool) -> String {
        self.queue.ask_anew(is_taken);
        self.asked_anew()
    }

    fn asked_anew(&mut self) -> String {
        let Aftermath { asked, freed, .. } = self.queue.take_after();
        let asked: String = asked.iter().map(|question| name(&question.waiter)).collect();
        assert_eq!(asked, freed.iter().map(|turn| name(&turn.waiter)).collect::<String>());
        asked
    }

    /// Returns the calls with the seconds of their turns.
    fn order(&self) -> Vec<(char, u64)> {
        let seconds = |turn: &QueuedTurn| (turn.comes - self.start).as_secs();
        self.queue.line.turns.values().map(|turn| (name(&turn.waiter), seconds(turn))).collect()
    }

    fn begin_check(&mut self, now: Instant) -> QueuedTurn {
        self.queue.check(now);
        self.queue.after.checked.take().unwrap()
    }

    /// Receives a standing. Returns `true` if the queue stands still until all turns are known.
    fn stands(&mut self, turn: &QueuedTurn, standing: Standing, now: Instant) -> bool {
        self.queue.stands(self.queue.line.position_of(turn), standing, now, now);
        self.queue.line.is_moving
    }

    fn end_check(&mut self, now: Instant) -> Vec<char> {
        self.queue.line.end_check(now);
        self.woken()
    }

    fn step(&mut self, waiter: char, seconds: u64) -> Next {
        self.step_at(waiter, self.at(seconds))
    }

    /// Returns the next step of a call, which it takes only if it sleeps.
    fn step_at(&mut self, waiter: char, now: Instant) -> Next {
        let (mut queue, waiter) = (self.queue.clone(), self.turn(waiter).waiter);
        match queue.step(&waiter, &POLICY, now) {
            NextStep::Sleep(until) => {
                self.queue = queue;
                Next::Sleep(until)
            }
            NextStep::Again => Next::Check,
            NextStep::End(decided) => {
                assert!(decided.outcome.unwrap().admitted);
                Next::Pass
            }
            NextStep::Await => panic!("the call has a turn"),
        }
    }
}

/// Returns the turn of a call with this outcome.
fn turn_of(waiter: char, outcome: Outcome) -> QueuedTurn {
    QueuedTurn::new(&self::waiter(waiter, 60 * SECOND), &POLICY, outcome, Instant::now())
}

#[test]
fn a_call_that_leaves_passes_its_turn_on_to_those_behind_it_with_the_same_charge() {
    let mut seats =
        TestQueue::new(&[('a', 1, 1), ('b', 2, 1), ('c', 3, 5), ('d', 4, 1), ('e', 5, 1)]);
    assert_eq!(seats.leave('b'), (5, vec!['d', 'e']));
    assert_eq!(seats.order(), [('a', 1), ('d', 2), ('c', 3), ('e', 4)]);
    // Nobody behind it takes five units.
    assert_eq!(seats.leave('c'), (3, vec![]));
    assert_eq!(seats.leave('a'), (4, vec!['d', 'e']));
    assert_eq!(seats.order(), [('d', 1), ('e', 2)]);
    assert_eq!(seats.queue.calls.len(), 2);
}

#[test]
fn a_turn_under_a_request_id_is_passed_on_to_nobody() {
    let mut seats = TestQueue::new(&[('a', 1, 1)]);
    for (waiter, turn, id) in [('b', 2, Some(7)), ('c', 3, None), ('d', 4, Some(7))] {
        seats.add_claim(waiter, turn, &Claim { policy: POLICY, cost: 1, id }, Duration::ZERO);
    }
    assert_eq!(seats.leave('b'), (2, vec![]));
    assert_eq!(seats.leave('a'), (3, vec!['c']));
    assert_eq!(seats.order(), [('c', 1), ('d', 4)]);
}

#[test]
fn a_turn_of_another_policy_is_not_passed_on() {
    let mut seats = TestQueue::new(&[('a', 1, 1)]);
    let stricter = POLICY.tier(SECOND * 60, 2);
    seats.add_claim('b', 2, &Claim { policy: stricter, cost: 1, id: None }, Duration::ZERO);
    assert_eq!(seats.leave('a'), (1, vec!['b']));
    assert_eq!(seats.order(), [('b', 2)]);
}

#[test]
fn a_late_reply_makes_nobody_overtake() {
    let mut seats = TestQueue::new(&[]);
    seats.add('a', 2, 1, SECOND * 3);
    // Its turn is later, and its reply was faster.
    assert_eq!(seats.add('b', 3, 1, Duration::ZERO), ['a']);
    assert_eq!(seats.order(), [('a', 3), ('b', 3)]);
    // A reply that comes after that of a later turn.
    assert!(seats.add('c', 1, 1, SECOND * 9).is_empty());
    assert_eq!(seats.order(), [('c', 3), ('a', 3), ('b', 3)]);
}

#[test]
fn a_turn_shows_what_is_left_under_the_policy_of_now() {
    let mut seats = TestQueue::new(&[]);
    let claim = Claim { policy: Policy::fixed_window("p", SECOND, 5), cost: 1, id: None };
    seats.add_claim('a', 1, &claim, Duration::ZERO);
    let mut seat = seats.pass('a').0;
    (seat.outcome.remaining, seat.outcome.tier) = (3, 0);
    for (threshold, left) in [(5, 3), (9, 7), (3, 1), (1, 0)] {
        let policy = Policy::fixed_window("p", SECOND, threshold);
        assert_eq!(seat.outcome_under(&policy).remaining, left);
    }
}

/// Without entries in a log, marks of one instant are equal.
#[test]
fn of_turns_with_one_mark_the_one_that_is_asked_for_moves() {
    let mut seats = TestQueue::new(&[]);
    let mark = Mark { at: Timestamp::new(9_000_000), charged: Charged::Generation(7) };
    let outcome = Outcome::admitted(0, Micros::ZERO, Micros::ZERO, mark);
    let (comes, promised) = (seats.at(9), seats.start);
    let added = [('a', 2), ('b', 1), ('c', 1)].map(|(waiter, cost)| {
        let claim = Claim { policy: POLICY, cost, id: None };
        QueuedTurn { comes, promised, claim, ..turn_of(waiter, outcome) }
    });
    for turn in &added {
        seats.add_turn(turn.clone());
    }
    assert!(seats.queue.line.position_of(&added[1]).is_some());
    let (now, at) = (seats.at(0), Timestamp::new(2_000_000));
    let standing = Standing { at, turn: Micros::new(2_000_000), has_room: true };
    seats.stands(&added[1], standing, now);
    assert_eq!(seats.order(), [('b', 2), ('a', 9), ('c', 9)]);
    // The other one of its cost has still its mark, and then nobody has.
    assert_eq!(seats.ask_anew(|turn| turn.is_charged_as(&added[1])), "c");
    let is_in_line = |turn| seats.queue.line.position_of(turn).is_some();
    assert!(!is_in_line(&added[1]) && is_in_line(&added[0]));
}

#[test]
fn a_line_is_dissolved_in_order_in_full_or_as_far_as_it_is_due() {
    let waiters = [('a', 1, 1), ('b', 2, 1), ('c', 3, 1)];
    let mut seats = TestQueue::new(&waiters);
    let now = seats.at(2);
    assert_eq!(seats.ask_anew(|turn| turn.comes <= now), "ab");
    assert_eq!(seats.step('c', 0), Next::Check);
    assert_eq!(seats.order(), [('c', 3)]);
    assert_eq!(TestQueue::new(&waiters).ask_anew(|_| true), "abc");
}

/// Calls come and leave at random: nobody is later than promised, nobody overtakes one of the same
/// charge, and each turn is taken once or given back.
#[test]
fn turns_are_passed_on_and_none_is_lost() {
    for seed in 0..200 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut seats = TestQueue::new(&[]);
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
                let same = seats.queue.line.turns.values().filter(|turn| turn.claim.cost == cost);
                assert!(same.map(|turn| turn.waiter.number).is_sorted(), "{seed}: overtaken");
            }
            for (waiter, turn) in order {
                assert!(
                    promised.contains(&(waiter, turn))
                        || promised.iter().any(|it| it.0 == waiter && it.1 > turn)
                );
            }
        }
        while let Some((first, turn)) = seats.order().first().copied() {
            seats.pass(first);
            taken.push(turn);
        }
        taken.extend(freed);
        taken.sort_unstable();
        let mut all: Vec<u64> = promised.iter().map(|(_, turn)| *turn).collect();
        all.sort_unstable();
        assert_eq!(taken, all, "{seed}");
    }
}
