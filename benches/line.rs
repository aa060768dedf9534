//! `cargo bench -p ratelimit-benches --bench line [-- <algorithm>..]`
//!
//! Four processes on one Redis, whose calls wait for one limit of 20 calls in 500 ms, for each
//! algorithm. All arrive within 200 ms. Shows the commands for each waiting call, the pairs out of
//! order by the server's log, the waits beside the ideal ones, and how long after its turn a call
//! passes. The ideal is a single queue without a way to it. Medians of five runs.
//!
//! Fails on more than two commands for a call, or on an inversion: a later call with an earlier
//! turn.

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
use ratelimit_runtime::{Algorithm, Limiter, Policy};

const PROCESSES: usize = 4;
const RUNS: usize = 5;
const THRESHOLD: u32 = 20;
const PERIOD: Duration = Duration::from_millis(500);

/// The time within which all calls arrive.
const ARRIVALS: Duration = Duration::from_millis(200);

/// The maximum wait of a call, which no call reaches.
const PATIENCE: Duration = Duration::from_secs(120);

/// The argument of a process that waits.
const WAITER: &str = "--waiter";

fn main() -> Result<()> {
    let arguments: Vec<String> = env::args().collect();
    if let [_, flag, algorithm, url, calls] = arguments.as_slice()
        && flag == WAITER
    {
        return wait_in_line(&policy(algorithm)?, url, calls.parse()?);
    }
    let is_named = |it: &&Algorithm| arguments.iter().any(|name| name == it.as_str());
    let named: Vec<_> = Algorithm::ALL.iter().filter(is_named).collect();
    let mut failures = Vec::new();
    for algorithm in Algorithm::ALL {
        if named.is_empty() || named.contains(&algorithm) {
            failures.append(&mut show(algorithm.as_str())?);
        }
    }
    if failures.is_empty() { Ok(()) } else { Err(failures.join("; ").into()) }
}

/// Returns the limit.
fn policy(algorithm: &str) -> Result<Policy> {
    let algorithm = Algorithm::ALL.iter().find(|it| it.as_str() == algorithm);
    let algorithm = *algorithm.ok_or("an algorithm of that name")?;
    Ok(Policy::new("line", algorithm, PERIOD, THRESHOLD))
}

/// Shows the figures of an algorithm, and returns what is wrong with them.
fn show(algorithm: &str) -> Result<Vec<String>> {
    let mut failures = Vec::new();
    for calls in [48, 100, 200, 1_000] {
        let runs = (0..RUNS).map(|_| Run::of(algorithm, calls)).collect::<Result<Vec<_>>>()?;
        let column = |of: fn(&Run) -> f64| runs.iter().map(of).collect::<Vec<_>>();
        let name = |what: &str| format!("line, {algorithm}, {calls} waiting calls: {what}");
        report(&name("commands a call"), column(|run| run.commands), "at most 2");
        report(&name("inversions"), column(|run| run.inversions), "0");
        report(&name("p99 wait to ideal"), column(|run| run.to_ideal), "at most 1.05");
        report(&name("ms after the turn, p99"), column(|run| run.late), "");
        let worst = |of: fn(&Run) -> f64| column(of).into_iter().fold(0., f64::max);
        if worst(|run| run.commands) > 2. {
            failures.push(format!("{algorithm}: {calls} calls took more than two commands each"));
        }
        if worst(|run| run.inversions) > 0. {
            failures.push(format!("{algorithm}: {calls} calls were not served in order"));
        }
    }
    Ok(failures)
}

