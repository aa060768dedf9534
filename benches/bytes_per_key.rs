//! The memory of a caller: bytes per key of each algorithm, filled to its threshold.
//!
//! `cargo bench -p ratelimit-benches --bench bytes_per_key` measures the memory store, by the
//! growth of the process (Linux only). With `-- redis://127.0.0.1:6379` it measures a Redis as well,
//! by `MEMORY USAGE`.

use std::{error::Error, fs, process::Command, time::Duration};

use ratelimit_runtime::{Limiter, Policy};

type New = fn(&'static str, Duration, u32) -> Policy;

const ALGORITHMS: [New; 4] =
    [Policy::sliding_window, Policy::sliding_counter, Policy::fixed_window, Policy::token_bucket];

/// Thresholds, each with enough callers for a clear figure.
const THRESHOLDS: [(u32, u32); 3] = [(3, 500_000), (100, 50_000), (1_000, 10_000)];

/// A name and callers of usual length: a key of about 50 bytes.
const NAME: &str = "app::mail::send";
const PERIOD: Duration = Duration::from_secs(86_400);

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
    for url in arguments.iter().filter(|argument| argument.contains("://")) {
        on_redis(url).await?;
    }
    Ok(())
}

async fn in_memory(new: New, (threshold, callers): (u32, u32)) -> Result<(), Box<dyn Error>> {
    let policy = new(NAME, PERIOD, threshold);
    let before = resident()?;
    let limiter = Limiter::in_memory();
    for number in 0..callers {
        fill(&limiter, &policy, &caller(number)).await?;
    }
    let bytes = resident()?.saturating_sub(before) / u64::from(callers);
    let name = policy.algorithm().as_str();
    println!("{name:16} threshold {threshold:5}  in memory {bytes:7} bytes");
    Ok(())
}

async fn on_redis(url: &str) -> Result<(), Box<dyn Error>> {
    let limiter = Limiter::builder().prefix("bench:").deadline(PERIOD).connect(url).await?;
    let mut connection = redis::Client::open(url)?.get_connection()?;
    for new in ALGORITHMS {
        for (threshold, _) in THRESHOLDS {
            let policy = new(NAME, PERIOD, threshold);
            let name = policy.algorithm().as_str();
            fill(&limiter, &policy, &caller(threshold)).await?;
            let key = format!("bench:{name}:{NAME}/{}", caller(threshold));
            let mut usage = redis::cmd("MEMORY");
            usage.arg("USAGE").arg(key).arg("SAMPLES").arg(0);
            let bytes: u64 = usage.query(&mut connection)?;
            limiter.reset(&policy, caller(threshold)).await?;
            println!("{name:16} threshold {threshold:5}  on Redis  {bytes:7} bytes");
        }
    }
    Ok(())
}

async fn fill(limiter: &Limiter, policy: &Policy, caller: &str) -> Result<(), Box<dyn Error>> {
    for _ in 0..policy.tiers()[0].threshold() {
        limiter.check(policy, caller).await?;
    }
    Ok(())
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
