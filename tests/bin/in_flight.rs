//! Keeps calls in flight until it is killed: tasks that hold a permit for a random time and ask again. It
//! prints a record of each event.
//!
//! `in_flight` takes the URL, the number of tasks and of permits, and the timeout in milliseconds.

use std::{env, time::Duration};

use harness::Recorder;
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
    let recorder = Recorder::printing();
    for _ in 0..tasks {
        let (limiter, recorder) = (limiter.clone(), recorder.clone());
        tokio::spawn(async move {
            loop {
                // Some bodies are longer than the timeout.
                let millis = fastrand::u64(..1_500);
                let millis = if millis > 1_400 { millis } else { millis / 15 };
                let is_free = recorder.run(&limiter, &policy, Duration::from_millis(millis)).await;
                let pause = if is_free { 2 } else { 20 };
                tokio::time::sleep(Duration::from_millis(pause)).await;
            }
        });
    }
    std::future::pending().await
}
