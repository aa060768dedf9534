//! Leases of a process with crashes, lost messages, resets and turns: drives [`Stock`]. The store
//! is a copy of `log/lease.lua`.

use std::time::Duration;

use stateright::{Model, Property};

use super::stock::{LeaseStep, Stock};
use crate::{
    explore::{assert_breaks, assert_holds, compared_by_text},
    policy::Policy,
    redis::{
        deny_cache::RoundTrip,
        script::{Grant, LeaseMark, LeaseRequest},
    },
    time::{Micros, Timestamp},
};

const THRESHOLD: u32 = 16;
/// Instants of the model: the window, a lease, and the last one.
const PERIOD: u64 = 3;
const LENGTH: u64 = 2;
const LAST: u64 = 5;
const TICK: u64 = 1_000_000;
const STEPS: usize = 14;
/// The units of a lease at most, and of a call.
const COST: u32 = THRESHOLD / 8;
/// The units of a call that has a turn.
const MANY: u32 = THRESHOLD - COST;

const POLICY: Policy = Policy::sliding_window("p", Duration::from_secs(PERIOD), THRESHOLD)
    .lease(Duration::from_secs(LENGTH));

const BOUNDED: &str = "no window has more than the threshold, on lease or not";
const KEPT: &str = "no call uses units from before its caller's reset";

#[derive(Default)]
struct Leases {
    /// An entry counts from the time at which its units were taken, and not from their last
    /// possible use.
    stamps_at_the_start: bool,
    /// A process that was reset uses units from before.
    keeps_after_reset: bool,
}

#[derive(Clone, Debug)]
struct World {
    now: u64,
    log: Vec<Entry>,
    processes: [Process; 1],
    flights: Vec<Flight>,
    /// The units that calls took, each with the time of its use.
    uses: Vec<(u64, u32)>,
    crashes: u32,
    losses: u32,
    turns: u32,
    resets: u32,
    /// Units that a process used of a lease which its caller's reset had ended.
    is_used_after_reset: bool,
}

compared_by_text!(World);

#[derive(Clone, Debug)]
struct Entry {
    id: u64,
    stamp: u64,
    units: u32,
}

#[derive(Clone, Debug)]
struct Process {
    stock: Stock,
    pending: u64,
    /// `true` from a reset until the next grant of units asked for since.
    is_reset: bool,
}

#[derive(Clone, Debug)]
struct Flight {
    to: Option<usize>,
    sent: u64,
    request: LeaseRequest,
    grant: Option<Grant>,
    is_stale: bool,
}

#[derive(Clone, Debug, PartialEq)]
enum Action {
    Tick,
    Call(usize),
    Step(usize),
    Reach(usize),
    Land(usize),
    Lose(usize),
    Crash(usize),
    /// A call of many units that Redis decides, now or at its turn.
    Turn,
    Reset(usize),
}

fn at(tick: u64) -> Timestamp {
    Timestamp::new(20_000_000 + tick * TICK)
}

fn tick(at: Timestamp) -> u64 {
    (at.get() - 20_000_000) / TICK
}

impl Process {
    fn new(now: u64) -> Self {
        let stock = Stock::new(&POLICY, Micros::new(TICK), at(now)).expect("leases of two units");
        Self { stock, pending: 0, is_reset: false }
    }
}

impl World {
    /// Returns the units that a window up to `end` has, with those that lie ahead.
    fn used(&self, end: u64) -> u32 {
        self.log.iter().filter(|it| it.stamp + PERIOD > end).map(|it| it.units).sum()
    }

    fn call(&mut self, index: usize) {
        let process = &mut self.processes[index];
        match process.stock.take(COST, at(self.now)) {
            Some(Ok(outcome)) if outcome.admitted => {
                self.is_used_after_reset |= process.is_reset;
                self.uses.push((self.now, COST));
            }
            Some(Err(())) => process.pending = COST.into(),
            None if self.used(self.now) + COST <= THRESHOLD => {
                self.log.push(Entry { id: 0, stamp: self.now, units: COST });
                self.uses.push((self.now, COST));
            }
            Some(Ok(_)) | None => {}
        }
    }

    /// The store receives a request for units.
    fn grant(&mut self, request: LeaseRequest, stamps_at_the_start: bool) -> Grant {
        let now = self.now;
        if let Some(ended) = request.returned {
            let is_it = |it: &&mut Entry| it.id == ended.mark.id && it.id > 0;
            if let Some(entry) = self.log.iter_mut().find(is_it) {
                let last = tick(ended.mark.at) + ended.age.get() / TICK;
                (entry.units, entry.stamp) = (ended.used, entry.stamp.min(last));
            }
        }
        let free = THRESHOLD.saturating_sub(self.used(now));
        let units = request.want.min(free);
        let id = self.log.iter().map(|it| it.id).max().unwrap_or(0) + 1;
        let stamp = if stamps_at_the_start { now } else { now + LENGTH };
        self.log.push(Entry { id, stamp, units });
        self.log.retain(|it| it.units > 0 && it.stamp + PERIOD > now);
        let span = |ticks| Micros::new(ticks * TICK);
        Grant {
            units,
            allowed: span(LENGTH),
            tier: 0,
            remaining: free - units,
            wait: span(1),
            reset: span(PERIOD),
            mark: LeaseMark { at: at(now), birth: 1, id },
        }
    }

