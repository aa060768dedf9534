//! `cargo bench -p ratelimit-benches --features overrides --bench overrides`
//!
//! The cost of overrides to an annotated call in memory, of one caller. It is measured without
//! overrides, with one of another limit, with a look-up that finds nothing, and with one of the
//! call's own limit.
//!
//! Then the cost to a check by hand, of the overrides of callers of its limit: of other ones, and
//! of its own, also under a `caller_digest`. Then the time of one change beside 10 000 overrides,
//! and of 10 000 changes in a row, and the time in which a limiter connects, and in which it has
//! read a hash of 10 000 callers.
//!
//! All run in turn in one process. A figure is the difference to the same round without overrides.
//! The program fails if the median of one misses its bar.

use std::{
    fmt::Write,
    fs,
    hint::black_box,
    process::ExitCode,
    time::{Duration, Instant},
};

use ratelimit_benches::{
    annotated,
    figures::{figure, report, spread},
    now,
    rounds::{in_turns, rounds, turn},
    server::Server,
};
use ratelimit_runtime::{Enforcement, Limiter, Override, Overrides, Policy, caller};
use tempfile::TempDir;
use tokio::{runtime::Builder, time::sleep};

const OWN: &str = "ratelimit_benches::calls::fixed";
const OTHERS: u32 = 100;

/// Sets one state of the overrides, or removes it.
type Set = fn(&Overrides, bool);

const STATES: [(&str, &str, Set); 5] = [
    ("none", "-", |_, _| ()),
    ("one of another limit", "at most 10", |overrides, is_set| of(overrides, "other", is_set)),
    ("a global enforcement that changes nothing", "at most 10", enforce),
    ("one of a caller of all limits, looked up in vain", LOOKED_UP, |overrides, is_set| {
        of_all_limits(overrides, is_set);
        (0..OTHERS).for_each(|number| of(overrides, &format!("other_{number}"), is_set));
    }),
    ("one of its own", "-", |overrides, is_set| of(overrides, OWN, is_set)),
];

const CHECKED: Policy =
    Policy::fixed_window("checked", Duration::from_secs(24 * 60 * 60), 1_000_000_000);

/// The overrides of callers of one limit.
#[derive(Clone, Copy)]
struct OfCallers {
    name: &'static str,
    bar: &'static str,
    others: usize,
    /// `true` if the caller of the call is among them.
    has_own: bool,
    has_digest: bool,
}

const NONE: OfCallers =
    OfCallers { name: "none", bar: "-", others: 0, has_own: false, has_digest: false };
/// The bar of a look-up. The call of a caller with numbers of its own is decided by them, and has
/// none.
const LOOKED_UP: &str = "at most 30";

const CALLERS: [OfCallers; 6] = [
    NONE,
    OfCallers { name: "one other caller of this limit", bar: LOOKED_UP, others: 1, ..NONE },
    OfCallers {
        name: "10 000 other callers of this limit",
        bar: LOOKED_UP,
        others: 10_000,
        ..NONE
    },
    OfCallers { name: "this caller among 10 000", bar: "-", others: 9_999, has_own: true, ..NONE },
    OfCallers {
        name: "10 000 other callers, as digests",
        bar: LOOKED_UP,
        others: 10_000,
        has_digest: true,
        ..NONE
    },
    OfCallers {
        name: "this caller among 10 000, as digests",
        bar: "-",
        others: 9_999,
        has_own: true,
        has_digest: true,
    },
];

fn of(overrides: &Overrides, name: &str, is_set: bool) {
    if is_set {
        let what = Override::new().threshold(2_000_000_000);
        overrides.here().set(name, what).expect("a policy of one tier");
    } else {
        overrides.here().remove(name);
    }
}

fn enforce(overrides: &Overrides, is_set: bool) {
    if is_set {
        overrides.here().set("*", Enforcement::On).expect("an enforcement");
    } else {
        overrides.here().remove("*");
    }
}

fn of_all_limits(overrides: &Overrides, is_set: bool) {
    if is_set {
        let what = Override::new().enforcement(Enforcement::On);
        overrides.here().set(("*", "somebody else"), what).expect("an enforcement");
    } else {
        overrides.here().remove(("*", "somebody else"));
    }
}

