//! Leases in virtual time: processes take units ahead from the shipped scripts, use them at random times, give
//! the rest back or die. Others call directly, wait for turns, and give units back. No history of uses breaks
//! the rule of its algorithm.

mod in_line;

use std::{iter, ops::Range};

use fastrand::Rng;
use harness::{RedisServer, schedule::operations};
use redis::{RedisResult, ToRedisArgs};

use self::in_line::Charge;
use super::{load, sources, with_clock};

/// All times are in microseconds.
const PERIOD: u64 = 200_000;
const LENGTH: u64 = 20_000;
const THRESHOLD: u64 = 400;
/// A second tier, which is the narrower one at times.
const LONG: u64 = 1_000_000;
const MOST: u64 = 1_500;
const PROCESSES: usize = 4;
const EVENTS: usize = 6_000;
const KEY: &str = "k";

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Sliding,
    Counter,
    Fixed,
    /// With a burst of so many tokens. Direct calls are of a function without a lease if `true`.
    Bucket(u64, bool),
}

/// A use of units, at its time.
#[derive(Clone, Copy, Debug)]
struct Use {
    at: u64,
    units: u64,
    /// The tokens that a bucket gets back. They were missing until then, while it was refilled.
    returned: u64,
}

impl Use {
    fn of(units: u64, at: u64) -> Self {
        Self { at, units, returned: 0 }
    }
}

#[derive(Clone, Copy)]
struct Lease {
    sent: u64,
    allowed: u64,
    units: u64,
    used: u64,
    last_use: u64,
    mark: [u64; 3],
}

struct Process {
    id: u64,
    lease: Option<Lease>,
}

struct World {
    kind: Kind,
    tiers: Vec<[u64; 2]>,
    connection: redis::Connection,
    take: String,
    exchange: String,
    now: u64,
    calls: u64,
    rng: Rng,
    /// `true` if calls wait, and give units back.
    waits: bool,
    uses: Vec<Use>,
    charges: Vec<Charge>,
    /// The units used before the last reset, and the first fault.
    before: (u64, Option<String>),
    /// The starts of all windows, of each tier.
    starts: Vec<Vec<u64>>,
}

impl World {
    /// A world in which the script of leases is changed. No key expires: that takes real time, and tests stall.
    fn new(server: &RedisServer, kind: Kind, seed: u64, change: impl Fn(&str) -> String) -> Self {
        let (script, lease) = match kind {
            Kind::Sliding => (sources::SLIDING_WINDOW, sources::LEASE_OF_LOG),
            Kind::Counter => (sources::SLIDING_COUNTER, sources::LEASE_OF_COUNTER),
            Kind::Fixed => (sources::FIXED_WINDOW, sources::LEASE_OF_FIXED),
            Kind::Bucket(..) => (sources::TOKEN_BUCKET, sources::LEASE_OF_BUCKET),
        };
        let tested = |text: &str| {
            let what = if kind == Kind::Sliding { "keep" } else { "lasts" };
            let shipped = format!("string.format('%d', math.floor({what} / 1000) + 999)");
            assert_eq!(text.matches(&shipped).count(), 1);
            with_clock(text, "{KEYS[3], KEYS[4]}", 1)
                .replace(&shipped, "'1000000000000'")
                .replace("math.ceil(RECENT * lease.length / 1000) + 999", "1000000000000")
        };
        let mut connection = server.connection();
        redis::cmd("FLUSHALL").exec(&mut connection).unwrap();
        let take = load(&mut connection, &tested(script[0]));
        let exchange = load(&mut connection, &tested(&change(lease)));
        let mut rng = Rng::with_seed(seed);
        let mut tiers = vec![[PERIOD, THRESHOLD]];
        if rng.bool() && !matches!(kind, Kind::Bucket(..)) {
            tiers.push([LONG, MOST]);
        }
        let starts = vec![Vec::new(); tiers.len()];
        Self {
            kind,
            tiers,
            connection,
            take,
            exchange,
            now: 1_700_000_000_000_000,
            calls: 0,
            rng,
            waits: seed % 2 == 1,
            uses: Vec::new(),
            charges: Vec::new(),
            before: (0, None),
            starts,
        }
    }

