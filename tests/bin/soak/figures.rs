//! Figures of a soak: the answers, and memory, tasks and open files, which must not grow.

use std::{collections::BTreeMap, fmt, fs, time::Duration};

use harness::{History, Outcome};
use tokio::runtime::Handle;

use crate::faults::Server;

/// The fewest samples that show growth: two for each quarter.
const FEWEST: usize = 8;

#[derive(Default)]
pub(crate) struct Figures {
    /// The answers of all callers.
    answers: BTreeMap<String, u64>,
    calls: usize,
    slowest: Duration,
    samples: Vec<Sample>,
}

/// The resources of the process between two sections, without calls.
#[derive(Clone, Copy)]
struct Sample {
    /// The process, in bytes.
    process: u64,
    /// Redis, in bytes.
    redis: u64,
    /// The limiter's tasks, which reconnect in the background.
    tasks: u64,
    files: u64,
}

impl Figures {
    pub(crate) fn take_in(&mut self, history: &History) {
        for call in history.calls() {
            let name = match call.outcome {
                Outcome::Unavailable(reason) => format!("{reason:?}"),
                decided => format!("{decided:?}"),
            };
            *self.answers.entry(name).or_default() += 1;
        }
        self.calls += history.calls().len();
        self.slowest = self.slowest.max(history.slowest());
    }

    /// Samples the resources, and prints a line.
    pub(crate) fn sample(&mut self, server: &Server, elapsed: Duration) {
        let redis = server.redis();
        let tasks = Handle::current().metrics().num_alive_tasks();
        let sample = Sample {
            process: resident(),
            redis: redis.figure("used_memory"),
            tasks: tasks.try_into().unwrap_or(u64::MAX),
            files: open_files(),
        };
        let keys: u64 = redis.command("DBSIZE");
        self.samples.push(sample);
        println!(
            "{:>5} s | {} calls | slowest {:?} | resident {:.2} MiB, {tasks} tasks, {} files | \
             Redis {:.2} MiB, {keys} keys",
            elapsed.as_secs(),
            self.calls,
            self.slowest,
            mebibytes(sample.process),
            sample.files,
            mebibytes(sample.redis),
        );
    }

    /// Returns the resource that grew from the second quarter to the last. The first quarter is a warm-up.
    pub(crate) fn growth(&self) -> Option<String> {
        if self.samples.len() < FEWEST {
            return None;
        }
        let quarter = self.samples.len() / 4;
        let early = &self.samples[quarter..2 * quarter];
        let late = &self.samples[self.samples.len() - quarter..];
        let grown = |what: &str, figure: fn(&Sample) -> u64, slack: u64| {
            let most = early.iter().map(figure).max().unwrap_or(0);
            let least = late.iter().map(figure).min().unwrap_or(0);
            (least > most + most / 20 + slack).then(|| {
                format!("{what} grew: {most} at the most early on, {least} at the least now")
            })
        };
        // A twentieth and a mebibyte are an allocator's.
        grown("the process", |sample| sample.process, 1 << 20)
            .or_else(|| grown("Redis", |sample| sample.redis, 1 << 20))
            .or_else(|| grown("the number of tasks", |sample| sample.tasks, 2))
            .or_else(|| grown("the number of open files", |sample| sample.files, 2))
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let answers: Vec<_> = self.answers.iter().map(|(name, n)| format!("{n} {name}")).collect();
        write!(f, "{} calls: {}", self.calls, answers.join(", "))
    }
}

/// Returns the resident memory of this process in bytes, or 0 without `/proc`.
fn resident() -> u64 {
    const PAGE: u64 = 4_096;
    let statm = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    statm.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0) * PAGE
}

/// Returns the number of open files and sockets of this process, or 0 without `/proc`.
fn open_files() -> u64 {
    fs::read_dir("/proc/self/fd").map_or(0, |files| files.count().try_into().unwrap_or(u64::MAX))
}

#[allow(clippy::cast_precision_loss, reason = "for people to read")]
fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}
