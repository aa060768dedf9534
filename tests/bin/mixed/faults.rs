//! The faults of a round.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use fastrand::Rng;
use harness::{RedisServer, mixed::Gap, wall_clock};

use crate::{plan::Mix, store::Store};

/// The time in which a process is connected again.
const CONNECTS: u64 = 500_000;

/// Notes the times in which Redis did not answer, by a connection of its own.
pub(crate) struct RedisWatch {
    gaps: Arc<Mutex<Vec<Gap>>>,
    is_over: Arc<AtomicBool>,
}

impl RedisWatch {
    pub(crate) fn start(server: &RedisServer) -> Self {
        const NAP: Duration = Duration::from_millis(5);
        let (gaps, is_over) = (Arc::<Mutex<Vec<Gap>>>::default(), Arc::<AtomicBool>::default());
        let mut connection = server.connection();
        let (kept, stops) = (Arc::clone(&gaps), Arc::clone(&is_over));
        let address = server.url();
        thread::spawn(move || {
            while !stops.load(Ordering::Relaxed) {
                let (from, start) = (wall_clock(), Instant::now());
                thread::sleep(NAP);
                if redis::cmd("PING").exec(&mut connection).is_err() {
                    let Ok(client) = redis::Client::open(&*address) else { return };
                    let Ok(next) = client.get_connection() else { return };
                    connection = next;
                }
                if start.elapsed() > 3 * NAP {
                    let gap = Gap { process: None, runtime: 0, span: (from, wall_clock()) };
                    kept.lock().expect("no panic").push(gap);
                }
            }
        });
        Self { gaps, is_over }
    }

    pub(crate) fn gaps(&self) -> Vec<Gap> {
        self.gaps.lock().expect("no panic").clone()
    }
}

impl Drop for RedisWatch {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

/// Causes faults, and keeps when.
pub(crate) struct Faults<'a> {
    pub(crate) store: &'a mut Store,
    pub(crate) outages: Vec<(u64, u64)>,
    pub(crate) losses: Vec<(u64, u64)>,
    /// The times of the kills of primaries.
    pub(crate) kills: Vec<(u64, u64)>,
}

/// The processes that faults stop and kill.
pub(crate) trait Victims {
    fn kill_one(&mut self, random: &mut Rng);
    fn stop_one(&mut self, random: &mut Rng, pause: Duration);
}

impl Faults<'_> {
    /// Causes faults for as long as they may leave units behind: all but the last part of the load.
    pub(crate) fn cause(
        &mut self,
        from: u64,
        random: &mut Rng,
        mix: &Mix,
        victims: &mut impl Victims,
    ) {
        let names = ["pause", "disconnect", "lost", "kill", "stop", "flushall", "reshard"];
        let names: Vec<_> = names.into_iter().filter(|name| mix.has(name)).collect();
        let mut coming = Vec::new();
        pause_for(random, from.saturating_sub(wall_clock()) / 1_000 + 700);
        while !names.is_empty() && wall_clock() < from + mix.load() / 2 {
            if coming.is_empty() {
                coming.clone_from(&names);
                random.shuffle(&mut coming);
            }
            let start = wall_clock();
            match coming.pop() {
                Some("pause") => {
                    let millis = random.u64(30..300);
                    self.store.send(&format!("CLIENT PAUSE {millis} ALL"));
                    thread::sleep(Duration::from_millis(millis));
                    self.outages.push((start, wall_clock() + CONNECTS / 5));
                }
                Some("disconnect") => {
                    self.store.send("CLIENT KILL TYPE normal");
                    self.outages.push((start, wall_clock() + CONNECTS));
                }
                Some("lost") => {
                    self.store.lose(Duration::from_millis(random.u64(30..250)));
                    self.outages.push((start, wall_clock() + 4 * CONNECTS));
                }
                Some("kill") => victims.kill_one(random),
                Some("stop") => {
                    let pause = Duration::from_millis(random.u64(50..1_300));
                    victims.stop_one(random, pause);
                }
                Some("reshard") => {
                    if !self.store.reshard(random) {
                        eprintln!("a primary lost its claim to a slot, and deleted the keys");
                        self.losses.push((start, wall_clock()));
                    }
                }
                _ => {
                    self.store.send("FLUSHALL");
                    self.losses.push((start, wall_clock()));
                }
            }
            pause_for(random, 700);
        }
        if mix.has("failover") {
            let start = wall_clock();
            self.store.fail_over(random);
            self.kills.push((start, start));
            self.outages.push((start, wall_clock() + 4 * CONNECTS));
        }
    }
}

fn pause_for(random: &mut Rng, longest: u64) {
    thread::sleep(Duration::from_millis(random.u64(longest / 3..=longest)));
}
