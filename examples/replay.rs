//! `cargo run --features replay --example replay`
//!
//! Finds the lowest threshold of requests a minute that refuses at most one in a thousand callers of an
//! access log. A line of the log starts with the time in seconds and the caller, as by nginx's
//! `log_format limits '$msec $remote_addr'`. Pass its path; without one, an hour of requests is made up, and it prints
//!
//! ```text
//! 37595 requests; a threshold of 14 a minute refuses:
//! 2 of 2002 callers
//! 5520 of 37595 requests
//! crawler: 2760 requests, with waits of 46s at most
//! monitor: 2760 requests, with waits of 46s at most
//! ```

use std::{env, error::Error, fs, time::Duration};

use fastrand::Rng;
use ratelimit_runtime::{
    InvalidPolicy, Policy,
    replay::{Recorded, Replay, replay},
};

/// At most so many callers of a thousand are refused anything.
const REFUSED: usize = 1;

const MINUTE: Duration = Duration::from_secs(60);

fn read(log: &str) -> Vec<Recorded<&str>> {
    let calls = log.lines().filter_map(|line| {
        let mut fields = line.split_whitespace();
        let at = Duration::try_from_secs_f64(fields.next()?.parse().ok()?).ok()?;
        Some((at, fields.next()?))
    });
    let mut calls: Vec<_> = calls.collect();
    // Servers log a request when it has ended.
    calls.sort();
    calls.into_iter().map(|(at, caller)| Recorded::new(at, caller, 1)).collect()
}

/// Replays the log under a threshold.
fn under<'a>(
    threshold: u32,
    calls: &[Recorded<&'a str>],
) -> Result<Replay<&'a str>, InvalidPolicy> {
    replay(&Policy::sliding_window("api", MINUTE, threshold), calls.iter().cloned())
}

fn is_bearable(replayed: &Replay<&str>) -> bool {
    replayed.refused_callers() * 1_000 <= replayed.callers() * REFUSED
}

/// Returns the lowest bearable threshold: a higher one refuses no more callers.
fn find(calls: &[Recorded<&str>]) -> Result<u32, InvalidPolicy> {
    let (mut too_low, mut bearable) = (0, 1);
    while !is_bearable(&under(bearable, calls)?) {
        (too_low, bearable) = (bearable, 2 * bearable);
    }
    while too_low + 1 < bearable {
        let middle = u32::midpoint(too_low, bearable);
        if is_bearable(&under(middle, calls)?) {
            bearable = middle;
        } else {
            too_low = middle;
        }
    }
    Ok(bearable)
}

/// Makes up an hour: 2 000 people with some requests each, and two programs with one a second.
fn made_up() -> String {
    let mut rng = Rng::with_seed(1);
    let mut lines: Vec<_> = (0..2_000)
        .flat_map(|person| {
            let start = 3_600.0 * rng.f64();
            let requests: Vec<_> = (0..rng.u32(1..30)).map(|_| start + 300.0 * rng.f64()).collect();
            requests.into_iter().map(move |at| (at, format!("192.0.2.{person}")))
        })
        .collect();
    for program in ["crawler", "monitor"] {
        lines.extend((0..3_600).map(|second| (f64::from(second), program.to_owned())));
    }
    let lines = lines.iter().map(|(at, caller)| format!("{:.3} {caller}", 1_700_000_000.0 + at));
    lines.collect::<Vec<_>>().join("\n")
}

fn main() -> Result<(), Box<dyn Error>> {
    let log = match env::args().nth(1) {
        Some(path) => fs::read_to_string(path)?,
        None => made_up(),
    };
    let calls = read(&log);
    let threshold = find(&calls)?;
    println!("{} requests; a threshold of {threshold} a minute refuses:", calls.len());
    let replayed = under(threshold, &calls)?;
    println!("{} of {} callers", replayed.refused_callers(), replayed.callers());
    println!("{} of {} requests", replayed.refused(), calls.len());
    for (caller, seen) in replayed.hit_most(3) {
        println!(
            "{caller}: {} requests, with waits of {:.0?} at most",
            seen.refused, seen.longest_wait
        );
    }
    Ok(())
}
