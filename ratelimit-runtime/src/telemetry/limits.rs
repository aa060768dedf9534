//! The counts of each limit in this process, found by the hash of its name without a lock.

use std::{
    cell::Cell,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering},
    },
};

use arc_swap::ArcSwap;
use hashbrown::HashTable;
use once_cell::sync::Lazy;
use parking_lot::Mutex;

use super::{
    Verdict, metrics,
    refused::{RefusalCount, RefusalSketch, TimeWindow, callers_within},
};
use crate::{
    key::Caller,
    policy::{Policy, PolicyName},
    request::{DecidedBy, Outcome},
};

pub(super) const VERDICTS: usize = Verdict::ALL.len();
pub(super) const DECIDERS: usize = DecidedBy::ALL.len();

/// The tiers whose refusals are counted apart from those of the first one.
pub(super) const FURTHER_TIERS: usize = 7;

/// The places for the counts of threads. More threads share them.
const PLACES: usize = 8;

/// One of so many admitted calls is sampled.
const CALLS_PER_SAMPLE: u64 = 16;

/// The number of shares that a quota is divided into: see [`LimitCounters::used`].
pub(super) const WHOLE: u32 = 1 << 16;

/// The counts that most calls change, of the threads of one place. They have cache lines of their
/// own, which a processor fetches in pairs: a thread does not wait for the counts of another one.
#[derive(Default)]
#[repr(align(128))]
pub(crate) struct CallCounts {
    pub(super) calls: [[AtomicU64; DECIDERS]; VERDICTS],
    /// The number of admitted calls from which on the next call is sampled.
    next_sample: AtomicU64,
    /// The units of the calls with each verdict, less one for each call.
    pub(super) further_units: [AtomicU64; VERDICTS],
    /// The refused calls by tier, from the second tier on.
    pub(super) refused_by_further: [AtomicU64; FURTHER_TIERS],
    pub(crate) refused: RefusalSketch,
}

/// The counts of one limit, of all limiters of the process. They are numbers in place, so that all
/// calls can be counted.
#[derive(Default)]
pub(crate) struct LimitCounters {
    pub(super) name: &'static str,
    /// Those of the threads; readers add them up.
    pub(super) of_threads: [CallCounts; PLACES],
    /// The calls that a dry run would have refused, by the place of their callers among 100. No
    /// longer array has a `Default`.
    pub(super) left_out: [[AtomicU64; 10]; 10],
    /// The largest used share of a caller's quota since it was last read, in parts of [`WHOLE`].
    pub(super) used: AtomicU32,
    /// The share before it was last read.
    pub(super) used_before: AtomicU32,
    /// The share in percent under which this process has decided a call alone; 0 if it has decided
    /// none.
    pub(super) local_share: AtomicU8,
    /// The effective policy of a call that was sampled.
    pub(super) recent: Mutex<Option<Policy>>,
    /// The permits of calls in flight that this process holds.
    pub(super) permits: AtomicI64,
    /// The calls that wait in line.
    pub(super) waiting: AtomicI64,
    /// `true` once a call came without a caller.
    pub(super) is_without_caller: AtomicBool,
    /// `true` once a request without a caller was refused.
    #[cfg(any(feature = "actix", feature = "tower"))]
    pub(super) is_refusal_logged: AtomicBool,
    pub(super) metrics: metrics::OfLimit,
}

/// The counters of all limits. Names are part of the program, so that counters are never dropped.
static LIMITS: Lazy<ArcSwap<HashTable<(PolicyName, &'static LimitCounters)>>> =
    Lazy::new(ArcSwap::default);

/// Returns the counters of this policy's name, of a plan those of the plan. The first call of each
/// name adds them.
#[inline]
pub(crate) fn counters_of(policy: &Policy) -> &'static LimitCounters {
    let name = policy.shown_name();
    find(name).unwrap_or_else(|| add(name))
}

/// Returns the counters of a name, if there are any.
pub(super) fn find(name: PolicyName) -> Option<&'static LimitCounters> {
    let limits = LIMITS.load();
    limits.find(name.hash(), |(known, _)| *known == name).map(|(_, counters)| *counters)
}

/// Returns the callers that a limit has refused in this window of time.
pub(crate) fn refused_within(limit: &str, window: TimeWindow) -> Vec<(Caller, RefusalCount)> {
    let known = all().into_iter().find(|known| known.name == limit);
    let sketches = known.iter().flat_map(|known| &known.of_threads).map(|counts| &counts.refused);
    callers_within(sketches, window)
}

/// Returns the counters of all limits.
pub(super) fn all() -> Vec<&'static LimitCounters> {
    LIMITS.load().iter().map(|(_, counters)| *counters).collect()
}

