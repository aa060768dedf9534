use std::time::Duration;

use super::*;
use crate::{policy::Policy, request::Mark};

const SECOND: u64 = 1_000_000;

fn request(policy: &Policy, cost: u32, max_wait: u64) -> Request<'_> {
    let max_wait = Micros::new(max_wait);
    Request { max_wait, max_line: 500, ..Request::new(policy, Op::Take, cost) }
}

fn decide(log: &mut Log, now: u64, request: Request<'_>) -> Outcome {
    log.decided(Timestamp::new(now), request)
}

fn place(policy: &Policy, cost: u32, mark: Mark) -> LinePlace<'_> {
    LinePlace { policy, cost, mark, id: None }
}

/// The charges of a log, with the earliest turn for the next call.
struct Charges {
    tiers: Vec<(u64, u64)>,
    all: Vec<Charge>,
    last_turn: u64,
}

#[derive(Clone, Copy)]
struct Charge {
    cost: u32,
    mark: Mark,
    /// The latest turn that its caller was told.
    told: u64,
}

impl Charge {
    fn at(&self) -> u64 {
        self.mark.at.get()
    }
}

impl Charges {
    fn has_room(&self, at: u64, cost: u32) -> bool {
        self.tiers.iter().all(|(period, threshold)| {
            let counted = self.all.iter().filter(|it| it.at() + period > at);
            counted.map(|it| u64::from(it.cost)).sum::<u64>() + u64::from(cost) <= *threshold
        })
    }

    /// Returns the first time from the last turn on at which such a call has room.
    fn turn(&self, now: u64, cost: u32) -> u64 {
        let end = self.last_turn.max(now);
        let leave = self.all.iter().flat_map(|it| self.tiers.iter().map(|tier| it.at() + tier.0));
        let times = leave.filter(|at| *at > end).chain([end]);
        times.filter(|at| self.has_room(*at, cost)).min().expect("the log is empty at last")
    }

    /// Asserts that no window has more units than its threshold.
    fn assert_windows(&self) {
        for (period, threshold) in &self.tiers {
            for last in &self.all {
                let is_in = |it: &&Charge| it.at() <= last.at() && it.at() + period > last.at();
                let units: u64 = self.all.iter().filter(is_in).map(|it| u64::from(it.cost)).sum();
                assert!(units <= *threshold, "{units} of {threshold} until {}", last.at());
            }
        }
    }
}

#[test]
fn no_window_is_exceeded_and_turns_follow_the_order_of_arrival() {
    let seconds = |n| Duration::from_secs(n);
    let one = Policy::sliding_window("p", seconds(1), 7);
    let two = Policy::sliding_window("p", seconds(1), 5).tier(seconds(10), 20);
    let (mut waited, mut refused, mut moved) = (0, 0, 0);
    for (policy, leaves) in [(one, false), (two, false), (one, true), (two, true)] {
        let mut rng = fastrand::Rng::with_seed(u64::from(leaves));
        let tiers = policy.tiers().iter().map(|it| (it.micros().get(), it.threshold().into()));
        let mut charges = Charges { tiers: tiers.collect(), all: Vec::new(), last_turn: 0 };
        let mut log = Log::default();
        let mut now = SECOND;
        for _ in 0..6_000 {
            now += if rng.u8(..3) == 0 { 0 } else { rng.u64(..SECOND / 2) };
            charges.all.retain(|it| it.at() + 30 * SECOND > now);
            let ahead: Vec<_> =
                (0..charges.all.len()).filter(|it| charges.all[*it].at() > now).collect();
            let chosen = rng.choice(ahead).filter(|_| leaves && rng.bool());
            if let Some(chosen) = chosen {
                let Charge { cost, mark, .. } = charges.all[chosen];
                let place = place(&policy, cost, mark);
                assert!(log.turn_of(place).is_some());
                if rng.bool() {
                    log.settle(Timestamp::new(now), &place.leave());
                    assert!(log.turn_of(place).is_none());
                    charges.all.remove(chosen);
                } else {
                    let standing = log.advance(Timestamp::new(now), place).expect("a charge");
                    assert!(standing.at <= mark.at);
                    assert_eq!(standing.turn, standing.at - Timestamp::new(now));
                    moved += u32::from(standing.at < mark.at);
                    charges.all[chosen].mark.at = standing.at;
                }
                let last = charges.all.iter().map(Charge::at).max().unwrap_or(0);
                charges.last_turn = last.min(charges.last_turn);
            } else {
                let (cost, max_wait) = (rng.u32(1..=5), rng.u64(..3) * rng.u64(..4 * SECOND));
                let turn = charges.turn(now, cost);
                let outcome = decide(&mut log, now, request(&policy, cost, max_wait));
                assert_eq!(outcome.admitted, turn - now <= max_wait, "{now}: {outcome:?}");
                if outcome.admitted {
                    assert_eq!(outcome.turn.get(), turn - now);
                    assert_eq!(outcome.mark.at.get(), turn);
                    // Without anybody who leaves, nobody is overtaken.
                    let is_before = |it: &Charge| it.at() <= turn;
                    assert!(leaves || charges.all.iter().all(is_before));
                    let (mark, told) = (outcome.mark, turn);
                    charges.all.push(Charge { cost, mark, told });
                    charges.last_turn = charges.last_turn.max(turn);
                    waited += u32::from(turn > now);
                } else {
                    assert_eq!(outcome.wait.get(), turn - now, "{outcome:?}");
                    let one = charges.turn(now, 1) - now;
                    assert!(outcome.remaining > 0 || outcome.more.get() == one, "{outcome:?}");
                    refused += 1;
                }
            }
            charges.assert_windows();
            assert!(charges.all.iter().all(|it| it.at() <= it.told));
        }
    }
    assert!(waited > 1_000 && refused > 1_000 && moved > 100, "{waited} {refused} {moved}");
}

