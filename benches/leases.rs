//! `cargo bench -p ratelimit-benches --bench leases`
//!
//! 1, 4 and 16 processes on one Redis call under one key, with a lease of 20 ms and thresholds from
//! 1 000 to 10 000 000 a second. They ask for twice the threshold, at most 2 500 000 a second
//! together, and process i for 1/i as much as the first. Four also call without a lease. Shows the
//! decisions and commands of a second, the fullest real window, and the admitted calls beside those
//! that exact decisions of the same calls would admit. Medians of five runs.
//!
//! A window is full of calls that were asked and answered within it, by the machine's clock. So
//! each of them was decided in it.
//!
//! Fails on a window above the threshold, or on fewer than a million decisions a second of four
//! processes under a threshold of a million. It also fails if it sees no window above the threshold
//! where each process has a key of its own.

use std::{
    cell::RefCell,
    env,
    io::{BufRead, BufReader, Read as _, Write as _},
    process::{Child, ChildStdout, Command, Stdio},
    rc::Rc,
    thread,
    time::{Duration, SystemTime},
};

use ratelimit_benches::{
    figures::{report, report_ratio, spread},
    rounds::rounds,
    server::{Result, Server},
};
use ratelimit_runtime::{Caller, Limiter, OnStoreError, Policy, RateLimitError, caller};
use tokio::task::LocalSet;

const PERIOD: Duration = Duration::from_secs(1);

/// The length of a lease in milliseconds.
const LEASE: u64 = 20;

/// The length of a run in microseconds.
const RUN: usize = 3_000_000;

/// The period in microseconds.
const WINDOW: usize = 1_000_000;

/// The most calls a second of all processes, which leave time to Redis on two cores.
const MOST_CALLS: f64 = 2.5e6;

/// The tasks of a process.
const TASKS: u32 = 16;

/// The argument of a process that calls.
const CALLER: &str = "--caller";

fn main() -> Result<()> {
    let arguments: Vec<String> = env::args().collect();
    if let [_, flag, url, threshold, lease, demand, key] = arguments.as_slice()
        && flag == CALLER
    {
        return call(url, policy(threshold.parse()?, lease.parse()?), demand.parse()?, key);
    }
    let runs = |processes: u32, threshold: u32, lease: u64| {
        let runs = (0..rounds(5)).map(|_| Run::of(processes, threshold, lease, |_| "all".into()));
        runs.collect::<Result<Vec<_>>>()
    };
    let mut failures = Vec::new();
    let apart = Run::of(4, 1_000, LEASE, |number| number.to_string())?.fullest * 100.;
    report_ratio(
        "leases of four keys: fullest window, % of one threshold",
        vec![apart],
        "above 100",
    );
    if apart <= 100. {
        failures.push("a window above the threshold is not seen".to_owned());
    }
    let decisions = runs(4, 1_000_000, 0)?.iter().map(|run| run.decisions / 1e3).collect();
    report("no leases, 4 of 1000000/s: 1000 decisions a second", decisions, "-");
    for processes in [1, 4, 16] {
        for threshold in [1_000, 10_000, 100_000, 1_000_000, 10_000_000] {
            let runs = runs(processes, threshold, LEASE)?;
            let name = |what: &str| format!("leases, {processes} of {threshold}/s: {what}");
            let column = |of: fn(&Run) -> f64| runs.iter().map(of).collect::<Vec<_>>();
            let is_fast = processes == 4 && threshold >= 1_000_000;
            let bar = if is_fast { "at least 1000" } else { "-" };
            report(&name("1000 decisions a second"), column(|run| run.decisions / 1e3), bar);
            report(&name("commands a second"), column(|run| run.commands), "-");
            let percent =
                |of: fn(&Run) -> f64| column(of).into_iter().map(|it| it * 100.).collect();
            let fullest = percent(|run| run.fullest);
            report_ratio(&name("fullest window, % of the threshold"), fullest, "at most 100");
            report_ratio(&name("admitted, % of exact"), percent(|run| run.of_exact), "-");
            if is_fast && spread(column(|run| run.decisions))[1] < 1e6 {
                failures.push(name("fewer than a million decisions a second"));
            }
            if column(|run| run.fullest).iter().any(|window| *window > 1.) {
                failures.push(name("a window above the threshold"));
            }
        }
    }
    if failures.is_empty() { Ok(()) } else { Err(failures.join("; ").into()) }
}

/// The calls of each microsecond of a run.
struct Timeline {
    /// All calls, when they were asked.
    calls: Vec<u16>,
    /// Admitted calls, when they were asked.
    asked: Vec<u16>,
    /// Admitted calls, when they were answered.
    answered: Vec<u16>,
}

