//! Remembered refusals while other processes reset the caller: drives [`DenyCache`] and the sliding
//! window's [`State`].

use std::fmt;

use stateright::{Model, Property};

use super::*;
use crate::{
    algorithms::State,
    explore::{assert_breaks, assert_holds, compared_by_text},
    policy::StateKind,
    sync::Mutex,
};

const SECOND: Duration = Duration::from_secs(1);
const POLICY: Policy = Policy::sliding_window("p", Duration::from_secs(2), 1);
/// The seconds for which a refusal is remembered at most.
const TTL: u64 = 1;
const LAST: u64 = 4;
const STEPS: usize = 11;

const STALE: &str = "a refusal outlives a reset by one TTL, or until the reply to a question";
const LATE: &str = "a remembered wait is never too long";

struct Refusals {
    ttl: Duration,
    /// Counts waits from the reply, and not from the call.
    counts_from_the_reply: bool,
}

#[derive(Clone, Debug)]
struct World {
    now: u64,
    store: State,
    cache: DenyCache,
    flights: Vec<Flight>,
    reset: Option<u64>,
    asked: u64,
    is_stale: bool,
    is_late: bool,
}

compared_by_text!(World);

#[derive(Clone, Debug)]
struct Flight {
    cost: u32,
    sent: u64,
    outcome: Option<Outcome>,
}

#[derive(Clone, Debug, PartialEq)]
enum Action {
    Tick,
    Call(u32),
    /// Another process takes a unit.
    TakeElsewhere,
    ResetElsewhere,
    Reach(usize),
    Land(usize),
    Lose(usize),
}

impl Clone for DenyCache {
    fn clone(&self) -> Self {
        let sets = self.sets.iter().map(|set| Mutex::new(set.lock().clone())).collect();
        Self { sets, ways: self.ways, hasher: self.hasher.clone(), ttl: self.ttl }
    }
}

impl fmt::Debug for DenyCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.sets.iter().map(|set| set.lock().clone())).finish()
    }
}

fn at(seconds: u64) -> Timestamp {
    Timestamp::new(20_000_000 + seconds * 1_000_000)
}

fn key() -> KeyRef<'static> {
    KeyRef::new(&POLICY, &b"/alice"[..])
}

fn decide(store: &mut State, now: u64, op: Op, cost: u32) -> Outcome {
    store.decided(at(now), Request::new(&POLICY, op, cost))
}

impl World {
    fn call(&mut self, cost: u32) {
        let (now, request) = (self.now, Request::new(&POLICY, Op::Take, cost));
        let Some(found) = self.cache.get(key(), request, Micros::ZERO, true, || at(now)) else {
            self.asked = now;
            return self.flights.push(Flight { cost, sent: now, outcome: None });
        };
        let truth = decide(&mut self.store.clone(), now, Op::Peek, cost);
        let is_excused = self.reset.is_some_and(|reset| now < reset.max(self.asked) + TTL);
        self.is_stale |= truth.admitted && !is_excused;
        self.is_late |= self.reset.is_none() && found.wait > truth.wait;
    }
}

impl Model for Refusals {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        vec![World {
            now: 0,
            store: State::new(StateKind::SlidingWindow),
            cache: DenyCache::new(1, self.ttl),
            flights: Vec::new(),
            reset: None,
            asked: 0,
            is_stale: false,
            is_late: false,
        }]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        if world.now < LAST {
            actions.push(Action::Tick);
        }
        if world.flights.len() < 2 {
            actions.extend([Action::Call(1)]);
        }
        if world.reset.is_none() {
            actions.extend([Action::TakeElsewhere, Action::ResetElsewhere]);
        }
        for (index, flight) in world.flights.iter().enumerate() {
            let next = if flight.outcome.is_some() { Action::Land } else { Action::Reach };
            actions.extend([next(index), Action::Lose(index)]);
        }
    }

    fn next_state(&self, last: &World, action: Action) -> Option<World> {
        let mut world = last.clone();
        match action {
            Action::Tick => world.now += 1,
            Action::Call(cost) => world.call(cost),
            Action::TakeElsewhere => {
                decide(&mut world.store, world.now, Op::Take, 1);
            }
            Action::ResetElsewhere => {
                world.store = State::new(StateKind::SlidingWindow);
                world.reset = Some(world.now);
            }
            Action::Reach(index) => {
                let flight = &mut world.flights[index];
                flight.outcome = Some(decide(&mut world.store, last.now, Op::Take, flight.cost));
            }
            Action::Land(index) => {
                let Flight { cost, sent, outcome } = world.flights.remove(index);
                let sent = at(if self.counts_from_the_reply { last.now } else { sent });
                let trip = RoundTrip { sent, answered: at(last.now) };
                world.cache.insert(key(), Request::new(&POLICY, Op::Take, cost), outcome?, trip);
            }
            Action::Lose(index) => {
                world.flights.remove(index);
            }
        }
        Some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(STALE, |_, world: &World| !world.is_stale),
            Property::always(LATE, |_, world: &World| !world.is_late),
        ]
    }
}

#[test]
fn remembered_refusals_survive_every_order() {
    let ttl = SECOND * u32::try_from(TTL).unwrap();
    assert_holds("remembered refusals", STEPS, Refusals { ttl, counts_from_the_reply: false });
    assert_breaks(STALE, STEPS, Refusals { ttl: 60 * SECOND, counts_from_the_reply: false });
    assert_breaks(LATE, STEPS, Refusals { ttl, counts_from_the_reply: true });
}
