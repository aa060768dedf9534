//! Counts of calls by limit, for admin pages, health checks and tests.
//!
//! [`snapshot`] returns the counts of all limits that were called since the process started, of all
//! its limiters, including checks by hand. Callers are not named here: see
//! [`Limiter::refused_callers`].
//!
//! ```
//! use std::time::Duration;
//! use ratelimit_runtime::{DecidedBy, Limiter, Policy, stats::{self, Verdict, TimeWindow}};
//!
//! const LOGIN: Policy = Policy::sliding_window("login", Duration::from_secs(60), 4);
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! let limiter = Limiter::in_memory();
//! limiter.check(&LOGIN, "alice").cost(3).await.unwrap();
//! limiter.check(&LOGIN, "alice").cost(3).await.unwrap_err();
//!
//! let login = stats::snapshot().into_iter().find(|limit| limit.name() == "login").unwrap();
//! assert_eq!(login.calls(Verdict::Admitted, DecidedBy::Store), 1);
//! assert_eq!(login.units(Verdict::Admitted), 3);
//! assert_eq!(login.refused_within(TimeWindow::Hour), 1);
//! assert_eq!(login.max_used_share(), 1.0);
//! # }
//! ```
//!
//! Each decision adds to one or two counters without a lock. To plot rates, take snapshots and
//! subtract. To export counts to a monitoring system, use the feature `metrics` instead. Calls of a
//! limiter without [`instrument`](crate::LimiterBuilder::instrument) are not counted.
//!
//! [`Limiter::refused_callers`]: crate::Limiter::refused_callers

use std::{
    array,
    sync::atomic::{AtomicI64, AtomicU64, Ordering},
    time::Duration,
};

use parking_lot::Mutex;

pub use super::{Verdict, refused::TimeWindow};
use super::{
    limits::{self, CallCounts, DECIDERS, FURTHER_TIERS, LimitCounters, VERDICTS, WHOLE},
    override_problems,
};
use crate::{policy::Policy, request::DecidedBy, time};

/// The time for which the largest used share is kept, at the least.
const MINUTE: Duration = Duration::from_secs(60);

/// Returns the counts of the limits that were called, by name.
#[must_use]
pub fn snapshot() -> Vec<PolicyStats> {
    let limits = limits::all();
    forget_shares(&limits);
    let called = limits.into_iter().filter(|limit| limit.is_called());
    let mut limits: Vec<_> = called.map(PolicyStats::of).collect();
    limits.sort_by_key(PolicyStats::name);
    limits
}

/// Returns the number of overrides that change no limit, of all limiters of the process.
/// [`Overrides::problems`](crate::Overrides::problems) names them.
///
/// ```
/// use ratelimit_runtime::{Limiter, Override, stats};
///
/// # fn main() -> Result<(), ratelimit_runtime::overrides::OverrideError> {
/// let limiter = Limiter::in_memory();
/// limiter.overrides().here().set("serach", Override::new().threshold(50))?;
/// assert_eq!(stats::override_problems(), 1);
/// # Ok(())
/// # }
/// ```
#[must_use]
pub fn override_problems() -> u64 {
    override_problems::total()
}

/// The counts of one limit at one moment.
#[derive(Clone, Debug)]
pub struct PolicyStats {
    name: &'static str,
    calls: [[u64; DECIDERS]; VERDICTS],
    units: [u64; VERDICTS],
    refused_by_tier: Vec<u64>,
    refused_within: [u64; TimeWindow::ALL.len()],
    left_out: [u64; 100],
    policy: Option<Policy>,
    local_share: Option<u8>,
    max_used_share: f64,
    permits_held: u64,
    waiting: u64,
    shares_one_bucket: bool,
}

impl PolicyStats {
    fn of(limit: &LimitCounters) -> Self {
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let now = |count: &AtomicI64| count.load(Ordering::Relaxed).try_into().unwrap_or(0);
        let calls = array::from_fn(|verdict| {
            array::from_fn(|decider| limit.sum(|counts| count(&counts.calls[verdict][decider])))
        });
        let further_units = |verdict| limit.sum(|counts| count(&counts.further_units[verdict]));
        let units_of =
            |verdict: usize| further_units(verdict).wrapping_add(calls[verdict].iter().sum());
        let further: [u64; FURTHER_TIERS] =
            array::from_fn(|tier| limit.sum(|counts| count(&counts.refused_by_further[tier])));
        let refused: u64 = calls[Verdict::Refused as usize].iter().sum();
        let by_first = refused.saturating_sub(further.iter().sum());
        Self {
            name: limit.name,
            calls,
            units: array::from_fn(units_of),
            refused_by_tier: [by_first].into_iter().chain(further).collect(),
            refused_within: [TimeWindow::Minute, TimeWindow::TenMinutes, TimeWindow::Hour]
                .map(|window| limit.sum(|counts| counts.refused.calls_within(window))),
            left_out: array::from_fn(|place| count(&limit.left_out.as_flattened()[place])),
            policy: *limit.recent.lock(),
            local_share: Some(limit.local_share.load(Ordering::Relaxed)).filter(|share| *share > 0),
            max_used_share: limit.max_used_share(),
            permits_held: now(&limit.permits),
            waiting: now(&limit.waiting),
            shares_one_bucket: limit.is_without_caller.load(Ordering::Relaxed),
        }
    }