    /// Returns the arguments of an algorithm.
    fn arguments(&mut self, cost: u64) -> Vec<u64> {
        self.calls += 1;
        let id = 400 * self.calls;
        let mut arguments = vec![1, cost, 0, id, 0, self.tiers.len() as u64];
        (0..self.tiers.len()).for_each(|index| arguments.extend(self.tier(index)));
        arguments
    }

    /// Returns the arguments of a tier.
    fn tier(&self, index: usize) -> Vec<u64> {
        let [period, threshold] = self.tiers[index];
        match self.kind {
            Kind::Sliding | Kind::Fixed => vec![period, threshold],
            Kind::Counter => vec![period, threshold, 1],
            Kind::Bucket(burst, _) => {
                let refilled = (threshold * LENGTH).div_ceil(period);
                vec![period / threshold, 1, (burst - refilled) * period / threshold, 0]
            }
        }
    }

    /// Returns the state without the turns that lie ahead.
    fn state(&mut self) -> String {
        let state: RedisResult<Option<String>> =
            redis::cmd("GET").arg(KEY).query(&mut self.connection);
        if let Ok(state) = state {
            return state.unwrap_or_default();
        }
        let mut header = redis::cmd("ZRANGE");
        let [header]: [String; 1] =
            header.arg(KEY).arg(0).arg(0).query(&mut self.connection).expect("a line");
        header.split(';').nth(1).expect("a state").to_owned()
    }

    fn call(
        &mut self,
        script: &str,
        companion: &str,
        arguments: &[impl ToRedisArgs],
    ) -> RedisResult<Vec<u64>> {
        let mut call = redis::cmd("EVALSHA");
        call.arg(script).arg(4).arg(KEY).arg(companion);
        call.arg(self.now / 1_000_000).arg(self.now % 1_000_000).arg(arguments);
        let reply: RedisResult<Vec<i64>> = call.query(&mut self.connection);
        let rest: i64 = redis::cmd("PTTL").arg(KEY).query(&mut self.connection)?;
        assert_ne!(rest, -1, "the key stays for ever under {:?}", self.kind);
        // The first number names the call.
        let reply = reply.map(|reply| {
            let rest = reply[1..].iter().map(|number| u64::try_from(*number).unwrap());
            iter::once(u64::from(reply[0] > 0)).chain(rest).collect()
        });
        if self.kind == Kind::Fixed {
            let state = self.state();
            let numbers: Vec<u64> =
                state.split(' ').skip(1).map(|number| number.parse().unwrap()).collect();
            for window in numbers.get(1..).unwrap_or_default().chunks(4) {
                let tier = self.tiers.iter().position(|tier| tier[0] == window[0]).unwrap();
                if self.starts[tier].last() != Some(&window[2]) {
                    self.starts[tier].push(window[2]);
                }
            }
        }
        reply
    }

    fn exchange(&mut self, process: &mut Process, want: u64) {
        let sent = self.now;
        self.now += self.rng.u64(..2_000);
        let old = process.lease.take().map_or([0; 6], |lease| {
            let Lease { sent, units, used, last_use, mark: [at, birth, id], .. } = lease;
            [units, used, last_use - sent, at, birth, id]
        });
        // A greedy process claims most of what is free.
        let demand =
            if want < 200 { self.rng.u64(1..100) } else { 8_u64.pow((self.calls % 16) as u32) };
        let mut arguments = vec![process.id, want, LENGTH, demand];
        arguments.extend(old);
        arguments.extend(self.arguments(want));
        let script = self.exchange.clone();
        let reply = self.call(&script, "k:l", &arguments);
        // While calls wait, other states than a log have no lease.
        let reply = reply.unwrap_or_else(|it| {
            assert!(self.kind != Kind::Sliding && it.to_string().contains("WRONGTYPE"), "{it}");
            Vec::new()
        });
        if let [_, _, _, _, at, _, _, birth, id, allowed, units] = reply[..]
            && units > 0
        {
            assert!(units <= want && allowed <= LENGTH, "{reply:?}");
            let mark = [at, birth, id];
            process.lease = Some(Lease { sent, allowed, units, used: 0, last_use: sent, mark });
        }
        self.now += self.rng.u64(..500);
    }

