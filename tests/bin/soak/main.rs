//! Limited functions keep their promises under load on a Redis under constant faults; see `ci/soak`.
//!
//! soak MINUTES

mod faults;
mod figures;

use std::{
    env,
    error::Error,
    process::ExitCode,
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

use harness::{Call, DEADLINE, History, Load, Outcome, limiter_on, until_decided, wall_clock};
use ratelimit_runtime::{Limiter, OnStoreError, RateLimitError, rate_limit};

use self::{
    faults::{Disturbed, LATE, Server},
    figures::Figures,
};

const PERIOD: Duration = Duration::from_millis(500);
const THRESHOLD: usize = 20;
const CALLERS: u32 = 4;
const TASKS: u32 = 8;
/// The pause after each call: a caller makes about three times as many calls as its limit admits.
const PAUSE: Duration = Duration::from_millis(18);

/// The interval at which the answers are checked and dropped.
const SECTION: Duration = Duration::from_secs(10);

/// A duration of a call beyond which something waits that must not. A busy machine stays below it.
const LONGEST_CALL: Duration = Duration::from_secs(3);

#[rate_limit(period = "500ms", threshold = 20, key = caller, on_store_error = deny, limiter = limiter)]
async fn log(limiter: &Limiter, caller: u32) -> Result<(), RateLimitError> {
    Ok(())
}

#[rate_limit(
    algorithm = sliding_counter,
    period = "500ms",
    threshold = 20,
    key = caller,
    on_store_error = deny,
    limiter = limiter
)]
async fn counter(limiter: &Limiter, caller: u32) -> Result<(), RateLimitError> {
    Ok(())
}

#[rate_limit(
    algorithm = fixed_window,
    period = "500ms",
    threshold = 20,
    key = caller,
    on_store_error = deny,
    limiter = limiter
)]
async fn window(limiter: &Limiter, caller: u32) -> Result<(), RateLimitError> {
    Ok(())
}

#[rate_limit(
    algorithm = token_bucket,
    period = "500ms",
    threshold = 20,
    key = caller,
    on_store_error = deny,
    limiter = limiter
)]
async fn bucket(limiter: &Limiter, caller: u32) -> Result<(), RateLimitError> {
    Ok(())
}

/// Falls back to this process while Redis does not decide.
#[rate_limit(period = "500ms", threshold = 20, key = caller, limiter = limiter)]
async fn either(limiter: &Limiter, caller: u32) -> Result<(), RateLimitError> {
    Ok(())
}

/// Each of its callers calls once, and its state must expire.
#[rate_limit(period = "500ms", threshold = 1, key = caller, limiter = limiter)]
async fn passing(limiter: &Limiter, caller: u64) -> Result<(), RateLimitError> {
    Ok(())
}

/// A limited function under load, with its promise.
struct Function {
    name: &'static str,
    start: fn(&Limiter) -> Load,
    /// The largest number of admitted calls in any window of a period, in thresholds.
    most: usize,
    refuses: Refuses,
    /// `true` for a bucket: see [`Promise::refills`](harness::Promise::refills).
    refills: bool,
    /// `true` if every call gets a decision, from Redis or from the fallback.
    always_decided: bool,
    /// The calls of the section before that still count.
    before: Vec<Call>,
}

enum Refuses {
    /// Only callers that took the threshold within this many periods.
    Justly {
        periods: u32,
    },
    /// Other callers too: a call that Redis counts late is decided a second time here, and may be refused.
    AlsoElse,
    Nobody,
}

macro_rules! load {
    ($function:ident) => {
        |limiter| {
            let limiter = limiter.clone();
            Load::calling(TASKS, CALLERS, PAUSE, move |caller| {
                let limiter = limiter.clone();
                async move { $function(&limiter, caller).await }
            })
        }
    };
}

fn functions() -> [Function; 6] {
    let exact = |name, start| Function {
        name,
        start,
        most: 1,
        refuses: Refuses::Justly { periods: 1 },
        refills: false,
        always_decided: false,
        before: Vec::new(),
    };
    [
        exact("log", load!(log)),
        Function {
            most: 2,
            refuses: Refuses::Justly { periods: 2 },
            ..exact("counter", load!(counter))
        },
        Function { most: 2, ..exact("window", load!(window)) },
        Function { most: 2, refills: true, ..exact("bucket", load!(bucket)) },
        // One threshold on Redis, and one in this process.
        Function {
            most: 2,
            refuses: Refuses::AlsoElse,
            always_decided: true,
            ..exact("either", load!(either))
        },
        Function { refuses: Refuses::Nobody, always_decided: true, ..exact("passing", passers_by) },
    ]
}