    /// A call waits in line for as long as it needs.
    fn turn(&mut self) {
        let fits = |turn: &u64| self.used(*turn) + MANY <= THRESHOLD;
        let turn = (self.now..=LAST + 2 * PERIOD).find(fits).expect("all entries end");
        self.log.push(Entry { id: 0, stamp: turn, units: MANY });
        self.uses.push((turn, MANY));
    }

    fn is_bounded(&self) -> bool {
        self.uses.iter().all(|(end, _)| {
            let inside = self.uses.iter().filter(|(at, _)| at <= end && at + PERIOD > *end);
            inside.map(|(_, units)| units).sum::<u32>() <= THRESHOLD
        })
    }
}

impl Model for Leases {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        vec![World {
            now: 0,
            log: Vec::new(),
            processes: [Process::new(0)],
            flights: Vec::new(),
            uses: Vec::new(),
            crashes: 0,
            losses: 0,
            turns: 0,
            resets: 0,
            is_used_after_reset: false,
        }]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        if world.now < LAST {
            actions.push(Action::Tick);
        }
        if world.turns < 2 && world.now.is_multiple_of(PERIOD) {
            actions.push(Action::Turn);
        }
        for index in 0..world.processes.len() {
            let is_out = world.flights.iter().any(|it| it.to == Some(index));
            if world.processes[index].pending == 0 {
                actions.push(Action::Call(index));
            }
            if !is_out {
                actions.push(Action::Step(index));
            }
        }
        if world.crashes == 0 {
            actions.push(Action::Crash(0));
        }
        if world.resets == 0 {
            actions.push(Action::Reset(0));
        }
        for (index, flight) in world.flights.iter().enumerate() {
            let next = if flight.grant.is_some() { Action::Land } else { Action::Reach };
            actions.push(next(index));
            if world.losses == 0 {
                actions.push(Action::Lose(index));
            }
        }
    }

    fn next_state(&self, last: &World, action: Action) -> Option<World> {
        let mut world = last.clone();
        let now = world.now;
        match action {
            Action::Tick => world.now += 1,
            Action::Call(index) => world.call(index),
            Action::Step(index) => {
                let process = &mut world.processes[index];
                match process.stock.step(process.pending, at(now)) {
                    LeaseStep::Sleep(_) => return None,
                    LeaseStep::End => *process = Process::new(now),
                    LeaseStep::Exchange(request) => {
                        let (to, grant, is_stale) = (Some(index), None, false);
                        world.flights.push(Flight { to, sent: now, request, grant, is_stale });
                    }
                }
            }
            Action::Reach(index) => {
                let request = world.flights[index].request;
                world.flights[index].grant = Some(world.grant(request, self.stamps_at_the_start));
            }
            Action::Land(index) => {
                let Flight { to, sent, request, grant, is_stale } = world.flights.remove(index);
                let Some(to) = to else { return Some(world) };
                let process = &mut world.processes[to];
                process.is_reset &= is_stale;
                let trip = RoundTrip { sent: at(sent), answered: at(now) };
                if request.want == 0 {
                    *process = Process::new(now);
                    return Some(world);
                }
                process.stock.receive(grant?, trip);
                if process.pending > 0 {
                    process.pending = 0;
                    world.call(to);
                    world.processes[to].pending = 0;
                }
            }
            Action::Lose(index) => {
                world.losses += 1;
                if let Some(to) = world.flights.remove(index).to {
                    world.processes[to] = Process::new(now);
                }
            }
            Action::Crash(index) => {
                world.crashes += 1;
                world.processes[index] = Process::new(now);
                let of_it = world.flights.iter_mut().filter(|it| it.to == Some(index));
                of_it.for_each(|it| it.to = None);
            }
            Action::Turn => {
                world.turns += 1;
                world.turn();
            }
            Action::Reset(index) => {
                world.resets += 1;
                if !self.keeps_after_reset {
                    world.processes[index].stock.invalidate();
                }
                world.processes[index].is_reset = true;
                let of_it = world.flights.iter_mut().filter(|it| it.to == Some(index));
                of_it.for_each(|it| it.is_stale = true);
            }
        }
        world.uses.retain(|(at, _)| at + 2 * PERIOD > now);
        Some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(BOUNDED, |_, world: &World| world.is_bounded()),
            Property::always(KEPT, |_, world: &World| !world.is_used_after_reset),
        ]
    }
}

#[test]
fn leases_survive_every_order_of_crashes_and_turns() {
    assert_holds("leases", STEPS - 1, Leases::default());
    assert_breaks(BOUNDED, STEPS, Leases { stamps_at_the_start: true, ..Leases::default() });
    assert_breaks(KEPT, STEPS, Leases { keeps_after_reset: true, ..Leases::default() });
}
