//! Real servers and clients for the tests. A test starts its server on a free port in a directory
//! of its own; the server stops with the test.

#![allow(clippy::missing_panics_doc, reason = "a test harness fails the test")]
#![allow(clippy::must_use_candidate, reason = "a server may be started for its side effects")]

mod browser;
mod captured_events;
mod certificates;
mod clock;
mod cluster;
mod commands;
mod fault_report;
mod first_lines;
mod history;
mod hostile;
mod lateness;
mod load;
pub mod mixed;
pub mod model;
mod monitor;
mod on_lease;
mod outage;
mod own_process;
mod promises;
mod proxy;
mod records;
mod redis_server;
pub mod schedule;
mod sentinels;

use std::{
    net::TcpListener,
    thread,
    time::{Duration, Instant, SystemTime},
};

use ratelimit_runtime::{
    Exceeded, Limiter, LimiterBuilder, OnStoreError, Policy, RateLimitError, UnavailableReason,
};
use tokio::runtime::Builder;

pub use self::{
    browser::Browser,
    captured_events::{Lines, listen},
    certificates::{Authority, Identity},
    clock::Clock,
    cluster::Cluster,
    commands::{EXAMPLES, PACKAGES, ROOT, Running, cargo, example},
    fault_report::{FaultLine, Watch},
    first_lines::compare_with_first_lines,
    history::{
        Call, FlightFigures, History, InFlight, Log, Outcome, PermitPromise, Promise, Settled, Uses,
    },
    hostile::{HostileServer, Hostility},
    lateness::Lateness,
    load::Load,
    monitor::{Monitor, Replayed},
    on_lease::{call_at_once, heat},
    outage::outage,
    own_process::{ran_in_own_process, ran_in_own_process_with},
    promises::Promises,
    proxy::{Network, Proxy},
    records::{Event, Record, Recorder, Records},
    redis_server::RedisServer,
    sentinels::{Sentinels, lone_sentinel, url_of_sentinels},
};

/// The longest time in which anything gets ready.
const PATIENCE: Duration = Duration::from_secs(60);

/// The deadline of a limiter whose store is made to fail.
pub const DEADLINE: Duration = Duration::from_millis(100);

/// A deadline that only a failing store exceeds, however busy the machine is.
const LONG_DEADLINE: Duration = Duration::from_secs(10);

/// The delay after which a busy machine notices a passed deadline: 400 ms.
pub const NOTICED: Duration = Duration::from_millis(400);

/// Waits until `ready` returns something, and fails the test if that takes too long.
pub fn wait_for<T>(what: &str, mut ready: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(value) = ready() {
            return value;
        }
        assert!(start.elapsed() < PATIENCE, "waited {PATIENCE:?} in vain for {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Waits like [`wait_for`], without blocking other tasks of the test's thread.
pub async fn until<T>(what: &str, mut ready: impl AsyncFnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(value) = ready().await {
            return value;
        }
        assert!(start.elapsed() < PATIENCE, "waited {PATIENCE:?} in vain for {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Returns a limiter with [`DEADLINE`] on the running store at `url`.
pub async fn limiter_on(url: &str, on_store_error: OnStoreError) -> Limiter {
    connected(Limiter::builder().deadline(DEADLINE).on_store_error(on_store_error), url).await
}

/// Returns a limiter whose calls are decided by the running store at `url`, or not at all.
pub async fn patient(url: &str) -> Limiter {
    connected(patient_builder(), url).await
}

/// Returns a limiter like [`patient`] without a deny cache: the store decides each call.
pub async fn uncached(url: &str) -> Limiter {
    connected(patient_builder().deny_cache(0), url).await
}

fn patient_builder() -> LimiterBuilder {
    Limiter::builder().deadline(LONG_DEADLINE).on_store_error(OnStoreError::Deny)
}

/// Returns a limiter on the running store at `url`. A busy machine may need several attempts to
/// connect.
pub(crate) async fn connected(builder: LimiterBuilder, url: &str) -> Limiter {
    until("a connection", async || {
        builder.clone().connect(url).await.inspect_err(|error| eprintln!("{error}")).ok()
    })
    .await
}

/// Waits until the limiter's store decides calls again.
pub async fn until_decided(limiter: &Limiter) {
    const PROBE: Policy = Policy::fixed_window("probe", Duration::from_secs(1), 1_000_000);
    until("a decision of the store", async || {
        let check = limiter.check(&PROBE, "probe").on_store_error(OnStoreError::Deny);
        check.await.ok().map(drop)
    })
    .await;
}

/// Runs the test of all cases at once, each in a thread and a runtime of its own.
pub fn at_once<T: Send>(
    cases: impl IntoIterator<Item = T>,
    test: impl AsyncFn(T) + Send + Sync + Copy,
) {
    thread::scope(|scope| {
        for case in cases {
            scope.spawn(move || {
                let runtime = Builder::new_current_thread().enable_all().build();
                runtime.expect("a runtime").block_on(test(case));
            });
        }
    });
}

/// Returns the number of admitted calls out of ten.
pub async fn admitted(call: impl AsyncFn() -> Result<(), RateLimitError>) -> usize {
    let mut admitted = 0;
    for _ in 0..10 {
        admitted += usize::from(call().await.is_ok());
    }
    admitted
}

/// Runs the test in memory and on a Redis of its own.
pub async fn on_each_store(test: impl AsyncFn(&Limiter)) {
    let server = RedisServer::start();
    let (in_memory, on_redis) = (Limiter::in_memory(), server.limiter().await);
    tokio::join!(test(&in_memory), test(&on_redis));
}

/// Returns the refusal in an answer.
pub fn exceeded<T: std::fmt::Debug>(answer: Result<T, RateLimitError>) -> Exceeded {
    match answer {
        Err(RateLimitError::Exceeded(exceeded)) => exceeded,
        other => panic!("expected a refusal, got {other:?}"),
    }
}

/// Returns the reason of an unavailable answer.
pub fn unavailable<T: std::fmt::Debug>(answer: Result<T, RateLimitError>) -> UnavailableReason {
    match answer {
        Err(RateLimitError::Unavailable(error)) => error.reason(),
        other => panic!("expected no decision, got {other:?}"),
    }
}

/// Returns a port without a listener right now.
pub fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("its address").port()
}

/// Returns the machine's wall clock in microseconds, which its servers use too.
pub fn wall_clock() -> u64 {
    let since = SystemTime::UNIX_EPOCH.elapsed().expect("a time after 1970");
    since.as_micros().try_into().expect("a time before the year 500 000")
}

/// Returns a time zone in which it is before noon: no window of its calendar ends during a test.
pub fn zone_before_noon() -> &'static str {
    const HOUR: u64 = 3_600_000_000;
    if wall_clock() / HOUR % 24 < 12 { "UTC" } else { "Etc/GMT+12" }
}