fn main() -> Result<ExitCode, Box<dyn std::error::Error>> {
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
    let mut missed = report_all(STATES.map(|(name, bar, _)| (name, bar)), rounds);
    missed += of_callers()?;
    of_start()?;
    Ok(if missed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The caller of the call, as in keys, with numbers that refuse nothing.
const OWN_CALLER: &str =
    "[[callers]]\nlimit = \"checked\"\ncaller = [\"tenant\", \"7\"]\nthreshold = 1_500_000_000\n";

/// Returns the number of missed bars.
fn of_callers() -> Result<usize, Box<dyn std::error::Error>> {
    let (directory, runtime) = (TempDir::new()?, Builder::new_current_thread().build()?);
    let _running = runtime.enter();
    let mut limiters = Vec::new();
    for (index, OfCallers { others, has_own, has_digest, .. }) in CALLERS.into_iter().enumerate() {
        let mut document = if has_own { OWN_CALLER.to_owned() } else { String::new() };
        for number in 0..others {
            write!(
                document,
                "[[callers]]\nlimit = \"checked\"\ncaller = \"user-{number}\"\nthreshold = 7\n"
            )?;
        }
        let path = directory.path().join(index.to_string());
        fs::write(&path, document)?;
        let builder = Limiter::builder();
        let builder = if has_digest { builder.caller_digest("a secret") } else { builder };
        let limiter = builder.in_memory();
        limiter.overrides().follow_file(path)?;
        let listed = limiter.overrides().list_for("checked").len();
        assert_eq!(listed, others + usize::from(has_own));
        limiters.push(limiter);
    }
    let states: Vec<_> = limiters
        .iter()
        .map(|limiter| {
            let state: Box<dyn Fn() -> f64> = Box::new(move || {
                turn(&|user| {
                    drop(black_box(now(limiter.check(&CHECKED, &caller!("tenant", user)))));
                })
            });
            state
        })
        .collect();
    let missed = report_all(CALLERS.map(|it| (it.name, it.bar)), in_turns(&states));
    let millis_of_changes = |overrides: &Overrides, changes: usize| {
        let start = Instant::now();
        for number in 0..changes {
            let what = Override::new().threshold(7);
            overrides
                .here()
                .set(("checked", format!("{start:?}-{number}")), what)
                .expect("one tier");
        }
        start.elapsed().as_secs_f64() * 1e3
    };
    let changed = limiters[2].overrides();
    let one = (0..rounds(41)).map(|_| millis_of_changes(changed, 1)).collect();
    let in_a_row = (0..rounds(5))
        .map(|_| millis_of_changes(Limiter::in_memory().overrides(), 10_000))
        .collect();
    let missed = missed + report_with_bar("overrides, one change beside 10 000: ms", one, 0.1);
    Ok(missed + report_with_bar("overrides, 10 000 changes in a row: ms", in_a_row, 1_000.0))
}

/// Prints the time from the start of a limiter until it is connected, and until it has read a hash
/// of 10 000 callers.
fn of_start() -> Result<(), Box<dyn std::error::Error>> {
    let server = Server::start(&[])?;
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let mut command = ["HSET", "ratelimit:overrides:callers", "#", "1"].map(str::to_owned).to_vec();
    for number in 0..10_000 {
        command.extend([format!("checked/user-{number}"), "{\"threshold\":7}".to_owned()]);
    }
    let command: Vec<&str> = command.iter().map(String::as_str).collect();
    server.command::<u32>(&command)?;
    let (mut connected, mut read) = (Vec::new(), Vec::new());
    for _ in 0..rounds(11) {
        let start = Instant::now();
        runtime.block_on(async {
            let limiter = Limiter::builder().deadline(Duration::from_secs(10));
            let limiter = limiter.connect(&server.url()).await?;
            connected.push(start.elapsed().as_secs_f64() * 1e3);
            while limiter.overrides().search_for("checked", "user-9999").is_empty() {
                sleep(Duration::from_millis(2)).await;
            }
            read.push(start.elapsed().as_secs_f64() * 1e3);
            Ok::<_, ratelimit_runtime::ConnectError>(())
        })?;
    }
    report("overrides, a limiter beside a hash of 10 000 callers is connected: ms", connected, "-");
    report("overrides, a limiter has read a hash of 10 000 callers: ms", read, "-");
    Ok(())
}

/// Prints a figure. Returns the number of missed bars.
fn report_with_bar(name: &str, figures: Vec<f64>, most: f64) -> usize {
    let [_, median, _] = spread(figures.clone());
    report(name, figures, &format!("at most {most}"));
    usize::from(median > most)
}

/// Prints what each state costs beyond the first. Returns the number of missed bars.
fn report_all<const N: usize>(states: [(&str, &str); N], rounds: Vec<Vec<f64>>) -> usize {
    let (none, mut missed) = (rounds[0].clone(), 0);
    for ((name, bar), nanos) in states.iter().zip(rounds).skip(1) {
        let more: Vec<f64> = nanos.iter().zip(&none).map(|(nanos, none)| nanos - none).collect();
        println!("\n{name}: {} ns, without {}", figure(nanos, 1), figure(none.clone(), 1));
        let most = bar.strip_prefix("at most ").map(|most| most.parse().expect("a number"));
        let [_, median, _] = spread(more.clone());
        missed += usize::from(most.is_some_and(|most: f64| median > most));
        report(&format!("overrides, {name}: ns more"), more, bar);
    }
    missed
}
