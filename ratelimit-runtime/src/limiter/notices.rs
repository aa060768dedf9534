//! Logs that the calls of one limit would repeat, bounded for each limit.

use std::{
    collections::HashMap,
    mem,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use crate::{error::RateLimitError, policy::InvalidPolicy};

/// How long nothing is logged of a dry run after something was.
const PAUSE: Duration = Duration::from_secs(60);

/// The notices of a limiter's limits, by their names.
#[derive(Default)]
pub(super) struct Notices(Mutex<HashMap<&'static str, Notice>>);

#[derive(Default)]
struct Notice {
    /// Its policy broke a rule, and that was logged.
    is_invalid: bool,
    dry_run: Option<DryRun>,
}

/// The refusals of a dry run that are not logged yet.
struct DryRun {
    logged: Instant,
    /// The calls since then.
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

    /// Logs the calls that a dry run would have refused, once a minute for each limit.
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

    /// Subscribers are called after this, not in it: they may have limits themselves.
    fn change<T>(&self, policy: &'static str, change: impl FnOnce(&mut Notice) -> T) -> T {
        let mut notices = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        change(notices.entry(policy).or_default())
    }
}