/// A permit of a call in flight, as long as it is held.
pub(crate) struct CountedPermit(&'static LimitCounters);

impl CountedPermit {
    pub(crate) fn new(counters: &'static LimitCounters) -> Self {
        counters.permits.fetch_add(1, Ordering::Relaxed);
        Self(counters)
    }
}

impl Drop for CountedPermit {
    fn drop(&mut self) {
        self.0.permits.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cold]
fn add(name: PolicyName) -> &'static LimitCounters {
    static ADDING: Mutex<()> = Mutex::new(());

    let _adding = ADDING.lock();
    // Another thread may have added it since.
    if let Some(counters) = find(name) {
        return counters;
    }
    let counters = LimitCounters { name: name.text(), ..LimitCounters::default() };
    let counters = Box::leak(Box::new(counters));
    let mut limits = HashTable::clone(&LIMITS.load());
    limits.insert_unique(name.hash(), (name, counters), |(name, _)| name.hash());
    LIMITS.store(Arc::new(limits));
    counters
}

/// Returns the place of this thread's counts.
#[inline(always)]
fn place() -> usize {
    thread_local! {
        /// The number of the thread, from 1 on; 0 before its first call.
        static THREAD: Cell<usize> = const { Cell::new(0) };
    }
    #[cold]
    fn number() -> usize {
        static THREADS: AtomicUsize = AtomicUsize::new(0);
        THREAD.set(THREADS.fetch_add(1, Ordering::Relaxed) + 1);
        THREAD.get()
    }
    let known = THREAD.get();
    (if known > 0 { known } else { number() }) % PLACES
}

impl LimitCounters {
    /// Returns the counts of this thread.
    #[inline(always)]
    pub(crate) fn of_thread(&self) -> &CallCounts {
        &self.of_threads[place()]
    }

    /// Counts a call.
    #[inline]
    pub(crate) fn count(&'static self, verdict: Verdict, decided_by: DecidedBy) {
        let calls = &self.of_thread().calls[verdict as usize][decided_by as usize];
        calls.fetch_add(1, Ordering::Relaxed);
        metrics::decided(self.name, &self.metrics, verdict, decided_by);
    }

    /// Counts a call that a dry run would have refused by the place of its caller among 100.
    pub(crate) fn count_left_out(&self, place: u8) {
        self.left_out.as_flattened()[usize::from(place)].fetch_add(1, Ordering::Relaxed);
    }

    /// Records the share of the limit under which this process has decided a call alone, in
    /// percent.
    pub(crate) fn record_local_share(&self, percent: u8) {
        self.local_share.store(percent, Ordering::Relaxed);
    }

    /// Counts the units of a call that was [counted](Self::count).
    #[inline]
    pub(crate) fn count_units(&self, verdict: Verdict, units: u32) {
        if units != 1 {
            let further = u64::from(units).wrapping_sub(1);
            let units = &self.of_thread().further_units[verdict as usize];
            units.fetch_add(further, Ordering::Relaxed);
        }
    }

    /// Counts the tier that refused a call, and the share that the call's caller has used. The call
    /// is not yet [counted](Self::count).
    #[inline]
    pub(super) fn count_numbers(&self, policy: &Policy, verdict: Verdict, numbers: &Outcome) {
        match verdict {
            Verdict::Admitted if self.of_thread().is_sample_due() => {
                self.sample(policy, numbers.tier, numbers.remaining);
            }
            Verdict::Refused => self.count_refusal(numbers.tier),
            Verdict::WouldHaveRefused if !numbers.is_busy() => self.use_up(),
            _ => {}
        }
    }

    /// Samples a call: its policy, and the share that its caller has used of a tier. The call is
    /// not yet [counted](Self::count).
    #[cold]
    pub(crate) fn sample(&self, policy: &Policy, tier: u8, remaining: u32) {
        let counts = self.of_thread();
        counts.next_sample.store(counts.admitted() + CALLS_PER_SAMPLE, Ordering::Relaxed);
        let quota = policy.quota_of(policy.tier_of(tier));
        let left = u64::from(remaining) * u64::from(WHOLE) / u64::from(quota.max(1));
        let used = WHOLE.saturating_sub(u32::try_from(left).unwrap_or(WHOLE));
        self.used.fetch_max(used, Ordering::Relaxed);
        if let Some(mut recent) = self.recent.try_lock() {
            *recent = Some(*policy);
        }
    }

    /// Counts the tier that refused a call: it is used up.
    #[inline]
    pub(crate) fn count_refusal(&self, tier: u8) {
        if tier > 0 {
            let refused = &self.of_thread().refused_by_further[usize::from(tier) - 1];
            refused.fetch_add(1, Ordering::Relaxed);
        }
        self.use_up();
    }

    /// Records that a caller has used all of its quota.
    #[inline]
    fn use_up(&self) {
        if self.used.load(Ordering::Relaxed) < WHOLE {
            self.used.store(WHOLE, Ordering::Relaxed);
        }
    }
}

impl CallCounts {
    /// Returns `true` if the next call is to be sampled. Most calls are admitted without reading
    /// what is left: it is read for one of a thread's sixteen admitted calls, the first among them.
    #[inline]
    pub(crate) fn is_sample_due(&self) -> bool {
        self.admitted() >= self.next_sample.load(Ordering::Relaxed)
    }

    /// Returns the admitted calls that a store has counted.
    #[inline]
    fn admitted(&self) -> u64 {
        let admitted = &self.calls[Verdict::Admitted as usize];
        let of = |decided_by| admitted[decided_by as usize].load(Ordering::Relaxed);
        of(DecidedBy::Store) + of(DecidedBy::Lease) + of(DecidedBy::Fallback)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::Limiter;

    #[tokio::test]
    async fn a_refused_call_is_a_sample_too() {
        let limiter = Limiter::in_memory();
        let threshold = u32::try_from(CALLS_PER_SAMPLE).unwrap();
        let policy = Policy::fixed_window("samples", Duration::from_secs(3_600), threshold);
        for _ in 0..CALLS_PER_SAMPLE {
            limiter.check(&policy, "alice").await.unwrap();
        }
        let is_due = || counters_of(&policy).of_thread().is_sample_due();
        assert!(is_due());
        limiter.check(&policy, "alice").await.unwrap_err();
        assert!(!is_due());
    }
}
