//! Random calls, against a reference and by the history of their turns.

mod by_hand;
mod reference;

use std::time::Duration;

use fastrand::Rng;

use self::reference::{Promised, Reference};
use super::*;
use crate::{algorithms::State, policy::Policy};

const SECOND: u64 = 1_000_000;

/// The steps of one state.
const EPISODE: u32 = 250;

/// The steps of each run, of which an algorithm has some dozen.
fn steps() -> u32 {
    std::env::var("RATELIMIT_LINE_STEPS").map_or(1_000, |it| it.parse().unwrap())
}

type New = fn(&'static str, Duration, u32) -> Policy;

const ALGORITHMS: [New; 3] = [Policy::token_bucket, Policy::fixed_window, Policy::sliding_counter];

fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

fn waiting(policy: &Policy, cost: u32, max_wait: u64) -> Request<'_> {
    let max_wait = Micros::new(max_wait);
    Request { max_wait, max_line: 500, ..Request::new(policy, Op::Take, cost) }
}

fn decide(state: &mut State, now: u64, request: Request<'_>) -> Outcome {
    state.decided(Timestamp::new(now), request)
}

fn place(policy: &Policy, cost: u32, mark: Mark) -> LinePlace<'_> {
    LinePlace { policy, cost, mark, id: None }
}

/// The events of a run beside calls.
#[derive(Clone, Copy, Debug, Default)]
struct Events {
    /// Calls leave the line, or ask for an earlier turn.
    leaves: bool,
    /// Charges are settled: those that have passed, and now and then one that waits.
    settles: bool,
    /// The clock steps back.
    steps_back: bool,
}

/// The number of times that a run has tried something.
#[derive(Debug, Default)]
struct Figures {
    waited: u32,
    refused: u32,
    moved: u32,
    left: u32,
    lines_ended: u32,
}

/// A charge that stands.
#[derive(Clone, Copy, Debug)]
struct Charge {
    policy: usize,
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

/// One state under random calls.
struct Episode<'a> {
    policies: &'a [Policy],
    /// `true` if the policies are overrides of the first.
    is_overridden: bool,
    events: Events,
    now: u64,
    state: State,
    reference: Reference,
    charges: Vec<Charge>,
    /// The expiry of the state in a store.
    expires: u64,
}

impl<'a> Episode<'a> {
    fn step(&mut self, rng: &mut Rng, figures: &mut Figures) {
        let Events { leaves, settles, steps_back } = self.events;
        self.now += if rng.u8(..3) == 0 { 0 } else { rng.u64(..SECOND / 2) };
        if steps_back && rng.u8(..20) == 0 {
            self.now -= rng.u64(..3 * SECOND);
        }
        match rng.u8(..10) {
            0..2 if leaves => self.leave(rng, figures),
            2..4 if leaves => self.advance(rng, figures),
            4 if settles => self.settle(rng),
            _ => self.call(rng, figures),
        }
        self.check(figures);
    }

