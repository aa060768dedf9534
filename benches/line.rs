//! `cargo bench -p ratelimit-benches --bench line`
//!
//! Four processes on one Redis, whose calls wait for one limit of 20 calls in 500 ms. All arrive within
//! 200 ms. Shows the commands for each waiting call, the pairs out of order by the server's log, the waits
//! beside the ideal ones, and how long after its turn a call passes. The ideal is a single queue without a
//! way to it. Medians of five runs.
//!
//! Fails on more than two commands for a call, or on an inversion: a later call with an earlier turn.

use std::{
    env,
    io::{BufRead, BufReader, Write as _},
    process::{Child, ChildStdout, Command, Stdio},
    thread::{self, JoinHandle},
    time::{Duration, Instant, SystemTime},
};

use ratelimit_benches::{
    figures::report,
    server::{Result, Server},
};
use ratelimit_runtime::{Limiter, Policy};

const PROCESSES: usize = 4;
const RUNS: usize = 5;
const THRESHOLD: u32 = 20;
const PERIOD: Duration = Duration::from_millis(500);
const LINE: Policy = Policy::sliding_window("line", PERIOD, THRESHOLD).weighted();

/// The time within which all calls arrive.
const ARRIVALS: Duration = Duration::from_millis(200);

/// The maximum wait of a call, which no call reaches.
const PATIENCE: Duration = Duration::from_secs(120);

/// The argument of a process that waits.
const WAITER: &str = "--waiter";

fn main() -> Result<()> {
    let arguments: Vec<String> = env::args().collect();
    if let [_, flag, url, calls] = arguments.as_slice()
        && flag == WAITER
    {
        return wait_in_line(url, calls.parse()?);
    }
    let mut failures = Vec::new();
    for calls in [48, 100, 200, 1_000] {
        let runs = (0..RUNS).map(|_| Run::of(calls)).collect::<Result<Vec<_>>>()?;
        let column = |of: fn(&Run) -> f64| runs.iter().map(of).collect::<Vec<_>>();
        let name = |what: &str| format!("line, {calls} waiting calls: {what}");
        report(&name("commands a call"), column(|run| run.commands), "at most 2");
        report(&name("inversions"), column(|run| run.inversions), "0");
        report(&name("p99 wait to ideal"), column(|run| run.to_ideal), "at most 1.05");
        report(&name("ms after the turn, p99"), column(|run| run.late), "");
        let worst = |of: fn(&Run) -> f64| column(of).into_iter().fold(0., f64::max);
        if worst(|run| run.commands) > 2. {
            failures.push(format!("{calls} calls took more than two commands each"));
        }
        if worst(|run| run.inversions) > 0. {
            failures.push(format!("{calls} calls were not served in order"));
        }
    }
    if failures.is_empty() { Ok(()) } else { Err(failures.join("; ").into()) }
}

/// A process whose calls wait in line. It prints when each arrived and when it passed, in microseconds.
#[tokio::main(flavor = "current_thread")]
async fn wait_in_line(url: &str, calls: u32) -> Result<()> {
    let limiter = Limiter::builder().deadline(PATIENCE).max_line(1_000).connect(url).await?;
    // Knows the server's script, and is connected.
    limiter.peek(&LINE, "all").await?;
    println!("ready");
    std::io::stdin().read_line(&mut String::new())?;
    let waiting: Vec<_> = (0..calls)
        .map(|_| {
            let (limiter, pause) = (limiter.clone(), ARRIVALS.mul_f64(fastrand::f64()));
            tokio::spawn(async move {
                tokio::time::sleep(pause).await;
                let arrived = wall_clock();
                limiter
                    .check(&LINE, "all")
                    .max_wait(PATIENCE)
                    .await
                    .map(|_| (arrived, wall_clock()))
            })
        })
        .collect();
    for call in waiting {
        let (arrived, passed) = call.await??;
        println!("{arrived} {passed}");
    }
    Ok(())
}

/// Returns the machine's clock in microseconds, which its server uses too.
fn wall_clock() -> u64 {
    let since = SystemTime::UNIX_EPOCH.elapsed().expect("a time after 1970");
    since.as_micros().try_into().expect("a time before the year 500 000")
}

/// The figures of one run.
struct Run {
    commands: f64,
    inversions: f64,
    to_ideal: f64,
    late: f64,
}

