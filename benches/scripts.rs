//! `cargo bench -p ratelimit-benches --bench scripts [-- <threshold>..]`
//!
//! The cost of a decision to a Redis server: microseconds of processor time in `EVALSHA`, from
//! `INFO commandstats`. Each shipped script runs beside the plain one in `baseline.lua`, for
//! admitted and for refused calls. Admitted calls find a log that is half full and loses one unit
//! with each call; refused ones find a full one.
//!
//! Time is simulated to keep that state at every call: `TIME` is called, and another timestamp is
//! used. The scripts run in turn on one server; figures are medians with the lowest and the highest
//! round, and the median of the ratios to the baseline in the same round.

#[allow(dead_code, reason = "not all of them are measured")]
#[path = "../ratelimit-runtime/src/redis/script/sources.rs"]
mod sources;

use ratelimit_benches::{
    figures::{figure, ratios, report, report_ratio, spread},
    rounds::rounds,
    server::{Result, Server},
};
use redis::Connection;

const CALLS: u64 = 2_000;
const HOUR: u64 = 3_600_000_000;
/// The start of simulated time, in microseconds.
const START: u64 = 1_700_000_000_000_000;

const TIME: &str = "local time = redis.call('TIME')\n";
const SIMULATED: &str = "local time = redis.call('TIME')\ntime[1], time[2] = KEYS[2], KEYS[3]\n";

#[derive(Clone, Copy, PartialEq)]
enum State {
    Log,
    /// With the units of each call.
    Entries(u64),
    Windows,
    Counters,
    Buckets,
}

const SCRIPTS: [(&str, State, &str); 7] = [
    ("baseline", State::Log, include_str!("baseline.lua")),
    ("sliding_window", State::Log, sources::SLIDING_WINDOW[0]),
    ("sliding_counter", State::Counters, sources::SLIDING_COUNTER[0]),
    ("fixed_window", State::Windows, sources::FIXED_WINDOW[0]),
    ("token_bucket", State::Buckets, sources::TOKEN_BUCKET[0]),
    ("sliding_window with costs", State::Entries(1), sources::SLIDING_WINDOW[0]),
    ("sliding_window with costs, cost 10 000", State::Entries(10_000), sources::SLIDING_WINDOW[0]),
];

impl State {
    fn has_entries(self) -> bool {
        matches!(self, Self::Entries(_))
    }

    fn is_log(self) -> bool {
        self == Self::Log || self.has_entries()
    }

    /// The units of each call.
    fn units(self) -> u64 {
        if let Self::Entries(units) = self { units } else { 1 }
    }
}

/// A script under a policy; each of its keys is called once in this many steps.
struct Contender {
    name: String,
    state: State,
    sha: String,
    /// Periods and thresholds.
    tiers: Vec<(u64, u64)>,
    is_admitted: bool,
    keys: u64,
    step: u64,
    now: u64,
    called: u64,
    rounds: Vec<f64>,
}

fn main() -> Result<()> {
    let wanted: Vec<u64> = std::env::args().filter_map(|it| it.parse().ok()).collect();
    let server = Server::start(&[])?;
    for threshold in [3, 100, 1_000, 100_000] {
        if !wanted.is_empty() && !wanted.contains(&threshold) {
            continue;
        }
        // As many as fit into memory when they are full.
        let keys = (1_000_000 / threshold).clamp(10, 10_000);
        let mut cases = Vec::new();
        for script in SCRIPTS {
            let has_tiers = script.0 != "baseline" && !script.1.has_entries();
            let most = if threshold == 100 && has_tiers { 5 } else { 1 };
            // A set of a thousand entries or more is a tree, whatever they carry.
            if threshold > 1_000 && script.1.units() > 1 {
                continue;
            }
            cases.extend((1..=most).map(|tiers| (script, threshold, tiers, keys)));
        }
        println!("\nthreshold {threshold}, {keys} keys");
        let contenders = run(&server, &cases)?;
        for it in &contenders {
            let what = if it.is_admitted { "admitted" } else { "refused" };
            let what = format!("server time of {}, threshold {threshold}, {what}: us", it.name);
            report(&what, it.rounds.clone(), "-");
        }
        if threshold == 100 {
            report_ratios(&contenders);
        }
    }
    if wanted.is_empty() {
        println!("\nthreshold 3, 100 and 10 000 and 1 000 000 keys");
        let cases = [100, 10_000, 1_000_000].map(|keys| (SCRIPTS[1], 3, 1, keys));
        run(&server, &cases)?;
    }
    Ok(())
}

