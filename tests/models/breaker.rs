//! The breakers of two servers that redirect calls to each other: drives [`Breaker`] and
//! [`BreakerGuard`].

use std::mem;

use stateright::{Model, Property};

use super::*;
use crate::explore::{assert_breaks, assert_holds};

/// Longer than the longest pause: a probe is due after it.
const TICK: Duration = Duration::from_secs(5);
const STEPS: usize = 14;
const SILENT: UnavailableReason = UnavailableReason::Disconnected;
const REFUSED: UnavailableReason = UnavailableReason::ReadOnly;

const OWNED: &str = "a probe that is out belongs to a call, and to one";
const ASKED: &str = "an open breaker permits a probe after its pause, unless a call makes one";
const OWN: &str = "a server that redirects does not answer for the other's failures";

#[derive(Default)]
struct Redirects {
    /// A call that is dropped does not permit the next probe.
    leaks: bool,
    /// A redirected call records its end at the server that sent it on.
    blames_the_first: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Server {
    failures: u32,
    probes: u64,
    outage: Option<KnownOutage>,
    /// The failures in a row of calls that reached it.
    own_failures: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct KnownOutage {
    is_due: bool,
    probe: Option<u64>,
    reason: UnavailableReason,
    /// The ticks since its end.
    ended: Option<u32>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct World {
    servers: [Server; 2],
    calls: Vec<Sent>,
}

/// A call under way.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Sent {
    to: usize,
    /// The server that records its end.
    recorded_by: usize,
    probe: Option<u64>,
    is_of_hash: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Tick,
    Send(usize, bool),
    Succeed(usize),
    Fail(usize, UnavailableReason),
    Drop(usize),
    Redirect(usize),
}

impl Server {
    /// Returns the real breaker in this state.
    fn breaker(&self) -> Arc<Breaker> {
        let now = Instant::now();
        let outage = self.outage.as_ref().map(|known| Outage {
            backoff: BACKOFF,
            probe_at: if known.is_due { now } else { now + TICK },
            probe: known.probe,
            reason: known.reason,
            since: SystemTime::UNIX_EPOCH,
            ended: known.ended.map(|ticks| now - TICK * ticks),
        });
        Arc::new(Breaker {
            server: String::new(),
            failures: AtomicU32::new(self.failures),
            state: Mutex::new(BreakerState { outage, probes: self.probes }),
        })
    }

    fn read(&mut self, breaker: &Breaker) {
        let (state, now) = (breaker.state.lock(), Instant::now());
        self.failures = breaker.failures.load(Ordering::Relaxed);
        self.probes = state.probes;
        self.outage = state.outage.as_ref().map(|outage| KnownOutage {
            is_due: outage.probe_at <= now,
            probe: outage.probe,
            reason: outage.reason,
            ended: outage.ended.map(|ended| u32::from(now - ended >= TICK) * 2),
        });
    }

    fn open(&self) -> Option<&KnownOutage> {
        self.outage.as_ref().filter(|outage| outage.ended.is_none())
    }
}

impl World {
    fn send(&mut self, to: usize, recorded_by: usize, is_of_hash: bool) {
        let breaker = self.servers[to].breaker();
        if let Ok(guard) = breaker.guard(is_of_hash) {
            self.calls.push(Sent { to, recorded_by, probe: guard.probe, is_of_hash });
            mem::forget(guard);
        }
        self.servers[to].read(&breaker);
    }

    /// A read proves nothing of scripts.
    fn answered(&mut self, call: &Sent) {
        if !call.is_of_hash {
            self.servers[call.to].own_failures = 0;
        }
    }

    fn end(&mut self, index: usize, end: impl FnOnce(BreakerGuard)) -> Sent {
        let call = self.calls.remove(index);
        let breaker = self.servers[call.recorded_by].breaker();
        let Sent { probe, is_of_hash, .. } = call;
        end(BreakerGuard { breaker: Arc::clone(&breaker), probe, is_of_hash });
        self.servers[call.recorded_by].read(&breaker);
        call
    }
}

impl Model for Redirects {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        let failing =
            Server { failures: FAILURE_THRESHOLD - 1, own_failures: 4, ..Server::default() };
        vec![World { servers: [failing.clone(), failing], calls: Vec::new() }]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        actions.push(Action::Tick);
        if world.calls.len() < 2 {
            actions.extend([Action::Send(0, false), Action::Send(0, true)]);
        }
        for index in 0..world.calls.len() {
            actions.extend([Action::Succeed(index), Action::Drop(index), Action::Redirect(index)]);
            actions.extend([SILENT, REFUSED].map(|reason| Action::Fail(index, reason)));
        }
    }

    fn next_state(&self, last: &World, action: Action) -> Option<World> {
        let mut world = last.clone();
        match action {
            Action::Tick => {
                for server in &mut world.servers {
                    if let Some(outage) = &mut server.outage {
                        outage.is_due = true;
                        outage.ended = outage.ended.map(|_| 2);
                    }
                }
            }
            Action::Send(to, is_of_hash) => world.send(to, to, is_of_hash),
            Action::Succeed(index) => {
                let call = world.end(index, BreakerGuard::succeeded);
                world.answered(&call);
            }
            Action::Fail(index, reason) => {
                let call = world.end(index, |guard| guard.failed(reason));
                world.servers[call.to].own_failures += 1;
            }
            Action::Drop(index) => {
                let leaks = self.leaks;
                world.end(index, |guard| {
                    if leaks {
                        mem::forget(guard);
                    }
                });
            }
            Action::Redirect(index) => {
                let call = world.end(index, BreakerGuard::succeeded);
                world.answered(&call);
                let recorded_by = if self.blames_the_first { call.to } else { 1 - call.to };
                world.send(1 - call.to, recorded_by, call.is_of_hash);
            }
        }
        Some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(OWNED, |_, world: &World| {
                world.servers.iter().enumerate().all(|(server, it)| {
                    let Some(probe) = it.open().and_then(|open| open.probe) else { return true };
                    let is_it =
                        |call: &&Sent| call.recorded_by == server && call.probe == Some(probe);
                    world.calls.iter().filter(is_it).count() == 1
                })
            }),
            Property::always(ASKED, |_, world: &World| {
                world.servers.iter().enumerate().all(|(server, it)| {
                    let is_probe = |call: &Sent| call.recorded_by == server && call.probe.is_some();
                    let waits = world.calls.iter().any(is_probe)
                        || it.open().is_some_and(|open| !open.is_due);
                    waits || it.breaker().guard(false).is_ok()
                })
            }),
            Property::always(OWN, |_, world: &World| {
                world.servers.iter().all(|server| server.failures <= server.own_failures)
            }),
        ]
    }

    fn within_boundary(&self, world: &World) -> bool {
        world.servers.iter().all(|server| server.probes <= 1 && server.own_failures <= 5)
    }
}

#[test]
fn breakers_survive_every_order_of_redirects() {
    assert_holds("circuit breakers", STEPS, Redirects::default());
    for broken in [OWNED, ASKED] {
        assert_breaks(broken, STEPS, Redirects { leaks: true, ..Redirects::default() });
    }
    assert_breaks(OWN, STEPS, Redirects { blames_the_first: true, ..Redirects::default() });
}
