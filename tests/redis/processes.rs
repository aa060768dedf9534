//! All processes that share a Redis share each limit.

use std::{
    collections::{BTreeSet, HashSet},
    fs::{self, File},
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

use harness::{
    History, InFlight, Monitor, Outcome, PermitPromise, Promise, Records, RedisServer, wait_for,
    wall_clock,
};
use tempfile::TempDir;

const SECOND: Duration = Duration::from_secs(1);

const KEY: &str = "ratelimit:sliding_window:load/one";

/// Starts a process of 32 tasks with 50 calls each.
fn load(server: &RedisServer, threshold: u32) -> Child {
    Command::new(env!("CARGO_BIN_EXE_load"))
        .args([&server.url(), "32", "50", &threshold.to_string()])
        .stdout(Stdio::piped())
        .spawn()
        .expect("the load starts")
}

/// Returns the number of its admitted calls.
fn admitted(process: Child) -> u32 {
    let output = process.wait_with_output().expect("the load ends");
    assert!(output.status.success());
    String::from_utf8_lossy(&output.stdout).trim().parse().expect("a count")
}

#[test]
fn two_processes_of_32_tasks_admit_exactly_the_threshold() {
    let server = RedisServer::start();
    let both = [load(&server, 100), load(&server, 100)];
    assert_eq!(both.map(admitted).iter().sum::<u32>(), 100);
    assert_eq!(server.command::<u32>(&format!("ZCOUNT {KEY} 0 +inf")), 100);
}

#[test]
fn each_process_of_a_rolling_deploy_keeps_its_own_threshold_on_the_same_count() {
    let server = RedisServer::start();
    let (old, new) = (load(&server, 100), load(&server, 60));
    let (old, new) = (admitted(old), admitted(new));
    // The higher threshold is reached, and the lower one admits none above itself.
    assert_eq!(old + new, 100);
    assert!(new <= 60, "{new}");
    // None of the lower one is admitted any more, now that there are more.
    assert_eq!(admitted(load(&server, 60)), 0);
    assert_eq!(server.command::<u32>(&format!("ZCOUNT {KEY} 0 +inf")), 100);
    // A raised threshold goes on with the same count.
    assert_eq!(admitted(load(&server, 130)), 30);
}

/// Processes that keep records of their calls until they are killed.
struct Processes {
    program: &'static str,
    arguments: Vec<String>,
    directory: TempDir,
    alive: Vec<Recording>,
    started: usize,
    ended: Vec<Records>,
}

struct Recording {
    process: Child,
    records: PathBuf,
}

impl Processes {
    fn start<const N: usize>(
        program: &'static str,
        server: &RedisServer,
        arguments: [&str; N],
    ) -> Self {
        let mut processes = Self {
            program,
            arguments: [&[server.url()][..], &arguments.map(str::to_owned)[..]].concat(),
            directory: TempDir::new().unwrap(),
            alive: Vec::new(),
            started: 0,
            ended: Vec::new(),
        };
        (0..4).for_each(|_| processes.add());
        processes
    }

    fn add(&mut self) {
        let records = self.directory.path().join(self.started.to_string());
        let mut command = Command::new(self.program);
        // One that is killed is followed by one of its number.
        command.env("PROCESS", (self.started % 4 + 1).to_string());
        self.started += 1;
        command.args(&self.arguments).stdout(File::create(&records).unwrap());
        let process = command.spawn().expect("the process starts");
        self.alive.push(Recording { process, records });
    }

    /// Ends the oldest process by `kill -9`, which leaves it no time for anything.
    fn kill(&mut self) {
        let mut killed = self.alive.remove(0);
        killed.process.kill().unwrap();
        killed.process.wait().unwrap();
        self.ended.push(Records::read(&killed.text(), wall_clock()));
    }

    /// Returns the records so far.
    fn records(&self) -> Vec<Records> {
        let alive = self.alive.iter().map(|it| Records::read(&it.text(), wall_clock()));
        self.ended.iter().cloned().chain(alive).collect()
    }

    fn kill_all(&mut self) {
        while !self.alive.is_empty() {
            self.kill();
        }
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

impl Recording {
    fn text(&self) -> String {
        fs::read_to_string(&self.records).unwrap()
    }

    /// Stops the process for so long.
    fn stop(&self, pause: Duration) {
        self.signal("STOP");
        thread::sleep(pause);
        self.signal("CONT");
    }

    fn signal(&self, signal: &str) {
        let pid = self.process.id().to_string();
        let sent = Command::new("kill").args([&format!("-{signal}"), &pid]).status();
        assert!(sent.unwrap().success());
    }
}

#[test]
fn four_processes_never_hold_more_permits_than_there_are() {
    const TIMEOUT: Duration = Duration::from_millis(600);
    const PERMITS: &str = "ratelimit:sliding_window:{ratelimit:sliding_window:load/0}:c";
    let server = RedisServer::start();
    let monitor = Monitor::start(&server);
    let program = env!("CARGO_BIN_EXE_in_flight");
    let mut processes = Processes::start(program, &server, ["8", "5", "600"]);
    let held = || -> HashSet<String> {
        server.command::<Vec<String>>(&format!("ZRANGE {PERMITS} 0 -1")).into_iter().collect()
    };
    for _ in 0..2 {
        thread::sleep(SECOND);
        processes.kill();
        processes.add();
    }
    // A process that stands still for longer than the timeout comes back to bodies without a permit.
    wait_for("a lost permit", || {
        let stopped = &processes.alive[0];
        stopped.stop(TIMEOUT + TIMEOUT / 2);
        thread::sleep(TIMEOUT / 2);
        stopped.text().contains(" lost\n").then_some(())
    });
    thread::sleep(SECOND);
    let of_the_dead = held();
    processes.kill_all();
    processes.add();
    wait_for("permits of another process", || {
        let now = held();
        (!now.is_empty() && now.is_disjoint(&of_the_dead)).then_some(())
    });
    processes.kill_all();

    let replayed = monitor.replay(PERMITS, 5);
    assert_eq!(replayed.faults, [""; 0]);
    let calls = InFlight::recorded(&processes.ended);
    // The timeout, and time for a release or a renewal that is under way.
    let late = (TIMEOUT + SECOND).as_micros().try_into().unwrap();
    let promise = PermitPromise { permits: 5, late, ..PermitPromise::default() };
    assert_eq!(calls.faults(&promise), [""; 0]);
    let figures = calls.figures();
    println!(
        "permits: {} taken by seven processes, all killed and one stopped before; at most {} of 5 \
         unexpired by the server's clock; {figures}; {} calls refused",
        replayed.taken,
        replayed.most,
        calls.refused(),
    );
    assert!(replayed.taken > 100 && calls.refused() > 100);
    assert!(replayed.most == 5 && figures.most_held == 5);
    assert!(figures.without_permit > 0);
}

#[test]
fn four_processes_never_take_more_units_of_a_window_than_they_were_told_to() {
    let server = RedisServer::start();
    let program = env!("CARGO_BIN_EXE_metered");
    let mut processes = Processes::start(program, &server, ["6", "2", "1000", "500"]);
    let start = Instant::now();
    while start.elapsed() < 6 * SECOND {
        thread::sleep(SECOND);
        processes.kill();
        processes.add();
    }
    processes.kill_all();
    let history = History::recorded(&processes.ended);
    let promise = Promise { period: 500_000, threshold: 1_000, ..Promise::default() };
    assert_eq!(history.faults(&promise), [""; 0]);
    let settled = |is_such: fn(usize, usize) -> bool| {
        let such = |call: &&harness::Call| call.settled.is_some_and(|it| is_such(it.to, call.cost));
        history.calls().iter().filter(such).count()
    };
    let (lowered, raised) = (settled(|to, cost| to < cost), settled(|to, cost| to > cost));
    let admitted = history.count(|outcome| outcome == Outcome::Admitted);
    println!("settled: {}; {lowered} settled lower, {raised} higher", history.answers());
    assert!(lowered > 50 && raised > 20 && admitted > lowered + raised);
    assert!(history.count(|outcome| outcome == Outcome::Refused) > 50);
}

/// The fullest windows of processes under policies with a lease, the smallest bucket that would do, and the
/// most units that a counter had to count.
fn fullest_on_lease(processes: &Processes, starts: &BTreeSet<u64>) -> [u64; 4] {
    let history = History::recorded(&processes.records());
    let [sliding, fixed, bucket, counter] = [0, 1, 2, 3].map(|caller| history.uses(caller));
    let fixed = starts.iter().map(|start| fixed.within(*start, start + LEASED_PERIOD)).max();
    [
        sliding.fullest(LEASED_PERIOD),
        fixed.unwrap_or(0),
        bucket.smallest_bucket(LEASED_PERIOD, ON_LEASE),
        counter.heaviest(LEASED_PERIOD),
    ]
}

const ON_LEASE: u64 = 500;
const LEASED_PERIOD: u64 = 500_000;

#[test]
fn four_processes_with_units_on_lease_keep_to_the_rule_of_each_algorithm() {
    const CYCLE: u64 = 1_800;
    let server = RedisServer::start();
    let program = env!("CARGO_BIN_EXE_leased");
    let arguments = ["500", "500", "50", &CYCLE.to_string(), "1200", "3000"];
    let mut processes = Processes::start(program, &server, arguments);
    // The starts of the fixed windows, as their state tells them while the server runs.
    let starts = Arc::new(Mutex::new(BTreeSet::new()));
    let (mut connection, seen) = (server.connection(), Arc::clone(&starts));
    thread::spawn(move || {
        let mut get = redis::cmd("GET");
        let get = get.arg("ratelimit:fixed_window:leased/1");
        while let Ok(state) = get.query::<Option<String>>(&mut connection) {
            let start = state.and_then(|state| state.split(' ').nth(4)?.parse::<u64>().ok());
            seen.lock().unwrap().extend(start);
            thread::sleep(Duration::from_millis(5));
        }
    });
    for round in 0..4 {
        // The busiest process stands still while it has units, until others have taken what is left.
        let into_cycle = wall_clock() / 1_000 % CYCLE;
        thread::sleep(Duration::from_millis(CYCLE - into_cycle + 40 + 10 * round));
        let busiest = usize::try_from(round).unwrap().wrapping_neg() % 4;
        processes.alive[busiest].stop(Duration::from_millis(250));
        thread::sleep(Duration::from_millis(50));
        processes.kill();
        processes.add();
    }
    // Full windows show that more units would have been seen.
    wait_for("full windows", || {
        thread::sleep(SECOND / 2);
        let full = fullest_on_lease(&processes, &starts.lock().unwrap());
        let enough = [ON_LEASE * 9 / 10, ON_LEASE * 9 / 10, ON_LEASE / 2, ON_LEASE * 8 / 10];
        full.iter().zip(enough).all(|(full, enough)| *full >= enough).then_some(())
    });
    let calls = server.calls();
    let scripts: u64 = ["eval", "evalsha"].iter().filter_map(|name| calls.get(*name)).sum();
    processes.kill_all();
    let history = History::recorded(&processes.ended);
    let full = fullest_on_lease(&processes, &starts.lock().unwrap());
    println!(
        "leases of eight processes, four killed: {}, {scripts} scripts; fullest real window, fullest fixed \
         window, smallest bucket and heaviest counter of {ON_LEASE}: {full:?}",
        history.answers(),
    );
    assert!(full.iter().all(|most| *most <= ON_LEASE), "{full:?}");
    assert!(2 * scripts < history.calls().len() as u64, "{scripts}");
}