/// A process whose calls wait in line. It prints when each arrived and when it passed, in
/// microseconds.
#[tokio::main(flavor = "current_thread")]
async fn wait_in_line(policy: &Policy, url: &str, calls: u32) -> Result<()> {
    let limiter = Limiter::builder().deadline(PATIENCE).max_line(1_000).connect(url).await?;
    // Knows the server's script, and is connected.
    limiter.peek(policy, "all").await?;
    println!("ready");
    std::io::stdin().read_line(&mut String::new())?;
    let waiting: Vec<_> = (0..calls)
        .map(|_| {
            let (limiter, policy) = (limiter.clone(), *policy);
            let pause = ARRIVALS.mul_f64(fastrand::f64());
            tokio::spawn(async move {
                tokio::time::sleep(pause).await;
                let arrived = wall_clock();
                limiter
                    .check(&policy, "all")
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
    fn of(algorithm: &str, calls: usize) -> Result<Self> {
        let server = Server::start(&[])?;
        let processes =
            (0..PROCESSES).map(|_| Process::start(&server, algorithm, calls / PROCESSES));
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
        let ideal = ideal(algorithm, &passes);
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
fn ideal(algorithm: &str, passes: &[(u64, u64)]) -> Vec<u64> {
    let period = u64::try_from(PERIOD.as_micros()).unwrap_or(u64::MAX);
    let (most, mut turns) = (u64::from(THRESHOLD), Vec::<u64>::new());
    // A window's start, its calls, and those of the window before; or when a bucket is full.
    let (mut start, mut calls, mut before, mut full) = (0, 0, 0, 0);
    for (index, (arrived, _)) in passes.iter().enumerate() {
        let last = turns.last().copied().unwrap_or(0);
        let mut turn = last.max(*arrived);
        match algorithm {
            "fixed_window" => {
                turn = if calls == most { turn.max(start + period) } else { turn };
                if turn >= start + period {
                    (start, calls) = (turn, 0);
                }
                calls += 1;
            }
            "sliding_counter" => loop {
                let window = turn - turn % period;
                if window > start {
                    before = if window == start + period { calls } else { 0 };
                    (start, calls) = (window, 0);
                }
                let Some(free) = most.checked_sub(calls + 1) else {
                    turn = start + period;
                    continue;
                };
                let left = (free * period).checked_div(before).unwrap_or(period);
                turn = turn.max(start + period - left.min(period));
                if turn < start + period {
                    calls += 1;
                    break;
                }
            },
            "token_bucket" => {
                turn = turn.max(u64::saturating_sub(full, period - period / most));
                full = full.max(turn) + period / most;
            }
            _ => {
                let freed =
                    index.checked_sub(THRESHOLD as usize).map_or(0, |it| turns[it] + period);
                turn = turn.max(freed);
            }
        }
        turns.push(turn);
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
    fn start(server: &Server, algorithm: &str, calls: usize) -> Result<Self> {
        let mut command = Command::new(env::current_exe()?);
        command.args([WAITER, algorithm, &server.url(), &calls.to_string()]);
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
    /// Reads a line such as
    /// `1700000000.5 [0 lua] "ZADD" "ratelimit:..." "1700000000500000" "4200000001"`.
    fn read(&mut self, line: &str) {
        let words: Vec<_> = line.split(' ').collect();
        let [_, _, of, command, key, first, ..] = words[..] else { return };
        if of != "lua]" {
            self.commands += usize::from(line.contains("ratelimit:"));
            return;
        }
        let number = |word: &str| word.trim_matches('"').parse().ok();
        let turn = match command.to_ascii_uppercase().as_str() {
            // The header of a line in which nobody waits has the state alone, with its last charge.
            "\"ZADD\"" if first == "\"-inf\"" => {
                words.get(8).filter(|_| line.ends_with(";\"")).and_then(|word| number(word))
            }
            // The stamp of the entry comes first; scores of a log's header are negative.
            "\"ZADD\"" => number(first),
            "\"SET\"" => words.get(6).and_then(|word| number(word)),
            _ => None,
        };
        // Settles are kept beside the state.
        let is_of_state = !key.ends_with(":s\"");
        self.turns.extend(turn.filter(|turn: &u64| is_of_state && *turn > 1 << 40));
    }
}
