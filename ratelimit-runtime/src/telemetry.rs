//! Telemetry: the one place that records decisions, as events, metrics and stats.
//!
//! Each decision is an event at debug. The feature `metrics` counts them. Both name the policy and
//! never the caller; an event carries a digest of the caller if the limiter has a secret for it.
//!
//! Floor 4: imports `error`, `policy` and `request`. Backends, `limiter` and `web` import it.

#[cfg(feature = "metrics")]
mod metrics;
mod override_problems;
mod per_policy;
pub mod stats;
mod waiting;
mod without_caller;

use std::time::Duration;

use once_cell::sync::OnceCell;
use tokio::time::Instant;
use tracing::Level;

#[cfg(any(feature = "actix", feature = "tower"))]
pub(crate) use self::without_caller::refused_without_caller;
pub(crate) use self::{
    override_problems::{KINDS, ProblemCounts, SOURCES, count_override_problems},
    waiting::Waiting,
    without_caller::{shares_one_bucket, without_caller},
};
use crate::{
    error::{RateLimitError, UnavailableReason},
    policy::Policy,
    request::{DecidedBy, Outcome},
};

/// Returns `true` if the duration and the numbers of each check are recorded: events at debug or the
/// stats are enabled.
#[inline]
pub(crate) fn is_timed(is_enabled: bool) -> bool {
    is_enabled && (stats::is_enabled() || tracing::enabled!(Level::DEBUG))
}

/// The recorder of one check.
#[derive(Clone, Copy)]
pub(crate) struct Recorder<'a> {
    /// `false` if the limiter's decisions are not recorded: see
    /// [`LimiterBuilder::instrument`](crate::LimiterBuilder::instrument).
    is_enabled: bool,
    /// The start of the check, if its duration is recorded.
    start: Option<Instant>,
    counters: Option<&'a PolicyCounters>,
}

/// The counters of one policy's name, kept where calls of this name come from: they are looked up
/// once.
#[derive(Default)]
pub(crate) struct PolicyCounters {
    #[cfg(feature = "metrics")]
    decisions: OnceCell<&'static metrics::Decisions>,
    without_caller: OnceCell<&'static without_caller::WithoutCaller>,
}

impl<'a> Recorder<'a> {
    /// Creates the recorder of a check that starts now. The clock is read only if the check is
    /// [timed](is_timed).
    #[inline]
    pub(crate) fn new(is_enabled: bool, counters: Option<&'a PolicyCounters>) -> Self {
        Self { is_enabled, start: is_timed(is_enabled).then(Instant::now), counters }
    }

    /// Creates the recorder of a check that is not [timed](is_timed).
    #[inline]
    pub(crate) fn untimed(is_enabled: bool, counters: Option<&'a PolicyCounters>) -> Self {
        Self { is_enabled, start: None, counters }
    }

    /// Counts a decision in the metrics: all that [`record`](Self::record) does of an untimed check.
    #[inline]
    pub(crate) fn count(self, policy: &Policy, verdict: Verdict, decided_by: DecidedBy) {
        #[cfg(feature = "metrics")]
        if self.is_enabled {
            metrics::decided(policy, self.counters, verdict, decided_by);
        }
        let _ = (policy, verdict, decided_by, self.counters);
    }

    /// Records a decision, or that there is none. Events have the caller's digest and how long the call has
    /// waited.
    #[inline]
    pub(crate) fn record(
        self,
        policy: &Policy,
        is_dry_run: bool,
        outcome: Result<Outcome, UnavailableReason>,
        caller: impl FnOnce() -> Option<String>,
        waited: impl FnOnce() -> Duration,
    ) {
        if self.start.is_some() || (cfg!(feature = "metrics") && self.is_enabled) {
            self.record_outcome(policy, is_dry_run, outcome, caller, waited);
        }
    }