/// A script, a threshold, so many tiers and keys.
type Case = ((&'static str, State, &'static str), u64, u64, u64);

/// Each case admitted and refused, all in turn, with a line for each.
fn run(server: &Server, cases: &[Case]) -> Result<Vec<Contender>> {
    let mut connection = server.connect()?;
    redis::cmd("FLUSHALL").exec(&mut connection)?;
    let mut contenders = Vec::new();
    for case in cases {
        let (name, _, text) = case.0;
        assert_eq!(text.matches(TIME).count(), 1, "{name} reads the clock once");
        let mut load = redis::cmd("SCRIPT");
        load.arg("LOAD").arg(text.replace(TIME, SIMULATED));
        let sha: String = load.query(&mut connection)?;
        for is_admitted in [true, false] {
            contenders.push(Contender::new(case, sha.clone(), is_admitted));
        }
    }
    for contender in &contenders {
        contender.fill(&mut connection)?;
    }
    for _ in 0..rounds(25) {
        for contender in &mut contenders {
            redis::cmd("CONFIG").arg("RESETSTAT").exec(&mut connection)?;
            contender.call(&mut connection)?;
            contender.rounds.push(server.micros_per_call("evalsha")?);
        }
    }
    println!("{:26}{:>28}{:>28}", "", "admitted: us, x", "refused: us, x");
    for both in contenders.chunks(2) {
        print!("{:26}", both[0].name);
        for (contender, base) in both.iter().zip(&contenders) {
            let ratio = spread(ratios(&contender.rounds, &base.rounds))[1];
            print!("{:>20}{ratio:8.2}", figure(contender.rounds.clone(), 1));
        }
        println!();
    }
    Ok(contenders)
}

fn report_ratios(contenders: &[Contender]) {
    let rounds = |name: &str, is_admitted: bool| {
        let is = |it: &&Contender| it.name == name && it.is_admitted == is_admitted;
        contenders.iter().find(is).map_or(&[][..], |it| &it.rounds)
    };
    for (name, is_admitted, base, bar) in [
        ("sliding_window", true, "baseline", "at most 1.0"),
        ("sliding_window", false, "baseline", "at most 0.9"),
        ("sliding_window with costs", true, "sliding_window", "at most 2.0"),
        ("sliding_window with costs", false, "sliding_window", "at most 2.0"),
        ("sliding_window, 3 tiers", true, "sliding_window", "at most 1.6"),
        ("sliding_window, 3 tiers", false, "sliding_window", "at most 1.6"),
    ] {
        let what = if is_admitted { "admitted" } else { "refused" };
        let ratios = ratios(rounds(name, is_admitted), rounds(base, is_admitted));
        report_ratio(&format!("server time of {name}, {what}, to {base}"), ratios, bar);
    }
}

impl Contender {
    fn new(case: &Case, sha: String, is_admitted: bool) -> Self {
        let &((name, state, _), threshold, tiers, keys) = case;
        let live = (threshold / 2).max(1);
        let step = HOUR / (keys * live);
        // Further tiers are shorter, so that the log is that of the last.
        let period = (keys * live * step / 1_000 + 1) * 1_000;
        let units = state.units();
        let tiers: Vec<_> =
            (0..tiers).rev().map(|it| (period >> it, (threshold >> it).max(1) * units)).collect();
        let name = match tiers.len() {
            1 => name.to_owned(),
            tiers => format!("{name}, {tiers} tiers"),
        };
        let (now, called, rounds) = (START, 0, Vec::new());
        Self { name, state, sha, tiers, is_admitted, keys, step, now, called, rounds }
    }

    /// The score of the header of a log.
    fn header(&self) -> i64 {
        let (period, threshold) = self.tiers[self.tiers.len() - 1];
        -(period / 1_000 * 131_072 + threshold).cast_signed()
    }