    fn use_units(&mut self, process: &mut Process, all: bool) {
        if let Some(lease) = &mut process.lease
            && self.now < lease.sent + lease.allowed
        {
            let most = lease.units - lease.used;
            let units =
                if all || self.rng.u32(..4) == 0 { most } else { self.rng.u64(..=most.min(3)) };
            lease.used += units;
            if units > 0 {
                lease.last_use = self.now;
                self.uses.push(Use::of(units, self.now));
            }
        }
    }

    fn run(&mut self) {
        let mut processes: Vec<_> =
            (1..=PROCESSES as u64).map(|id| Process { id, lease: None }).collect();
        let (mut pace, mut hoards) = (400, false);
        let waits = self.waits;
        for event in 0..EVENTS {
            if event % 100 == 0 && !hoards {
                pace = [20, 100, 400, 2_000][self.rng.usize(..4)];
            }
            if event % 500 == 0 {
                // For a while units are taken and given back. Then all are used at once.
                if hoards {
                    for process in &mut processes {
                        self.use_units(process, true);
                    }
                }
                hoards = self.rng.u32(..3) == 0;
                pace = if hoards { 100 } else { pace };
            }
            // Near the end of a window now and then, where leases are cut.
            let to_end = PERIOD - self.now % PERIOD;
            let step = self.rng.u64(1..=pace);
            self.now +=
                if self.rng.u32(..40) == 0 { to_end.saturating_sub(step).max(1) } else { step };
            let process = &mut processes[self.rng.usize(..PROCESSES)];
            match self.rng.u32(..100) {
                0..70 if hoards => self.exchange(process, 200),
                _ if hoards => {}
                0..20 => {
                    let want = [1, 3, 40, 50, 200][self.rng.usize(..5)];
                    self.exchange(process, want);
                }
                20..22 => self.exchange(process, 0),
                // The process dies, and another one starts.
                22 => *process = Process { id: process.id + 10, lease: None },
                // All others stall.
                23 => self.now += LENGTH,
                24..29 => {
                    let cost = self.rng.u64(1..4);
                    self.take(cost, false);
                }
                29..32 if waits => {
                    let cost = self.rng.u64(1..40);
                    self.take(cost, true);
                }
                32..34 if waits => self.give_back(),
                34..42 => self.advance(),
                42 if waits && self.rng.u32(..40) == 0 => self.reset(&mut processes),
                _ => self.use_units(process, false),
            }
        }
        let used = self.before.0 + self.uses.iter().map(|it| it.units).sum::<u64>();
        // Of half a million calls' worlds one had 234.
        assert!(used > 100, "{used} units under {:?}", self.kind);
    }

    fn used(&self, from: u64, to: u64) -> u64 {
        let start = self.uses.partition_point(|it| it.at < from);
        self.uses[start..].iter().take_while(|it| it.at < to).map(|it| it.units).sum()
    }

