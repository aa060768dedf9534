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
    /// The time of the last entry about the dry run, and the calls since then that it would have
    /// refused.
    dry_run_logged: Option<Instant>,
    would_be_refused: u64,
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

    /// Logs the number of calls that would have been refused without the dry run, once a minute for
    /// each limit.
    pub(super) fn would_have_refused(&self, policy: &'static str, error: &RateLimitError) {
        let now = Instant::now();
        let calls = self.change(policy, |notice| {
            notice.would_be_refused += 1;
            let is_over = |at: Instant| now.saturating_duration_since(at) >= PAUSE;
            notice.dry_run_logged.is_none_or(is_over).then(|| {
                notice.dry_run_logged = Some(now);
                mem::take(&mut notice.would_be_refused)
            })
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
