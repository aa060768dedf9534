//! Takes units of a sliding window until it is killed: tasks that reserve some, run, and settle at fewer, at
//! more, or never. It prints a record of each event.
//!
//! `metered` takes the URL, the number of tasks and of callers, and the units and milliseconds of a window.

use std::{env, time::Duration};

use harness::Recorder;
use ratelimit_runtime::{Limiter, OnStoreError, Policy};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [url, tasks, callers, units, period] = arguments.as_slice() else {
        return Err("usage: metered URL TASKS CALLERS UNITS PERIOD_MS".into());
    };
    // A refusal that another process gives back is not remembered.
    let builder = Limiter::builder().deadline(Duration::from_secs(30)).deny_cache(0);
    let limiter = builder.on_store_error(OnStoreError::Deny).connect(url).await?;
    let (units, period): (u32, u64) = (units.parse()?, period.parse()?);
    let policy = Policy::sliding_window("metered", Duration::from_millis(period), units);
    let (tasks, callers): (u32, u32) = (tasks.parse()?, callers.parse()?);
    let recorder = Recorder::printing();
    for task in 0..tasks {
        let (limiter, recorder) = (limiter.clone(), recorder.clone());
        tokio::spawn(async move {
            loop {
                let cost = fastrand::u32(1..=units / 8);
                let body = Duration::from_millis(fastrand::u64(..period / 2));
                let to = match fastrand::u8(..8) {
                    0 => None,
                    1 => Some(0),
                    2..6 => Some(fastrand::u32(..cost)),
                    6 => Some(cost + fastrand::u32(..cost)),
                    _ => Some(cost + fastrand::u32(..units / 2)),
                };
                let call = (task % callers, cost);
                recorder.meter(&limiter, &policy, call, body, to).await;
                tokio::time::sleep(Duration::from_millis(fastrand::u64(..20))).await;
            }
        });
    }
    std::future::pending().await
}
