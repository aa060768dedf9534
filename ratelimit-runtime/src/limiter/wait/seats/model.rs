//! A line with cancels, overrides and questions asked anew: drives [`Line`] and the weighted log's [`State`].

use std::sync::OnceLock;

use stateright::{Model, Property};

use super::*;
use crate::{
    algorithms::State,
    models::{assert_breaks, assert_holds, compared_by_text},
    policy::StateKind,
    request::{Op, Request},
    time::Micros,
};

const SECOND: Duration = Duration::from_secs(1);
const POLICY: Policy = Policy::sliding_window("p", SECOND, 1).weighted();
const CALLS: usize = 3;
const LAST: u64 = 3;
const STEPS: usize = 9;

const BOUNDED: &str = "no two calls pass at turns of one period, or before their turn";
const KEPT: &str = "a turn gets no later than it was promised";

#[derive(Default)]
struct Turns {
    /// An override moves the turns that were promised before.
    moves_promised: bool,
    /// The answer to a question that was asked anew lets the call pass as well.
    takes_outdated_answers: bool,
}

#[derive(Clone, Debug)]
struct World {
    now: u64,
    store: State,
    line: Line<usize>,
    calls: [Call; CALLS],
    flights: Vec<Flight>,
    /// The turns at which calls have passed.
    passed: Vec<Timestamp>,
    is_overridden: bool,
    is_early: bool,
    is_late: bool,
}

compared_by_text!(World);

#[derive(Clone, Copy, Debug, Default)]
struct Call {
    stage: Stage,
    /// The number of its last question.
    asked: u32,
    /// The turn that it was promised.
    turn: Option<Instant>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    Outside,
    Asking,
    InLine,
    Gone,
}

#[derive(Clone, Copy, Debug)]
struct Flight {
    call: usize,
    number: u32,
    outcome: Option<Outcome>,
}

#[derive(Clone, Debug, PartialEq)]
enum Action {
    Tick,
    Arrive(usize),
    Reach(usize),
    Land(usize),
    /// The question is without an answer for too long, which may still come.
    AskAnew(usize),
    Poll(usize),
    Cancel(usize),
    Override,
}

fn claim() -> Claim {
    Claim { policy: POLICY, cost: 1, id: None }
}

fn at(now: u64) -> Timestamp {
    Timestamp::new(20_000_000 + now * 1_000_000)
}

fn instant(now: u64) -> Instant {
    static START: OnceLock<Instant> = OnceLock::new();
    *START.get_or_init(Instant::now) + SECOND * u32::try_from(now).expect("few seconds")
}

impl World {
    fn ask(&mut self, call: usize) {
        self.calls[call].stage = Stage::Asking;
        self.calls[call].asked += 1;
        self.flights.push(Flight { call, number: self.calls[call].asked, outcome: None });
    }

    fn pass(&mut self, call: usize, outcome: Outcome) {
        self.calls[call].stage = Stage::Gone;
        self.is_early |= outcome.mark.at > at(self.now);
        self.passed.push(outcome.mark.at);
    }

    fn free(&mut self, seat: &Seat<usize>) {
        self.store.settle(at(self.now), seat.claim.place(seat.outcome).leave());
    }

    fn land(&mut self, flight: Flight, takes_outdated: bool) {
        let Flight { call, number, outcome } = flight;
        let Some(outcome) = outcome.filter(|outcome| outcome.admitted) else { return };
        let promised = instant(self.now);
        let seat = Seat {
            outcome,
            turn: promised + outcome.turn().into(),
            promised,
            claim: claim(),
            is_asleep: false,
            is_moved: false,
            waiter: call,
        };
        let known = self.calls[call];
        let is_current = known.stage == Stage::Asking && known.asked == number;
        let is_in_line = outcome.turn() > Micros::ZERO || !self.line.is_empty();
        match (is_current, is_in_line) {
            (false, _) if takes_outdated => self.pass(call, outcome),
            (true, true) => {
                self.line.insert(seat);
                self.calls[call].stage = Stage::InLine;
            }
            (true, false) => self.pass(call, outcome),
            // A call is in line once.
            (false, true) if known.stage != Stage::InLine => {
                let (index, _) = self.line.insert(seat);
                let (freed, _) = self.line.leave_at(index);
                self.free(&freed);
            }
            (false, _) => self.free(&seat),
        }
    }

