//! Telemetry: the one place that records decisions, as events, metrics and stats.
//!
//! Each decision is an event at debug. The feature `metrics` counts them. Both name the policy and
//! never the caller; an event carries a digest of the caller if the limiter has a secret for it.
//!
//! Floor 4: imports `error`, `policy` and `request`. Backends, `limiter` and `web` import it.

#[cfg(feature = "metrics")]
mod metrics;
mod per_policy;
pub mod stats;

use std::time::Duration;

use tokio::time::Instant;
use tracing::Level;

use crate::{
    error::{RateLimitError, UnavailableReason},
    policy::Policy,
    request::{DecidedBy, Outcome},
};

/// The start of a check, if its duration is recorded.
#[derive(Clone, Copy)]
pub(crate) struct Timer {
    /// `false` if the limiter's decisions are not recorded: see
    /// [`LimiterBuilder::instrument`](crate::LimiterBuilder::instrument).
    is_enabled: bool,
    start: Option<Instant>,
}

impl Timer {
    /// Starts a timer if the check's timing and outcome are read: events at debug or the stats are
    /// enabled. Otherwise the clock is not read.
    #[inline]
    pub(crate) fn start(is_enabled: bool) -> Self {
        let is_read = is_enabled && (stats::is_enabled() || tracing::enabled!(Level::DEBUG));
        Self { is_enabled, start: is_read.then(Instant::now) }
    }

    /// Returns `true` if more than the admission is read of an admitted call.
    #[inline]
    pub(crate) fn is_running(self) -> bool {
        self.start.is_some()
    }

    /// Records a decision, or that there is none. `caller` is the caller's digest for events.
    #[inline]
    pub(crate) fn record(
        self,
        policy: &Policy,
        is_dry_run: bool,
        outcome: &Result<Outcome, UnavailableReason>,
        caller: impl FnOnce() -> Option<String>,
    ) {
        if self.is_running() || (cfg!(feature = "metrics") && self.is_enabled) {
            record(policy, is_dry_run, outcome, caller, self.start);
        }
    }

    /// Records a call that was rejected without the store: it breaks a rule, or can never be
    /// admitted.
    #[cold]
    pub(crate) fn record_rejection(
        self,
        policy: &Policy,
        is_dry_run: bool,
        error: &RateLimitError,
        caller: impl FnOnce() -> Option<String>,
    ) {
        if !self.is_enabled {
            return;
        }
        let verdict = match error {
            _ if is_dry_run => Verdict::WouldHaveRefused,
            RateLimitError::InvalidPolicy(_) => Verdict::InvalidPolicy,
            _ => Verdict::TooLarge,
        };
        count(policy, verdict, DecidedBy::Limiter, None);
        let Some(elapsed) = self.start.map(|start| start.elapsed()) else { return };
        tracing::debug!(
            policy = policy.name(),
            algorithm = policy.algorithm().as_str(),
            caller = tracing::enabled!(Level::DEBUG).then(caller).flatten(),
            outcome = verdict.as_str(),
            reason = %error,
            decided_by = DecidedBy::Limiter.as_str(),
            ?elapsed,
            "rate limit not decided"
        );
    }
}

/// The answer to a call, as stats, metrics and events name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Verdict {
    /// The call was admitted.
    Admitted,
    /// The call was refused: its quota is used up.
    Refused,
    /// The call passed in a dry run, and would have been refused.
    WouldHaveRefused,
    /// The store could not decide.
    Unavailable,
    /// The limit can never admit the call.
    TooLarge,
    /// The policy breaks a rule.
    InvalidPolicy,
}

impl Verdict {
    /// All variants.
    pub const ALL: &'static [Self] = &[
        Self::Admitted,
        Self::Refused,
        Self::WouldHaveRefused,
        Self::Unavailable,
        Self::TooLarge,
        Self::InvalidPolicy,
    ];

    /// Returns the value of the field `outcome` in events and metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Admitted => "admitted",
            Self::Refused => "refused",
            Self::WouldHaveRefused => "would_have_refused",
            Self::Unavailable => "unavailable",
            Self::TooLarge => "too_large",
            Self::InvalidPolicy => "invalid_policy",
        }
    }
}

fn count(policy: &Policy, verdict: Verdict, decided_by: DecidedBy, outcome: Option<&Outcome>) {
    #[cfg(feature = "metrics")]
    metrics::decided(policy, verdict, decided_by);
    stats::record(policy, verdict, decided_by, outcome);
}

fn record(
    policy: &Policy,
    is_dry_run: bool,
    outcome: &Result<Outcome, UnavailableReason>,
    caller: impl FnOnce() -> Option<String>,
    start: Option<Instant>,
) {
    let (verdict, decided_by) = match outcome {
        Ok(outcome) if outcome.admitted => (Verdict::Admitted, outcome.decided_by),
        Ok(outcome) if is_dry_run => (Verdict::WouldHaveRefused, outcome.decided_by),
        Ok(outcome) => (Verdict::Refused, outcome.decided_by),
        Err(_) if is_dry_run => (Verdict::WouldHaveRefused, DecidedBy::Nobody),
        Err(_) => (Verdict::Unavailable, DecidedBy::Nobody),
    };
    count(policy, verdict, decided_by, outcome.as_ref().ok());
    let Some(elapsed) = start.map(|start| start.elapsed()) else { return };
    let (verdict, decided_by) = (verdict.as_str(), decided_by.as_str());
    let algorithm = policy.algorithm().as_str();
    let caller = tracing::enabled!(Level::DEBUG).then(caller).flatten();
    match outcome {
        Ok(decided) => tracing::debug!(
            policy = policy.name(),
            algorithm,
            caller,
            tier = decided.tier,
            outcome = verdict,
            remaining = decided.remaining,
            wait = ?Duration::from(decided.wait),
            decided_by,
            ?elapsed,
            "rate limit decided"
        ),
        Err(reason) => tracing::debug!(
            policy = policy.name(),
            algorithm,
            caller,
            outcome = verdict,
            %reason,
            decided_by,
            ?elapsed,
            "rate limit not decided"
        ),
    }
}

/// Records the round trip of a decision on Redis.
pub(crate) fn store_answered<T, E>(answer: &Result<T, E>, sent: Instant) {
    #[cfg(feature = "metrics")]
    metrics::store_answered(answer.is_ok(), sent.elapsed());
    let _ = (answer, sent);
}

/// Records a change of the number of keys and bytes in memory.
#[inline]
pub(crate) fn memory_held(keys: i64, bytes: i64) {
    #[cfg(feature = "metrics")]
    {
        metrics::keys_held(keys);
        metrics::bytes_held(bytes);
    }
    let _ = (keys, bytes);
}

/// Records a call that was not counted because memory is full. It is logged if `is_first` in a while.
pub(crate) fn memory_full(policy: &'static str, is_first: bool, keys: usize, bytes: usize) {
    #[cfg(feature = "metrics")]
    metrics::memory_full(policy);
    if is_first {
        tracing::warn!(
            policy,
            keys,
            bytes,
            advice = UnavailableReason::StoreFull.advice(),
            "rate limit store in memory full, new callers of this limit are not counted"
        );
    }
}

/// Records that a server's circuit breaker opened or closed.
pub(crate) fn server_is_up(server: &str, is_up: bool) {
    #[cfg(feature = "metrics")]
    metrics::server_is_up(server, is_up);
    let _ = (server, is_up);
}