    /// Returns the first use that the rule would not have admitted.
    fn fault(&mut self) -> Option<String> {
        self.uses.sort_by_key(|it| it.at);
        let is_fault = |used: u64, most: u64, from: u64| {
            (used > most).then(|| format!("{:?}: {used} of {most} units from {from}", self.kind))
        };
        let mut level = i64::MAX;
        let mut last = 0;
        for (tier, [period, threshold]) in self.tiers.iter().enumerate() {
            for start in &self.starts[tier] {
                let used = self.used(*start, start + period);
                if let Some(fault) = is_fault(used, *threshold, *start) {
                    return Some(fault);
                }
            }
            for (index, Use { at, units, returned }) in self.uses.iter().enumerate() {
                let fault = match self.kind {
                    Kind::Sliding => is_fault(self.used(at + 1 - period, at + 1), *threshold, *at),
                    Kind::Counter => {
                        let start = at - at % period;
                        let before = self.uses.partition_point(|it| it.at < start);
                        let current: u64 =
                            self.uses[before..=index].iter().map(|it| it.units).sum();
                        let weight = self.used(start - period, start) * (start + period - at);
                        is_fault(weight + current * period, threshold * period, *at)
                    }
                    Kind::Fixed => None,
                    Kind::Bucket(burst, is_mixed) => {
                        let (token, full) = (period / threshold, burst * period / threshold);
                        let full = i64::try_from(full).unwrap();
                        let refilled = i64::try_from(at - last).unwrap();
                        let refilled = refilled + i64::try_from(returned * token).unwrap();
                        level = level.saturating_add(refilled).min(full);
                        level -= i64::try_from(units * token).unwrap();
                        last = *at;
                        // The bucket of another policy may lack a part of a token.
                        let lowest = if is_mixed { 1 - i64::try_from(token).unwrap() } else { 0 };
                        (level < lowest).then(|| format!("{:?}: {level} at {at}", self.kind))
                    }
                };
                if fault.is_some() {
                    return fault;
                }
            }
        }
        None
    }
}

fn fault_of(kind: Kind, mut seeds: Range<u64>, change: impl Fn(&str) -> String) -> Option<String> {
    let server = RedisServer::start();
    seeds.find_map(|seed| {
        let mut world = World::new(&server, kind, seed, &change);
        world.run();
        world.before.1.take().or_else(|| world.fault())
    })
}

#[test]
fn no_history_breaks_the_rule_of_its_algorithm() {
    let buckets = [45, 100, THRESHOLD].map(|burst| [false, true].map(|it| Kind::Bucket(burst, it)));
    let windows = [Kind::Sliding, Kind::Counter, Kind::Fixed];
    for kind in windows.into_iter().chain(buckets.into_iter().flatten()) {
        assert_eq!(fault_of(kind, 0..1 + operations() as u64 / 6_000, str::to_owned), None);
    }
}

/// Returns a change of the script, which must have this text. Searches for its fault start at a seed that finds one.
fn replaced(from: &str, to: &str) -> impl Fn(&str) -> String {
    move |text| {
        assert!(text.contains(from), "{text}");
        text.replace(from, to)
    }
}

#[test]
fn units_that_count_from_their_lease_on_overfill_a_sliding_window() {
    let of_start = replaced("reply[AT] + lease.length, entry", "reply[AT], entry");
    assert_ne!(fault_of(Kind::Sliding, 0..40, of_start), None);
}

#[test]
fn leases_beyond_the_end_of_a_window_overfill_it() {
    for (kind, first) in [(Kind::Counter, 14), (Kind::Fixed, 0)] {
        let uncut = replaced("math.min(allowed, ends_in(it, now))", "allowed");
        assert_ne!(fault_of(kind, first..40, uncut), None, "{kind:?}");
    }
}

#[test]
fn a_bucket_that_fills_the_room_of_tokens_on_lease_overflows() {
    let filled = replaced("if without_room and", "if false and");
    assert_ne!(fault_of(Kind::Bucket(THRESHOLD, false), 11..100, filled), None);
}

#[test]
fn a_bucket_of_a_function_without_a_lease_that_fills_its_room_or_forgets_leases_overflows() {
    let filled = ("is_mine and 0 or length * it.refill", "0", 9);
    let forgotten = ("redis.call('PEXPIRE', asking, ", "redis.call('DEL', asking, ", 0);
    for (from, to, first) in [filled, forgotten] {
        assert_ne!(fault_of(Kind::Bucket(100, true), first..40, replaced(from, to)), None, "{to}");
    }
}

#[test]
fn a_bucket_to_which_a_lease_gives_back_late_what_was_refilled_since_overflows() {
    let all = replaced("late > 0 and", "false and");
    assert_ne!(fault_of(Kind::Bucket(THRESHOLD, true), 14..40, all), None);
}

#[test]
fn units_on_lease_that_count_as_turns_overfill_a_sliding_window() {
    let of_turns = replaced("is_leased and 3 or 0", "0");
    assert_ne!(fault_of(Kind::Sliding, 9..40, of_turns), None);
}
