//! `cargo bench -p ratelimit-benches --bench overrides`
//!
//! The cost of overrides to an annotated call in memory, of one caller. It is measured without overrides,
//! with one of another limit, with a look-up that finds nothing, and with one of the call's own limit.
//!
//! All run in turn in one process. A figure is the difference to the same round without overrides.

use ratelimit_benches::{
    annotated,
    figures::{figure, report},
    rounds::{in_turns, turn},
};
use ratelimit_runtime::{Enforcement, Limiter, Override, Overrides};

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
    let states = STATES.map(|(_, _, set)| {
        let call = &call;
        let state: Box<dyn Fn() -> f64> = Box::new(move || {
            set(overrides, true);
            let nanos = turn(call);
            set(overrides, false);
            nanos
        });
        state
    });
    let rounds = in_turns(&states);
    let none = rounds[0].clone();
    for ((name, bar, _), nanos) in STATES.iter().zip(rounds).skip(1) {
        let more: Vec<f64> = nanos.iter().zip(&none).map(|(nanos, none)| nanos - none).collect();
        println!("\n{name}: {} ns, without {}", figure(nanos, 1), figure(none.clone(), 1));
        report(&format!("overrides, {name}: ns more"), more, bar);
    }
    Ok(())
}
