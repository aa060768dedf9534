//! `cargo bench -p ratelimit-benches --bench cluster`
//!
//! Decisions per second on a cluster of one, two and three primaries, and on one server over one,
//! two and four connections. One process measures, with all servers on this machine; the processor
//! time of servers and client shows the bottleneck.

use std::time::{Duration, Instant};

use ratelimit_benches::{
    figures::{figure, ratios, report_ratio, spread},
    load::{self, Load},
    on_redis::{call, limiter},
    rounds::rounds,
    server::{Result, Server},
};
use ratelimit_runtime::Limiter;
use tokio::runtime::Builder;

const LENGTH: Duration = Duration::from_millis(700);

/// Servers, and limiters of which each has a connection to each of them.
struct Set {
    name: String,
    nodes: Vec<Server>,
    limiters: &'static [&'static Limiter],
    rounds: Vec<(Load, f64)>,
}

fn main() -> Result<()> {
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let mut sets = Vec::new();
    for primaries in 1..=3 {
        let nodes = Server::cluster(primaries)?;
        let url = format!("redis+cluster://127.0.0.1:{}", nodes[0].port);
        let limiters = runtime.block_on(limiters(&url, 1))?;
        sets.push(Set {
            name: format!("{primaries} primaries"),
            nodes,
            limiters,
            rounds: Vec::new(),
        });
    }
    for connections in [1, 2, 4] {
        let server = Server::start(&[])?;
        let limiters = runtime.block_on(limiters(&server.url(), connections))?;
        let name = format!("{connections} connections");
        sets.push(Set { name, nodes: vec![server], limiters, rounds: Vec::new() });
    }
    for tasks in [64, 512] {
        for round in 0..=rounds(7) {
            for set in &mut sets {
                let limiters = set.limiters;
                let call = move |user| call(limiters[user as usize % limiters.len()], true, user);
                let (cpu, start) = (set.cpu()?, Instant::now());
                let load = runtime.block_on(load::closed(tasks, LENGTH, call));
                let cpu = (set.cpu()? - cpu) / start.elapsed().as_secs_f64();
                // The first round fills the servers.
                if round > 0 {
                    set.rounds.push((load, cpu));
                }
            }
        }
        print(tasks, &sets);
        for set in &mut sets {
            set.rounds.clear();
        }
    }
    println!("\nof {} processors", std::thread::available_parallelism()?);
    Ok(())
}

async fn limiters(url: &str, number: usize) -> Result<&'static [&'static Limiter]> {
    let mut limiters = Vec::new();
    for _ in 0..number {
        limiters.push(limiter(url, 0).await?);
    }
    Ok(limiters.leak())
}

fn print(tasks: u32, sets: &[Set]) {
    println!("\n{tasks} tasks, admitted");
    println!(
        "{:16}{:>26}{:>8}{:>8}{:>14}{:>14}",
        "", "decisions/s", "p50", "p99", "servers' CPU", "client's CPU"
    );
    for set in sets {
        let median = |of: fn(&(Load, f64)) -> f64| spread(set.rounds.iter().map(of).collect())[1];
        print!("{:16}{:>26}", set.name, figure(set.per_second(), 0));
        print!("{:8.0}{:8.0}", median(|it| it.0.p50), median(|it| it.0.p99));
        println!(
            "{:14.2}{:14.2}",
            median(|it| it.1),
            median(|it| it.0.cpu * it.0.per_second / 1e6)
        );
    }
    for (index, set) in sets.iter().enumerate() {
        // One primary, and one connection.
        let base = &sets[index / 3 * 3];
        if set.name != base.name {
            let what = format!("{}, {tasks} tasks: decisions/s to one", set.name);
            report_ratio(&what, ratios(&set.per_second(), &base.per_second()), "-");
        }
    }
}

impl Set {
    fn per_second(&self) -> Vec<f64> {
        self.rounds.iter().map(|it| it.0.per_second).collect()
    }

    /// Seconds of processor time that the servers have taken.
    fn cpu(&self) -> Result<f64> {
        self.nodes.iter().map(Server::cpu).sum()
    }
}
