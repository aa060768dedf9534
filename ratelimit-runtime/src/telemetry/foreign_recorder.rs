//! A recorder of tests.

use metrics::{
    Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit,
    with_local_recorder,
};

struct Foreign<F>(F);

impl<F: Fn()> Recorder for Foreign<F> {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
        Counter::noop()
    }
    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        (self.0)();
        Gauge::noop()
    }
    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

/// Runs the work under a recorder that calls a function at each gauge: foreign code may call the
/// limiter itself.
pub(crate) fn with_foreign_recorder(at_gauge: impl Fn(), work: impl FnOnce()) {
    with_local_recorder(&Foreign(at_gauge), work);
}
