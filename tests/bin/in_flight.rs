//! Keeps calls in flight until it is killed: tasks that hold a permit for a random time and ask again.
//!
//! `in_flight` takes the URL, the number of tasks and of permits, and the timeout in milliseconds.

use std::{env, time::Duration};

use ratelimit_runtime::{Limiter, OnStoreError, Policy};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [url, tasks, permits, timeout] = arguments.as_slice() else {
        return Err("usage: in_flight URL TASKS PERMITS TIMEOUT_MS".into());
    };
    let builder = Limiter::builder().deadline(Duration::from_secs(30));
    let limiter = builder.on_store_error(OnStoreError::Deny).connect(url).await?;
    let policy = Policy::concurrency_limit("load", permits.parse()?)
        .concurrency_timeout(Duration::from_millis(timeout.parse()?));
    let tasks: usize = tasks.parse()?;
    for _ in 0..tasks {
        let limiter = limiter.clone();
        tokio::spawn(async move {
            loop {
                let call = limiter.check(&policy, "one").await;
                // Some bodies are longer than the timeout.
                let millis = if call.is_ok() { fastrand::u64(..1_500) } else { 5 };
                tokio::time::sleep(Duration::from_millis(millis.saturating_sub(1_000))).await;
                if millis > 1_400 {
                    tokio::time::sleep(Duration::from_millis(millis)).await;
                }
                drop(call);
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        });
    }
    std::future::pending().await
}
