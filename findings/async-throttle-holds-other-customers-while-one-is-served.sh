#!/usr/bin/env bash
# The crate async-throttle has a limiter with keys, such as one call in 10 ms for each customer. It keeps them in a
# concurrent map, whose entry it holds during the wait and during the call itself. An entry holds its whole part of
# the map, of which there are about four for each processor. So 300 customers on two processors get eight calls at a
# time, and who shares the part of a slow customer asks again every 50 ms or so until that one is done. The calls of
# one customer never overlap either: ten of 0.2 s take two seconds instead of 0.3. The limiter without keys lets them
# overlap.
. "$(dirname "$0")/setup"
with_crates <<'TOML'
async-throttle = "=0.3.2"
tokio = { version = "1", features = ["full"] }
TOML
cat >src/main.rs <<'RS'
use std::sync::{Arc, atomic::{AtomicUsize, Ordering}};
use std::time::{Duration, Instant};

use async_throttle::{MultiRateLimiter, RateLimiter};
use tokio::{task::JoinSet, time::sleep};

/// Makes these calls at once, of which each takes 0.2 s. Returns how many ran at a time, and the seconds until the last
/// one was done.
async fn calls(customers: impl Iterator<Item = u32>) -> (usize, f64) {
    let limiter = Arc::new(MultiRateLimiter::new(Duration::from_millis(10)));
    let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let start = Instant::now();
    let mut calls = JoinSet::new();
    for customer in customers {
        let (limiter, running, most) = (Arc::clone(&limiter), Arc::clone(&running), Arc::clone(&most));
        calls.spawn(async move {
            let call = || async {
                most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                sleep(Duration::from_millis(200)).await;
                running.fetch_sub(1, Ordering::SeqCst);
            };
            limiter.throttle(customer, call).await;
        });
    }
    calls.join_all().await;
    (most.load(Ordering::SeqCst), start.elapsed().as_secs_f64())
}

#[tokio::main]
async fn main() {
    let processors = std::thread::available_parallelism().unwrap().get();
    let (most, seconds) = calls(0..300).await;
    println!("300 customers, {processors} processors: {most} calls at a time, {seconds:.1} s");
    assert!(most <= (4 * processors).next_power_of_two());

    let (most, seconds) = calls(std::iter::repeat_n(7, 10)).await;
    println!("one customer, ten calls: {most} at a time, {seconds:.1} s");
    assert!(most == 1 && seconds > 1.9);

    let (limiter, start) = (RateLimiter::new(Duration::from_millis(10)), Instant::now());
    let call = || limiter.throttle(|| sleep(Duration::from_millis(200)));
    tokio::join!(call(), call(), call(), call(), call(), call(), call(), call(), call(), call());
    let seconds = start.elapsed().as_secs_f64();
    println!("without keys, ten calls: {seconds:.1} s");
    assert!(seconds < 1.0);
}
RS
cargo run --quiet
