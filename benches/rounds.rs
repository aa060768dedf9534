//! Contenders that run in turn, in one process.

use std::{env, hint::black_box, thread, time::Instant};

use crate::figures::{report, spread};

const CALLS: u32 = 200_000;

/// A round of [`in_turns`] is the least of so many turns: those of the states are next to each
/// other.
const TURNS: usize = 25;
const CALLS_OF_A_TURN: u32 = 5_000;

/// A name, and a call of the caller of a number.
pub type Contender<'a> = (&'a str, Box<dyn Fn(u32) + Sync + 'a>);

/// Returns the number of rounds: the one in the environment variable `ROUNDS`, or else this one.
///
/// # Panics
///
/// When the variable is not a number.
#[must_use]
pub fn rounds(usual: usize) -> usize {
    env::var("ROUNDS").map_or(usual, |rounds| rounds.parse().expect("ROUNDS is a number"))
}

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

/// Prints and reports the nanoseconds of each contender's calls, and prints their ratios to those
/// of the first two. Returns the rounds. The names of the figures begin with `bench`.
pub fn compare(
    bench: &str,
    threads: u32,
    callers: u32,
    contenders: &[Contender<'_>],
) -> Vec<Vec<f64>> {
    let mut rounds = vec![Vec::new(); contenders.len()];
    for round in 0..=self::rounds(9) {
        for ((_, call), rounds) in contenders.iter().zip(&mut rounds) {
            let nanos = time(threads, callers, call);
            // The first round fills the stores.
            if round > 0 {
                rounds.push(nanos);
            }
        }
    }
    println!("\n{callers} callers, {threads} threads");
    println!("{:36} {:>7} {:>15} {:>9} {:>9}", "", "ns/call", "", "x first", "x second");
    let figures: Vec<_> = rounds.iter().cloned().map(spread).collect();
    for ((name, _), [least, nanos, most]) in contenders.iter().zip(&figures) {
        let (first, second) = (nanos / figures[0][1], nanos / figures[1][1]);
        let range = format!("({least:.0}-{most:.0})");
        println!("{name:36} {nanos:7.0} {range:>15} {first:9.2} {second:9.2}");
    }
    for ((name, _), rounds) in contenders.iter().zip(&rounds) {
        let what = format!("{bench}{name}, {callers} callers, {threads} threads: ns of a call");
        report(&what, rounds.clone(), "-");
    }
    rounds
}

/// Returns the rounds of several states of one call, as nanoseconds. The differences between them
/// are a few nanoseconds.
#[must_use]
pub fn in_turns(states: &[Box<dyn Fn() -> f64 + '_>]) -> Vec<Vec<f64>> {
    let mut rounds = vec![Vec::new(); states.len()];
    for _ in 0..self::rounds(41) {
        let mut least = vec![f64::MAX; states.len()];
        for _ in 0..TURNS {
            for (state, least) in states.iter().zip(&mut least) {
                *least = least.min(state());
            }
        }
        rounds.iter_mut().zip(least).for_each(|(rounds, least)| rounds.push(least));
    }
    rounds
}

/// Returns the nanoseconds of each call of a turn, after some that are not measured.
#[must_use]
pub fn turn(call: &dyn Fn(u32)) -> f64 {
    let times = |times: u32| (0..times).for_each(|_| call(black_box(7)));
    times(CALLS_OF_A_TURN / 10);
    let start = Instant::now();
    times(CALLS_OF_A_TURN);
    start.elapsed().as_secs_f64() * 1e9 / f64::from(CALLS_OF_A_TURN)
}
