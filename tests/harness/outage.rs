//! A store that stops deciding under load, and recovers.

use std::time::{Duration, Instant};

use ratelimit_runtime::{OnStoreError, Policy};

use super::{DEADLINE, FaultLine, Load, NOTICED, limiter_on, until, until_decided};

const WIDE: Policy = Policy::sliding_counter("wide", Duration::from_secs(60), 1_000_000);

/// The time in which the circuit breaker opens.
const BREAKER_OPENS: Duration = Duration::from_millis(500);
const BACK: Duration = Duration::from_secs(2);

/// Makes a store fail under tasks for a second, and checks their answers until it recovers. No call
/// exceeds its deadline, soon none waits, and soon after the outage all are decided.
pub async fn outage<S>(
    fault: &str,
    url: &str,
    tasks: u32,
    store: &mut S,
    hurt: impl FnOnce(&mut S),
    heal: impl FnOnce(&mut S),
) {
    let limiter = limiter_on(url, OnStoreError::Deny).await;
    let load = Load::start(&limiter, WIDE, tasks, tasks, Duration::from_millis(10));
    until("load", async || (load.admitted() > 500).then_some(())).await;
    let hurt_at = Instant::now();
    hurt(store);
    // Not its event: a busy machine may have opened it before.
    let is_open = || limiter.servers().iter().any(|server| server.failure().is_some());
    let opened = until("the breaker", async || is_open().then(|| hurt_at.elapsed())).await;
    let seen = load.unavailable();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(load.unavailable() - seen > 100, "answers come at once, one after the other");
    heal(store);
    let healed = Instant::now();
    until_decided(&limiter).await;
    let back = healed.elapsed();
    let admitted = load.admitted();
    until("load", async || (load.admitted() > admitted + 500).then_some(())).await;
    let history = load.stop().await;
    FaultLine::of(&format!("{fault}, {tasks} tasks"))
        .with("callers get", history.answers())
        .after("slowest call", history.slowest())
        .with("calls of 50 ms or more", history.slower_than(Duration::from_millis(50)))
        .after("breaker open after", opened)
        .after("decided again after", back)
        .print();
    assert!(history.slowest() < DEADLINE + NOTICED, "{:?}", history.slowest());
    assert!(opened < BREAKER_OPENS, "{opened:?}");
    assert!(back < BACK, "{back:?}");
}