#[test]
fn a_call_that_does_not_wait_is_refused_while_others_do() {
    let policy = Policy::sliding_window("p", Duration::from_secs(1), 10);
    let mut log = Log::default();
    assert!(decide(&mut log, 0, request(&policy, 8, 0)).admitted);
    let waiting = decide(&mut log, SECOND / 2, request(&policy, 5, SECOND));
    assert_eq!((waiting.admitted, waiting.turn.get()), (true, SECOND / 2));
    assert_eq!((waiting.remaining, waiting.reset.get()), (5, SECOND));
    let refused = decide(&mut log, SECOND / 2, request(&policy, 1, 0));
    assert!(!refused.admitted);
    assert_eq!((refused.remaining, refused.wait.get()), (0, SECOND / 2));
    assert_eq!((refused.more.get(), refused.reset.get()), (SECOND / 2, 3 * SECOND / 2));
    let peek = Request { op: Op::Peek, ..request(&policy, 0, 0) };
    let peek = decide(&mut log, SECOND / 2, peek);
    assert_eq!((peek.admitted, peek.remaining, peek.wait.get()), (true, 0, SECOND / 2));
    assert_eq!(decide(&mut log, SECOND, request(&policy, 1, 0)).remaining, 4);
}

#[test]
fn a_line_has_no_more_turns_than_it_may() {
    let policy = Policy::sliding_window("p", Duration::from_secs(1), 1);
    let mut log = Log::default();
    let request = |max_line| Request { max_line, ..request(&policy, 1, 100 * SECOND) };
    for turn in 0..=3 {
        assert_eq!(decide(&mut log, 0, request(3)).turn.get(), turn * SECOND);
    }
    let refused = decide(&mut log, 0, request(3));
    assert_eq!((refused.admitted, refused.wait.get()), (false, 4 * SECOND));
    assert!(decide(&mut log, SECOND, request(3)).admitted);
}

#[test]
fn the_line_is_as_long_as_its_last_turn() {
    let policy = Policy::sliding_window("p", Duration::from_secs(1), 1);
    let mut log = Log::default();
    let marks: Vec<_> =
        (0..4).map(|_| decide(&mut log, 0, request(&policy, 1, 9 * SECOND)).mark).collect();
    let next = |log: &mut Log| decide(log, 1, request(&policy, 1, 0)).wait.get() + 1;
    assert_eq!(next(&mut log), 4 * SECOND);
    // A place that is left in the middle shortens no line.
    log.settle(Timestamp::new(1), &place(&policy, 1, marks[2]).leave());
    assert_eq!(next(&mut log), 4 * SECOND);
    log.settle(Timestamp::new(1), &place(&policy, 1, marks[3]).leave());
    assert_eq!(next(&mut log), 2 * SECOND);
    // A refund of the call that has passed lets the first one of the line pass.
    let now = Timestamp::new(2);
    assert_eq!(log.advance(now, place(&policy, 1, marks[1])).unwrap().turn.get(), SECOND - 2);
    log.settle(now, &place(&policy, 1, marks[0]).leave());
    let standing = log.advance(now, place(&policy, 1, marks[1])).unwrap();
    assert_eq!(standing, Standing { at: now, turn: Micros::ZERO, has_room: true });
    assert_eq!(decide(&mut log, 3, request(&policy, 1, 0)).wait.get(), SECOND - 1);
}

#[test]
fn debt_counts_from_now_on_also_while_others_wait() {
    let policy = Policy::sliding_window("p", Duration::from_secs(1), 2);
    let mut log = Log::default();
    let first = decide(&mut log, 0, request(&policy, 1, 0)).mark;
    let waiting = decide(&mut log, SECOND / 2, request(&policy, 2, SECOND));
    assert_eq!(waiting.turn.get(), SECOND / 2);
    let now = Timestamp::new(SECOND / 2);
    log.settle(now, &crate::request::Settle::of_one_tier(&policy, 1, 3, first));
    assert!(log.turn_of(place(&policy, 2, waiting.mark)).is_some());
    let refused = decide(&mut log, SECOND, request(&policy, 2, 0));
    assert_eq!(refused.wait.get(), SECOND);
}

#[test]
fn a_repeated_call_has_the_turn_of_its_charge() {
    let policy = Policy::sliding_window("p", Duration::from_secs(1), 1);
    let mut log = Log::default();
    decide(&mut log, 0, request(&policy, 1, 0));
    let named = |max_wait| Request { id: Some(7), ..request(&policy, 1, max_wait) };
    let first = decide(&mut log, 0, named(SECOND));
    decide(&mut log, 0, request(&policy, 1, 9 * SECOND));
    let repeated = decide(&mut log, 1, named(SECOND));
    assert_eq!((repeated.mark, repeated.turn.get()), (first.mark, SECOND - 1));
    let refused = decide(&mut log, 1, named(SECOND - 2));
    assert_eq!((refused.admitted, refused.wait.get()), (false, SECOND - 1));
    let passed = decide(&mut log, SECOND, named(0));
    assert_eq!((passed.admitted, passed.turn, passed.mark), (true, Micros::ZERO, first.mark));
}
