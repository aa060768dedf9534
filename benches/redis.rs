//! `cargo bench -p ratelimit-benches --bench redis`
//!
//! Decisions per second on Redis through an annotated function on one connection. Loads are 1, 64
//! and 512 tasks that call without a pause, on three kinds of runtime, admitted and refused,
//! without a deny cache. `redis-benchmark` runs beside them on the same server with the same script
//! and arguments, on one connection with as many commands under way. Then follows the latency at
//! half of that load.
//!
//! All run in turn; figures are medians with the lowest and the highest round, ratios those of the
//! rounds next to each other. Noise of a shared machine moves all of them.

#[allow(dead_code, reason = "not all of them are measured")]
#[path = "../ratelimit-runtime/src/redis/script/sources.rs"]
mod sources;

use std::{process::Command, time::Duration};

use ratelimit_benches::{
    figures::{figure, ratios, report, report_ratio, spread},
    load::{self, Load},
    on_redis::{ADMITTED, REFUSED, call, limiter},
    rounds::rounds,
    server::{Result, Server},
};
use ratelimit_runtime::Limiter;
use tokio::runtime::{Builder, Runtime};

const LENGTH: Duration = Duration::from_millis(500);
const TASKS: [u32; 3] = [1, 64, 512];

/// A runtime, and a limiter that lives on it.
struct Client {
    name: &'static str,
    runtime: Runtime,
    limiter: &'static Limiter,
}

fn main() -> Result<()> {
    let server = Server::start(&[])?;
    let sha: String = server.command(&["SCRIPT", "LOAD", sources::SLIDING_WINDOW[0]])?;
    let clients = [
        Client::new("2 workers", Builder::new_multi_thread().worker_threads(2), &server)?,
        Client::new("1 worker", Builder::new_multi_thread().worker_threads(1), &server)?,
        Client::new("current thread", &mut Builder::new_current_thread(), &server)?,
    ];
    for is_admitted in [true, false] {
        for tasks in TASKS {
            let mut tool = Vec::new();
            let mut ours = vec![Vec::new(); clients.len()];
            for round in 0..=rounds(7) {
                // The tool gives up at the first error, such as a repeated id.
                let by_tool = redis_benchmark(&server, &sha, tasks, is_admitted)
                    .or_else(|_| redis_benchmark(&server, &sha, tasks, is_admitted))?;
                let loads: Vec<Load> =
                    clients.iter().map(|it| it.run(tasks, is_admitted, None)).collect();
                // The first round fills the server.
                if round > 0 {
                    tool.push(by_tool);
                    ours.iter_mut().zip(loads).for_each(|(rounds, load)| rounds.push(load));
                }
            }
            let mut paced = vec![Vec::new(); clients.len()];
            for _ in 0..rounds(7) {
                for ((client, full), paced) in clients.iter().zip(&ours).zip(&mut paced) {
                    let half = median(full, |load| load.per_second) / 2.;
                    paced.push(client.run(tasks, is_admitted, Some(half)));
                }
            }
            print(is_admitted, tasks, &tool, &clients, &ours, &paced);
        }
    }
    Ok(())
}

impl Client {
    fn new(name: &'static str, builder: &mut Builder, server: &Server) -> Result<Self> {
        let runtime = builder.enable_all().build()?;
        let limiter = runtime.block_on(limiter(&server.url(), 0))?;
        Ok(Self { name, runtime, limiter })
    }

    fn run(&self, tasks: u32, is_admitted: bool, per_second: Option<f64>) -> Load {
        let limiter = self.limiter;
        let call = move |user| call(limiter, is_admitted, user);
        self.runtime.block_on(async {
            match per_second {
                None => load::closed(tasks, LENGTH, call).await,
                Some(per_second) => load::paced(tasks, LENGTH, per_second, call).await,
            }
        })
    }
}