    fn request(&self, policy: usize, op: Op, cost: u32, max_wait: u64) -> Request<'a> {
        let policies = self.policies;
        let request = waiting(&policies[policy], cost, max_wait);
        let written = if self.is_overridden { &policies[0] } else { request.written };
        Request { written, op, ..request }
    }

    fn call(&mut self, rng: &mut Rng, figures: &mut Figures) {
        let policy = rng.usize(..self.policies.len());
        let most = self.policies[policy].tiers().iter().map(|it| it.threshold()).min().unwrap();
        let most = self.policies[policy].get_burst().unwrap_or(most);
        let op = if rng.u8(..8) == 0 { Op::Peek } else { Op::Take };
        let cost = if op == Op::Peek { rng.u32(..=most) } else { rng.u32(1..=most) };
        let max_wait = rng.u64(..3) * rng.u64(..4 * SECOND);
        let before = self.charges.iter().map(Charge::at).max().unwrap_or(0);
        let request = self.request(policy, op, cost, max_wait);
        let outcome = decide(&mut self.state, self.now, request);
        let expected = self.reference.decide(self.now, request);
        let context = (self.now, policy, cost, max_wait, op);
        assert_eq!(outcome, expected, "{context:?}");
        if op == Op::Peek {
            return;
        }
        self.expires = self.expires.max(self.now + outcome.lasts.get());
        if outcome.admitted {
            let turn = self.now + outcome.turn.get();
            let at = outcome.mark.at.get();
            // A bucket that was added in this microsecond has the charges of the next one on.
            assert!(at == turn || turn == self.now && at > turn, "{at} instead of {turn}");
            assert!(turn >= before || self.events.steps_back, "{turn} before {before}");
            figures.waited += u32::from(turn > self.now);
            let mark = Mark { at: Timestamp::new(turn), ..outcome.mark };
            self.charges.push(Charge { policy, cost, mark, told: turn });
        } else {
            figures.refused += 1;
            self.check_told_wait(policy, cost, outcome.wait.get());
        }
    }

    /// The same call may wait for exactly as long as it was told.
    fn check_told_wait(&self, policy: usize, cost: u32, told: u64) {
        let again = |max_wait| {
            let request = self.request(policy, Op::Take, cost, max_wait);
            self.state.clone().decided(Timestamp::new(self.now), request)
        };
        let admitted = again(told);
        assert!(admitted.admitted && admitted.turn.get() == told, "{told}: {admitted:?}");
        let refused = again(told - 1);
        assert!(!refused.admitted, "{told}: {refused:?}");
    }

    /// Returns the position of a charge that lies ahead.
    fn ahead(&self, rng: &mut Rng) -> Option<usize> {
        let all = (0..self.charges.len()).filter(|it| self.charges[*it].at() > self.now);
        rng.choice(all.collect::<Vec<_>>())
    }

    fn settle_at(&mut self, index: usize, to: u32) {
        let Charge { policy, cost, mark, .. } = self.charges[index];
        let settle = Settle { to, ..place(&self.policies[policy], cost, mark).leave() };
        self.reference.settle(self.now, settle);
        let lasts = self.state.settle(Timestamp::new(self.now), &settle);
        self.expires = self.expires.max(self.now + lasts.get());
    }

    fn leave(&mut self, rng: &mut Rng, figures: &mut Figures) {
        let Some(index) = self.ahead(rng) else { return };
        let Charge { cost, mark, .. } = self.charges[index];
        let alike = |reference: &Reference| {
            let is_it = |it: &&Promised| (it.at, it.cost) == (mark.at.get(), cost);
            reference.turns.iter().filter(is_it).count()
        };
        let before = alike(&self.reference);
        self.settle_at(index, 0);
        // Otherwise its units stay taken.
        let has_left = alike(&self.reference) < before;
        figures.left += u32::from(has_left);
        if has_left {
            self.charges.remove(index);
        }
    }

    fn advance(&mut self, rng: &mut Rng, figures: &mut Figures) {
        let Some(index) = self.ahead(rng) else { return };
        let Charge { policy, cost, mark, .. } = self.charges[index];
        let policy = self.policies[policy];
        let place = place(&policy, cost, mark);
        let advanced = self.state.advance(Timestamp::new(self.now), place);
        let standing = advanced.map(|(standing, lasts)| {
            self.expires = self.expires.max(self.now + lasts.get());
            standing
        });
        let is_it = |it: &Promised| (it.at, it.cost) == (mark.at.get(), cost);
        if !self.reference.turns.iter().any(is_it) {
            // A clock that stepped back has made its line forget it.
            assert!(standing.is_none() && self.events.steps_back);
            return;
        }
        let at = self.reference.advance(self.now, (mark.at.get(), waiting(&policy, cost, 0)));
        let turn = Micros::new(at - self.now);
        assert_eq!(standing.map(|it| (it.at, it.turn)), Some((Timestamp::new(at), turn)));
        figures.moved += u32::from(at < mark.at.get());
        self.charges[index].mark.at = Timestamp::new(at);
    }

    fn settle(&mut self, rng: &mut Rng) {
        if let Some(index) = (!self.charges.is_empty()).then(|| rng.usize(..self.charges.len())) {
            let to = rng.u32(..=2 * self.charges[index].cost);
            if to != self.charges[index].cost {
                self.settle_at(index, to);
                self.charges.remove(index);
            }
        }
    }

    fn check(&self, figures: &mut Figures) {
        let Self { state, reference, charges, now, .. } = self;
        assert_eq!(Counts::of(state).unwrap().into_state(), reference.tail);
        if state.line().is_none() {
            assert_eq!((state, &reference.turns[..]), (&reference.base, &[][..]));
            figures.lines_ended += 1;
        }
        let Events { leaves: _, settles, steps_back } = self.events;
        let last = charges.iter().map(Charge::at).max().unwrap_or(0);
        assert!(self.expires >= last);
        for charge in charges {
            assert!(charge.at() <= charge.told);
            let place = place(&self.policies[charge.policy], charge.cost, charge.mark);
            assert!(steps_back || state.is_promised(Timestamp::new(*now), place), "{charge:?}");
        }
        let is_plain = self.policies.len() == 1 && !self.policies[0].counts_rejected();
        if is_plain && !settles && !steps_back && now % 4 == 0 {
            self.check_history();
        }
        if let [policy] = self.policies {
            let threshold = policy.tiers().iter().map(|it| it.threshold()).min().unwrap();
            let most = policy.get_burst().unwrap_or(threshold);
            let at = self.expires.max(*now);
            let outcome = reference::peek(state, at, waiting(policy, most, 0), most);
            assert!(outcome.admitted, "{most} at {at}");
        }
    }

    /// Asserts that a state without a line admits all charges at their turns.
    fn check_history(&self) {
        let mut charges = self.charges.clone();
        charges.sort_by_key(Charge::at);
        let mut state = State::new(self.policies[0].state());
        for charge in &charges {
            let request = waiting(&self.policies[0], charge.cost, 0);
            let outcome = state.decided(charge.mark.at, request);
            assert!(outcome.admitted, "{charge:?} of {charges:?}");
        }
    }
}

