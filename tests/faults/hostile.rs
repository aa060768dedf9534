//! A hostile server costs no more than an absent one: calls end in time, memory and processor time are
//! bounded, no caller gets the decision of another, and no login is in an error or in the log.

use std::{
    fs,
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

use harness::{DEADLINE, FaultLine, HostileServer, Hostility, Lines, listen, ran_in_own_process};
use ratelimit_runtime::{Limiter, OnStoreError, Policy};
use tokio::{runtime::Builder, task::JoinSet};

const MINUTE: Duration = Duration::from_secs(60);
const POLICY: Policy = Policy::fixed_window("p", MINUTE, 1_000_000);

/// The time for which each mode is called.
const LASTS: Duration = Duration::from_millis(1_500);

/// The time in which a call ends, however busy the machine is.
const ENDS: Duration = Duration::from_secs(2);

/// The most that the process may grow in a mode, in kilobytes.
const MEMORY: u64 = 64 << 10;

/// The most connections in this time: at first soon, then about one a second.
const MAX_CONNECTIONS: u64 = 60;

/// The most warnings in this time: one for each node that redirects name, and few others.
const MAX_WARNINGS: usize = 20;

#[derive(Debug, Default)]
struct Figures {
    decided: u32,
    undecided: u32,
    /// Decisions of another caller.
    wrong: u32,
    slowest: Duration,
    /// The errors, each once.
    errors: Vec<String>,
}

impl Figures {
    fn add(&mut self, caller: u32, answer: Result<u32, String>, took: Duration) {
        self.slowest = self.slowest.max(took);
        match answer {
            Ok(remaining) => {
                self.decided += 1;
                self.wrong += u32::from(remaining != caller);
            }
            Err(error) => {
                self.undecided += 1;
                if !self.errors.contains(&error) {
                    self.errors.push(error);
                }
            }
        }
    }
}

/// Calls from 16 tasks on this thread, each for a caller of its own.
async fn call(url: &str) -> Figures {
    let builder = Limiter::builder().deadline(DEADLINE).on_store_error(OnStoreError::Deny);
    let limiter = builder.connect_lazy(url).unwrap();
    let figures = Arc::new(Mutex::new(Figures::default()));
    let until = Instant::now() + LASTS;
    let mut tasks = JoinSet::new();
    for caller in 1_000..1_016 {
        let (limiter, figures) = (limiter.clone(), Arc::clone(&figures));
        tasks.spawn(async move {
            while Instant::now() < until {
                let key = format!("caller-{caller}");
                let start = Instant::now();
                let check = limiter.check(&POLICY, &*key);
                // One of them may wait, as long as a call may take.
                let answer =
                    if caller == 1_000 { check.max_wait(DEADLINE).await } else { check.await };
                let answer =
                    answer.map(|it| it.remaining()).map_err(|error| format!("{error:?} {error}"));
                figures.lock().unwrap().add(caller, answer, start.elapsed());
                tokio::time::sleep(Duration::from_millis(3)).await;
            }
        });
    }
    tasks.join_all().await;
    std::mem::take(&mut *figures.lock().unwrap())
}

/// Returns the processor time of this thread.
fn processor_time() -> Duration {
    let times = fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(times.split(' ').next().unwrap().parse().unwrap())
}

/// Returns the memory of the process, in kilobytes.
fn memory() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Calls a server of this mode, and returns all that it did wrong.
fn faults_of(mode: Hostility) -> Vec<String> {
    let server = HostileServer::start(mode);
    let lines = Lines::default();
    let before = memory();
    let (url, log) = (server.url(), lines.clone());
    let calls = thread::spawn(move || {
        let _listening = listen(log);
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let figures = runtime.block_on(call(&url));
        (figures, processor_time())
    });
    let mut most = before;
    while !calls.is_finished() {
        most = most.max(memory());
        thread::sleep(Duration::from_millis(2));
    }
    let (figures, busy) = calls.join().unwrap();
    let grown = most.saturating_sub(before);
    let log = lines.all();
    let warnings = log.iter().filter(|line| line.starts_with("WARN")).count();
    let longest = log.iter().chain(&figures.errors).map(String::len).max().unwrap_or_default();
    FaultLine::of(&format!("hostile server: {mode:?}"))
        .with("decided", figures.decided)
        .with("undecided", figures.undecided)
        .with("of another caller", figures.wrong)
        .after("slowest call", figures.slowest)
        .with("processor", format!("{:.0} %", 100.0 * busy.as_secs_f64() / LASTS.as_secs_f64()))
        .with("memory", format!("+{grown} kB"))
        .with("connections", server.connections())
        .with("warnings", warnings)
        .with("longest line", longest)
        .print();
    let secrets = [HostileServer::USER, HostileServer::PASSWORD];
    let leaked = log
        .iter()
        .chain(&figures.errors)
        .any(|it| secrets.iter().any(|secret| it.contains(secret)));
    let faults = [
        (figures.wrong > 0, "a caller got the decision of another"),
        (figures.slowest > ENDS, "a call did not end in time"),
        (2 * busy > LASTS, "the processor was busy"),
        (grown > MEMORY, "memory grew"),
        (warnings > MAX_WARNINGS, "the log was flooded"),
        (leaked, "a login is in an error or in the log"),
        (longest > 1_000, "an error or a line of the log is long"),
        (server.connections() > MAX_CONNECTIONS, "connections were not paced"),
        (mode.decides() && figures.undecided > figures.decided, "calls were not decided"),
    ];
    faults.iter().filter(|(is_so, _)| *is_so).map(|(_, what)| format!("{mode:?}: {what}")).collect()
}

#[test]
fn a_hostile_server_costs_no_more_than_an_absent_one() {
    if ran_in_own_process("hostile::a_hostile_server_costs_no_more_than_an_absent_one") {
        return;
    }
    let faults: Vec<_> = Hostility::ALL.into_iter().flat_map(faults_of).collect();
    assert!(faults.is_empty(), "{faults:#?}");
}
