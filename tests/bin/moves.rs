//! Slots of a cluster move while calls count under their keys; see `ci/moves`.
//!
//! `moves MINUTES`

use std::{
    env,
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use fastrand::Rng;
use harness::Cluster;
use ratelimit_runtime::{Limiter, OnStoreError, Policy};
use tokio::runtime::{Builder, Runtime};

const DAY: Duration = Duration::from_secs(24 * 3_600);
const THRESHOLD: u32 = 1_000_000;
const MOVES: usize = 12;

/// Limits that forget nothing in a round, but for a token or two of the bucket.
const LIMITS: [Policy; 3] = [
    Policy::sliding_window("log", DAY, THRESHOLD),
    Policy::sliding_counter("counter", DAY.saturating_mul(30), THRESHOLD),
    Policy::token_bucket("bucket", DAY.saturating_mul(300), THRESHOLD),
];

/// The callers of all limits, who stop once the round is over.
#[derive(Default)]
struct Load {
    admitted: [AtomicU64; LIMITS.len()],
    is_over: AtomicBool,
}

fn main() -> ExitCode {
    let minutes: u64 = env::args().nth(1).map_or(10, |it| it.parse().expect("minutes"));
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.expect("a runtime");
    let (end, mut rng) = (Instant::now() + Duration::from_secs(60 * minutes), Rng::new());
    let (mut rounds, mut calls, mut losses) = (0, 0, 0);
    while Instant::now() < end {
        rounds += 1;
        let (all, lost) = round(&runtime, &mut rng);
        (calls, losses) = (calls + all, losses + lost.len());
        for lost in lost {
            println!("round {rounds}: {lost}");
        }
    }
    println!("{} moves in {rounds} rounds, {calls} calls", rounds * MOVES);
    println!("= figure | moves: counts lost | {losses} | at most 0");
    if losses == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Moves slots of a new cluster. Returns the number of admitted calls, and the moves after which units were missing.
fn round(runtime: &Runtime, rng: &mut Rng) -> (u64, Vec<String>) {
    let cluster = Cluster::start();
    // A busy machine stands still for less.
    cluster.nodes.iter().for_each(|node| node.command("CONFIG SET cluster-node-timeout 10000"));
    let connect = || {
        let builder = Limiter::builder().deadline(Duration::from_secs(10));
        let builder = builder.on_store_error(OnStoreError::Deny);
        runtime.block_on(builder.connect(&cluster.url())).expect("a cluster that is ready")
    };
    let (limiters, load) = ([(); 3].map(|()| connect()), Arc::<Load>::default());
    let callers: Vec<_> = (0..12)
        .map(|number| runtime.spawn(call(limiters[number % 3].clone(), number, Arc::clone(&load))))
        .collect();
    let mut lost = Vec::new();
    for _ in 0..MOVES {
        thread::sleep(Duration::from_millis(rng.u64(..150)));
        let from = rng.usize(..3);
        let Some(key) = rng.choice(cluster.nodes[from].keys()) else { continue };
        let (slot, to) = (cluster.slot(&key), (from + rng.usize(1..3)) % 3);
        cluster.migrate(slot, from, to, || thread::sleep(Duration::from_millis(rng.u64(..8))));
        for (policy, admitted) in LIMITS.iter().zip(&load.admitted) {
            // Those that were admitted before the peek.
            let least = admitted.load(Ordering::Relaxed);
            let seen = runtime.block_on(limiters[0].peek(policy, "bob").into_future());
            let left = seen.expect("a cluster that decides").remaining();
            let used = u64::from(THRESHOLD - left);
            if used + 2 < least {
                lost.push(format!("{used} of {least} units of {} left", policy.name()));
            }
        }
    }
    load.is_over.store(true, Ordering::Relaxed);
    for caller in callers {
        runtime.block_on(caller).expect("no panic");
    }
    (load.admitted.iter().map(|it| it.load(Ordering::Relaxed)).sum(), lost)
}

/// Calls under one limit, with a wait or without.
async fn call(limiter: Limiter, number: usize, load: Arc<Load>) {
    let limit = number % LIMITS.len();
    let max_wait = if number.is_multiple_of(2) { Duration::from_secs(1) } else { Duration::ZERO };
    while !load.is_over.load(Ordering::Relaxed) {
        if limiter.check(&LIMITS[limit], "bob").max_wait(max_wait).await.is_ok() {
            load.admitted[limit].fetch_add(1, Ordering::Relaxed);
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}