fn passers_by(limiter: &Limiter) -> Load {
    static CALLER: AtomicU64 = AtomicU64::new(0);
    let limiter = limiter.clone();
    Load::calling(TASKS, TASKS, PAUSE, move |_| {
        let limiter = limiter.clone();
        async move { passing(&limiter, CALLER.fetch_add(1, Ordering::Relaxed)).await }
    })
}

impl Function {
    /// Returns the answers that break a promise.
    fn faults(&mut self, history: &History, disturbed: &Disturbed) -> Vec<String> {
        let mut faults = Vec::new();
        if self.always_decided && history.unavailable() > 0 {
            faults.push(format!("{} calls were not decided", history.unavailable()));
        }
        if history.slowest() > LONGEST_CALL {
            faults.push(format!("a call took {:?}", history.slowest()));
        }
        let refused = history.count(|outcome| outcome == Outcome::Refused);
        if refused > 0 && matches!(self.refuses, Refuses::Nobody) {
            faults.push(format!("{refused} callers were refused at their first call"));
        }
        if !matches!(self.refuses, Refuses::Nobody) {
            let since = wall_clock() - micros(4 * PERIOD + LATE);
            let counting = history.counting_since(since);
            let calls = history.calls().iter().chain(&self.before).copied().collect();
            let history = History::new(calls);
            self.before = counting;
            let mut promise = disturbed.promise(PERIOD, self.most * THRESHOLD);
            promise.refills = self.refills;
            if self.most > 1 {
                // Aligned windows begin elsewhere once the clock is set back.
                promise.losses.extend(promise.set_back.iter().cloned());
            }
            faults.extend(history.overfull_windows(&promise));
            if let Refuses::Justly { periods } = self.refuses {
                let promise = disturbed.promise(periods * PERIOD, THRESHOLD);
                faults.extend(history.unjust_refusals(&promise));
            }
        }
        faults.iter().map(|fault| format!("{}: {fault}", self.name)).collect()
    }
}

fn micros(time: Duration) -> u64 {
    time.as_micros().try_into().expect("a short time")
}

#[tokio::main(worker_threads = 2)]
async fn main() -> Result<ExitCode, Box<dyn Error>> {
    let minutes: f64 = env::args().nth(1).ok_or("usage: soak MINUTES")?.parse()?;
    let length = Duration::try_from_secs_f64(minutes * 60.0)?;
    let seed = env::var("SOAK_SEED").map_or(Ok(fastrand::u64(..)), |seed| seed.parse())?;
    println!("seed {seed}, deadline {DEADLINE:?}");

    let mut server = Server::start(seed);
    let limiter = limiter_on(&server.url(), OnStoreError::Local).await;
    let (mut functions, mut figures) = (functions(), Figures::default());
    let start = Instant::now();
    while start.elapsed() < length || !server.disturbed().is_complete() {
        let loads: Vec<_> = functions.iter().map(|function| (function.start)(&limiter)).collect();
        let end = Instant::now() + SECTION.min(length / 2);
        while Instant::now() < end {
            server.disturb().await;
        }
        until_decided(&limiter).await;
        let mut faults = Vec::new();
        for (function, load) in functions.iter_mut().zip(loads) {
            let history = load.stop().await;
            figures.take_in(&history);
            faults.extend(function.faults(&history, server.disturbed()));
        }
        figures.sample(&server, start.elapsed());
        if !faults.is_empty() {
            eprintln!("{}\n{}", faults.join("\n"), server.disturbed().latest());
            return Ok(ExitCode::FAILURE);
        }
        server.forget();
    }
    println!("{figures}, {}", server.disturbed());
    Ok(match figures.growth() {
        None => ExitCode::SUCCESS,
        Some(growth) => {
            eprintln!("{growth}");
            ExitCode::FAILURE
        }
    })
}
