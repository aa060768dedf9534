//! The faults that a soak causes in its Redis, each of them once a round.

use std::{fmt, ops::RangeInclusive, time::Duration};

use harness::{Clock, Network, Promise, Proxy, RedisServer, wall_clock};

use crate::micros;

/// The longest duration of a fault.
const LONGEST: Duration = Duration::from_millis(400);

/// The time after its deadline in which a call may still be counted: it waits in a stopped server or a slow
/// network.
pub(crate) const LATE: Duration = Duration::from_millis(800);

/// The longest pause between two faults.
const BETWEEN: Duration = Duration::from_millis(800);

/// The time until every caller has a new decision: a refusal lasts a period at most, and a healthy server is
/// probed within a second.
const ASKED_ANEW: Duration = Duration::from_millis(1_500);

/// The furthest that the clock is ahead or behind, in milliseconds.
const FURTHEST: i64 = 10_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Killed,
    Stopped,
    ScriptsFlushed,
    ClientsKilled,
    Slow,
    InBytes,
    Swallowed,
    Forgotten,
    Reset,
    HalfClosed,
    Refused,
    ClockForward,
    ClockBack,
}

const FAULTS: [(Fault, &str); 13] = [
    (Fault::Killed, "kills"),
    (Fault::Stopped, "stops"),
    (Fault::ScriptsFlushed, "flushes of scripts"),
    (Fault::ClientsKilled, "kills of clients"),
    (Fault::Slow, "slow networks"),
    (Fault::InBytes, "networks of single bytes"),
    (Fault::Swallowed, "swallowed replies"),
    (Fault::Forgotten, "forgotten connections"),
    (Fault::Reset, "resets"),
    (Fault::HalfClosed, "half-closed connections"),
    (Fault::Refused, "refused connections"),
    (Fault::ClockForward, "steps of the clock forward"),
    (Fault::ClockBack, "steps back"),
];

/// A Redis behind a proxy, with a clock of its own.
pub(crate) struct Server {
    redis: RedisServer,
    proxy: Proxy,
    clock: Clock,
    ahead: i64,
    random: fastrand::Rng,
    /// The remaining faults of this round.
    coming: Vec<Fault>,
    disturbed: Disturbed,
}

/// The faults so far that excuse answers.
#[derive(Default)]
pub(crate) struct Disturbed {
    losses: Vec<RangeInclusive<u64>>,
    set_back: Vec<RangeInclusive<u64>>,
    counts: [u32; FAULTS.len()],
    /// All faults of late, in their order.
    latest: Vec<(&'static str, RangeInclusive<u64>)>,
}

impl Server {
    pub(crate) fn start(seed: u64) -> Self {
        let clock = Clock::new();
        // Other systems have no way to give a server a clock of its own.
        let redis =
            if cfg!(target_os = "linux") { clock.server(&[]) } else { RedisServer::start() };
        let proxy = Proxy::start(redis.port());
        let random = fastrand::Rng::with_seed(seed);
        let (coming, disturbed) = (Vec::new(), Disturbed::default());
        Self { redis, proxy, clock, ahead: 0, random, coming, disturbed }
    }

    pub(crate) fn url(&self) -> String {
        self.proxy.url()
    }

    pub(crate) fn redis(&self) -> &RedisServer {
        &self.redis
    }

    pub(crate) fn disturbed(&self) -> &Disturbed {
        &self.disturbed
    }

    /// Drops the faults that excuse no answer any more.
    pub(crate) fn forget(&mut self) {
        let since = wall_clock() - micros(Duration::from_secs(10));
        self.disturbed.losses.retain(|time| *time.end() >= since);
        self.disturbed.set_back.retain(|time| *time.end() >= since);
        self.disturbed.latest.retain(|(_, time)| *time.end() >= since);
    }