    /// Records that a call waits: until its turn, which comes after `wait`, or for a permit.
    pub(crate) fn record_wait(
        self,
        policy: &Policy,
        wait: impl FnOnce() -> Option<Duration>,
        caller: impl FnOnce() -> Option<String>,
    ) {
        if self.start.is_some() && tracing::enabled!(Level::DEBUG) {
            tracing::debug!(
                policy = policy.name(),
                algorithm = policy.algorithm().as_str(),
                caller = caller(),
                wait = wait().map(tracing::field::debug),
                "rate limit call waits"
            );
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
        self.count_in_all(policy, verdict, DecidedBy::Limiter, None);
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

    fn count_in_all(
        self,
        policy: &Policy,
        verdict: Verdict,
        decided_by: DecidedBy,
        outcome: Option<Outcome>,
    ) {
        self.count(policy, verdict, decided_by);
        stats::record(policy, verdict, decided_by, outcome);
    }

    /// Inlined, it would lengthen the path of calls that are not recorded.
    #[inline(never)]
    fn record_outcome(
        self,
        policy: &Policy,
        is_dry_run: bool,
        outcome: Result<Outcome, UnavailableReason>,
        caller: impl FnOnce() -> Option<String>,
        waited: impl FnOnce() -> Duration,
    ) {
        let (verdict, decided_by) = match outcome {
            Ok(outcome) if outcome.admitted => (Verdict::Admitted, outcome.decided_by),
            Ok(outcome) if is_dry_run => (Verdict::WouldHaveRefused, outcome.decided_by),
            Ok(outcome) if outcome.is_busy => (Verdict::Busy, outcome.decided_by),
            Ok(outcome) => (Verdict::Refused, outcome.decided_by),
            Err(_) if is_dry_run => (Verdict::WouldHaveRefused, DecidedBy::Nobody),
            Err(_) => (Verdict::Unavailable, DecidedBy::Nobody),
        };
        let numbers = outcome.ok().filter(|outcome| !outcome.is_busy);
        self.count_in_all(policy, verdict, decided_by, numbers);
        let Some(elapsed) = self.start.map(|start| start.elapsed()) else { return };
        let (verdict, decided_by) = (verdict.as_str(), decided_by.as_str());
        let algorithm = policy.algorithm().as_str();
        let caller = tracing::enabled!(Level::DEBUG).then(caller).flatten();
        let waited = Some(waited()).filter(|waited| !waited.is_zero()).map(tracing::field::debug);
        match outcome {
            Ok(decided) => tracing::debug!(
                policy = policy.name(),
                algorithm,
                caller,
                tier = decided.tier,
                outcome = verdict,
                remaining = decided.remaining,
                wait = ?Duration::from(decided.wait),
                waited,
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
                waited,
                decided_by,
                ?elapsed,
                "rate limit not decided"
            ),
        }
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
    /// The call was refused: all permits of its caller's calls in flight are held.
    Busy,
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
        Self::Busy,
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
            Self::Busy => "busy",
            Self::WouldHaveRefused => "would_have_refused",
            Self::Unavailable => "unavailable",
            Self::TooLarge => "too_large",
            Self::InvalidPolicy => "invalid_policy",
        }
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

/// A command that could not be sent to Redis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg(feature = "redis")]
pub(crate) enum Unsent {
    /// The settle of a call.
    Settle,
    /// The release of a permit.
    Release,
    /// The place in a line that a dropped call leaves.
    Leave,
}

#[cfg(feature = "redis")]
impl Unsent {
    /// Returns the value of the field `command` in events and metrics.
    const fn as_str(self) -> &'static str {
        match self {
            Self::Settle => "settle",
            Self::Release => "release",
            Self::Leave => "leave",
        }
    }
}

/// Counts a command that could not be sent.
#[cfg(feature = "redis")]
pub(crate) fn unsent(policy: &'static str, command: Unsent) {
    #[cfg(feature = "metrics")]
    metrics::unsent(policy, command.as_str());
    let _ = (policy, command);
}

/// Logs how many commands could not be sent since the last time, with the policy and the failure of one.
#[cfg(feature = "redis")]
pub(crate) fn tell_unsent(
    unsent: usize,
    policy: &'static str,
    command: Unsent,
    reason: Option<UnavailableReason>,
) {
    tracing::warn!(
        unsent,
        policy,
        command = command.as_str(),
        reason = reason.map(tracing::field::display),
        advice = reason.map(UnavailableReason::advice),
        "rate limit commands could not be sent to Redis, calls stay charged with what they reserved, and their permits held until they expire"
    );
}

/// Records permits of calls in flight that other calls have taken on Redis.
#[cfg(feature = "redis")]
pub(crate) fn permits_lost(policy: &'static str, permits: u64) {
    #[cfg(feature = "metrics")]
    metrics::permits_lost(policy, permits);
    tracing::warn!(
        policy,
        permits,
        "calls in flight have lost their permits: they were not renewed in time, or the store lost them"
    );
}

/// Records that a server's circuit breaker opened or closed.
pub(crate) fn server_is_up(server: &str, is_up: bool) {
    #[cfg(feature = "metrics")]
    metrics::server_is_up(server, is_up);
    let _ = (server, is_up);
}
