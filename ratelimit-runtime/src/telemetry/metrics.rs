//! Metrics of decisions, stores and servers, for the exporter that the program installs.
//!
//! There is a series for each policy, outcome and server, and none for a caller.

use std::{
    sync::{
        Once,
        atomic::{AtomicI64, Ordering, fence},
    },
    time::Duration,
};

use metrics::{Counter, Gauge, Histogram, Unit};
use once_cell::sync::OnceCell;
use tokio::time::Instant;

use super::Verdict;
use crate::request::DecidedBy;

const COUNTERS: [(&str, &str); 9] = [
    ("ratelimit_candidate_total", "Calls that a candidate has decided beside its limit"),
    ("ratelimit_decisions_total", "Calls by policy, outcome and decider"),
    ("ratelimit_memory_full_total", "Calls that were not counted because memory is full"),
    (
        "ratelimit_permits_lost_total",
        "Permits of calls in flight that other calls have taken on Redis",
    ),
    ("ratelimit_refused_total", "Refused calls by policy and tier"),
    ("ratelimit_units_total", "Units of calls by policy and outcome"),
    (
        "ratelimit_unsent_total",
        "Settles, releases of permits and places in a line that could not be sent to Redis",
    ),
    ("ratelimit_warnings_total", "Callers that have used most of a limit, once in a period"),
    (
        "ratelimit_without_caller_total",
        "Calls without a key and outside caller scopes and identity layers, which share one bucket",
    ),
];

const GAUGES: [(&str, &str); 9] = [
    ("ratelimit_enforcement", "2 while a limit refuses calls, 1 in a dry run, 0 while it is off"),
    ("ratelimit_limit", "Units that a caller has in each tier, after overrides"),
    (
        "ratelimit_local_share",
        "Share of a limit under which this process has decided calls without Redis, from 0 to 1",
    ),
    ("ratelimit_memory_keys", "Keys in this process's memory, one for each policy and caller"),
    ("ratelimit_override_problems", "Overrides that change no limit, by source and problem"),
    ("ratelimit_permits_held", "Permits of calls in flight that this process holds"),
    (
        "ratelimit_store_up",
        "1 while a Redis server's circuit breaker is closed, 0 while it is open",
    ),
    ("ratelimit_used_share", "Largest share of a limit that a caller has used, from 0 to 1"),
    ("ratelimit_waiting", "Calls of this process that wait in line"),
];

/// In seconds.
const HISTOGRAMS: [(&str, &str); 2] = [
    ("ratelimit_store_duration_seconds", "Round trip of a decision on Redis"),
    ("ratelimit_wait_seconds", "Time for which calls have waited in line"),
];

/// Describes all metrics, once in a process.
#[inline]
pub(crate) fn describe() {
    static DESCRIBED: Once = Once::new();
    DESCRIBED.call_once(|| {
        for (name, text) in COUNTERS {
            metrics::describe_counter!(name, text);
        }
        for (name, text) in GAUGES {
            metrics::describe_gauge!(name, text);
        }
        let text = "Bytes of the keys in this process's memory";
        metrics::describe_gauge!("ratelimit_memory_bytes", Unit::Bytes, text);
        for (name, text) in HISTOGRAMS {
            metrics::describe_histogram!(name, Unit::Seconds, text);
        }
    });
}

/// The series of one limit. Each appears with its first call.
#[derive(Default)]
pub(super) struct OfLimit {
    decisions: [[OnceCell<Counter>; DecidedBy::ALL.len()]; Verdict::ALL.len()],
    without_caller: OnceCell<Counter>,
}

#[inline]
pub(super) fn decided(
    policy: &'static str,
    series: &OfLimit,
    verdict: Verdict,
    decided_by: DecidedBy,
) {
    let series = &series.decisions[verdict as usize][decided_by as usize];
    let counter = series.get_or_init(|| {
        describe();
        metrics::counter!(
            "ratelimit_decisions_total",
            "policy" => policy,
            "outcome" => verdict.as_str(),
            "decided_by" => decided_by.as_str(),
        )
    });
    counter.increment(1);
}

/// Records the round trip of a decision on Redis.
pub(crate) fn store_answered<T, E>(answer: &Result<T, E>, sent: Instant) {
    static TIMES: [OnceCell<Histogram>; 2] = [OnceCell::new(), OnceCell::new()];
    let is_answered = answer.is_ok();
    let times = TIMES[usize::from(is_answered)].get_or_init(|| {
        describe();
        let result = if is_answered { "ok" } else { "error" };
        metrics::histogram!("ratelimit_store_duration_seconds", "result" => result)
    });
    times.record(sent.elapsed());
}

/// Records a change of the number of keys and bytes in memory. They are counted before an exporter
/// is installed as well, so that its gauges start with their numbers.
pub(crate) fn memory_held(keys: i64, bytes: i64) {
    static KEYS: AtomicI64 = AtomicI64::new(0);
    static BYTES: AtomicI64 = AtomicI64::new(0);
    describe();
    KEYS.fetch_add(keys, Ordering::SeqCst);
    show(&KEYS, &metrics::gauge!("ratelimit_memory_keys"));
    BYTES.fetch_add(bytes, Ordering::SeqCst);
    show(&BYTES, &metrics::gauge!("ratelimit_memory_bytes"));
}

/// Sets a gauge to a sum that other threads change too. If the sum differs afterwards, the gauge is
/// set again: the thread that sets it last has read the last change.
fn show(sum: &AtomicI64, gauge: &Gauge) {
    let mut shown = sum.load(Ordering::SeqCst);
    loop {
        #[expect(clippy::cast_precision_loss, reason = "so much fits no memory")]
        gauge.set(shown as f64);
        fence(Ordering::SeqCst);
        match sum.load(Ordering::SeqCst) {
            now if now == shown => return,
            now => shown = now,
        }
    }
}

pub(super) fn waited(policy: &'static str, waited: Duration) {
    describe();
    metrics::histogram!("ratelimit_wait_seconds", "policy" => policy).record(waited);
}

pub(super) fn without_caller(policy: &'static str, series: &OfLimit) {
    let calls = series.without_caller.get_or_init(|| {
        describe();
        metrics::counter!("ratelimit_without_caller_total", "policy" => policy)
    });
    calls.increment(1);
}

/// Sets a gauge of [`GAUGES`] to a sum that other threads change too.
pub(super) fn set(name: &'static str, labels: &[(&'static str, &'static str)], sum: &AtomicI64) {
    describe();
    show(sum, &metrics::gauge!(name, labels));
}

/// Adds to a counter of [`COUNTERS`], which is looked up each time: most of these events are rare.
pub(super) fn count(name: &'static str, labels: &[(&'static str, &'static str)], more: u64) {
    describe();
    metrics::counter!(name, labels).increment(more);
}

/// Records that a server's circuit breaker opened or closed.
pub(crate) fn server_is_up(server: &str, is_up: bool) {
    describe();
    let up = metrics::gauge!("ratelimit_store_up", "server" => server.to_owned());
    up.set(if is_up { 1.0 } else { 0.0 });
}
