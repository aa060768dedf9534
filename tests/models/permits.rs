//! Permits with timeouts, lost messages, crashes and clock steps: a copy of the permits of
//! `gates.lua` and of `renew.lua`, without those who wait, and of
//! [`HeldPermit`](super::HeldPermit).

use std::collections::BTreeMap;

use stateright::{Model, Property};

use crate::explore::{assert_breaks, assert_holds};

/// Instants of the model.
const TIMEOUT: i64 = 3;
const LAST: i64 = 8;
const MOST: usize = 1;
const CALLS: usize = 2;
const STEPS: usize = 12;

const BOUNDED: &str = "no more calls hold permits than there are, unless the clock steps ahead";
const FREED: &str =
    "a permit that nobody renews is free one timeout later, or after the next look at it";

#[derive(Default)]
struct Permits {
    /// Permits of before a step back keep their times.
    keeps_late_times: bool,
    /// A renewal returns a permit without asking for room.
    renews_without_room: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct World {
    now: i64,
    /// The server's clock less the real time.
    ahead: i64,
    steps: u32,
    /// The permits on the server, each with the time from which it is free.
    permits: BTreeMap<u32, i64>,
    /// The calls in flight: the id of a permit, and the real time up to which it is certain.
    calls: [Option<(u32, i64)>; CALLS],
    next_id: u32,
    /// The last time at which a permit was added, renewed, or looked at after a step back.
    touched: i64,
    is_stepped_back: bool,
    is_stuck: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Tick,
    /// A call asks for a permit; its reply may be lost.
    Take(usize, bool),
    Renew(usize),
    /// A call ends; its release may be lost.
    Finish(usize, bool),
    Step(i64),
}

impl World {
    fn server(&self) -> i64 {
        self.now + self.ahead
    }

    fn remove_expired(&mut self) {
        let now = self.server();
        self.permits.retain(|_, till| *till > now);
    }

    fn add(&mut self, id: u32) {
        self.touched = self.now;
        self.permits.insert(id, self.server() + TIMEOUT);
    }

    fn take(&mut self, call: usize, is_lost: bool, keeps_late_times: bool) {
        self.remove_expired();
        let latest = self.server() + TIMEOUT;
        if !keeps_late_times {
            self.permits.values_mut().for_each(|till| *till = latest.min(*till));
        }
        if self.permits.len() < MOST {
            let id = self.next_id;
            self.next_id += 1;
            self.add(id);
            self.calls[call] = (!is_lost).then_some((id, self.now + TIMEOUT));
            return;
        }
        let is_held = self.calls.iter().any(Option::is_some);
        if std::mem::take(&mut self.is_stepped_back) {
            self.touched = self.now;
        }
        self.is_stuck |= !is_held && self.now >= self.touched + TIMEOUT;
    }

    fn renew(&mut self, call: usize, has_room: bool) {
        let Some((id, _)) = self.calls[call] else { return };
        if !self.permits.contains_key(&id) {
            self.remove_expired();
            if self.permits.len() >= MOST && !has_room {
                // The call goes on, and is counted as one without a permit.
                self.calls[call] = None;
                return;
            }
        }
        self.add(id);
        self.calls[call] = Some((id, self.now + TIMEOUT));
    }
}

impl Model for Permits {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        vec![World {
            now: 0,
            ahead: 0,
            steps: 0,
            permits: BTreeMap::new(),
            calls: [None; CALLS],
            next_id: 0,
            touched: 0,
            is_stepped_back: false,
            is_stuck: false,
        }]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        if world.now < LAST {
            actions.push(Action::Tick);
        }
        if world.steps == 0 {
            actions.extend([Action::Step(-5), Action::Step(5)]);
        }
        for call in 0..CALLS {
            if world.calls[call].is_none() {
                actions.extend([false, true].map(|is_lost| Action::Take(call, is_lost)));
            } else {
                actions.push(Action::Renew(call));
                actions.extend([false, true].map(|is_lost| Action::Finish(call, is_lost)));
            }
        }
    }

    fn next_state(&self, last: &World, action: Action) -> Option<World> {
        let mut world = last.clone();
        match action {
            Action::Tick => world.now += 1,
            Action::Take(call, is_lost) => world.take(call, is_lost, self.keeps_late_times),
            Action::Renew(call) => world.renew(call, self.renews_without_room),
            // A process that dies releases nothing either.
            Action::Finish(call, is_lost) => {
                let (id, _) = world.calls[call].take()?;
                if !is_lost {
                    world.permits.remove(&id);
                }
            }
            Action::Step(by) => {
                (world.steps, world.ahead) = (1, by);
                world.is_stepped_back = by < 0;
            }
        }
        Some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(BOUNDED, |_, world: &World| {
                let certain = world.calls.iter().flatten().filter(|(_, until)| world.now < *until);
                certain.count() <= MOST || world.ahead > 0
            }),
            Property::always(FREED, |_, world: &World| !world.is_stuck),
        ]
    }
}

#[test]
fn permits_survive_every_order_of_losses_and_clock_steps() {
    assert_holds("permits", STEPS, Permits::default());
    assert_breaks(BOUNDED, STEPS, Permits { renews_without_room: true, ..Permits::default() });
    assert_breaks(FREED, STEPS, Permits { keeps_late_times: true, ..Permits::default() });
}