/// A process that reads the time of its start, and makes `demand` calls a second from then on. It
/// prints its timeline.
#[tokio::main(flavor = "current_thread")]
async fn call(url: &str, policy: Policy, demand: f64, key: &str) -> Result<()> {
    let builder = Limiter::builder().deadline(RUN_LIMIT).on_store_error(OnStoreError::Deny);
    let limiter = builder.connect(url).await?;
    // Knows the server's script, and is connected.
    limiter.peek(&policy, key).await?;
    println!("ready");
    let mut line = String::new();
    std::io::stdin().read_line(&mut line)?;
    let start: u64 = line.trim().parse()?;
    let timeline = Rc::new(RefCell::new(Timeline::new()));
    let local = LocalSet::new();
    let tasks: Vec<_> = (0..TASKS)
        .map(|_| {
            let (limiter, timeline) = (limiter.clone(), Rc::clone(&timeline));
            let demand = demand / f64::from(TASKS);
            let key = caller!(key);
            local.spawn_local(calls_of_task(limiter, policy, key, start, demand, timeline))
        })
        .collect();
    local.await;
    for task in tasks {
        task.await??;
    }
    timeline.borrow_mut().write(&mut std::io::stdout().lock())
}

/// The deadline of a call, which no call reaches.
const RUN_LIMIT: Duration = Duration::from_secs(60);

