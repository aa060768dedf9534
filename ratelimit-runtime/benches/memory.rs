//! `cargo bench -p ratelimit-runtime --bench memory`
//!
//! What an annotated call costs in memory, against governor's keyed limiter with its default clock
//! and hasher: once given a key that it builds of the same two arguments with `format!`, once given
//! a ready key. All run in turn in one process; the figures are medians of the rounds, in
//! nanoseconds per call, and ratios to governor's.

use std::{
    future::Future,
    hint::black_box,
    num::NonZeroU32,
    pin::pin,
    task::{Context, Poll, Waker},
    time::Instant,
};

use governor::{Quota, RateLimiter, clock::DefaultClock, state::keyed::DashMapStateStore};
use ratelimit_runtime::{RateLimitError, rate_limit};

const ROUNDS: usize = 9;
const CALLS: u32 = 200_000;

type Keyed = RateLimiter<String, DashMapStateStore<String>, DefaultClock>;

#[rate_limit(period = "366d", threshold = 3, key = (tenant, user))]
async fn window_3(tenant: &str, user: u32) -> Result<(), RateLimitError> {
    Ok(())
}

#[rate_limit(period = "1ms", threshold = 100, key = (tenant, user))]
async fn window_100(tenant: &str, user: u32) -> Result<(), RateLimitError> {
    Ok(())
}

#[rate_limit(algorithm = token_bucket, period = "1s", threshold = 1_000_000, key = (tenant, user))]
async fn bucket(tenant: &str, user: u32) -> Result<(), RateLimitError> {
    Ok(())
}

/// A call in memory is ready at once.
fn now<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => unreachable!("the embedded store does not wait"),
    }
}

/// Nanoseconds of each call, the callers in a scattered order.
fn time(callers: u32, mut call: impl FnMut(u32)) -> f64 {
    let start = Instant::now();
    for number in 0..CALLS {
        call(number.wrapping_mul(2_654_435_761) % callers);
    }
    start.elapsed().as_secs_f64() * 1e9 / f64::from(CALLS)
}

fn median(mut rounds: Vec<f64>) -> f64 {
    rounds.sort_by(f64::total_cmp);
    rounds[rounds.len() / 2]
}

type Contender<'a> = (&'a str, Box<dyn FnMut(u32) + 'a>);

fn main() {
    let quota = Quota::per_second(NonZeroU32::new(1_000_000).expect("not zero"));
    let (built, ready) = (Keyed::dashmap(quota), Keyed::dashmap(quota));
    println!("{:10} {:34} {:>8} {:>10} {:>10}", "callers", "", "ns/call", "x format!", "x ready");
    for callers in [1, 10_000, 1_000_000] {
        let keys: Vec<String> =
            (0..callers).map(|user| format!("app::mail::send:acme:{user}")).collect();
        let mut contenders: [Contender<'_>; 6] = [
            (
                "governor, key by format!",
                Box::new(|user| {
                    let key = format!("app::mail::send:{}:{user}", black_box("acme"));
                    black_box(built.check_key(&key)).ok();
                }),
            ),
            (
                "governor, ready key",
                Box::new(|user| {
                    black_box(ready.check_key(&keys[user as usize])).ok();
                }),
            ),
            (
                "sliding_window 3, refused",
                Box::new(|user| {
                    black_box(now(window_3(black_box("acme"), user))).ok();
                }),
            ),
            (
                "sliding_window 100",
                Box::new(|user| {
                    black_box(now(window_100(black_box("acme"), user))).ok();
                }),
            ),
            (
                "token_bucket",
                Box::new(|user| {
                    black_box(now(bucket(black_box("acme"), user))).ok();
                }),
            ),
            (
                "the clock alone",
                Box::new(|_| {
                    black_box(Instant::now());
                }),
            ),
        ];
        let mut rounds = vec![Vec::new(); contenders.len()];
        for round in 0..=ROUNDS {
            for (contender, (_, call)) in contenders.iter_mut().enumerate() {
                let nanos = time(callers, call);
                // The first round fills the stores.
                if round > 0 {
                    rounds[contender].push(nanos);
                }
            }
        }
        let medians: Vec<f64> = rounds.into_iter().map(median).collect();
        for ((name, _), nanos) in contenders.iter().zip(&medians) {
            let (format, ready) = (nanos / medians[0], nanos / medians[1]);
            println!("{callers:<10} {name:34} {nanos:8.0} {format:10.2} {ready:10.2}");
        }
    }
}