    fn key(&self, number: u64) -> String {
        let caller = number * 2_654_435_761 % self.keys;
        format!("ratelimit:{}:{}:{}:call/{caller}", self.name, self.is_admitted, self.keys)
    }

    /// Brings all keys into the state in which they are called.
    fn fill(&self, connection: &mut Connection) -> Result<()> {
        if !self.state.is_log() && self.is_admitted {
            // It begins with nothing taken.
            return Ok(());
        }
        for first in (0..self.keys).step_by(100) {
            let mut pipe = redis::pipe();
            for number in first..self.keys.min(first + 100) {
                if self.state.is_log() {
                    self.add_log(&mut pipe, number);
                } else {
                    self.add_call(&mut pipe, number, self.tiers[0].1);
                }
            }
            pipe.exec(connection)?;
        }
        Ok(())
    }

    /// Adds the log that the first call of this key finds.
    fn add_log(&self, pipe: &mut redis::Pipeline, number: u64) {
        let (period, threshold) = self.tiers[self.tiers.len() - 1];
        let calls = threshold / self.state.units();
        let (calls, apart, first) = if self.is_admitted {
            ((calls / 2).max(1), self.keys * self.step, START + number * self.step)
        } else {
            (calls, 1, START)
        };
        let log = self.key(number);
        let mut members: Vec<(i64, String)> = (1..=calls)
            .map(|call| {
                let stamp = first - call * apart;
                let member = match self.state {
                    State::Entries(units) => format!("{}{units:08}", 4 * call),
                    _ => format!("{}00000001", 80_000_000_000 + 4 * call),
                };
                (stamp.cast_signed(), member)
            })
            .collect();
        // The header, so that a first call does the same as later ones.
        if let State::Entries(units) = self.state {
            let cut = (first - calls * apart - 1).cast_signed();
            members.push((-cut, "g".to_owned()));
            members.push((-cut, format!("@{period}")));
            members.push((-1 - (calls * units).cast_signed(), format!("#{period}")));
        } else if self.name != "baseline" {
            members.push((self.header(), "@".to_owned()));
        }
        for members in members.chunks(500) {
            pipe.zadd_multiple(&log, members);
        }
        pipe.cmd("PEXPIRE").arg(&log).arg(period / 1_000);
    }

    /// One round: every key as often as the others, in a scattered order.
    fn call(&mut self, connection: &mut Connection) -> Result<()> {
        for _ in 0..CALLS / 100 {
            let mut pipe = redis::pipe();
            for _ in 0..100 {
                self.add_call(&mut pipe, self.called, 1);
                self.called += 1;
                if self.is_admitted {
                    self.now += self.step;
                }
            }
            for reply in pipe.query::<Vec<Vec<i64>>>(connection)? {
                assert_eq!(reply[0] > 0, self.is_admitted, "{}: {reply:?}", self.name);
            }
        }
        Ok(())
    }

    fn add_call(&self, pipe: &mut redis::Pipeline, number: u64, cost: u64) {
        let call = pipe.cmd("EVALSHA").arg(&self.sha).arg(3).arg(self.key(number));
        call.arg(self.now / 1_000_000).arg(self.now % 1_000_000);
        let id = match self.state {
            State::Log | State::Entries(_) => 4 * fastrand::u64(1..20_000_000_000),
            _ => 1 + number,
        };
        // Takes; a refused call is not recorded.
        call.arg(1).arg(cost * self.state.units());
        if self.state == State::Log {
            // The header's score, and the milliseconds after which the log expires.
            let (period, _) = self.tiers[self.tiers.len() - 1];
            call.arg(self.header()).arg(id).arg(period / 1_000 + 999);
        } else {
            call.arg(0).arg(id).arg(0);
        }
        call.arg(self.tiers.len());
        for (period, threshold) in &self.tiers {
            match self.state {
                State::Log | State::Entries(_) | State::Windows => call.arg(period).arg(threshold),
                State::Counters => call.arg(period).arg(threshold).arg(1),
                // A part of a token for each microsecond of the period.
                State::Buckets => call.arg(period).arg(threshold).arg(period * threshold).arg(0),
            };
        }
    }
}
