//! `cargo bench -p ratelimit-benches --bench flood`
//!
//! A flood on one exhausted key, with the settings that a limiter has unless told otherwise: the
//! commands that reach Redis in a second, and the nanoseconds of a refusal beside those of the
//! embedded store.

use std::{
    hint::black_box,
    time::{Duration, Instant},
};

use ratelimit_benches::{
    figures::{figure, report},
    on_redis::refused,
    server::{Result, Server},
};
use ratelimit_runtime::Limiter;
use tokio::runtime::Builder;

const ROUNDS: usize = 9;
const LENGTH: Duration = Duration::from_millis(500);
/// How long commands are counted.
const COUNTED: Duration = Duration::from_secs(10);

fn main() -> Result<()> {
    let server = Server::start(&[])?;
    for workers in [1, 2] {
        let runtime = Builder::new_multi_thread().worker_threads(workers).enable_all().build()?;
        let url = server.url();
        let (on_redis, in_memory) = runtime.block_on(async {
            let on_redis = Limiter::connect(&url).await?;
            Ok::<_, ratelimit_runtime::ConnectError>((on_redis, Limiter::in_memory()))
        })?;
        let flood = |limiter: &Limiter, length: Duration| -> f64 {
            let tasks: Vec<_> = (0..workers)
                .map(|_| {
                    let limiter = limiter.clone();
                    runtime.spawn(async move {
                        let (start, mut calls) = (Instant::now(), 0_u32);
                        while start.elapsed() < length {
                            // Many for each look at the clock.
                            for _ in 0..1_000 {
                                black_box(refused(&limiter, 7).await).ok();
                            }
                            calls += 1_000;
                        }
                        start.elapsed().as_secs_f64() * 1e9 / f64::from(calls)
                    })
                })
                .collect();
            let nanos = tasks.into_iter().map(|task| runtime.block_on(task));
            nanos.map(|it| it.expect("a call does not panic")).fold(0., f64::max)
        };
        flood(&on_redis, LENGTH);
        flood(&in_memory, LENGTH);
        server.command::<()>(&["CONFIG", "RESETSTAT"])?;
        flood(&on_redis, COUNTED);
        let stats: String = server.command(&["INFO", "commandstats"])?;
        let calls = stats.lines().find_map(|it| it.strip_prefix("cmdstat_evalsha:calls="));
        let calls: f64 = calls.and_then(|it| it.split(',').next()).map_or(Ok(0.), str::parse)?;
        // The first of them begins the first second.
        let commands = vec![(calls - 1.) / COUNTED.as_secs_f64()];
        let (mut remote, mut memory) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            remote.push(flood(&on_redis, LENGTH));
            memory.push(flood(&in_memory, LENGTH));
        }
        println!("\n{workers} tasks, ns per refusal");
        println!("remembered         {}", figure(remote.clone(), 0));
        println!("the embedded store {}", figure(memory.clone(), 0));
        let over = remote.iter().zip(&memory).map(|(remote, memory)| remote - memory).collect();
        report(&format!("flood, {workers} tasks: commands/s"), commands, "at most 1");
        report(&format!("flood, {workers} tasks: ns over the embedded store"), over, "at most 60");
    }
    Ok(())
}
