//! Waits in a line with many calls, of which some leave at a random time. LEAVING is a percentage.
//!
//! Prints a line for each call, in the order of their arrival: `left`, or the microseconds of its turn, as it
//! was promised, and of its pass. Two lines follow: the number of commands that were given up, and how late this
//! process was woken or answered at the worst.
//!
//! waiters URL ALGORITHM CALLS LEAVING

use std::{env, io::stdin, time::Duration};

use harness::{Promises, wall_clock};
use ratelimit_runtime::{Limiter, Policy, RateLimitError};
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep, timeout},
};

/// The period in which 20 calls pass.
const PERIOD: Duration = Duration::from_millis(100);
const PATIENCE: Duration = Duration::from_secs(60);

/// The times of a call that has passed: its turn and its end.
type Times = (u64, u64);

/// Waits in the line, for as long as the call's patience lasts.
async fn wait(
    limiter: Limiter,
    policy: Policy,
    patience: Duration,
) -> Result<Option<Times>, RateLimitError> {
    let call = limiter.check(&policy, "all").max_wait(PATIENCE).into_future();
    let Ok(decided) = timeout(patience, call).await else { return Ok(None) };
    let (decided, passed) = (decided?, wall_clock());
    let promised = Promises::turn();
    assert_eq!(promised.is_some(), !decided.waited().is_zero());
    Ok(Some((promised.unwrap_or(passed), passed)))
}

/// Returns how late a sleeping task of this process is woken, or answered by Redis, at the worst until `calls`
/// have ended.
async fn lateness(limiter: Limiter, calls: JoinHandle<()>) -> Duration {
    let other = Policy::fixed_window("other", PATIENCE, 1);
    let (mut worst, nap) = (Duration::ZERO, Duration::from_millis(5));
    while !calls.is_finished() {
        let start = Instant::now();
        sleep(nap).await;
        limiter.peek(&other, "nobody").await.expect("Redis answers");
        worst = worst.max(start.elapsed().saturating_sub(nap));
    }
    worst
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [url, algorithm, calls, leaving] = arguments.as_slice() else {
        return Err("usage: waiters URL ALGORITHM CALLS LEAVING".into());
    };
    let policy = match algorithm.as_str() {
        "sliding_window" => Policy::sliding_window("line", PERIOD, 20),
        "token_bucket" => Policy::token_bucket("line", PERIOD, 20),
        "fixed_window" => Policy::fixed_window("line", PERIOD, 20),
        "sliding_counter" => Policy::sliding_counter("line", PERIOD, 20),
        other => return Err(format!("no algorithm of this program: {other}").into()),
    };
    let (calls, leaving): (u32, u32) = (calls.parse()?, leaving.parse()?);
    Promises::install(drop);
    let limiter = Limiter::builder().deadline(PATIENCE).max_line(10_000).connect(url).await?;
    limiter.peek(&policy, "all").cost(0).await?;
    println!("ready");
    stdin().read_line(&mut String::new())?;
    let other = limiter.clone();
    let calls = tokio::spawn(async move {
        let mut waiting = Vec::new();
        for _ in 0..calls {
            tokio::task::yield_now().await;
            let leaves = fastrand::u32(..100) < leaving;
            let brief = Duration::from_millis(fastrand::u64(..2_000));
            let call = wait(limiter.clone(), policy, if leaves { brief } else { PATIENCE });
            waiting.push(tokio::spawn(Promises::scope(call)));
        }
        for call in waiting {
            match call.await.expect("no panic").expect("an admission") {
                Some((promised, passed)) => println!("{promised} {passed}"),
                None => println!("left"),
            }
        }
        let unsent = limiter.flush().await.err().map_or(0, |error| error.unsent());
        println!("unsent {unsent}");
    });
    println!("late {}", lateness(other, calls).await.as_micros());
    Ok(())
}
