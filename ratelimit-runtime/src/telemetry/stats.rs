//! Counts of calls by limit, for admin pages, health checks and tests.
//!
//! Counting starts with [`enable`]. [`snapshot`] returns the counts of all limits that were called
//! since then, of all limiters of the process, including checks by hand. No caller is named.
//!
//! ```
//! use std::time::Duration;
//! use ratelimit_runtime::{DecidedBy, Limiter, Policy, stats::{self, Verdict}};
//!
//! const LOGIN: Policy = Policy::sliding_window("login", Duration::from_secs(60), 4);
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), ratelimit_runtime::RateLimitError> {
//! stats::enable();
//! let limiter = Limiter::in_memory();
//! limiter.check(&LOGIN, "alice").await?;
//!
//! let login = stats::snapshot().into_iter().find(|limit| limit.name() == "login").unwrap();
//! assert_eq!(login.calls(Verdict::Admitted, DecidedBy::Store), 1);
//! assert_eq!(login.total(Verdict::Refused), 0);
//! assert_eq!(login.least_share_left(), Some(0.75));
//! assert_eq!(login.policy(), Some(&LOGIN));
//! # Ok(())
//! # }
//! ```
//!
//! Once enabled, each decision briefly takes a lock, one for each limit. To plot rates, take
//! snapshots and subtract. To export counts to a monitoring system, use the feature `metrics`
//! instead. Calls of a limiter without [`instrument`](crate::LimiterBuilder::instrument) are not
//! counted.

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use once_cell::sync::Lazy;
use tokio::time::Instant;

pub use super::Verdict;
use super::{override_problems, per_policy::PerPolicy, waiting, without_caller};
use crate::{
    policy::Policy,
    request::{DecidedBy, Outcome},
};

static IS_ENABLED: AtomicBool = AtomicBool::new(false);
static COUNTERS: Lazy<PerPolicy<Counters>> = Lazy::new(PerPolicy::default);

/// The resolution of [`PolicyStats::least_share_left`].
const SECOND: Duration = Duration::from_secs(1);

const VERDICTS: usize = Verdict::ALL.len();
const DECIDERS: usize = DecidedBy::ALL.len();

/// Starts counting, for the rest of the process.
pub fn enable() {
    IS_ENABLED.store(true, Ordering::Relaxed);
}

/// Returns the counts of the limits that were called since counting was [enabled](enable), by name.
#[must_use]
pub fn snapshot() -> Vec<PolicyStats> {
    let mut limits: Vec<_> =
        COUNTERS.all().into_iter().map(|(name, counters)| counters.snapshot(name)).collect();
    limits.sort_by_key(PolicyStats::name);
    limits
}

/// Returns the number of overrides that change no limit, of all limiters of the process, enabled or not.
/// [`Overrides::problems`](crate::Overrides::problems) names them.
///
/// ```
/// use ratelimit_runtime::{Limiter, Override, stats};
///
/// # fn main() -> Result<(), ratelimit_runtime::OverrideError> {
/// let limiter = Limiter::in_memory();
/// limiter.overrides().set("serach", Override::new().threshold(50))?;
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
    policy: Option<Policy>,
    least_share_left: Option<f64>,
    waiting: u64,
    shares_one_bucket: bool,
}

impl PolicyStats {
    /// Returns the name of the policy.
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

    /// Returns the effective policy of the latest call that was decided. Its values are those of the
    /// call if its policy is dynamic, and of the override if there was one.
    #[must_use]
    pub fn policy(&self) -> Option<&Policy> {
        self.policy.as_ref()
    }

    /// Returns the smallest share of a quota that was left after a call, from 0.0 (nothing) to 1.0
    /// (all). It covers this second and the one before; `None` if no call was decided in that time.
    #[must_use]
    pub fn least_share_left(&self) -> Option<f64> {
        self.least_share_left
    }

    /// Returns the number of calls of this process that [wait](crate::Check::max_wait) in line.
    #[must_use]
    pub fn waiting(&self) -> u64 {
        self.waiting
    }

    /// Returns `true` once a call of this process came without a caller: without a `key`, and outside
    /// [`caller::scope`](crate::caller::scope) and identity layers. All such calls share one bucket.
    #[must_use]
    pub fn shares_one_bucket(&self) -> bool {
        self.shares_one_bucket
    }
}

/// The counters of one limit.
#[derive(Default)]
struct Counters {
    calls: [[AtomicU64; DECIDERS]; VERDICTS],
    recent: Mutex<Recent>,
}

/// The latest calls of one limit. Reading does not reset it: there may be several readers.
#[derive(Default)]
struct Recent {
    policy: Option<Policy>,
    /// The start of the current second; seconds begin with the first call.
    second: Option<Instant>,
    least_left: Option<f64>,
    /// The same, of the second before.
    least_before: Option<f64>,
}

impl Recent {
    /// Drops the values of all seconds but the current one and the one before.
    fn advance(&mut self) {
        let now = Instant::now();
        let second = *self.second.get_or_insert(now);
        let passed = now.saturating_duration_since(second);
        if passed < SECOND {
            return;
        }
        let latest = self.least_left.take();
        (self.second, self.least_before) =
            if passed < 2 * SECOND { (Some(second + SECOND), latest) } else { (Some(now), None) };
    }
}

fn least(one: Option<f64>, other: Option<f64>) -> Option<f64> {
    one.into_iter().chain(other).reduce(f64::min)
}

impl Counters {
    fn snapshot(&self, name: &'static str) -> PolicyStats {
        let calls = self
            .calls
            .each_ref()
            .map(|calls| calls.each_ref().map(|count| count.load(Ordering::Relaxed)));
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        recent.advance();
        let least_share_left = least(recent.least_left, recent.least_before);
        let waiting = waiting::count(name);
        let shares_one_bucket = without_caller::shares_one_bucket(name);
        let policy = recent.policy;
        PolicyStats { name, calls, policy, least_share_left, waiting, shares_one_bucket }
    }
}

#[inline]
pub(super) fn is_enabled() -> bool {
    IS_ENABLED.load(Ordering::Relaxed)
}

/// Counts a call, if counting is enabled.
pub(super) fn record(
    policy: &Policy,
    verdict: Verdict,
    decided_by: DecidedBy,
    outcome: Option<Outcome>,
) {
    if !is_enabled() {
        return;
    }
    let counters = COUNTERS.of(policy);
    counters.calls[verdict as usize][decided_by as usize].fetch_add(1, Ordering::Relaxed);
    let left = outcome.map(|outcome| {
        let quota = policy.quota_of(policy.tier_of(outcome.tier));
        f64::from(outcome.remaining) / f64::from(quota.max(1))
    });
    let mut recent = counters.recent.lock().unwrap_or_else(PoisonError::into_inner);
    recent.advance();
    // An invalid policy decides nothing.
    if verdict != Verdict::InvalidPolicy && recent.policy != Some(*policy) {
        recent.policy = Some(*policy);
    }
    recent.least_left = least(recent.least_left, left);
}