    /// Causes the next fault, and then pauses.
    pub(crate) async fn disturb(&mut self) {
        if self.coming.is_empty() {
            self.coming = FAULTS.map(|(fault, _)| fault).to_vec();
            self.random.shuffle(&mut self.coming);
        }
        let Some(fault) = self.coming.pop() else { return };
        let from = wall_clock();
        self.bring_about(fault).await;
        let at = FAULTS.iter().position(|(it, _)| *it == fault).expect("one of them");
        self.disturbed.counts[at] += 1;
        self.disturbed.latest.push((FAULTS[at].1, from..=wall_clock()));
        self.pause(BETWEEN).await;
    }

    async fn bring_about(&mut self, fault: Fault) {
        let latency = Duration::from_millis(self.random.u64(..30));
        match fault {
            Fault::Killed => {
                let from = wall_clock();
                self.redis.kill();
                self.disturbed.losses.push(from..=wall_clock());
                self.pause(LONGEST).await;
                self.redis.restart();
            }
            Fault::Stopped => {
                self.redis.signal("STOP");
                self.pause(LONGEST).await;
                self.redis.signal("CONT");
            }
            Fault::ScriptsFlushed => self.redis.command("SCRIPT FLUSH"),
            Fault::ClientsKilled => {
                let _: i64 = self.redis.command("CLIENT KILL TYPE normal");
            }
            Fault::Slow => self.cut_off(Network::Slow { latency, jitter: latency }).await,
            Fault::InBytes => self.cut_off(Network::InBytes).await,
            Fault::Swallowed => {
                self.proxy.set(Network::Swallows);
                self.pause(LONGEST).await;
                // No network loses a part of a stream and then delivers the rest.
                self.proxy.set(Network::Forgets);
            }
            Fault::Forgotten => self.proxy.set(Network::Forgets),
            Fault::Reset => {
                let bytes = self.random.usize(1..2_000);
                self.cut_off(Network::ResetsAfter(bytes)).await;
            }
            Fault::HalfClosed => self.cut_off(Network::HalfClosed).await,
            Fault::Refused => {
                self.proxy.set(Network::Refuses);
                let _: i64 = self.redis.command("CLIENT KILL TYPE normal");
                self.pause(LONGEST).await;
                self.proxy.heal();
            }
            Fault::ClockForward => {
                let from = wall_clock();
                self.step(1);
                self.disturbed.losses.push(from..=wall_clock());
            }
            Fault::ClockBack => {
                let from = wall_clock();
                self.step(-1);
                tokio::time::sleep(ASKED_ANEW).await;
                self.disturbed.set_back.push(from..=wall_clock());
            }
        }
    }

    async fn cut_off(&mut self, network: Network) {
        self.proxy.set(network);
        self.pause(LONGEST).await;
        self.proxy.heal();
    }

    /// Sets the clock by up to three seconds.
    fn step(&mut self, direction: i64) {
        let ahead = self.ahead + direction * self.random.i64(1..3_000);
        self.ahead = ahead.clamp(-FURTHEST, FURTHEST);
        self.clock.set_ahead(self.ahead);
    }

    async fn pause(&mut self, longest: Duration) {
        tokio::time::sleep(longest.mul_f64(self.random.f64())).await;
    }
}

impl Disturbed {
    /// Returns `true` if every fault has occurred.
    pub(crate) fn is_complete(&self) -> bool {
        self.counts.iter().all(|count| *count > 0)
    }

    /// Returns the faults of late, with the microseconds of each.
    pub(crate) fn latest(&self) -> String {
        let lines = self
            .latest
            .iter()
            .map(|(name, time)| format!("{} to {}: {name}", time.start(), time.end()));
        lines.collect::<Vec<_>>().join("\n")
    }

    /// Returns the promise of a limit under these faults.
    pub(crate) fn promise(&self, period: Duration, threshold: usize) -> Promise {
        let (losses, set_back) = (self.losses.clone(), self.set_back.clone());
        let (period, late) = (micros(period), micros(LATE));
        Promise { period, threshold, late, refills: false, losses, set_back }
    }
}

/// The number of times that each fault has occurred.
impl fmt::Display for Disturbed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = FAULTS.iter().zip(self.counts);
        let counts: Vec<_> = counts.map(|((_, name), count)| format!("{count} {name}")).collect();
        f.write_str(&counts.join(", "))
    }
}
