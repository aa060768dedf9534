//! The calls of all limits, second by second: the history that plots show.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{SystemTime, UNIX_EPOCH},
};

use once_cell::sync::Lazy;
use ratelimit_runtime::{
    DecidedBy,
    stats::{self, PolicyStats, Verdict},
};
use serde::Serialize;
use tokio::{sync::watch, time::Instant};

/// The number of samples that are kept: five minutes.
const MAX_SAMPLES: usize = 300;

/// The number of this process: samples and changes of another one are not ours.
pub(super) static PROCESS: Lazy<String> = Lazy::new(|| format!("{:016x}", fastrand::u64(..)));

/// The samples of the last minutes.
#[derive(Default)]
pub(super) struct Samples {
    history: Mutex<History>,
    latest: watch::Sender<u64>,
}

#[derive(Default)]
struct History {
    samples: VecDeque<Arc<Sample>>,
    taken: Option<Instant>,
    before: HashMap<&'static str, Counts>,
}

/// The calls since the sample before.
#[derive(Serialize)]
pub(super) struct Sample {
    /// The number of the sample, from 1 on.
    pub(super) number: u64,
    /// The time of the sample, in milliseconds since 1970.
    at: u64,
    /// The time since the sample before, in milliseconds.
    span: u64,
    /// The limits that were called.
    limits: BTreeMap<&'static str, Counts>,
}

/// Numbers of calls: admitted, refused by the store (also because no permit was free), refused by
/// the deny cache, passed in a dry run, decided without the store, not decided, not decided because
/// the policy breaks a rule. The fifth number and the last one count calls that are in the others
/// too.
#[derive(Clone, Copy, Default, PartialEq, Eq, Serialize)]
struct Counts([u64; 7]);

impl Counts {
    fn of(stats: &PolicyStats) -> Self {
        let by_fallback: u64 =
            Verdict::ALL.iter().map(|verdict| stats.calls(*verdict, DecidedBy::Fallback)).sum();
        let by_deny_cache = stats.calls(Verdict::Refused, DecidedBy::DenyCache);
        Self([
            stats.total(Verdict::Admitted),
            stats.total(Verdict::Refused) - by_deny_cache
                + stats.total(Verdict::Busy)
                + stats.total(Verdict::Denied)
                + stats.total(Verdict::TooLarge),
            by_deny_cache,
            stats.total(Verdict::WouldHaveRefused),
            by_fallback
                + stats.calls(Verdict::Admitted, DecidedBy::Nobody)
                + stats.calls(Verdict::WouldHaveRefused, DecidedBy::Nobody),
            stats.total(Verdict::Unavailable) + stats.total(Verdict::InvalidPolicy),
            stats.total(Verdict::InvalidPolicy),
        ])
    }

    fn since(self, before: Self) -> Self {
        let mut counts = self;
        for (now, before) in counts.0.iter_mut().zip(before.0) {
            *now = now.saturating_sub(before);
        }
        counts
    }
}

impl Samples {
    /// Records the next sample.
    pub(super) fn record(&self) {
        let mut history = self.history();
        let now = Instant::now();
        let is_first = history.taken.is_none();
        let span = history.taken.map_or(0, |taken| (now - taken).as_millis());
        let mut limits = BTreeMap::new();
        for stats in stats::snapshot() {
            let (name, counts) = (stats.name(), Counts::of(&stats));
            let before = history.before.insert(name, counts).unwrap_or_default();
            let since = counts.since(before);
            // Calls that were counted before the page was made are no sample.
            if since != Counts::default() && !is_first {
                limits.insert(name, since);
            }
        }
        history.taken = Some(now);
        if is_first {
            return;
        }
        let number = self.latest.borrow().saturating_add(1);
        let at = millis(SystemTime::now());
        let span = u64::try_from(span).unwrap_or(u64::MAX);
        if history.samples.len() == MAX_SAMPLES {
            history.samples.pop_front();
        }
        history.samples.push_back(Arc::new(Sample { number, at, span, limits }));
        drop(history);
        self.latest.send_replace(number);
    }

    /// Returns the samples from this number on that are still kept.
    pub(super) fn from(&self, number: u64) -> Vec<Arc<Sample>> {
        let history = self.history();
        history.samples.iter().filter(|sample| sample.number >= number).cloned().collect()
    }

    /// Returns a receiver of the number of each new sample.
    pub(super) fn subscribe(&self) -> watch::Receiver<u64> {
        self.latest.subscribe()
    }

    fn history(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns a time in milliseconds since 1970.
pub(super) fn millis(at: SystemTime) -> u64 {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
