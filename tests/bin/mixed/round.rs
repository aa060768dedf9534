//! A round: four processes on a Redis of their own, under faults, and what their records prove.

use std::{
    env, fs,
    fs::File,
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use fastrand::Rng;
use harness::{
    mixed::{
        Audit, CREDIT, Findings, LIMITS, LOSES_KEYS, MIXED_CALLER, MixedLimit, MixedRound,
        ProcessNotes, Rule, SPARE,
    },
    uncached, wall_clock,
};
use tempfile::TempDir;
use tokio::runtime::Builder;

use crate::{
    faults::{Faults, RedisWatch, Victims},
    plan::{GATE, Mix, PROCESSES},
    store::Store,
};

/// The time from the start of the processes to their first calls.
const START: u64 = 500_000;

/// The time in which calls certainly end after the load.
const ENDS: Duration = Duration::from_secs(6);

/// The time in which all states expire: the two seconds in which the turns of a line are kept, four in which the windows
/// of a counter with a doubled period are over, or a bucket with the largest debt is full, and one. After the longest
/// block, its last offence is forgiven in as long.
const EXPIRES: Duration = Duration::from_secs(8);

/// A threshold above all units: what is left shows how many are counted.
const ABOVE_ALL: u32 = 90_000;

struct Processes {
    url: String,
    seed: u64,
    span: (u64, u64),
    mix: Mix,
    directory: TempDir,
    started: usize,
    alive: Vec<Recorded>,
    dead: Vec<ProcessNotes>,
}

struct Recorded {
    process: Child,
    number: usize,
    file: std::path::PathBuf,
}

impl Recorded {
    fn text(&self) -> String {
        fs::read_to_string(&self.file).expect("the records")
    }

    fn has_flushed(&self) -> bool {
        self.text().lines().any(|line| line.contains(" flushed "))
    }

    fn signal(&self, signal: &str) {
        let pid = self.process.id().to_string();
        let sent = Command::new("kill").args([&format!("-{signal}"), &pid]).status();
        assert!(sent.expect("kill runs").success());
    }
}

impl Processes {
    fn add(&mut self, number: usize) {
        let file = self.directory.path().join(self.started.to_string());
        self.started += 1;
        let numbers = [number as u64, self.seed, self.span.0, self.span.1].map(|it| it.to_string());
        let process = Command::new(env::current_exe().expect("this program"))
            .args(["call", &self.url])
            .args(numbers)
            .arg(self.mix.to_string())
            .stdin(Stdio::piped())
            .stdout(File::create(&file).expect("a file for the records"))
            .spawn()
            .expect("the process starts");
        self.alive.push(Recorded { process, number, file });
    }

    fn end(&mut self, at: usize, is_killed: bool) {
        let mut ended = self.alive.remove(at);
        let _ = ended.process.kill();
        let _ = ended.process.wait();
        let notes = ProcessNotes::read(&ended.text(), ended.number, wall_clock(), is_killed);
        self.dead.push(notes);
    }
}

impl Victims for Processes {
    fn kill_one(&mut self, random: &mut Rng) {
        let at = random.usize(..self.alive.len());
        let number = self.alive[at].number;
        self.end(at, true);
        self.add(number);
    }

    fn stop_one(&mut self, random: &mut Rng, pause: Duration) {
        let stopped = &self.alive[random.usize(..self.alive.len())];
        stopped.signal("STOP");
        thread::sleep(pause);
        stopped.signal("CONT");
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        for it in &mut self.alive {
            let _ = it.process.kill();
            let _ = it.process.wait();
        }
    }
}

/// Runs a round. Returns what breaks a rule, and the answers in words.
pub(crate) fn run(seed: u64, mix: &Mix) -> (Findings, usize, String) {
    let mut store = Store::start(mix);
    let watches: Vec<_> = store.servers().iter().map(RedisWatch::start).collect();
    let from = wall_clock() + START;
    let mut processes = Processes {
        url: store.url(),
        seed,
        span: (from, from + mix.load()),
        mix: mix.clone(),
        directory: TempDir::new().expect("a directory"),
        started: 0,
        alive: Vec::new(),
        dead: Vec::new(),
    };
    (0..PROCESSES).for_each(|number| processes.add(number));
    let (outages, losses, kills) = Default::default();
    let mut faults = Faults { store: &mut store, outages, losses, kills };
    faults.cause(from, &mut Rng::with_seed(seed ^ 0xfau64), mix, &mut processes);
    let mut findings = Findings::default();
    let Faults { outages, losses, kills, .. } = faults;
    let until = Duration::from_micros((from + mix.load()).saturating_sub(wall_clock())) + ENDS;
    if !is_reached(until, || processes.alive.iter().all(Recorded::has_flushed)) {
        findings.add("end", "calls of a process have not ended".to_owned());
    }
    let audits = audit(&store);
    // A bucket that is refilled slowly is full only much later.
    let is_left = |(key, _): &(String, i64)| !key.contains(LIMITS[CREDIT].name);
    is_reached(EXPIRES, || !store.keys().iter().any(is_left));
    let keys = store.keys().into_iter().filter(is_left);
    let left_over = keys.map(|(key, rest)| format!("{key} for {rest} ms")).collect();
    while !processes.alive.is_empty() {
        processes.end(0, false);
    }
    let gaps = watches.iter().flat_map(RedisWatch::gaps).collect();
    let mut round = MixedRound::new(&processes.dead, gaps, outages, losses, &kills);
    // Turns that the server has lost pass beside the new counts.
    round.left_over = left_over;
    round.audits = if mix.has(LOSES_KEYS) { Vec::new() } else { audits };
    findings.take_in(round.findings());
    if !findings.is_empty()
        && let Ok(directory) = env::var("HISTORIES_KEEP")
    {
        let text = format!("{findings}{:?} {:?} {:?}", round.outages, round.losses, round.audits);
        keep(&directory, seed, &processes, &store, &text);
    }
    let fullest = round.fullest().into_iter();
    let fullest: Vec<_> =
        fullest.map(|(name, most, threshold)| format!("{name} {most}/{threshold}")).collect();
    let answers = format!("{} | fullest windows: {}", round.answers(), fullest.join(", "));
    (findings, round.calls(), answers)
}

/// Copies the records of a round and the logs of its servers, and writes its faults beside them.
fn keep(directory: &str, seed: u64, processes: &Processes, store: &Store, faults: &str) {
    let to = std::path::Path::new(directory).join(seed.to_string());
    fs::create_dir_all(&to).expect("a directory for the records");
    fs::write(to.join("faults"), faults).expect("the faults");
    for process in 0..processes.started {
        let name = process.to_string();
        fs::copy(processes.directory.path().join(&name), to.join(&name)).expect("a copy");
    }
    for (number, server) in store.servers().iter().enumerate() {
        fs::copy(server.log(), to.join(format!("log-{number}"))).expect("a copy");
    }
}

/// Looks until it is so, as often as this patience has room for: time in which nothing on the machine runs does not count.
fn is_reached(patience: Duration, is_so: impl Fn() -> bool) -> bool {
    let between = Duration::from_millis(20);
    for _ in 0..patience.as_millis() / between.as_millis() {
        if is_so() {
            return true;
        }
        thread::sleep(between);
    }
    is_so()
}

/// Returns the units that Redis has of each limit.
fn audit(store: &Store) -> Vec<Audit> {
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let limiter = uncached(&store.own_url()).await;
        let mut audits = Vec::new();
        for (limit, it) in LIMITS.iter().enumerate() {
            let (policy, all) = match it.rule {
                // Some of its calls are decided without Redis.
                _ if [GATE, SPARE].contains(&limit) => continue,
                // Of another rate it would be another bucket.
                Rule::Bucket(burst) if limit == CREDIT => (it.policy(), burst),
                Rule::Bucket(_) => continue,
                Rule::Permits => (it.policy(), it.permits),
                _ => {
                    let above = MixedLimit { threshold: ABOVE_ALL, permits: 0, ..*it };
                    (above.policy(), ABOVE_ALL)
                }
            };
            let from = wall_clock();
            let Ok(left) = limiter.peek(&policy, MIXED_CALLER).cost(0).await else { continue };
            let units = all.saturating_sub(left.remaining()).into();
            audits.push(Audit { limit, span: (from, wall_clock()), units });
        }
        audits
    })
}
