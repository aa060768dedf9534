//! `cargo bench -p ratelimit-benches --features overrides --bench overrides`
//!
//! The cost of overrides to an annotated call in memory, of one caller. It is measured without overrides,
//! with one of another limit, with a look-up that finds nothing, and with one of the call's own limit.
//!
//! Then the cost to a check by hand, of the overrides of other callers of its limit: of one, and of 10 000.
//!
//! All run in turn in one process. A figure is the difference to the same round without overrides.

use std::{fs, hint::black_box, time::Duration};

use ratelimit_benches::{
    annotated,
    figures::{figure, report},
    now,
    rounds::{in_turns, turn},
};
use ratelimit_runtime::{Enforcement, Limiter, Override, Overrides, Policy, caller};
use tempfile::TempDir;
use tokio::runtime::Builder;

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

const CHECKED: Policy =
    Policy::fixed_window("checked", Duration::from_secs(24 * 60 * 60), 1_000_000_000);

/// The number of callers that are overridden.
const CALLERS: [(&str, &str, usize); 3] = [
    ("none", "-", 0),
    ("one other caller of this limit", "at most 30", 1),
    ("10 000 other callers of this limit", "at most 30", 10_000),
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
    report_all(STATES.map(|(name, bar, _)| (name, bar)), rounds);
    of_callers()
}

fn of_callers() -> Result<(), Box<dyn std::error::Error>> {
    let (directory, runtime) = (TempDir::new()?, Builder::new_current_thread().build()?);
    let _running = runtime.enter();
    let mut limiters = Vec::new();
    for (_, _, count) in CALLERS {
        let entry = |number| {
            format!("[[callers]]\nlimit = \"checked\"\ncaller = \"user-{number}\"\nthreshold = 7\n")
        };
        let path = directory.path().join(count.to_string());
        fs::write(&path, (0..count).map(entry).collect::<String>())?;
        let limiter = Limiter::in_memory();
        limiter.overrides().follow_file(path)?;
        assert_eq!(limiter.overrides().list_for("checked").len(), count);
        limiters.push(limiter);
    }
    let states: Vec<_> = limiters
        .iter()
        .map(|limiter| {
            let state: Box<dyn Fn() -> f64> = Box::new(move || {
                turn(&|user| {
                    drop(black_box(now(limiter.check(&CHECKED, &caller!("tenant", user)))))
                })
            });
            state
        })
        .collect();
    report_all(CALLERS.map(|(name, bar, _)| (name, bar)), in_turns(&states));
    Ok(())
}

/// Prints what each state costs beyond the first.
fn report_all<const N: usize>(states: [(&str, &str); N], rounds: Vec<Vec<f64>>) {
    let none = rounds[0].clone();
    for ((name, bar), nanos) in states.iter().zip(rounds).skip(1) {
        let more: Vec<f64> = nanos.iter().zip(&none).map(|(nanos, none)| nanos - none).collect();
        println!("\n{name}: {} ns, without {}", figure(nanos, 1), figure(none.clone(), 1));
        report(&format!("overrides, {name}: ns more"), more, bar);
    }
}
