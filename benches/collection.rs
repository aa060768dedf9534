//! `cargo bench -p ratelimit-benches --bench collection`
//!
//! Callers who come once: a million in each period, for some periods. The process stops growing
//! once the first of them are collected. The memory over time is drawn into
//! `benches/collection.svg`.
//!
//! Then a store that a million callers fill. New callers find it full while all keys have to be
//! scanned, and once all have expired.
//!
//! The worst decision is shown beside a control in the same loop, a known caller. A time that both
//! have in common is due to the machine: the longest pause is the shortest of some fillings.

use std::{
    error::Error,
    fmt::Write,
    fs,
    hint::black_box,
    thread::sleep,
    time::{Duration, Instant},
};

use ratelimit_benches::{figures::report, now, rounds::rounds};
use ratelimit_runtime::{Limiter, Policy};

const CALLERS: u64 = 1_000_000;
const PERIOD: Duration = Duration::from_secs(3);
const PERIODS: u32 = 6;

/// Longer than it takes to call all callers twice.
const FILLING_PERIOD: Duration = Duration::from_secs(6);
const POLICY: Policy = Policy::sliding_window("app::mail::send", PERIOD, 3);
const FILLING: Policy = Policy::sliding_window("app::mail::send", FILLING_PERIOD, 2);
const KNOWN: Policy = Policy::token_bucket("app::mail::send", PERIOD, 100_000_000);

fn main() -> Result<(), Box<dyn Error>> {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/collection.svg");
    let limiter = Limiter::builder().max_keys(3_000_000).in_memory();
    let control = Limiter::in_memory();
    let each = PERIOD / u32::try_from(CALLERS)?;
    let (start, mut points) = (Instant::now(), Vec::new());
    let (mut decisions, mut controls) = (Pauses::default(), Pauses::default());
    for number in 0..CALLERS * u64::from(PERIODS) {
        // One caller after the other, evenly spread over the period.
        let due = start + each * u32::try_from(number)?;
        while Instant::now() < due {
            std::hint::spin_loop();
        }
        let before = Instant::now();
        black_box(now(limiter.check(&POLICY, number)))?;
        decisions.add(before.elapsed());
        let before = Instant::now();
        black_box(now(control.check(&KNOWN, 0)))?;
        controls.add(before.elapsed());
        if number % (CALLERS / 50) == 0 {
            points.push((start.elapsed(), resident()?));
        }
    }
    println!("{CALLERS} new callers in each period of {PERIOD:?}, {PERIODS} periods");
    println!("decision: {decisions}");
    println!("control:  {controls}");
    for period in 1..=PERIODS {
        let end = points.iter().rfind(|(at, _)| *at <= PERIOD * period);
        let (_, bytes) = end.ok_or("a point in every period")?;
        println!("resident after period {period}: {} MiB", bytes >> 20);
    }
    fs::write(file, plot(&points)?)?;
    println!("drawn into benches/collection.svg");
    drop(limiter);
    let mut worst = [Vec::new(), Vec::new()];
    for _ in 0..rounds(3) {
        let [decisions, controls] = in_full_store()?;
        println!("full store, decision: {decisions}");
        println!("full store, control:  {controls}");
        for (worst, pauses) in worst.iter_mut().zip([decisions, controls]) {
            worst.push(pauses.worst.as_secs_f64() * 1e3);
        }
    }
    let [decisions, controls] = worst.map(|all| vec![all.into_iter().fold(f64::MAX, f64::min)]);
    report("full store of a million callers: longest pause, ms", decisions, "at most 1");
    report("the same, of calls beside it that find their caller, ms", controls, "-");
    Ok(())
}

