//! `cargo bench -p ratelimit-benches --bench memory [-- <part of a name>..]`
//!
//! The cost of a call in memory: the annotated function, the same function without the attribute,
//! and the runtime called by hand. Cases cover every algorithm, admitted and refused calls, one,
//! 10 000 and 1 000 000 callers, one thread and two. One peer is `governor`'s keyed limiter with
//! its default clock and hasher, given a key built by `format!` or a ready one. The other is
//! `trypema`'s local limiter. The [`Floor`] is what no exact limiter can leave out.
//!
//! All run in turn in one process; figures are medians of the rounds in nanoseconds per call and
//! thread, with the lowest and the highest round, and the ratio to each of governor's. Noise of a
//! shared machine moves all of them: compare within one table.

use std::{hint::black_box, num::NonZeroU32, time::Instant};

use governor::{Quota, RateLimiter, clock::DefaultClock, state::keyed::DashMapStateStore};
use ratelimit_benches::{
    annotated, by_hand,
    figures::{ratios, report_ratio},
    floor::Floor,
    rounds::{Contender, compare},
};
use ratelimit_runtime::Limiter;
use trypema::{
    BucketSize, RateLimit, RateLimiterBuilder, WindowSize, local::LocalRateLimiterProvider,
};

type Keyed = RateLimiter<String, DashMapStateStore<String>, DefaultClock>;

fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).filter(|it| !it.starts_with('-')).collect();
    // Each contender has a store of its own, as each limiter of a peer has.
    let own = || Limiter::builder().max_keys(4_000_000).in_memory();
    let quota = Quota::per_second(NonZeroU32::new(1_000_000_000).expect("not zero"));
    for callers in [1, 10_000, 1_000_000] {
        for threads in [1, 2] {
            let (built, ready) = (Keyed::dashmap(quota), Keyed::dashmap(quota));
            let (by_hand_1, by_hand_3) = (own(), own());
            let floor = Floor::default();
            let trypema = LocalRateLimiterProvider::builder()
                .window_size(WindowSize::seconds_or_panic(1))
                .bucket_size(BucketSize::milliseconds_or_panic(10))
                .build()
                .expect("a bucket is shorter than the window");
            let rate = RateLimit::per_second_or_panic(1e9);
            let keys: Vec<String> =
                (0..callers).map(|user| format!("app::mail::send:acme:{user}")).collect();
            let mut contenders: Vec<Contender<'_>> = vec![
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
                    "floor",
                    Box::new(|user| {
                        black_box(floor.check(black_box("acme"), user));
                    }),
                ),
                // One caller comes too fast for the other one, and fills it.
                if callers == 1 {
                    ("sliding_window 100 000 in 1 ms", annotated!(window, own()))
                } else {
                    ("sliding_window", annotated!(window_100_000, own()))
                },
                ("sliding_window 3, refused", annotated!(window_3, own())),
                ("sliding_counter", annotated!(counter, own())),
                ("sliding_counter 3, refused", annotated!(counter_3, own())),
                ("fixed_window", annotated!(fixed, own())),
                ("fixed_window 3, refused", annotated!(fixed_3, own())),
                ("token_bucket", annotated!(bucket, own())),
                ("token_bucket 3, refused", annotated!(bucket_3, own())),
                ("token_bucket by hand", by_hand(&by_hand_1, 0)),
                ("token_bucket 3 by hand, refused", by_hand(&by_hand_3, 1)),
                (
                    "trypema, ready key",
                    Box::new(|user| {
                        black_box(trypema.absolute().inc(&keys[user as usize], &rate, 1));
                    }),
                ),
                ("without the attribute", annotated!(plain)),
                (
                    "the clock alone",
                    Box::new(|_| {
                        black_box(Instant::now());
                    }),
                ),
            ];
            let is_wanted = |name: &str| {
                wanted.is_empty()
                    || name.starts_with("governor")
                    || name.starts_with("floor")
                    || wanted.iter().any(|part| name.contains(part))
            };
            contenders.retain(|(name, _)| is_wanted(name));
            if callers == 1_000_000 {
                // Callers cost the same under the other limits.
                let is_other = |name: &str| name.contains("counter") || name.contains("fixed");
                contenders
                    .retain(|(name, _)| !is_other(name) && !name.starts_with("token_bucket 3"));
            }
            let rounds = compare("", threads, callers, &contenders);
            report_ratios(threads, callers, &contenders, &rounds);
        }
    }
}

/// Prints the ratios that have a bar.
fn report_ratios(threads: u32, callers: u32, contenders: &[Contender<'_>], rounds: &[Vec<f64>]) {
    let ours = |name: &str| ["sliding", "fixed", "token"].iter().any(|it| name.starts_with(it));
    for ((name, _), own) in contenders.iter().zip(rounds).filter(|((name, _), _)| ours(name)) {
        let is_refused = name.ends_with("refused");
        let (peer, base, bar) = match (callers, threads) {
            (1, 1) if name.contains("by hand") && is_refused => ("format!", 0, "at most 0.65"),
            (1, 1) if name.contains("by hand") => ("format!", 0, "at most 0.75"),
            (1, 1) if is_refused => ("format!", 0, "at most 0.55"),
            (1, 1) => ("format!", 0, "at most 0.45"),
            (1, 2) if !name.contains("by hand") => ("format!", 0, "at most 0.60"),
            (10_000, 1) if name.contains("by hand") => continue,
            (10_000, 1) if is_refused => ("format!", 0, "at most 0.70"),
            (10_000, 1) if *name == "sliding_window" => ("format!", 0, "at most 0.90"),
            (10_000, 1) => ("format!", 0, "at most 0.65"),
            (1_000_000, 1) if !is_refused => ("a ready key", 1, "at most 0.90"),
            _ => continue,
        };
        let case = format!("{name}, {callers} callers, {threads} threads");
        report_ratio(&format!("{case}, to governor given {peer}"), ratios(own, &rounds[base]), bar);
        if !name.contains("by hand") {
            report_ratio(&format!("{case}, to the floor"), ratios(own, &rounds[2]), "at most 1.3");
        }
    }
}
