//! `cargo bench -p ratelimit-benches --features metrics --bench metrics`
//!
//! The cost of metrics to an annotated call in memory, of one caller: an exporter is installed, and
//! the limiter records for it or not.
//!
//! Both run in turn in one process. A figure is the difference of a round.

use std::sync::{Arc, atomic::AtomicU64};

use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use ratelimit_benches::{
    call,
    figures::{figure, report},
    rounds::{in_turns, turn},
};
use ratelimit_runtime::{Limiter, RateLimitError, rate_limit};

/// Counts as exporters do.
struct Exporter;

impl Recorder for Exporter {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(Arc::new(AtomicU64::new(0)))
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(Arc::new(AtomicU64::new(0)))
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

#[rate_limit(algorithm = fixed_window, period = "1d", threshold = 1_000_000_000, key = user, limiter = limiter)]
async fn admitted(limiter: &Limiter, user: u32) -> Result<(), RateLimitError> {
    Ok(())
}

#[rate_limit(algorithm = fixed_window, period = "366d", threshold = 3, key = user, limiter = limiter)]
async fn refused(limiter: &Limiter, user: u32) -> Result<(), RateLimitError> {
    Ok(())
}

fn main() {
    metrics::set_global_recorder(Exporter).expect("no other is installed");
    let recorded = Limiter::in_memory();
    let unrecorded = Limiter::builder().instrument(false).in_memory();
    let limiters = [&unrecorded, &recorded];
    let of_admitted = limiters.map(|limiter| -> Box<dyn Fn() -> f64> {
        Box::new(move || turn(&|user| call!(admitted(limiter, user))))
    });
    let of_refused = limiters.map(|limiter| -> Box<dyn Fn() -> f64> {
        Box::new(move || turn(&|user| call!(refused(limiter, user))))
    });
    for (what, states) in [("admitted", of_admitted), ("refused", of_refused)] {
        let rounds = in_turns(&states);
        println!(
            "{what}: {} ns, without {}",
            figure(rounds[1].clone(), 1),
            figure(rounds[0].clone(), 1)
        );
        let more = rounds[1].iter().zip(&rounds[0]).map(|(with, without)| with - without);
        report(&format!("metrics, {what}: ns more"), more.collect(), "at most 15");
    }
}
