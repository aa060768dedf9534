//! Histories of all features, mixed at random over four processes; see `ci/histories`.
//!
//! `mixed MINUTES [MIX [SEED]]`
//!
//! A round takes about 13 s, has a seed of its own, and ends with an empty Redis. The program starts itself as
//! its processes, by `mixed call URL NUMBER SEED FROM UNTIL MIX`.

mod caller;
mod faults;
mod operator;
mod plan;
mod process;
mod round;
mod store;

use std::{
    env,
    process::ExitCode,
    time::{Duration, Instant},
};

use harness::mixed::{FEATURES, LOSES_KEYS, MODES};

use self::{plan::Mix, round::run};

/// The number of rounds of which two are on a cluster, one behind Sentinels, and two lose keys.
const IN_TURN: u64 = 8;

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["call", url, number, seed, from, until, mix] => {
            process::call(url, number, seed, (from, until), Mix::read(mix));
            ExitCode::SUCCESS
        }
        [minutes] => rounds(minutes, &Mix::all(), None),
        [minutes, mix] => rounds(minutes, &Mix::read(mix), None),
        [minutes, mix, seed] => rounds(minutes, &Mix::read(mix), seed.parse().ok()),
        _ => {
            eprintln!("usage: mixed MINUTES [MIX [SEED]], of {FEATURES:?} and {MODES:?}");
            ExitCode::FAILURE
        }
    }
}

/// Runs rounds for so many minutes, at least one. A seed is that of the first round.
fn rounds(minutes: &str, mix: &Mix, seed: Option<u64>) -> ExitCode {
    let minutes: f64 = minutes.parse().expect("a number of minutes");
    let start = Instant::now();
    let mut seed = seed.unwrap_or_else(|| fastrand::u64(..1_000_000));
    let (mut all, mut calls, mut broken) = (0, 0, 0);
    loop {
        let of_round = match all % IN_TURN {
            1 | 5 => mix.clone().with("reshard").with("failover"),
            2 => mix.clone().with("sentinel").with("failover"),
            3 | 7 => mix.clone().with(LOSES_KEYS),
            _ => mix.clone(),
        };
        let (findings, calls_of_round, answers) = run(seed, &of_round);
        println!("seed {seed} | {of_round} | {answers}");
        print!("{findings}");
        all += 1;
        calls += calls_of_round;
        broken += u64::from(!findings.is_empty());
        seed += 1;
        if start.elapsed() >= Duration::from_secs_f64(minutes * 60.) {
            break;
        }
    }
    println!("{all} rounds, {broken} with faults");
    // As `benches/compare` collects figures.
    println!("= figure | histories: rounds | {all} | -");
    println!("= figure | histories: calls | {calls} | -");
    println!("= figure | histories: rounds with faults | {broken} | at most 0");
    if broken == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
