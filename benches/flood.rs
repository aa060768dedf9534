//! `cargo bench -p ratelimit-benches --bench flood`
//!
//! A flood on one exhausted key, with the default settings of a limiter. Shows the commands per
//! second that reach Redis, for calls of one cost and of varying costs. The nanoseconds of a
//! refusal stand beside those of the embedded store and of the clock alone, which each of them
//! reads once.

use std::{
    hint::black_box,
    time::{Duration, Instant},
};

use ratelimit_benches::{
    figures::{figure, report},
    on_redis::refused,
    rounds::rounds,
    server::{Result, Server},
};
use ratelimit_runtime::{Limiter, Policy, RateLimitError};
use tokio::runtime::{Builder, Runtime};

/// A round's figure is the least of so many short turns.
const TURNS: usize = 20;
const LENGTH: Duration = Duration::from_millis(20);
/// The time over which commands are counted.
const COUNTED: Duration = Duration::from_secs(10);

/// Refills steadily, at the pace of 1 000 a minute; a flood is in a steady state after two periods.
const TRICKLE: Policy = Policy::sliding_window("trickle", Duration::from_secs(6), 100);
const CALLS_A_SECOND: u32 = 1_000;

/// The calls between two looks at how long they have taken.
const BATCH: u32 = 1_000;

fn main() -> Result<()> {
    let server = Server::start(&[])?;
    of_one_cost(&server)?;
    let mut random = fastrand::Rng::with_seed(7);
    of_costs(&server, "10", || 10)?;
    of_costs(&server, "1-30 at random", || random.u32(1..=30))?;
    let mut falling = (1..=30).rev().cycle();
    of_costs(&server, "30, 29, .. 1", || falling.next().unwrap_or(1))?;
    let mut random = fastrand::Rng::with_seed(7);
    of_costs(&server, "2-50 at random", || random.u32(2..=50))
}

/// Counts the commands of a flood whose calls have these costs.
fn of_costs(server: &Server, name: &str, mut cost: impl FnMut() -> u32) -> Result<()> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let limiter = runtime.block_on(Limiter::connect(&server.url()))?;
    let mut flood = async |length: Duration| {
        let mut pace = tokio::time::interval(Duration::from_secs(1) / CALLS_A_SECOND);
        let (start, mut calls, mut admitted) = (Instant::now(), 0_u32, 0_u32);
        while start.elapsed() < length {
            pace.tick().await;
            calls += 1;
            match limiter.check(&TRICKLE, name).cost(cost()).await {
                Ok(_) => admitted += 1,
                Err(RateLimitError::Exceeded(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok((calls, admitted))
    };
    runtime.block_on(flood(2 * TRICKLE.tiers()[0].period()))?;
    server.command::<()>(&["CONFIG", "RESETSTAT"])?;
    let (calls, admitted) = runtime.block_on(flood(COUNTED))?;
    let of = |figure: f64| figure / COUNTED.as_secs_f64();
    let commands = of(decisions(server)?);
    let (calls, admitted) = (of(calls.into()), of(admitted.into()));
    println!("\ncosts {name}: {calls:.0} calls/s, {admitted:.1} admitted, {commands:.1} commands");
    report(&format!("flood, costs {name}: commands/s"), vec![commands], "at most 5");
    Ok(())
}

/// The commands that decided calls since the statistics were reset.
fn decisions(server: &Server) -> Result<f64> {
    let stats: String = server.command(&["INFO", "commandstats"])?;
    let calls = stats.lines().find_map(|it| it.strip_prefix("cmdstat_evalsha:calls="));
    Ok(calls.and_then(|it| it.split(',').next()).map_or(Ok(0.), str::parse)?)
}

fn of_one_cost(server: &Server) -> Result<()> {
    for workers in [1, 2] {
        let runtime = Builder::new_multi_thread().worker_threads(workers).enable_all().build()?;
        let url = server.url();
        let (on_redis, in_memory) = runtime.block_on(async {
            let on_redis = Limiter::connect(&url).await?;
            Ok::<_, ratelimit_runtime::ConnectError>((on_redis, Limiter::in_memory()))
        })?;
        flood(&runtime, workers, &on_redis, LENGTH);
        flood(&runtime, workers, &in_memory, LENGTH);
        server.command::<()>(&["CONFIG", "RESETSTAT"])?;
        flood(&runtime, workers, &on_redis, COUNTED);
        // The first of them begins the first second.
        let commands = vec![(decisions(server)? - 1.) / COUNTED.as_secs_f64()];
        let (mut remote, mut memory, mut clock) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..rounds(9) {
            let mut least = [f64::MAX; 3];
            for _ in 0..TURNS {
                least[0] = least[0].min(flood(&runtime, workers, &on_redis, LENGTH));
                least[1] = least[1].min(flood(&runtime, workers, &in_memory, LENGTH));
                let turn = spawn(&runtime, workers, LENGTH, || async { read_clock() });
                least[2] = least[2].min(turn);
            }
            remote.push(least[0]);
            memory.push(least[1]);
            clock.push(least[2]);
        }
        println!("\n{workers} tasks, ns per refusal");
        println!("remembered         {}", figure(remote.clone(), 0));
        println!("the embedded store {}", figure(memory, 0));
        println!("the clock alone    {}", figure(clock.clone(), 0));
        let over = remote.iter().zip(&clock).map(|(remote, clock)| remote - clock).collect();
        report(&format!("flood, {workers} tasks: commands/s"), commands, "at most 1");
        report(&format!("flood, {workers} tasks: ns over the clock"), over, "at most 60");
    }
    Ok(())
}

/// Returns the nanoseconds of a refusal, of the slowest task.
fn flood(runtime: &Runtime, tasks: usize, limiter: &Limiter, length: Duration) -> f64 {
    let limiter = limiter.clone();
    spawn(runtime, tasks, length, move || {
        let limiter = limiter.clone();
        async move {
            for _ in 0..BATCH {
                black_box(refused(&limiter, 7).await).ok();
            }
        }
    })
}

fn read_clock() {
    for _ in 0..BATCH {
        black_box(tokio::time::Instant::now());
    }
}

/// Returns the nanoseconds of one of the calls that a batch makes, in the slowest of so many tasks.
fn spawn<F>(
    runtime: &Runtime,
    tasks: usize,
    length: Duration,
    batch: impl Fn() -> F + Clone + Send + 'static,
) -> f64
where
    F: Future<Output = ()> + Send,
{
    let task = || {
        let batch = batch.clone();
        runtime.spawn(async move {
            // The clock is read once for many calls.
            let (start, mut calls) = (Instant::now(), 0_u32);
            while start.elapsed() < length {
                batch().await;
                calls += BATCH;
            }
            start.elapsed().as_secs_f64() * 1e9 / f64::from(calls)
        })
    };
    let tasks: Vec<_> = (0..tasks).map(|_| task()).collect();
    let nanos = tasks.into_iter().map(|task| runtime.block_on(task));
    nanos.map(|it| it.expect("a call does not panic")).fold(0., f64::max)
}