    /// Returns the name of the policy; of a plan `api@pro`.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the number of calls with this verdict that `decided_by` decided.
    #[must_use]
    pub fn calls(&self, verdict: Verdict, decided_by: DecidedBy) -> u64 {
        self.calls[verdict as usize][decided_by as usize]
    }

    /// Returns the number of calls with this verdict.
    #[must_use]
    pub fn total(&self, verdict: Verdict) -> u64 {
        self.calls[verdict as usize].iter().sum()
    }

    /// Returns the units of the calls with this verdict, as they asked for them: a settle changes
    /// nothing.
    #[must_use]
    pub fn units(&self, verdict: Verdict) -> u64 {
        self.units[verdict as usize]
    }

    /// Returns the number of calls that the tier of this index refused: the one with the longest
    /// wait.
    #[must_use]
    pub fn refused_by_tier(&self, index: usize) -> u64 {
        self.refused_by_tier.get(index).copied().unwrap_or(0)
    }

    /// Returns the number of refused calls in this window of time: those with the verdicts
    /// [`Refused`](Verdict::Refused), [`Busy`](Verdict::Busy), [`Denied`](Verdict::Denied) and
    /// [`TooLarge`](Verdict::TooLarge).
    #[must_use]
    pub fn refused_within(&self, window: TimeWindow) -> u64 {
        self.refused_within[window as usize]
    }

    /// Returns the number of calls that passed in a dry run, and that the limit would have refused
    /// under [`enforce`](crate::Override::enforce) for this share of the callers, in percent. Calls
    /// that no store decided are none of them.
    #[must_use]
    pub fn would_have_refused_for(&self, percent: u8) -> u64 {
        self.left_out.iter().take(percent.into()).sum()
    }

    /// Returns the effective policy of a recent call: the first one, and later one of sixteen that
    /// are admitted. Its values are those of the call if its policy is dynamic, and of the override
    /// if there was one.
    #[must_use]
    pub fn policy(&self) -> Option<&Policy> {
        self.policy.as_ref()
    }

    /// Returns the share of the limit under which this process decided its latest call without
    /// Redis, in percent: that of [`OnStoreError::local`](crate::OnStoreError::local), or 100. None
    /// if it has decided no such call.
    #[must_use]
    pub fn local_share(&self) -> Option<u8> {
        self.local_share
    }

    /// Returns the largest share of a quota that a caller had used after a call, from 0.0 (nothing)
    /// to 1.0 (all). A refused caller counts as having used all, also if only a call with a smaller
    /// cost would pass.
    ///
    /// It covers the last minute or two, and more if nobody read it since. One of sixteen admitted
    /// calls is sampled, and each refused one.
    #[must_use]
    pub fn max_used_share(&self) -> f64 {
        self.max_used_share
    }

    /// Returns the permits of [`concurrency`](crate::Policy::concurrency) that calls of this
    /// process hold.
    #[must_use]
    pub fn permits_held(&self) -> u64 {
        self.permits_held
    }

    /// Returns the number of calls of this process that [wait](crate::Check::max_wait) in line.
    #[must_use]
    pub fn waiting(&self) -> u64 {
        self.waiting
    }

    /// Returns `true` once a call of this process came without a caller: without a `key`, and
    /// outside [`caller::scope`](crate::caller::scope) and identity layers. All such calls share
    /// one bucket.
    #[must_use]
    pub fn shares_one_bucket(&self) -> bool {
        self.shares_one_bucket
    }
}

impl LimitCounters {
    fn is_called(&self) -> bool {
        let mut calls = self.of_threads.iter().flat_map(|counts| counts.calls.as_flattened());
        self.is_without_caller.load(Ordering::Relaxed)
            || calls.any(|calls| calls.load(Ordering::Relaxed) > 0)
    }

    /// Returns the sum of a count over the threads. The units of calls may wrap around.
    fn sum(&self, count: impl Fn(&CallCounts) -> u64) -> u64 {
        self.of_threads.iter().map(count).fold(0, u64::wrapping_add)
    }

    fn max_used_share(&self) -> f64 {
        let used = self.used.load(Ordering::Relaxed).max(self.used_before.load(Ordering::Relaxed));
        f64::from(used) / f64::from(WHOLE)
    }
}

/// Ends the time for which the largest used shares are kept, at most once a minute: a page that
/// reads them each second takes nothing from an exporter.
fn forget_shares(limits: &[&LimitCounters]) {
    static FORGOTTEN: Mutex<Duration> = Mutex::new(Duration::ZERO);
    let now = time::uptime();
    let mut forgotten = FORGOTTEN.lock();
    if now.abs_diff(*forgotten) < MINUTE {
        return;
    }
    *forgotten = now;
    for limit in limits {
        limit.used_before.store(limit.used.swap(0, Ordering::Relaxed), Ordering::Relaxed);
    }
}
