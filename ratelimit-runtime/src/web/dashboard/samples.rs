//! What all limits did, second by second: the history that plots show.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{SystemTime, UNIX_EPOCH},
};

use serde::Serialize;
use tokio::{sync::watch, time::Instant};

use crate::{
    overrides::{Override, Overrides},
    policy::Policy,
    telemetry::stats::{self, DecidedBy, PolicyStats, Verdict},
};

/// Five minutes.
const MOST_SAMPLES: usize = 300;

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
    before: HashMap<&'static str, Before>,
}

/// What was known of a limit when the latest sample was taken.
#[derive(Default)]
struct Before {
    counts: Counts,
    /// The limit that the latest call was decided by.
    latest: Option<Policy>,
    /// The same, when no override gave it other numbers.
    written: Option<Policy>,
    /// An override gave it other numbers.
    was_renumbered: bool,
}

/// What happened since the sample before.
#[derive(Serialize)]
pub(super) struct Sample {
    /// Samples are numbered, from 1 on.
    pub(super) number: u64,
    /// When it was taken, in milliseconds since 1970.
    at: u64,
    /// The time since the sample before, in milliseconds.
    span: u64,
    /// The limits that were called.
    limits: BTreeMap<&'static str, Seen>,
}

#[derive(Serialize)]
struct Seen {
    counts: Counts,
    /// The smallest share of the units that was left to a caller.
    left: Option<f64>,
}

/// Calls: admitted, refused, refused by what this process remembers, let through by a dry run,
/// decided without the store, not decided. Of these the fifth counts calls that the others count
/// too.
#[derive(Clone, Copy, Default, PartialEq, Eq, Serialize)]
struct Counts([u64; 6]);

impl Counts {
    fn of(stats: &PolicyStats) -> Self {
        let by_fallback: u64 =
            Verdict::ALL.iter().map(|verdict| stats.calls(*verdict, DecidedBy::Fallback)).sum();
        let by_deny_cache = stats.calls(Verdict::Refused, DecidedBy::DenyCache);
        Self([
            stats.total(Verdict::Admitted),
            stats.total(Verdict::Refused) - by_deny_cache + stats.total(Verdict::TooLarge),
            by_deny_cache,
            stats.total(Verdict::WouldHaveRefused),
            by_fallback
                + stats.calls(Verdict::Admitted, DecidedBy::Nobody)
                + stats.calls(Verdict::WouldHaveRefused, DecidedBy::Nobody),
            stats.total(Verdict::Unavailable) + stats.total(Verdict::InvalidPolicy),
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
    /// Takes the next sample.
    pub(super) fn take(&self, overrides: &Overrides) {
        let renumbered = overrides.list();
        let is_renumbered = |name: &str| renumbered.get(name).is_some_and(Override::changes_limits);
        let mut history = self.history();
        let now = Instant::now();
        let is_first = history.taken.is_none();
        let span = history.taken.map_or(0, |taken| (now - taken).as_millis());
        let mut limits = BTreeMap::new();
        for stats in stats::snapshot() {
            let (name, counts) = (stats.name(), Counts::of(&stats));
            let before = history.before.entry(name).or_default();
            let since = counts.since(before.counts);
            let renumbered_now = is_renumbered(name);
            let is_called = since != Counts::default();
            if is_called && !renumbered_now && !before.was_renumbered {
                before.written = stats.policy().copied();
            }
            before.was_renumbered = renumbered_now;
            before.counts = counts;
            before.latest = stats.policy().copied();
            // What others have counted before the page was there is no sample.
            if is_called && !is_first {
                limits.insert(name, Seen { counts: since, left: stats.least_share_left() });
            }
        }
        history.taken = Some(now);
        if is_first {
            return;
        }
        let number = self.latest.borrow().saturating_add(1);
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let at = u64::try_from(since_1970.as_millis()).unwrap_or(u64::MAX);
        let span = u64::try_from(span).unwrap_or(u64::MAX);
        if history.samples.len() == MOST_SAMPLES {
            history.samples.pop_front();
        }
        history.samples.push_back(Arc::new(Sample { number, at, span, limits }));
        drop(history);
        self.latest.send_replace(number);
    }

    /// The samples from this number on that are still there.
    pub(super) fn from(&self, number: u64) -> Vec<Arc<Sample>> {
        let history = self.history();
        history.samples.iter().filter(|sample| sample.number >= number).cloned().collect()
    }

    /// Tells of each new sample.
    pub(super) fn subscribe(&self) -> watch::Receiver<u64> {
        self.latest.subscribe()
    }

    /// The limit that the latest call of this name was decided by.
    pub(super) fn latest_policy(&self, name: &str) -> Option<Policy> {
        self.history().before.get(name)?.latest
    }

    /// The same, when no override gave it other numbers.
    pub(super) fn written_policy(&self, name: &str) -> Option<Policy> {
        self.history().before.get(name)?.written
    }

    fn history(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
