//! Contenders that run in turn, in one process.

use std::{thread, time::Instant};

const ROUNDS: usize = 9;
const CALLS: u32 = 200_000;

/// A name, and a call of the caller of a number.
pub type Contender<'a> = (&'a str, Box<dyn Fn(u32) + Sync + 'a>);

/// Nanoseconds of each call, the callers in a scattered order; of the slowest thread.
fn time(threads: u32, callers: u32, call: &(dyn Fn(u32) + Sync)) -> f64 {
    let run = |thread: u32| {
        let start = Instant::now();
        for number in 0..CALLS {
            call((number + thread * 7_919).wrapping_mul(2_654_435_761) % callers);
        }
        start.elapsed().as_secs_f64() * 1e9 / f64::from(CALLS)
    };
    if threads == 1 {
        return run(0);
    }
    thread::scope(|scope| {
        let all: Vec<_> = (0..threads).map(|thread| scope.spawn(move || run(thread))).collect();
        all.into_iter().map(|one| one.join().expect("a call does not panic")).fold(0., f64::max)
    })
}

/// The least, the median and the most.
///
/// # Panics
///
/// Without rounds.
#[must_use]
pub fn spread(mut rounds: Vec<f64>) -> [f64; 3] {
    rounds.sort_by(f64::total_cmp);
    [rounds[0], rounds[rounds.len() / 2], rounds[rounds.len() - 1]]
}

/// Prints the nanoseconds of each contender's calls, and their ratios to those of the first two.
/// Returns the rounds.
pub fn compare(threads: u32, callers: u32, contenders: &[Contender<'_>]) -> Vec<Vec<f64>> {
    let mut rounds = vec![Vec::new(); contenders.len()];
    for round in 0..=ROUNDS {
        for ((_, call), rounds) in contenders.iter().zip(&mut rounds) {
            let nanos = time(threads, callers, call);
            // The first round fills the stores.
            if round > 0 {
                rounds.push(nanos);
            }
        }
    }
    println!("\n{callers} callers, {threads} threads");
    println!("{:36} {:>7} {:>15} {:>9} {:>9}", "", "ns/call", "", "x format!", "x ready");
    let figures: Vec<_> = rounds.iter().cloned().map(spread).collect();
    for ((name, _), [least, nanos, most]) in contenders.iter().zip(&figures) {
        let (format, ready) = (nanos / figures[0][1], nanos / figures[1][1]);
        let range = format!("({least:.0}-{most:.0})");
        println!("{name:36} {nanos:7.0} {range:>15} {format:9.2} {ready:9.2}");
    }
    rounds
}
