//! `cargo bench -p ratelimit-benches --bench bytes_per_key`
//!
//! The memory of a caller: bytes per key of each algorithm, filled to its threshold, and of calls
//! in flight. In memory it is the growth of the process (Linux only), with the decisions that hold
//! a permit. On Redis it is `MEMORY USAGE`.

use std::{error::Error, fs, process::Command, time::Duration};

use ratelimit_benches::{figures::report, server::Server};
use ratelimit_runtime::{Decision, Limiter, Policy};

type New = fn(&'static str, Duration, u32) -> Policy;

const ALGORITHMS: [(&str, New); 6] = [
    ("sliding_window", Policy::sliding_window),
    (WITH_COSTS, |name, period, threshold| Policy::sliding_window(name, period, 2 * threshold)),
    ("sliding_counter", Policy::sliding_counter),
    ("fixed_window", Policy::fixed_window),
    ("token_bucket", Policy::token_bucket),
    (IN_FLIGHT, |name, _, threshold| Policy::concurrency_limit(name, threshold)),
];

const IN_FLIGHT: &str = "calls in flight";
/// Each call takes two units.
const WITH_COSTS: &str = "sliding_window with costs";

/// Thresholds, each with enough callers for a clear figure.
const THRESHOLDS: [(u32, u32); 3] = [(3, 500_000), (100, 50_000), (1_000, 10_000)];

/// A name and callers of usual length: a key of about 50 bytes.
const NAME: &str = "app::mail::send";
const PERIOD: Duration = Duration::from_secs(86_400);

fn cost_of(name: &str) -> u32 {
    if name == WITH_COSTS { 2 } else { 1 }
}

fn caller(number: u32) -> String {
    format!("user-{number:07}")
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [case, algorithm, size] = &arguments[..]
        && case == "in-memory"
    {
        return in_memory(
            ALGORITHMS[algorithm.parse::<usize>()?],
            THRESHOLDS[size.parse::<usize>()?],
        )
        .await;
    }
    for algorithm in 0..ALGORITHMS.len() {
        for size in 0..THRESHOLDS.len() {
            // A process of its own, which does not reuse the memory of another case.
            let mut case = Command::new(std::env::current_exe()?);
            case.args(["in-memory", &algorithm.to_string(), &size.to_string()]).status()?;
        }
    }
    on_redis(&Server::start(&[])?).await
}

async fn in_memory(
    (name, new): (&str, New),
    (threshold, callers): (u32, u32),
) -> Result<(), Box<dyn Error>> {
    // Decisions are larger than what a store keeps of a call.
    let callers = if name == IN_FLIGHT { callers / 20 } else { callers };
    let policy = new(NAME, PERIOD, threshold);
    let before = resident()?;
    let limiter = Limiter::builder().max_bytes(usize::MAX).in_memory();
    let mut held = Vec::new();
    for number in 0..callers {
        held.extend(fill(&limiter, &policy, &caller(number), cost_of(name)).await?);
    }
    let bytes = resident()?.saturating_sub(before) / u64::from(callers);
    println!("{name:16} threshold {threshold:5}  in memory {bytes:7} bytes");
    let is_small = threshold == 3 && name != IN_FLIGHT && name != WITH_COSTS;
    let bar = if is_small { "at most 93" } else { "-" };
    let what = format!("bytes of a caller in memory, {name} of {threshold}");
    report(&what, vec![f64::from(u32::try_from(bytes)?)], bar);
    Ok(())
}

async fn on_redis(server: &Server) -> Result<(), Box<dyn Error>> {
    let limiter =
        Limiter::builder().prefix("bench:").deadline(PERIOD).connect(&server.url()).await?;
    for (name, new) in ALGORITHMS {
        for (threshold, _) in THRESHOLDS {
            let policy = new(NAME, PERIOD, threshold);
            let held = fill(&limiter, &policy, &caller(threshold), cost_of(name)).await?;
            let keys: Vec<String> = server.command(&["KEYS", "bench:*"])?;
            let [key] = &keys[..] else { return Err(format!("not one key: {keys:?}").into()) };
            let bytes: u32 = server.command(&["MEMORY", "USAGE", key, "SAMPLES", "0"])?;
            println!("{name:16} threshold {threshold:5}  on Redis  {bytes:7} bytes");
            let what = format!("bytes of a caller on Redis, {name} of {threshold}");
            report(&what, vec![f64::from(bytes)], "-");
            drop(held);
            limiter.flush().await?;
            limiter.reset(&policy, caller(threshold)).await?;
        }
    }
    Ok(())
}

/// Makes as many calls as the policy admits. Returns the decisions that hold permits.
async fn fill(
    limiter: &Limiter,
    policy: &Policy,
    caller: &str,
    cost: u32,
) -> Result<Vec<Decision>, Box<dyn Error>> {
    let most = policy.get_concurrency().or(policy.tiers().first().map(|tier| tier.threshold()));
    let mut held = Vec::new();
    for _ in 0..most.unwrap_or_default() / cost {
        let decision = limiter.check(policy, caller).cost(cost).await?;
        if decision.has_permit() {
            held.push(decision);
        }
    }
    Ok(held)
}

/// Returns the resident bytes of the process.
fn resident() -> Result<u64, Box<dyn Error>> {
    let pages: u64 = fs::read_to_string("/proc/self/statm")?
        .split(' ')
        .nth(1)
        .ok_or("the second number of statm")?
        .parse()?;
    Ok(pages * 4096)
}
