//! Calls under policies with a lease until it is killed, and prints a record of each call: caller 0 of a
//! sliding window, caller 1 of a fixed one, caller 2 of a token bucket, caller 3 of a sliding counter. All
//! processes call at one time, for the first part of each cycle of the machine's clock.
//!
//! `leased` takes the URL, the threshold, the period and the lease, the length of a cycle and that of its
//! first part, all in milliseconds, and the calls a second of four processes under each policy. The
//! environment variable `PROCESS` is its number, from 1 on: process n calls 1/n as often as the first.

use std::{env, time::Duration};

use harness::{Recorder, wall_clock};
use ratelimit_runtime::{Limiter, OnStoreError, Policy};

/// The tasks that call under one policy.
const TASKS: u32 = 8;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [url, threshold, period, lease, cycle, busy, calls] = arguments.as_slice() else {
        return Err("usage: leased URL THRESHOLD PERIOD LEASE CYCLE BUSY CALLS".into());
    };
    let builder = Limiter::builder().deadline(Duration::from_secs(30));
    let limiter = builder.on_store_error(OnStoreError::Deny).connect(url).await?;
    let millis = |text: &String| text.parse().map(Duration::from_millis);
    let (threshold, period, lease) = (threshold.parse()?, millis(period)?, millis(lease)?);
    let (cycle, busy) = (cycle.parse::<u64>()?, busy.parse::<u64>()?);
    let policies = [
        Policy::sliding_window,
        Policy::fixed_window,
        Policy::token_bucket,
        Policy::sliding_counter,
    ];
    let shares: f64 = (1..=4).map(|number| 1. / f64::from(number)).sum();
    let share = 1. / env::var("PROCESS")?.parse::<f64>()? / shares;
    let pause = Duration::from_secs_f64(f64::from(TASKS) / (calls.parse::<f64>()? * share));
    let recorder = Recorder::printing();
    for (caller, policy) in (0..).zip(policies) {
        let policy = policy("leased", period, threshold).lease(lease);
        for _ in 0..TASKS {
            let (limiter, recorder) = (limiter.clone(), recorder.clone());
            tokio::spawn(async move {
                loop {
                    tokio::time::sleep(pause.mul_f64(2. * fastrand::f64())).await;
                    let into_cycle = wall_clock() / 1_000 % cycle;
                    if into_cycle < busy {
                        recorder.call(&limiter, &policy, caller).await;
                    } else {
                        tokio::time::sleep(Duration::from_millis(cycle - into_cycle)).await;
                    }
                }
            });
        }
    }
    std::future::pending().await
}
