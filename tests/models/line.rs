//! A line with cancels, overrides and questions asked anew: drives [`KeyQueue`] and the log's
//! [`State`].

use std::{
    fmt::{self, Debug, Formatter},
    sync::OnceLock,
};

use stateright::{Model, Property};

use super::{
    step::NextStep,
    tests::{name, waiter},
    *,
};
use crate::{
    algorithms::State,
    explore::{assert_breaks, assert_holds, compared_by_text},
    policy::StateKind,
    request::{Op, Outcome, Request},
    time::Micros,
};

const SECOND: Duration = Duration::from_secs(1);
const POLICY: Policy = Policy::sliding_window("p", SECOND, 1);
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
    queue: KeyQueue,
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
    has_arrived: bool,
    has_ended: bool,
    /// The number of its questions.
    asked: u32,
    /// The turn that it was promised.
    turn: Option<Instant>,
}

#[derive(Clone, Debug)]
struct Flight {
    question: Question,
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

fn at(now: u64) -> Timestamp {
    Timestamp::new(20_000_000 + now * 1_000_000)
}

fn instant(now: u64) -> Instant {
    static START: OnceLock<Instant> = OnceLock::new();
    *START.get_or_init(Instant::now) + SECOND * u32::try_from(now).expect("few seconds")
}

/// Returns a call, which is the same in each world.
fn call(index: usize) -> &'static Arc<Waiter> {
    static ALL: OnceLock<Vec<Arc<Waiter>>> = OnceLock::new();
    let all = || "abc".chars().map(|name| waiter(name, SECOND * 60)).collect();
    &ALL.get_or_init(all)[index]
}

fn index(waiter: &Arc<Waiter>) -> usize {
    "abc".find(name(waiter)).expect("a call of the model")
}

impl World {
    /// Makes the changes that follow from a move.
    fn follow(&mut self) {
        let Aftermath { asked, freed, checked, .. } = self.queue.take_after();
        for turn in freed {
            self.store.settle(at(self.now), &turn.place().leave());
        }
        for question in asked {
            self.calls[index(&question.waiter)].asked += 1;
            self.flights.push(Flight { question, outcome: None });
        }
        if let Some(turn) = checked {
            let standing = self.store.advance(at(self.now), turn.place());
            let now = instant(self.now);
            if let Some((standing, _)) = standing {
                self.queue.stands(self.queue.line.position_of(&turn), standing, now, now);
            }
            self.queue.line.end_check(now);
            self.follow();
        }
    }

    fn pass(&mut self, call: usize, outcome: Outcome) {
        self.calls[call].has_ended = true;
        self.is_early |= outcome.mark.at > at(self.now);
        self.passed.push(outcome.mark.at);
    }

    fn land(&mut self, flight: &Flight, takes_outdated: bool) {
        let Flight { question, outcome } = flight;
        let (outcome, call) = (outcome.expect("an answer"), index(&question.waiter));
        let is_current = match self.queue.calls.get(&question.waiter.number) {
            Some(WaitStage::Asking(number)) => *number == question.number,
            _ => false,
        };
        if outcome.admitted && !is_current && takes_outdated {
            return self.pass(call, outcome);
        }
        let (promised, decided) = (instant(self.now), Ok(outcome).into());
        self.queue.receive(question, &POLICY, decided, None, false, promised);
    }

    fn poll(&mut self, index: usize) {
        let step = self.queue.step(call(index), &POLICY, instant(self.now));
        if let NextStep::End(decided) = step {
            match decided.outcome {
                Ok(outcome) if outcome.admitted => self.pass(index, outcome),
                _ => self.calls[index].has_ended = true,
            }
        }
    }

    /// Compares the turns with those that were promised.
    fn look(&mut self) {
        for index in 0..CALLS {
            let turn = self.queue.turn(call(index));
            let promised = self.calls[index].turn;
            self.is_late |= turn.zip(promised).is_some_and(|(turn, promised)| turn > promised);
            self.calls[index].turn = turn;
        }
    }
}

impl Model for Turns {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        let mut store = State::new(StateKind::SlidingWindow);
        store.decided(at(0), Request::new(&POLICY, Op::Take, 1));
        let empty = World {
            now: 0,
            store,
            queue: KeyQueue::new(true, 9),
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
        let outside = (0..CALLS).find(|call| !world.calls[*call].has_arrived);
        actions.extend(outside.map(Action::Arrive));
        for (index, known) in world.calls.iter().enumerate() {
            match world.queue.calls.get(&call(index).number) {
                Some(WaitStage::Asking(_)) if known.asked < 2 => {
                    actions.extend([Action::AskAnew(index), Action::Cancel(index)]);
                }
                Some(WaitStage::Asking(_)) => actions.push(Action::Cancel(index)),
                Some(_) => actions.extend([Action::Poll(index), Action::Cancel(index)]),
                None => {}
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
            Action::Arrive(index) => {
                world.calls[index].has_arrived = true;
                world.queue.arrive(call(index), false);
            }
            Action::AskAnew(index) => world.queue.ask(call(index)),
            Action::Reach(index) => {
                let mut request = Request::new(&POLICY, Op::Take, 1);
                (request.max_wait, request.max_line) = (Micros::from(SECOND * 9), 9);
                world.flights[index].outcome = Some(world.store.decided(at(last.now), request));
            }
            Action::Land(index) => {
                let flight = world.flights.remove(index);
                world.land(&flight, self.takes_outdated_answers);
            }
            Action::Poll(call) => world.poll(call),
            Action::Cancel(index) => {
                world.queue.withdraw(call(index));
                world.calls[index].has_ended = true;
            }
            Action::Override => {
                world.is_overridden = true;
                world.queue.hurry_each();
                if self.moves_promised {
                    world.queue.line.turns.values_mut().for_each(|turn| turn.comes += SECOND);
                }
            }
        }
        world.follow();
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

impl Debug for KeyQueue {
    /// Leaves out the number of turns that have been added.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let TurnLine { asks_each, seen, asked, hurries, is_moving, grace, .. } = &self.line;
        let turns = self.line.turns.values().map(|turn| {
            let QueuedTurn { outcome, comes, promised, is_moved, waiter, .. } = turn;
            (waiter.number, outcome, comes, promised, is_moved)
        });
        f.debug_list().entries(turns).finish()?;
        f.debug_list().entries(&self.calls).finish()?;
        (asks_each, seen, asked, hurries, is_moving, grace).fmt(f)
    }
}

impl Debug for WaitStage {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Asking(number) => write!(f, "asking {number}"),
            Self::InLine(..) => write!(f, "in line"),
            Self::Queued => write!(f, "queued"),
            Self::Paused(until) => write!(f, "paused {until:?}"),
            Self::Answered(decided, _) => write!(f, "answered {:?}", decided.outcome),
        }
    }
}

impl Debug for Question {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} asks {}", self.waiter.number, self.number)
    }
}