/// Returns how long new callers' calls took in a full store, and known callers' beside them.
fn in_full_store() -> Result<[Pauses; 2], Box<dyn Error>> {
    // A limit alone fills three quarters.
    let limiter = Limiter::builder().max_keys(1_333_334).max_bytes(1 << 30).in_memory();
    let control = Limiter::in_memory();
    let (mut decisions, mut controls) = (Pauses::default(), Pauses::default());
    let mut call = |caller: u64| {
        let before = Instant::now();
        let is_admitted = now(limiter.check(&FILLING, caller)).is_ok();
        decisions.add(before.elapsed());
        let before = Instant::now();
        black_box(now(control.check(&KNOWN, 0))).ok();
        controls.add(before.elapsed());
        is_admitted
    };
    let start = Instant::now();
    if !(0..CALLERS).all(&mut call) {
        return Err("no room for a million callers".into());
    }
    // Once more, and until the first calls alone would have expired: every key has to be scanned.
    for caller in 0..CALLERS {
        call(caller);
    }
    sleep(FILLING_PERIOD.saturating_sub(start.elapsed()));
    let has_expired = (CALLERS..CALLERS + 1_000).any(&mut call);
    // Now all have expired.
    sleep(2 * FILLING_PERIOD);
    let admitted = (2 * CALLERS..2 * CALLERS + 100_000).filter(|caller| call(*caller)).count();
    println!(
        "full store: room before the second expiry {has_expired}, {admitted} of 100000 after it"
    );
    Ok([decisions, controls])
}

/// How long calls took.
#[derive(Default)]
struct Pauses {
    worst: Duration,
    over_100_micros: u32,
    over_1_milli: u32,
}

impl Pauses {
    fn add(&mut self, pause: Duration) {
        self.worst = self.worst.max(pause);
        self.over_100_micros += u32::from(pause > Duration::from_micros(100));
        self.over_1_milli += u32::from(pause > Duration::from_millis(1));
    }
}

impl std::fmt::Display for Pauses {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { worst, over_100_micros, over_1_milli } = self;
        write!(f, "worst {worst:?}, {over_100_micros} over 100 \u{b5}s, {over_1_milli} over 1 ms")
    }
}

/// The bytes of the process that are in memory.
fn resident() -> Result<u64, Box<dyn Error>> {
    let statm = fs::read_to_string("/proc/self/statm")?;
    let pages: u64 = statm.split(' ').nth(1).ok_or("the second number of statm")?.parse()?;
    Ok(pages * 4096)
}

/// Memory over time, a line with its axes.
fn plot(points: &[(Duration, u64)]) -> Result<String, std::fmt::Error> {
    const WIDTH: f64 = 640.;
    const HEIGHT: f64 = 240.;
    let all = f64::from(PERIODS) * PERIOD.as_secs_f64();
    let mebibytes = |bytes: u64| f64::from(u32::try_from(bytes >> 10).unwrap_or(u32::MAX)) / 1024.;
    let top = points.iter().map(|(_, bytes)| mebibytes(*bytes)).fold(0., f64::max) * 1.1;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"-70 -30 {} {}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect x=\"-70\" y=\"-30\" width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"0\" y=\"-12\">resident memory, MiB: a million new callers in each period of {} s</text>\n",
        WIDTH + 100.,
        HEIGHT + 80.,
        PERIOD.as_secs(),
    );
    for period in 0..=PERIODS {
        let x = WIDTH * f64::from(period) / f64::from(PERIODS);
        let seconds = PERIOD.as_secs() * u64::from(period);
        writeln!(svg, "<path d=\"M{x:.0} 0V{HEIGHT}\" stroke=\"#ddd\"/>")?;
        writeln!(
            svg,
            "<text x=\"{x:.0}\" y=\"{}\" text-anchor=\"middle\">{seconds} s</text>",
            HEIGHT + 18.
        )?;
    }
    for quarter in 0..=4 {
        let y = HEIGHT * (1. - f64::from(quarter) / 4.);
        let label = top * f64::from(quarter) / 4.;
        writeln!(svg, "<path d=\"M0 {y:.0}H{WIDTH}\" stroke=\"#ddd\"/>")?;
        writeln!(svg, "<text x=\"-8\" y=\"{:.0}\" text-anchor=\"end\">{label:.0}</text>", y + 4.)?;
    }
    let line: Vec<String> = points
        .iter()
        .map(|(at, bytes)| {
            let x = WIDTH * at.as_secs_f64() / all;
            format!("{x:.1},{:.1}", HEIGHT * (1. - mebibytes(*bytes) / top))
        })
        .collect();
    let points = line.join(" ");
    writeln!(
        svg,
        "<polyline points=\"{points}\" fill=\"none\" stroke=\"#1565c0\" stroke-width=\"2\"/>"
    )?;
    svg.push_str("</svg>\n");
    Ok(svg)
}
