//! Calls one limited function from many tasks at once, and prints how many calls were admitted.
//!
//! load URL TASKS CALLS THRESHOLD

use std::{env, sync::Arc};

use ratelimit_runtime::{Limiter, RateLimitError, rate_limit};

#[rate_limit(
    period = 3600,
    threshold = threshold,
    name = "load",
    key = "one",
    limiter = limiter
)]
async fn limited(limiter: &Limiter, threshold: u32) -> Result<(), RateLimitError> {
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [url, tasks, calls, threshold] = arguments.as_slice() else {
        return Err("usage: load URL TASKS CALLS THRESHOLD".into());
    };
    let (tasks, calls): (usize, usize) = (tasks.parse()?, calls.parse()?);
    let threshold: u32 = threshold.parse()?;
    let limiter = Arc::new(
        // What is counted here is exactness, not speed: a busy machine must not cut a call short.
        Limiter::builder().deadline(std::time::Duration::from_secs(30)).connect(url).await?,
    );

    let workers: Vec<_> = (0..tasks)
        .map(|_| {
            let limiter = Arc::clone(&limiter);
            tokio::spawn(async move {
                let mut admitted = 0;
                for _ in 0..calls {
                    match limited(&limiter, threshold).await {
                        Ok(()) => admitted += 1,
                        Err(RateLimitError::Exceeded(_)) => {}
                        Err(error) => return Err(error),
                    }
                }
                Ok(admitted)
            })
        })
        .collect();
    let mut admitted = 0;
    for worker in workers {
        admitted += worker.await??;
    }
    println!("{admitted}");
    Ok(())
}
