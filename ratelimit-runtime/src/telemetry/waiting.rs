//! Calls that wait in line: their number by limit, and how long they have waited.

use std::{sync::atomic::Ordering, time::Duration};

use super::{LimitCounters, metrics};

/// A call that waits, from its first sleep to its answer or its drop.
pub(crate) struct Waiting {
    /// None if the limiter is not instrumented.
    limit: Option<&'static LimitCounters>,
}

impl Waiting {
    pub(crate) fn new(limit: Option<&'static LimitCounters>) -> Self {
        let waiting = Self { limit };
        waiting.add(1);
        waiting
    }

    fn add(&self, more: i64) {
        let Some(limit) = self.limit else { return };
        limit.waiting.fetch_add(more, Ordering::SeqCst);
        metrics::set("ratelimit_waiting", &[("policy", limit.name)], &limit.waiting);
    }

    /// Ends the wait of a call that has its answer.
    pub(crate) fn end(self, waited: Duration) {
        if let Some(limit) = self.limit {
            metrics::waited(limit.name, waited);
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.add(-1);
    }
}
