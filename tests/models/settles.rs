//! Settles with crashes, lost replies and resets: drives the fixed window's [`State`], behind a
//! copy of the numbers that `per_tier_line.lua` keeps.

use stateright::{Model, Property};

use super::*;
use crate::{
    algorithms::State,
    explore::{assert_breaks, assert_holds, compared_by_text},
    policy::{Policy, StateKind},
    request::{Mark, Op, Outcome, Request},
    time::Timestamp,
};

const THRESHOLD: u32 = 20;
const COST: u32 = 2;
const POLICY: Policy = Policy::fixed_window("p", Duration::from_secs(60), THRESHOLD);
const CALLS: usize = 2;
const STEPS: usize = 12;

const ONCE: &str = "each call counts once: its cost, or what it was settled to first";

struct Settles {
    /// The numbers of applied settles are not kept.
    forgets_numbers: bool,
}

#[derive(Clone, Debug)]
struct World {
    store: State,
    /// The numbers of the settles that the store has applied.
    applied: Vec<usize>,
    calls: Vec<Call>,
    flights: Vec<Flight>,
    was_reset: bool,
}

compared_by_text!(World);

#[derive(Clone, Copy, Debug)]
struct Call {
    mark: Mark,
    /// The units that it counts; none since a reset.
    counts: u32,
    is_over: bool,
}

#[derive(Clone, Copy, Debug)]
struct Flight {
    call: usize,
    to: u32,
    sent: u32,
}

#[derive(Clone, Debug, PartialEq)]
enum Action {
    Take,
    Settle(usize, u32),
    /// The process of the call ends before it settles.
    Crash(usize),
    Reach(usize),
    /// The reply is lost or late: the command is sent once more.
    SendAgain(usize),
    Reset,
}

impl World {
    fn decide(&mut self, op: Op, cost: u32) -> Outcome {
        self.store.decided(Timestamp::new(20_000_000), Request::new(&POLICY, op, cost))
    }

    fn settle(&mut self, flight: Flight) {
        let Flight { call: number, to, .. } = flight;
        let call = &mut self.calls[number];
        let settle = Settle {
            state: POLICY.state(),
            from: COST,
            to,
            mark: call.mark,
            id: None,
            number: 0,
            period: POLICY.tier_of(0).micros(),
            threshold: POLICY.tier_of(0).threshold(),
            burst: None,
            zone: None,
            reset_after: POLICY.longest_period(),
            lifts_block: false,
        };
        self.store.settle(Timestamp::new(20_000_000), &settle);
        if call.counts > 0 && !self.applied.contains(&number) {
            call.counts = to;
        }
        self.applied.push(number);
    }
}

impl Model for Settles {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        let store = State::new(StateKind::FixedWindow);
        let (applied, calls, flights) = Default::default();
        vec![World { store, applied, calls, flights, was_reset: false }]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        if world.calls.len() < CALLS {
            actions.push(Action::Take);
        }
        if !world.was_reset {
            actions.push(Action::Reset);
        }
        for (index, _) in world.calls.iter().enumerate().filter(|(_, call)| !call.is_over) {
            actions.extend([0, 1, COST + 3].map(|to| Action::Settle(index, to)));
            actions.push(Action::Crash(index));
        }
        for (index, flight) in world.flights.iter().enumerate() {
            actions.push(Action::Reach(index));
            if flight.sent == 1 {
                actions.push(Action::SendAgain(index));
            }
        }
    }

    fn next_state(&self, last: &World, action: Action) -> Option<World> {
        let mut world = last.clone();
        match action {
            Action::Take => {
                let mark = world.decide(Op::Take, COST).mark;
                world.calls.push(Call { mark, counts: COST, is_over: false });
            }
            Action::Settle(call, to) => {
                world.calls[call].is_over = true;
                world.flights.push(Flight { call, to, sent: 1 });
            }
            Action::Crash(call) => world.calls[call].is_over = true,
            Action::SendAgain(index) => {
                world.flights[index].sent = 2;
                let again = world.flights[index];
                world.flights.push(again);
            }
            Action::Reach(index) => {
                let flight = world.flights.remove(index);
                if self.forgets_numbers || !world.applied.contains(&flight.call) {
                    world.settle(flight);
                }
            }
            Action::Reset => {
                world.was_reset = true;
                world.store = State::new(StateKind::FixedWindow);
                world.calls.iter_mut().for_each(|call| call.counts = 0);
            }
        }
        Some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![Property::always(ONCE, |_, world: &World| {
            let left = world.clone().decide(Op::Peek, 0).remaining;
            let counts = world.calls.iter().map(|call| call.counts);
            THRESHOLD - left == counts.sum::<u32>()
        })]
    }
}

#[test]
fn settles_survive_every_order_of_crashes_and_lost_replies() {
    assert_holds("settles", STEPS, Settles { forgets_numbers: false });
    assert_breaks(ONCE, STEPS, Settles { forgets_numbers: true });
}