fn run(policies: &[Policy], is_overridden: bool, events: Events) -> Figures {
    let mut figures = Figures::default();
    let mut rng = Rng::with_seed(u64::from(events.leaves));
    for _ in 0..steps() / EPISODE {
        let state = State::new(policies[0].state());
        let reference = Reference::new(&state);
        let (charges, now) = (Vec::new(), 1_000 * SECOND + rng.u64(..10 * SECOND));
        let mut episode =
            Episode { policies, is_overridden, events, now, state, reference, charges, expires: 0 };
        for _ in 0..EPISODE {
            episode.step(&mut rng, &mut figures);
        }
    }
    figures
}

/// The policies of one algorithm, each for a run.
fn policies(new: New) -> Vec<Policy> {
    let two = new("p", seconds(1), 5).tier(seconds(10), 20);
    let mut all = vec![new("p", seconds(1), 7), new("p", Duration::from_millis(700), 1), two];
    if two.algorithm() == crate::Algorithm::TokenBucket {
        all.push(new("p", seconds(1), 5).burst(2));
        all.push(new("p", seconds(1), 3).burst(10));
    }
    all
}

#[test]
fn turns_follow_the_order_of_arrival_and_the_rule_of_their_algorithm() {
    for new in ALGORITHMS {
        let mut all_moved = 0;
        for (policy, leaves) in policies(new).into_iter().flat_map(|it| [(it, false), (it, true)]) {
            let events = Events { leaves, ..Events::default() };
            let figures = run(&[policy], false, events);
            let Figures { waited, refused, moved, left, lines_ended } = figures;
            assert!(waited > 50 && refused > 50 && lines_ended > 5, "{figures:?}");
            assert!(!leaves || left > 20, "{figures:?} of {policy:?}");
            all_moved += moved;
        }
        assert!(all_moved > 10, "{all_moved}");
    }
}

#[test]
fn settled_units_leave_the_line_its_promises() {
    for policy in ALGORITHMS.into_iter().flat_map(policies) {
        let events = Events { leaves: true, settles: true, ..Events::default() };
        let figures = run(&[policy], false, events);
        assert!(figures.waited > 50 && figures.left > 20, "{figures:?}");
    }
}

#[test]
fn policies_that_change_and_clocks_that_step_back_leave_the_line_its_promises() {
    for new in ALGORITHMS {
        let changing = [
            new("p", seconds(1), 5),
            new("p", seconds(2), 5),
            new("p", seconds(1), 3).tier(seconds(5), 9),
        ];
        let penal = changing.map(|policy| match policy.algorithm() {
            crate::Algorithm::FixedWindow => policy,
            _ => policy.count_rejected(),
        });
        for policies in [&changing[..], &penal[..], &penal[..1]] {
            for (is_overridden, steps_back) in [(false, false), (true, false), (false, true)] {
                let events = Events { leaves: true, settles: true, steps_back };
                let figures = run(policies, is_overridden, events);
                assert!(figures.waited > 50, "{figures:?}");
            }
        }
    }
}
