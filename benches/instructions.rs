//! `cargo bench -p ratelimit-benches --bench instructions`
//!
//! The processor instructions of a call that does not leave the process, counted by valgrind:
//! unlike a time, the same on a busy machine and an idle one. A path that takes over 3 %, and over
//! 5 instructions, more than `instructions.json` has fails the run; `UPDATE_INSTRUCTIONS=1` writes
//! that file. The clock counts for little: one instruction reads the counter, and the system's
//! clock, which is asked now and then and a system call under valgrind, is left out.

use std::{
    error::Error,
    fs,
    hint::black_box,
    process::Command,
    sync::{
        LazyLock,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use ratelimit_benches::{
    annotated, by_hand, call, figures::report, on_redis, rounds::Contender, server::Server,
    with_arguments::CASES,
};
use ratelimit_runtime::{Limiter, limiter};
use tokio::runtime::{Builder, Runtime};

/// The bars of an annotated call that is counted only. They are goals: a missed one fails no run.
const ADMITTED: &str = "at most 450";
const REFUSED: &str = "at most 520";

/// The bars of calls with arguments.
const BARS: [(&str, &str); 5] = [
    ("settle", "at most 1400"),
    ("concurrency", "at most 1100"),
    ("two stacked", "at most 1700"),
    ("check_all of two", "at most 1700"),
    ("request_id", "at most 1500"),
];

/// The committed instructions of a call in each case, one line each.
const COMMITTED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/instructions.json");

/// A case, and the bar.
type Barred = (Contender<'static>, &'static str);

fn cases() -> Vec<Barred> {
    let mut cases: Vec<Barred> = vec![
        (("without the attribute", annotated!(plain)), "-"),
        (("sliding_window 3, refused", annotated!(window_3)), REFUSED),
        (("sliding_window 96, refused", annotated!(window_96)), REFUSED),
        (("sliding_window of 100 000", annotated!(window)), ADMITTED),
        (("sliding_counter 3, refused", annotated!(counter_3)), REFUSED),
        (("sliding_counter", annotated!(counter)), ADMITTED),
        (("fixed_window 3, refused", annotated!(fixed_3)), REFUSED),
        (("fixed_window", annotated!(fixed)), ADMITTED),
        (("token_bucket 3, refused", annotated!(bucket_3)), REFUSED),
        (("token_bucket", annotated!(bucket)), ADMITTED),
        (("by hand, refused", by_hand(limiter(), 1)), "at most 600"),
        (("by hand", by_hand(limiter(), 0)), "at most 600"),
        (("sliding_window 3, refused, 100 callers", in_turn(annotated!(window_of_many), 100)), "-"),
        (("on Redis, remembered refusal", remembered()), "-"),
        (("on Redis, units on lease", leased()), "-"),
    ];
    cases.extend(CASES.iter().map(|case| -> Barred {
        let call = Box::new(|user| (case.in_memory)(limiter(), user));
        let bar = BARS.iter().find(|(name, _)| *name == case.name).map_or("-", |(_, bar)| bar);
        ((case.name, call), bar)
    }));
    cases
}

/// Returns a call of so many callers in turn.
fn in_turn(call: Box<dyn Fn(u32) + Sync>, callers: u32) -> Box<dyn Fn(u32) + Sync> {
    let next = AtomicU32::new(0);
    Box::new(move |_| call(next.fetch_add(1, Ordering::Relaxed) % callers))
}

/// Returns a call that is refused by the deny cache of a limiter on Redis. The first call starts
/// the server.
fn remembered() -> Box<dyn Fn(u32) + Sync> {
    let started = LazyLock::new(|| exhausted().expect("a server decides two calls"));
    Box::new(move |user| {
        let (limiter, ..) = &*started;
        call!(on_redis::refused(limiter, user));
    })
}

/// Returns a limiter whose deny cache has the refusal of caller 7, with its runtime and server.
fn exhausted() -> Result<(Limiter, Runtime, Server), Box<dyn Error>> {
    let server = Server::start(&[])?;
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let builder = Limiter::builder().deny_cache_ttl(Duration::from_secs(3_600));
    let limiter = runtime.block_on(async {
        let limiter = builder.deadline(Duration::from_secs(10)).connect(&server.url()).await?;
        while on_redis::call(&limiter, false, 7).await {}
        Ok::<_, ratelimit_runtime::ConnectError>(limiter)
    })?;
    Ok((limiter, runtime, server))
}

/// Returns a call that is admitted by units on lease. The first call starts the server.
fn leased() -> Box<dyn Fn(u32) + Sync> {
    let started = LazyLock::new(|| on_lease().expect("a server grants a lease"));
    Box::new(move |user| {
        let (limiter, ..) = &*started;
        call!(on_redis::leased(limiter, user));
    })
}

/// Returns a limiter with more units on lease than it is asked for, with its runtime and server.
fn on_lease() -> Result<(Limiter, Runtime, Server), Box<dyn Error>> {
    let server = Server::start(&[])?;
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let limiter = runtime.block_on(async {
        let builder = Limiter::builder().deadline(Duration::from_secs(10));
        let limiter = builder.connect(&server.url()).await?;
        for _ in 0..10 {
            on_redis::leased(&limiter, 7).await?;
        }
        // The next lease is for more of its like.
        limiter.check(&on_redis::LEASED, 7_u32).cost(1_000_000).await?;
        Ok::<_, Box<dyn Error>>(limiter)
    })?;
    Ok((limiter, runtime, server))
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [mode, case, times] = &arguments[..]
        && mode == "call"
    {
        let ((_, call), ..) = &cases()[case.parse::<usize>()?];
        for _ in 0..times.parse()? {
            call(black_box(7));
        }
        return Ok(());
    }
    let committed = fs::read_to_string(COMMITTED).unwrap_or_default();
    let (mut over, mut lines) = (Vec::new(), Vec::new());
    for (case, ((name, _), bar)) in cases().into_iter().enumerate() {
        // The start of the process is in both counts.
        let (few, many) = (10_000, 20_000);
        let each = (instructions(case, many)? - instructions(case, few)?) / (many - few);
        let before = committed_count(&committed, name);
        println!("{name:32} {each:5} instructions, {before:?} committed");
        let count = f64::from(u32::try_from(each)?);
        report(&format!("{name}: instructions of a call in memory"), vec![count], bar);
        if before.is_none_or(|before| each > before + (before * 3 / 100).max(5)) {
            over.push(name);
        }
        lines.push(format!("  \"{name}\": {each}"));
    }
    if std::env::var_os("UPDATE_INSTRUCTIONS").is_some() {
        return Ok(fs::write(COMMITTED, format!("{{\n{}\n}}\n", lines.join(",\n")))?);
    }
    if over.is_empty() {
        Ok(())
    } else {
        Err(format!("over 3 % more, or not in instructions.json: {over:?}").into())
    }
}

fn committed_count(committed: &str, name: &str) -> Option<u64> {
    let line =
        committed.lines().find_map(|line| line.trim().strip_prefix(&format!("\"{name}\": ")));
    line?.trim_end_matches(',').parse().ok()
}

/// Returns the instructions of a process that makes this many calls.
fn instructions(case: usize, times: u64) -> Result<u64, Box<dyn Error>> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        // In this order: not counted between the start and the end of the function.
        .args(["--toggle-collect=*CounterClock*renew*", "--collect-atstart=yes"])
        .arg(std::env::current_exe()?)
        .args(["call", &case.to_string(), &times.to_string()])
        .output()
        .map_err(|error| format!("valgrind not started; install it: {error}"))?;
    let report = String::from_utf8(output.stderr)?;
    let collected = report.lines().find_map(|line| line.split_once("Collected : "));
    let (_, count) =
        collected.ok_or_else(|| format!("no count in the output of valgrind: {report}"))?;
    Ok(count.trim().parse()?)
}
