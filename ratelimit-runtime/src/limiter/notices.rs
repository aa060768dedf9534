//! Log entries that every call of a limit would repeat. Their number is bounded for each limit.

use std::{collections::HashMap, mem, time::Duration};

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::{
    error::RateLimitError,
    policy::{InvalidPolicy, Policy},
};

/// The pause between two log lines of one dry run.
const PAUSE: Duration = Duration::from_secs(60);

/// The fewest units for which a lease saves commands.
const UNITS_OF_LEASE: u64 = 10;

/// The notices of a limiter's limits, by their names.
#[derive(Default)]
pub(super) struct Notices(Mutex<HashMap<&'static str, Notice>>);

#[derive(Default)]
struct Notice {
    /// `true` once it was logged that the policy breaks a rule.
    is_invalid: bool,
    /// `true` once it was logged that a lease has few units.
    has_small_lease: bool,
    dry_run: Option<DryRun>,
}

/// The refusals of a dry run that are not logged yet.
struct DryRun {
    logged: Instant,
    /// The number of calls since then.
    calls: u64,
}

impl Notices {
    /// Logs that a policy breaks a rule, once for each limit.
    pub(super) fn invalid_policy(&self, error: &InvalidPolicy) {
        if self.change(error.policy(), |notice| !mem::replace(&mut notice.is_invalid, true)) {
            tracing::error!(
                policy = error.policy(),
                rule = %error.fault(),
                "a rate limit's policy breaks a rule, and cannot decide its calls"
            );
        }
    }

    /// Logs that few units come free during a lease of the policy, once for each limit.
    pub(super) fn lease_of_few_units(&self, policy: &Policy) {
        let Some(units) = policy.units_of_lease().filter(|units| *units < UNITS_OF_LEASE) else {
            return;
        };
        if self.change(policy.name(), |notice| !mem::replace(&mut notice.has_small_lease, true)) {
            tracing::warn!(
                policy = policy.name(),
                units,
                "a rate limit's lease is for higher thresholds: so few units come free during one that \
                 most calls ask Redis; remove `lease`"
            );
        }
    }

    /// Logs the number of calls that would have been refused without the dry run, once a minute for each
    /// limit.
    pub(super) fn would_have_refused(&self, policy: &'static str, error: &RateLimitError) {
        let now = Instant::now();
        let calls = self.change(policy, |notice| match &mut notice.dry_run {
            Some(before) if now.saturating_duration_since(before.logged) < PAUSE => {
                before.calls += 1;
                None
            }
            before => {
                let calls = before.as_ref().map_or(0, |before| before.calls) + 1;
                *before = Some(DryRun { logged: now, calls: 0 });
                Some(calls)
            }
        });
        if let Some(calls) = calls {
            tracing::info!(policy, calls, latest = %error, "dry run: calls would have been refused");
        }
    }

    /// Subscribers run after this and without the lock: they may have limits themselves.
    fn change<T>(&self, policy: &'static str, change: impl FnOnce(&mut Notice) -> T) -> T {
        let mut notices = self.0.lock();
        change(notices.entry(policy).or_default())
    }
}
