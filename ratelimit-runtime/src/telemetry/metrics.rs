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
use once_cell::sync::{Lazy, OnceCell};

use super::{PolicyCounters, Verdict, per_policy::PerPolicy};
use crate::{policy::Policy, request::DecidedBy};

/// The decisions of one policy, by verdict and by `decided_by`. A series appears with its first decision.
#[derive(Default)]
pub(super) struct Decisions([[OnceCell<Counter>; DecidedBy::ALL.len()]; Verdict::ALL.len()]);

static DECISIONS: Lazy<PerPolicy<Decisions>> = Lazy::new(PerPolicy::default);

#[inline]
pub(super) fn decided(
    policy: &Policy,
    counters: Option<&PolicyCounters>,
    verdict: Verdict,
    decided_by: DecidedBy,
) {
    let decisions = match counters {
        Some(counters) => *counters.decisions.get_or_init(|| DECISIONS.of(policy)),
        None => DECISIONS.of(policy),
    };
    let counter = decisions.0[verdict as usize][decided_by as usize].get_or_init(|| {
        metrics::describe_counter!(
            "ratelimit_decisions_total",
            "Calls by policy, outcome and decider"
        );
        metrics::counter!(
            "ratelimit_decisions_total",
            "policy" => policy.name(),
            "outcome" => verdict.as_str(),
            "decided_by" => decided_by.as_str(),
        )
    });
    counter.increment(1);
}

pub(super) fn store_answered(is_answered: bool, took: Duration) {
    static TIMES: [OnceCell<Histogram>; 2] = [OnceCell::new(), OnceCell::new()];
    let times = TIMES[usize::from(is_answered)].get_or_init(|| {
        metrics::describe_histogram!(
            "ratelimit_store_duration_seconds",
            Unit::Seconds,
            "Round trip of a decision on Redis"
        );
        let result = if is_answered { "ok" } else { "error" };
        metrics::histogram!("ratelimit_store_duration_seconds", "result" => result)
    });
    times.record(took);
}

/// Keys are counted before an exporter is installed as well, so that its gauge starts with their number.
pub(super) fn keys_held(more: i64) {
    static HELD: AtomicI64 = AtomicI64::new(0);
    static DESCRIBED: Once = Once::new();
    DESCRIBED.call_once(|| {
        metrics::describe_gauge!(
            "ratelimit_memory_keys",
            "Keys in this process's memory, one for each policy and caller"
        );
    });
    HELD.fetch_add(more, Ordering::SeqCst);
    show(&HELD, &metrics::gauge!("ratelimit_memory_keys"));
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

pub(super) fn waiting(policy: &'static str, count: &AtomicI64) {
    static DESCRIBED: Once = Once::new();
    DESCRIBED.call_once(|| {
        metrics::describe_gauge!("ratelimit_waiting", "Calls of this process that wait in line");
    });
    show(count, &metrics::gauge!("ratelimit_waiting", "policy" => policy));
}

pub(super) fn without_caller(policy: &'static str, calls: &OnceCell<Counter>) {
    let calls = calls.get_or_init(|| {
        metrics::describe_counter!(
            "ratelimit_without_caller_total",
            "Calls without a key and outside caller scopes and identity layers, which share one bucket"
        );
        metrics::counter!("ratelimit_without_caller_total", "policy" => policy)
    });
    calls.increment(1);
}

pub(super) fn waited(policy: &'static str, waited: Duration) {
    static DESCRIBED: Once = Once::new();
    DESCRIBED.call_once(|| {
        metrics::describe_histogram!(
            "ratelimit_wait_seconds",
            Unit::Seconds,
            "Time for which calls have waited in line"
        );
    });
    metrics::histogram!("ratelimit_wait_seconds", "policy" => policy).record(waited);
}

pub(super) fn bytes_held(more: i64) {
    static HELD: AtomicI64 = AtomicI64::new(0);
    static DESCRIBED: Once = Once::new();
    DESCRIBED.call_once(|| {
        metrics::describe_gauge!(
            "ratelimit_memory_bytes",
            Unit::Bytes,
            "Bytes of the keys in this process's memory"
        );
    });
    HELD.fetch_add(more, Ordering::SeqCst);
    show(&HELD, &metrics::gauge!("ratelimit_memory_bytes"));
}

pub(super) fn memory_full(policy: &'static str) {
    static DESCRIBED: Once = Once::new();
    DESCRIBED.call_once(|| {
        metrics::describe_counter!(
            "ratelimit_memory_full_total",
            "Calls that were not counted because memory is full"
        );
    });
    metrics::counter!("ratelimit_memory_full_total", "policy" => policy).increment(1);
}

#[cfg(feature = "redis")]
pub(super) fn unsent(policy: &'static str, command: &'static str) {
    static DESCRIBED: Once = Once::new();
    DESCRIBED.call_once(|| {
        metrics::describe_counter!(
            "ratelimit_unsent_total",
            "Settles, releases of permits and places in a line that could not be sent to Redis"
        );
    });
    metrics::counter!("ratelimit_unsent_total", "policy" => policy, "command" => command)
        .increment(1);
}

pub(super) fn override_problems(source: &'static str, problem: &'static str, count: &AtomicI64) {
    static DESCRIBED: Once = Once::new();
    DESCRIBED.call_once(|| {
        metrics::describe_gauge!(
            "ratelimit_override_problems",
            "Overrides that change no limit, by source and problem"
        );
    });
    let gauge =
        metrics::gauge!("ratelimit_override_problems", "source" => source, "problem" => problem);
    show(count, &gauge);
}

#[cfg(feature = "redis")]
pub(super) fn permits_lost(policy: &'static str, permits: u64) {
    static DESCRIBED: Once = Once::new();
    DESCRIBED.call_once(|| {
        metrics::describe_counter!(
            "ratelimit_permits_lost_total",
            "Permits of calls in flight that other calls have taken on Redis"
        );
    });
    metrics::counter!("ratelimit_permits_lost_total", "policy" => policy).increment(permits);
}

pub(super) fn server_is_up(server: &str, is_up: bool) {
    static DESCRIBED: Once = Once::new();
    DESCRIBED.call_once(|| {
        metrics::describe_gauge!(
            "ratelimit_store_up",
            "1 while a Redis server's circuit breaker is closed, 0 while it is open"
        );
    });
    let up = metrics::gauge!("ratelimit_store_up", "server" => server.to_owned());
    up.set(if is_up { 1.0 } else { 0.0 });
}