async fn calls_of_task(
    limiter: Limiter,
    policy: Policy,
    key: Caller,
    start: u64,
    demand: f64,
    timeline: Rc<RefCell<Timeline>>,
) -> std::result::Result<(), RateLimitError> {
    let mut due = 0.;
    let mut now = wall_clock();
    tokio::time::sleep(Duration::from_micros(start.saturating_sub(now))).await;
    let mut last = start;
    loop {
        now = wall_clock();
        let Some(at) = place(start, now) else { return Ok(()) };
        // Calls that could not be made for 10 ms are not made up for.
        #[expect(clippy::cast_precision_loss, reason = "microseconds of a run")]
        let passed = (now - last) as f64 / 1e6;
        due = (due + passed * demand).min(1. + demand / 100.);
        last = now;
        let mut asked = at;
        while due >= 1. {
            due -= 1.;
            let answer = limiter.check(&policy, &key).await;
            let Some(answered) = place(start, wall_clock()) else { return Ok(()) };
            let mut timeline = timeline.borrow_mut();
            timeline.calls[asked] += 1;
            match answer {
                Ok(_) => {
                    timeline.asked[asked] += 1;
                    timeline.answered[answered] += 1;
                }
                Err(RateLimitError::Exceeded(_)) => {}
                Err(error) => return Err(error),
            }
            asked = answered;
            if asked > at + 50 {
                break;
            }
        }
        if due >= 1. {
            tokio::task::yield_now().await;
        } else {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

/// Returns the microsecond of the run at this time, unless the run is over.
fn place(start: u64, now: u64) -> Option<usize> {
    usize::try_from(now.saturating_sub(start)).ok().filter(|at| *at < RUN)
}

/// Returns the policy with a lease of so many milliseconds; without one for 0.
fn policy(threshold: u32, lease: u64) -> Policy {
    let policy = Policy::sliding_window("leases", PERIOD, threshold);
    if lease == 0 { policy } else { policy.lease(Duration::from_millis(lease)) }
}

/// Returns the machine's clock in microseconds, which its server uses too.
fn wall_clock() -> u64 {
    let since = SystemTime::UNIX_EPOCH.elapsed().expect("a time after 1970");
    since.as_micros().try_into().expect("a time before the year 500 000")
}

impl Timeline {
    fn new() -> Self {
        let empty = || vec![0; RUN];
        Self { calls: empty(), asked: empty(), answered: empty() }
    }

    fn columns(&mut self) -> [&mut Vec<u16>; 3] {
        [&mut self.calls, &mut self.asked, &mut self.answered]
    }

    fn add(&mut self, other: &Self) {
        let others = [&other.calls, &other.asked, &other.answered];
        for (column, other) in self.columns().into_iter().zip(others) {
            column.iter_mut().zip(other).for_each(|(sum, number)| *sum += number);
        }
    }

    fn write(&mut self, output: &mut impl std::io::Write) -> Result<()> {
        for column in self.columns() {
            let bytes: Vec<u8> = column.iter().flat_map(|number| number.to_le_bytes()).collect();
            output.write_all(&bytes)?;
        }
        Ok(output.flush()?)
    }

    fn read(input: &mut impl std::io::Read) -> Result<Self> {
        let (mut timeline, mut bytes) = (Self::new(), vec![0; 2 * RUN]);
        for column in timeline.columns() {
            input.read_exact(&mut bytes)?;
            for (number, bytes) in column.iter_mut().zip(bytes.chunks_exact(2)) {
                *number = u16::from_le_bytes([bytes[0], bytes[1]]);
            }
        }
        Ok(timeline)
    }

    /// Returns the most calls that were certainly admitted within a window.
    fn fullest(&self) -> u64 {
        // Whoever was answered before its end, without those who had asked before its start: no
        // call takes as long as a window.
        let (mut answered, mut asked, mut most) = (0, 0, 0_u64);
        for end in 0..RUN {
            answered += u64::from(self.answered[end]);
            if let Some(before) = end.checked_sub(WINDOW) {
                asked += u64::from(self.asked[before]);
            }
            most = most.max(answered.saturating_sub(asked));
        }
        most
    }

    /// Returns the calls that exact decisions would have admitted.
    fn exact(&self, threshold: u32) -> u64 {
        let mut admitted = vec![0_u64; RUN];
        let (mut held, mut all) = (0, 0);
        for at in 0..RUN {
            if let Some(before) = at.checked_sub(WINDOW) {
                held -= admitted[before];
            }
            admitted[at] = u64::from(self.calls[at]).min(u64::from(threshold) - held);
            held += admitted[at];
            all += admitted[at];
        }
        all
    }
}

/// The figures of one run.
struct Run {
    decisions: f64,
    commands: f64,
    /// The fullest window, as a ratio to the threshold.
    fullest: f64,
    of_exact: f64,
}

impl Run {
    /// Lets so many processes call, each under its key.
    fn of(count: u32, threshold: u32, lease: u64, key: impl Fn(u32) -> String) -> Result<Self> {
        let server = Server::start(&[])?;
        let all = (2. * f64::from(threshold)).min(MOST_CALLS);
        let shares: f64 = (1..=count).map(|number| f64::from(number).recip()).sum();
        let mut processes = (1..=count)
            .map(|number| {
                let demand = all / shares / f64::from(number);
                let [threshold, lease] = [threshold.into(), lease].map(|it| it.to_string());
                Process::start(&server, &[threshold, lease, demand.to_string(), key(number)])
            })
            .collect::<Result<Vec<_>>>()?;
        let before = scripts(&server)?;
        let start = wall_clock() + 100_000;
        for process in &mut processes {
            let input = process.child.stdin.as_mut().ok_or("a process without input")?;
            writeln!(input, "{start}")?;
        }
        let left = start.saturating_sub(wall_clock()) + u64::try_from(RUN)?;
        thread::sleep(Duration::from_micros(left));
        let commands = scripts(&server)? - before;
        let mut timeline = Timeline::new();
        for process in processes {
            timeline.add(&process.timeline()?);
        }
        let sum = |column: &[u16]| column.iter().map(|number| u64::from(*number)).sum::<u64>();
        #[expect(clippy::cast_precision_loss, reason = "numbers of calls")]
        let number = |calls: u64| calls as f64;
        let seconds = Duration::from_micros(u64::try_from(RUN)?).as_secs_f64();
        Ok(Self {
            decisions: number(sum(&timeline.calls)) / seconds,
            commands: commands / seconds,
            fullest: number(timeline.fullest()) / f64::from(threshold),
            of_exact: number(sum(&timeline.asked)) / number(timeline.exact(threshold)),
        })
    }
}

/// Returns the number of scripts that clients have called.
fn scripts(server: &Server) -> Result<f64> {
    Ok(server.calls("evalsha")? + server.calls("eval")?)
}

/// A process of its own that calls.
struct Process {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Process {
    /// Starts the process, and waits until it is connected.
    fn start(server: &Server, arguments: &[String; 4]) -> Result<Self> {
        let mut command = Command::new(env::current_exe()?);
        command.args([CALLER, &server.url()]).args(arguments);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let output = child.stdout.take().ok_or("a process without output")?;
        let mut output = BufReader::new(output);
        output.read_line(&mut String::new())?;
        Ok(Self { child, output })
    }

    fn timeline(mut self) -> Result<Timeline> {
        let timeline = Timeline::read(&mut self.output)?;
        self.output.read_to_end(&mut Vec::new())?;
        if self.child.wait()?.success() { Ok(timeline) } else { Err("a process failed".into()) }
    }
}
