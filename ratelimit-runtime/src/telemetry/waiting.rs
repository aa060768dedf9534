//! Calls that wait in line: their number by limit, and how long they have waited.

use std::{
    sync::atomic::{AtomicI64, Ordering},
    time::Duration,
};

use once_cell::sync::Lazy;

#[cfg(feature = "metrics")]
use super::metrics;
use super::per_policy::PerPolicy;
use crate::policy::Policy;

static WAITING: Lazy<PerPolicy<AtomicI64>> = Lazy::new(PerPolicy::default);

/// A call that waits, from its first sleep to its answer or its drop.
pub(crate) struct Waiting {
    policy: &'static str,
    /// The number of waiting calls of the limit; none if the limiter is not instrumented.
    count: Option<&'static AtomicI64>,
}

/// Returns the number of calls that wait under the limit of this name.
pub(super) fn count(name: &str) -> u64 {
    let limits = WAITING.all();
    let found = limits.iter().find(|(limit, _)| *limit == name);
    found.map_or(0, |(_, count)| count.load(Ordering::SeqCst).try_into().unwrap_or(0))
}

impl Waiting {
    pub(crate) fn new(is_enabled: bool, policy: &Policy) -> Self {
        let waiting = Self {
            policy: policy.full_name().text(),
            count: is_enabled.then(|| WAITING.of(policy)),
        };
        waiting.add(1);
        waiting
    }

    fn add(&self, more: i64) {
        let Some(count) = self.count else { return };
        count.fetch_add(more, Ordering::SeqCst);
        #[cfg(feature = "metrics")]
        metrics::waiting(self.policy, count);
        let _ = self.policy;
    }

    /// Ends the wait of a call that has its answer.
    pub(crate) fn end(self, waited: Duration) {
        #[cfg(feature = "metrics")]
        if self.count.is_some() {
            metrics::waited(self.policy, waited);
        }
        let _ = (self, waited);
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.add(-1);
    }
}