    fn poll(&mut self, call: usize) {
        let now = instant(self.now);
        match self.line.step(&call, now, &mut Vec::new()) {
            NextStep::End => {
                let (seat, _) = self.line.pass(&call).expect("a call in line");
                self.pass(call, seat.outcome);
            }
            NextStep::Check => {
                let first = self.line.begin_check(now).cloned();
                let first = first.expect("a call in line");
                let standing = self.store.advance(at(self.now), first.claim.place(first.outcome));
                if let Some((standing, _)) = standing {
                    self.line.stands(&first, standing, now, now);
                }
                self.line.end_check(now);
            }
            NextStep::Ask | NextStep::Sleep(_) => {}
        }
    }

    /// Compares the turns with those that were promised.
    fn look(&mut self) {
        for call in 0..CALLS {
            let turn = self.line.turn(&call);
            let promised = self.calls[call].turn;
            self.is_late |= turn.zip(promised).is_some_and(|(turn, promised)| turn > promised);
            self.calls[call].turn = turn;
        }
    }
}

impl Model for Turns {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        let mut store = State::new(StateKind::WeightedWindow);
        store.decide(at(0), Request::new(&POLICY, Op::Take, 1));
        let empty = World {
            now: 0,
            store,
            line: Line::new(true),
            calls: [Call::default(); CALLS],
            flights: Vec::new(),
            passed: vec![at(0)],
            is_overridden: false,
            is_early: false,
            is_late: false,
        };
        // The last of the calls arrives while the others wait.
        let mut waiting = empty.clone();
        for call in 0..CALLS - 1 {
            for action in [Action::Arrive(call), Action::Reach(0), Action::Land(0)] {
                waiting = self.next_state(&waiting, action).expect("each action has an effect");
            }
        }
        vec![empty, waiting]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        if world.now < LAST {
            actions.push(Action::Tick);
        }
        if !world.is_overridden {
            actions.push(Action::Override);
        }
        // Calls are alike: they arrive in order.
        let outside = (0..CALLS).find(|call| world.calls[*call].stage == Stage::Outside);
        actions.extend(outside.map(Action::Arrive));
        for (call, known) in world.calls.iter().enumerate() {
            match known.stage {
                Stage::InLine => actions.extend([Action::Poll(call), Action::Cancel(call)]),
                Stage::Asking if known.asked < 2 => {
                    actions.extend([Action::AskAnew(call), Action::Cancel(call)]);
                }
                Stage::Asking => actions.push(Action::Cancel(call)),
                Stage::Outside | Stage::Gone => {}
            }
        }
        for (index, flight) in world.flights.iter().enumerate() {
            let next = if flight.outcome.is_some() { Action::Land } else { Action::Reach };
            actions.push(next(index));
        }
    }

    fn next_state(&self, last: &World, action: Action) -> Option<World> {
        let mut world = last.clone();
        match action {
            Action::Tick => world.now += 1,
            Action::Arrive(call) | Action::AskAnew(call) => world.ask(call),
            Action::Reach(index) => {
                let mut request = Request::new(&POLICY, Op::Take, 1);
                (request.max_wait, request.max_line) = (Micros::from(SECOND * 9), 9);
                world.flights[index].outcome = Some(world.store.decide(at(last.now), request));
            }
            Action::Land(index) => {
                let flight = world.flights.remove(index);
                world.land(flight, self.takes_outdated_answers);
            }
            Action::Poll(call) => world.poll(call),
            Action::Cancel(call) => {
                if let Some((freed, _)) = world.line.leave(&call) {
                    world.free(&freed);
                }
                world.calls[call].stage = Stage::Gone;
            }
            Action::Override => {
                world.is_overridden = true;
                world.line.hurry_each();
                if self.moves_promised {
                    world.line.seats.iter_mut().for_each(|seat| seat.turn += SECOND);
                }
            }
        }
        world.look();
        Some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(BOUNDED, |_, world: &World| {
                let mut passed = world.passed.clone();
                passed.sort();
                let is_apart = |pair: &[Timestamp]| pair[0] + Micros::from(SECOND) <= pair[1];
                !world.is_early && passed.windows(2).all(is_apart)
            }),
            Property::always(KEPT, |_, world: &World| !world.is_late),
        ]
    }
}

#[test]
fn turns_survive_every_order_of_cancels_and_questions() {
    assert_holds("turns", STEPS, Turns::default());
    assert_breaks(KEPT, STEPS, Turns { moves_promised: true, ..Turns::default() });
    assert_breaks(BOUNDED, STEPS, Turns { takes_outdated_answers: true, ..Turns::default() });
}
