//! Tasks that call without a pause or at a fixed rate, and their throughput and latency.

use std::{
    fs,
    future::Future,
    sync::Arc,
    time::{Duration, Instant},
};

/// The callers that a load is spread over.
pub const CALLERS: u32 = 10_000;

/// The calls that tasks completed in a time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Load {
    /// Completed calls per second.
    pub per_second: f64,
    /// The median latency, in microseconds.
    pub p50: f64,
    /// The 99th percentile of the latency, in microseconds.
    pub p99: f64,
    /// The 99.9th percentile of the latency, in microseconds.
    pub p999: f64,
    /// Processor time of this process per call, in microseconds.
    pub cpu: f64,
    /// The share of calls that returned `true`, from 0 to 1.
    pub admitted: f64,
}

/// Runs this many tasks that call as fast as possible. `call` takes the number of a caller, and
/// returns `true` if the call was admitted.
///
/// # Panics
///
/// When a call does.
pub async fn closed<F>(
    tasks: u32,
    length: Duration,
    call: impl Fn(u32) -> F + Send + Sync + 'static,
) -> Load
where
    F: Future<Output = bool> + Send + 'static,
{
    run(tasks, length, None, call).await
}

/// Runs this many tasks that call at a rate, in calls per second of all tasks together.
///
/// # Panics
///
/// When a call does.
pub async fn paced<F>(
    tasks: u32,
    length: Duration,
    per_second: f64,
    call: impl Fn(u32) -> F + Send + Sync + 'static,
) -> Load
where
    F: Future<Output = bool> + Send + 'static,
{
    let pause = Duration::from_secs_f64(f64::from(tasks) / per_second);
    run(tasks, length, Some(pause), call).await
}

async fn run<F>(
    tasks: u32,
    length: Duration,
    pause: Option<Duration>,
    call: impl Fn(u32) -> F + Send + Sync + 'static,
) -> Load
where
    F: Future<Output = bool> + Send + 'static,
{
    let call = Arc::new(call);
    let (cpu, start) = (own_cpu(), Instant::now());
    let all: Vec<_> = (0..tasks)
        .map(|task| {
            let call = Arc::clone(&call);
            let first = pause.map(|pause| pause * task / tasks);
            tokio::spawn(async move {
                let mut taken = Vec::with_capacity(1 << 14);
                let mut admitted = 0_u32;
                let mut next = tokio::time::Instant::from_std(start) + first.unwrap_or_default();
                while start.elapsed() < length {
                    if let Some(pause) = pause {
                        tokio::time::sleep_until(next).await;
                        next += pause;
                    }
                    let sent = Instant::now();
                    admitted += u32::from(call(fastrand::u32(..CALLERS)).await);
                    taken.push(sent.elapsed().as_secs_f64() * 1e6);
                }
                (taken, admitted)
            })
        })
        .collect();
    let (mut taken, mut admitted) = (Vec::new(), 0.);
    for task in all {
        let (of_task, of_task_admitted) = task.await.expect("a call does not panic");
        taken.extend(of_task);
        admitted += f64::from(of_task_admitted);
    }
    let (elapsed, cpu) = (start.elapsed().as_secs_f64(), own_cpu() - cpu);
    taken.sort_unstable_by(f64::total_cmp);
    let calls = f64::from(u32::try_from(taken.len()).expect("no more calls than that"));
    let at = |share: usize| taken[taken.len() * share / 1_000];
    Load {
        per_second: calls / elapsed,
        p50: at(500),
        p99: at(990),
        p999: at(999),
        cpu: cpu * 1e6 / calls,
        admitted: admitted / calls,
    }
}

/// Returns the processor time of this process in seconds; 0 without `/proc`.
fn own_cpu() -> f64 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let (_, rest) = stat.rsplit_once(')').unwrap_or_default();
    // User and system time, in hundredths of a second.
    let ticks = rest.split_ascii_whitespace().skip(11).take(2);
    ticks.filter_map(|ticks| ticks.parse::<f64>().ok()).sum::<f64>() / 100.
}