impl Run {
    fn of(calls: usize) -> Result<Self> {
        let server = Server::start(&[])?;
        let processes = (0..PROCESSES).map(|_| Process::start(&server, calls / PROCESSES));
        let mut processes = processes.collect::<Result<Vec<_>>>()?;
        let log = CommandLog::start(&server)?;
        for process in &mut processes {
            writeln!(process.child.stdin.take().ok_or("a process without input")?)?;
        }
        let mut passes = Vec::new();
        for process in processes {
            passes.append(&mut process.passes()?);
        }
        let log = log.stop(&server)?;
        if log.turns.len() < calls {
            return Err("the server's log lacks turns".into());
        }
        passes.sort_unstable();
        let ideal = ideal(&passes);
        let waits = passes.iter().map(|(arrived, passed)| passed - arrived).collect();
        let ideal_waits =
            passes.iter().zip(&ideal).map(|((arrived, _), turn)| turn - arrived).collect();
        let mut ends: Vec<u64> = passes.iter().map(|(_, passed)| *passed).collect();
        ends.sort_unstable();
        let late = ends.iter().zip(&log.turns).map(|(passed, turn)| passed.saturating_sub(*turn));
        #[expect(clippy::cast_precision_loss, reason = "small numbers")]
        Ok(Self {
            commands: log.commands as f64 / calls as f64,
            inversions: inversions(&log.turns) as f64,
            to_ideal: p99(waits) as f64 / p99(ideal_waits) as f64,
            late: p99(late.collect()) as f64 / 1e3,
        })
    }
}

/// Returns the turns of a queue that knows nothing but the arrivals.
fn ideal(passes: &[(u64, u64)]) -> Vec<u64> {
    let mut turns: Vec<u64> = Vec::new();
    let period = u64::try_from(PERIOD.as_micros()).unwrap_or(u64::MAX);
    for (index, (arrived, _)) in passes.iter().enumerate() {
        let freed =
            index.checked_sub(THRESHOLD as usize).map_or(0, |before| turns[before] + period);
        turns.push(freed.max(*arrived));
    }
    turns
}

/// Returns the pairs of which the later one has the earlier turn.
fn inversions(turns: &[u64]) -> usize {
    let later = |index: usize, turn| turns[index + 1..].iter().filter(move |it| **it < turn);
    turns.iter().enumerate().map(|(index, turn)| later(index, *turn).count()).sum()
}

fn p99(mut values: Vec<u64>) -> u64 {
    values.sort_unstable();
    values[(values.len() * 99 / 100).min(values.len() - 1)]
}

/// A process of its own whose calls wait.
struct Process {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Process {
    /// Starts the process, and waits until it is connected.
    fn start(server: &Server, calls: usize) -> Result<Self> {
        let mut command = Command::new(env::current_exe()?);
        command.args([WAITER, &server.url(), &calls.to_string()]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let output = child.stdout.take().ok_or("a process without output")?;
        let mut output = BufReader::new(output);
        output.read_line(&mut String::new())?;
        Ok(Self { child, output })
    }

    /// Returns when its calls arrived and passed.
    fn passes(mut self) -> Result<Vec<(u64, u64)>> {
        let mut calls = Vec::new();
        for line in self.output.lines() {
            let line = line?;
            let (from, to) = line.split_once(' ').ok_or("a line of two numbers")?;
            calls.push((from.parse()?, to.parse()?));
        }
        if self.child.wait()?.success() { Ok(calls) } else { Err("a process failed".into()) }
    }
}

/// The commands that reach a server, as its `MONITOR` shows them.
struct CommandLog {
    reader: JoinHandle<Commands>,
}

#[derive(Default)]
struct Commands {
    /// The commands of clients.
    commands: usize,
    /// The turns that were promised, in the order of their promises.
    turns: Vec<u64>,
}

/// The last command of a run.
const LAST: &str = "\"ECHO\" \"the end of the run\"";

impl CommandLog {
    fn start(server: &Server) -> Result<Self> {
        let mut monitor = Command::new("redis-cli")
            .args(["-p", &server.port.to_string(), "MONITOR"])
            .stdout(Stdio::piped())
            .spawn()?;
        let mut lines = BufReader::new(monitor.stdout.take().ok_or("no output")?).lines();
        lines.next().ok_or("redis-cli ends at once")??;
        let reader = thread::spawn(move || {
            let mut commands = Commands::default();
            for line in lines.map_while(std::io::Result::ok) {
                if line.contains(LAST) {
                    break;
                }
                commands.read(&line);
            }
            // It has nothing more to tell.
            let _ = monitor.kill();
            let _ = monitor.wait();
            commands
        });
        Ok(Self { reader })
    }

    fn stop(self, server: &Server) -> Result<Commands> {
        let start = Instant::now();
        server.command::<()>(&["ECHO", "the end of the run"])?;
        let commands = self.reader.join().map_err(|_| "the reader panicked")?;
        if start.elapsed() > PERIOD * 10 {
            Err("the server is too slow".into())
        } else {
            Ok(commands)
        }
    }
}

impl Commands {
    /// Reads a line such as `1700000000.5 [0 lua] "ZADD" "ratelimit:..." "1700000000500000" "4200000001"`.
    fn read(&mut self, line: &str) {
        let is_of_script = line.contains("[0 lua]");
        if !is_of_script && line.contains("ratelimit:") {
            self.commands += 1;
        }
        if is_of_script && line.to_ascii_uppercase().contains("\"ZADD\"") {
            let number = |word: &str| word.trim_matches('"').parse().ok();
            // The stamp of the entry comes first; scores of the header are negative.
            self.turns.extend(
                line.split(' ').skip(4).find_map(number).filter(|turn: &u64| *turn > 1 << 40),
            );
        }
    }
}
