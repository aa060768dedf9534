//! Waits in a line with many calls, of which some leave at a random time. Prints the microseconds at which each
//! call arrived and passed, or `left`. LEAVING is a percentage.
//!
//! waiters URL CALLS LEAVING

use std::{env, io::stdin, time::Duration};

use harness::wall_clock;
use ratelimit_runtime::{Limiter, Policy, RateLimitError};
use tokio::time::{sleep, timeout};

const LINE: Policy = Policy::sliding_window("line", Duration::from_millis(100), 20).weighted();
const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [url, calls, leaving] = arguments.as_slice() else {
        return Err("usage: waiters URL CALLS LEAVING".into());
    };
    let (calls, leaving): (u32, u32) = (calls.parse()?, leaving.parse()?);
    let limiter = Limiter::builder().deadline(PATIENCE).max_line(10_000).connect(url).await?;
    limiter.peek(&LINE, "all").cost(0).await?;
    println!("ready");
    stdin().read_line(&mut String::new())?;
    let waiting: Vec<_> = (0..calls)
        .map(|_| {
            let limiter = limiter.clone();
            tokio::spawn(async move {
                sleep(Duration::from_millis(fastrand::u64(..100))).await;
                let arrived = wall_clock();
                let call = limiter.check(&LINE, "all").max_wait(PATIENCE).into_future();
                let patience = if fastrand::u32(..100) < leaving {
                    Duration::from_millis(fastrand::u64(..2_000))
                } else {
                    PATIENCE
                };
                let decision = match timeout(patience, call).await {
                    Ok(decision) => Some(decision?),
                    Err(_) => None,
                };
                Ok::<_, RateLimitError>(decision.map(|_| (arrived, wall_clock())))
            })
        })
        .collect();
    for call in waiting {
        match call.await?? {
            Some((arrived, passed)) => println!("{arrived} {passed}"),
            None => println!("left"),
        }
    }
    limiter.flush().await?;
    Ok(())
}
