//! `cargo bench -p ratelimit-benches --bench overrides`
//!
//! The cost of overrides to an annotated call in memory, of one caller. It is measured without overrides,
//! with one of another limit, with a look-up that finds nothing, and with one of the call's own limit.
//!
//! All run in turn in one process. A figure is the difference to the same round without overrides.

use std::{hint::black_box, time::Instant};

use ratelimit_benches::{
    annotated,
    figures::{figure, report},
};
use ratelimit_runtime::{Enforcement, Limiter, Override, Overrides};

const ROUNDS: usize = 41;
/// A round's figure is the least of so many turns: those of the states are next to each other.
const TURNS: usize = 25;
const CALLS: u32 = 5_000;
const OWN: &str = "ratelimit_benches::calls::fixed";
const OTHERS: u32 = 100;

/// Sets one state of the overrides, or removes it.
type Set = fn(&Overrides, bool);

const STATES: [(&str, &str, Set); 5] = [
    ("none", "-", |_, _| ()),
    ("one of another limit", "at most 10", |overrides, is_set| of(overrides, "other", is_set)),
    ("a global enforcement, looked up in vain", "at most 10", enforce),
    ("a global enforcement and 100 other limits", "at most 10", |overrides, is_set| {
        enforce(overrides, is_set);
        (0..OTHERS).for_each(|number| of(overrides, &format!("other_{number}"), is_set));
    }),
    ("one of its own", "-", |overrides, is_set| of(overrides, OWN, is_set)),
];

fn of(overrides: &Overrides, name: &str, is_set: bool) {
    if is_set {
        let what = Override::new().threshold(2_000_000_000);
        overrides.set(name, what).expect("a policy of one tier");
    } else {
        overrides.remove(name);
    }
}

fn enforce(overrides: &Overrides, is_set: bool) {
    overrides.enforce(is_set.then_some(Enforcement::On));
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let limiter = Limiter::in_memory();
    ratelimit_runtime::install(limiter.clone())?;
    let (overrides, call): (_, Box<dyn Fn(u32)>) = (limiter.overrides(), annotated!(fixed));
    let mut rounds = STATES.map(|_| Vec::new());
    for _ in 0..ROUNDS {
        let mut least = STATES.map(|_| f64::MAX);
        for _ in 0..TURNS {
            for ((_, _, set), least) in STATES.iter().zip(&mut least) {
                set(overrides, true);
                time(&call, CALLS / 10);
                *least = least.min(time(&call, CALLS));
                set(overrides, false);
            }
        }
        rounds.iter_mut().zip(least).for_each(|(rounds, least)| rounds.push(least));
    }
    let [none, ..] = rounds.clone();
    for ((name, bar, _), nanos) in STATES.iter().zip(rounds).skip(1) {
        let more: Vec<f64> = nanos.iter().zip(&none).map(|(nanos, none)| nanos - none).collect();
        println!("\n{name}: {} ns, without {}", figure(nanos, 1), figure(none.clone(), 1));
        report(&format!("overrides, {name}: ns more"), more, bar);
    }
    Ok(())
}

/// Returns the nanoseconds of each call.
fn time(call: &impl Fn(u32), times: u32) -> f64 {
    let start = Instant::now();
    for _ in 0..times {
        call(black_box(7));
    }
    start.elapsed().as_secs_f64() * 1e9 / f64::from(times)
}