/// Measures the load of `redis-benchmark`, the tool of Redis.
fn redis_benchmark(server: &Server, sha: &str, depth: u32, is_admitted: bool) -> Result<Load> {
    let (period, threshold) = if is_admitted { ADMITTED } else { REFUSED };
    let keep = period / 1_000;
    let header = format!("-{}", keep * 131_072 + u64::from(threshold));
    let lasts = (keep + 999).to_string();
    let requests = if depth == 1 { 3_000 } else { 40_000 };
    let output = Command::new("redis-benchmark")
        .args(["-p", &server.port.to_string(), "--csv", "-c", "1"])
        .args(["-P", &depth.to_string(), "-n", &requests.to_string()])
        .args(["-r", &load::CALLERS.to_string()])
        .args(["EVALSHA", sha, "1", &format!("ratelimit:benchmark:{is_admitted}/__rand_int__")])
        // As a limiter sends it. A unique id; the tool's random numbers are those of `-r`.
        .args(["1", "1", &header, "__rand_int____rand_int__", &lasts, "1"])
        .args([&period.to_string(), &threshold.to_string()])
        .output()
        .map_err(|error| format!("redis-benchmark, which comes with Redis: {error}"))?;
    let text = String::from_utf8(output.stdout)?;
    // "test","rps","avg_latency_ms","min_latency_ms","p50_latency_ms","p95..","p99..","max.."
    let line = text.lines().last().unwrap_or_default();
    let columns: Vec<f64> =
        line.split("\",\"").filter_map(|it| it.trim_matches('"').parse().ok()).collect();
    let [per_second, _, _, p50, _, p99, _] = columns[..] else {
        let error = String::from_utf8_lossy(&output.stderr);
        return Err(format!("redis-benchmark failed: {text}{error}").into());
    };
    Ok(Load { per_second, p50: p50 * 1e3, p99: p99 * 1e3, ..Load::default() })
}

fn column(loads: &[Load], figure: impl Fn(&Load) -> f64) -> Vec<f64> {
    loads.iter().map(figure).collect()
}

fn median(loads: &[Load], figure: impl Fn(&Load) -> f64) -> f64 {
    spread(column(loads, figure))[1]
}

fn print(
    is_admitted: bool,
    tasks: u32,
    tool: &[Load],
    clients: &[Client],
    ours: &[Vec<Load>],
    paced: &[Vec<Load>],
) {
    let what = if is_admitted { "admitted" } else { "refused" };
    println!("\n{what}, {tasks} tasks");
    println!(
        "{:16}{:>26}{:>6}{:>8}{:>8}{:>8}{:>12}{:>14}",
        "", "decisions/s", "x", "p50", "p99", "p99.9", "CPU us", "p99 at half"
    );
    let print = |name: &str, loads: &[Load], half: &[Load]| {
        let per_second = column(loads, |it| it.per_second);
        let ratio = spread(ratios(&per_second, &column(tool, |it| it.per_second)))[1];
        print!("{name:16}{:>26}{ratio:6.2}", figure(per_second, 0));
        print!("{:8.0}{:8.0}", median(loads, |it| it.p50), median(loads, |it| it.p99));
        if half.is_empty() {
            println!();
            return;
        }
        print!("{:8.0}{:12.1}", median(loads, |it| it.p999), median(loads, |it| it.cpu));
        println!("{:14.0}", median(half, |it| it.p99));
    };
    print("redis-benchmark", tool, &[]);
    for ((client, loads), half) in clients.iter().zip(ours).zip(paced) {
        print(client.name, loads, half);
    }
    for (client, loads) in clients.iter().zip(ours) {
        let name = format!("{what}, {tasks} tasks, {}", client.name);
        report(&format!("{name}: decisions/s"), column(loads, |it| it.per_second), "-");
    }
    if tasks == 1 {
        return;
    }
    for ((client, loads), half) in clients.iter().zip(ours).zip(paced) {
        let figures = |of: fn(&Load) -> f64, loads| ratios(&column(loads, of), &column(tool, of));
        let name = format!("{what}, {tasks} tasks, {}", client.name);
        let reached = figures(|it| it.per_second, loads);
        report_ratio(&format!("{name}: decisions/s to redis-benchmark"), reached, "at least 0.9");
        let p99 = figures(|it| it.p99, half);
        report_ratio(&format!("{name}: p99 at half the load to redis-benchmark"), p99, "at most 2");
        if tasks == 64 && client.name == "2 workers" {
            let what = format!("client processor time per call, 64 tasks, two workers, {what}");
            report(&what, column(loads, |it| it.cpu), "at most 4.5 us");
        }
    }
}
