//! `cargo bench -p ratelimit-benches --features replay --bench replay`
//!
//! Calls a second that `replay` decides, of every kind of window: a million calls of 10 000 callers
//! within an hour, of which the busiest tenth makes half. Each kind admits about half of them.

use std::time::{Duration, Instant};

use fastrand::Rng;
use ratelimit_benches::{figures::report, rounds::rounds};
use ratelimit_runtime::{
    CalendarUnit, Policy,
    replay::{Recorded, replay},
};

const CALLS: u32 = 1_000_000;
const HOUR: Duration = Duration::from_secs(3_600);

fn main() {
    let minutes = [Duration::from_secs(120), Duration::from_secs(600)];
    let window = Policy::sliding_window("replay", HOUR, 60);
    let kinds = [
        ("sliding_window", window),
        ("sliding_window of 3 tiers", {
            let minute = Policy::sliding_window("replay", HOUR / 60, 5);
            minute.tier(HOUR / 6, 20).tier(HOUR, 60)
        }),
        ("sliding_window with blocks", window.block(&minutes)),
        ("sliding_counter", Policy::sliding_counter("replay", HOUR, 60)),
        ("fixed_window", Policy::fixed_window("replay", HOUR, 60)),
        ("token_bucket", Policy::token_bucket("replay", HOUR, 60)),
        ("calendar_window", Policy::calendar_window("replay", CalendarUnit::Day, 60)),
        ("calendar_window in Berlin", {
            Policy::calendar_window("replay", CalendarUnit::Month, 60).zone("Europe/Berlin")
        }),
    ];
    let mut rng = Rng::with_seed(1);
    let calls: Vec<_> = (0..CALLS)
        .map(|call| {
            let at = Duration::from_secs(1_700_000_000) + HOUR * call / CALLS;
            let callers = if rng.bool() { 1_000 } else { 10_000 };
            Recorded::new(at, rng.u32(..callers), 1)
        })
        .collect();
    for (kind, policy) in kinds {
        let millions: Vec<_> = (0..rounds(7))
            .map(|_| {
                let calls = calls.iter().cloned();
                let start = Instant::now();
                let replayed = replay(&policy, calls).expect("a valid policy");
                let took = start.elapsed();
                assert_eq!(replayed.admitted() + replayed.refused(), u64::from(CALLS));
                f64::from(CALLS) / 1e6 / took.as_secs_f64()
            })
            .collect();
        report(&format!("replay, {kind}: million calls/s"), millions, "at least 1");
    }
}
