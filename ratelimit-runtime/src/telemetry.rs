//! Telemetry: the one place that records decisions, as events, metrics and stats.
//!
//! Each decision is an event at debug. The feature `metrics` counts them. Both name the policy and
//! never the caller; an event carries a digest of the caller if the limiter has a secret for it.
//!
//! Floor 4: imports `decision`, `error`, `policy` and `request`. Backends, `limiter` and `web`
//! import it.

#[cfg(all(test, feature = "metrics"))]
pub(crate) mod foreign_recorder;
mod held_back;
mod limits;
#[cfg(feature = "metrics")]
mod metrics;
#[cfg(not(feature = "metrics"))]
#[path = "telemetry/no_metrics.rs"]
mod metrics;
mod override_problems;
mod refused;
mod span;
pub mod stats;
mod waiting;
mod without_caller;

use std::{fmt, time::Duration};

use tokio::time::Instant;
use tracing::{Level, field, level_filters::LevelFilter};

#[cfg(feature = "metrics")]
pub(crate) use self::metrics::describe as describe_metrics;
#[cfg(any(feature = "actix", feature = "tower"))]
pub(crate) use self::without_caller::refused_without_caller;
pub(crate) use self::{
    held_back::{report, reports_later},
    limits::{CountedPermit, LimitCounters, counters_of, refused_within},
    metrics::{memory_held, server_is_up, store_answered},
    override_problems::{KINDS, ProblemCounts, SOURCES, count_override_problems},
    refused::RefusalCount,
    waiting::Waiting,
    without_caller::{shares_one_bucket, without_caller},
};
use crate::{
    decision::Decision,
    error::{RateLimitError, Replied, UnavailableReason},
    policy::Policy,
    request::{DecidedBy, Outcome},
};

/// Returns `true` if a subscriber sees the check: events at debug are enabled, or the current span
/// has a field for it. Without a subscriber it is one load.
#[inline]
pub(crate) fn is_traced(is_recorded: bool) -> bool {
    is_recorded && has_subscriber() && (is_timed() || span::has_fields())
}

/// Returns `true` if a subscriber receives spans.
fn has_subscriber() -> bool {
    LevelFilter::current() != LevelFilter::OFF
}

/// Returns `true` if each check is an event with its duration.
fn is_timed() -> bool {
    tracing::enabled!(Level::DEBUG)
}

/// The recorder of one check.
#[derive(Clone, Copy)]
pub(crate) struct Recorder {
    /// None if the limiter's decisions are not recorded: see
    /// [`LimiterBuilder::instrument`](crate::LimiterBuilder::instrument).
    limit: Option<&'static LimitCounters>,
    /// The start of the check, if its duration is recorded.
    start: Option<Instant>,
}

impl Recorder {
    /// Creates the recorder of a check that starts now. The clock is read only if the check is
    /// [timed](is_timed).
    #[inline]
    pub(crate) fn new(limit: Option<&'static LimitCounters>) -> Self {
        Self { limit, start: (limit.is_some() && is_timed()).then(Instant::now) }
    }

    /// Creates the recorder of a check that is not [traced](is_traced).
    pub(crate) fn untimed(limit: Option<&'static LimitCounters>) -> Self {
        Self { limit, start: None }
    }

    /// Records a decision about some units, or that there is none. Events have the caller's digest
    /// and how long the call has waited.
    #[inline]
    pub(crate) fn record(
        self,
        policy: &Policy,
        units: u32,
        is_dry_run: bool,
        outcome: &Replied<Outcome>,
        caller: impl FnOnce() -> Option<String>,
        waited: Duration,
    ) {
        let Some(limit) = self.limit else { return };
        let answer = match outcome {
            Ok(outcome) if outcome.admitted => (Verdict::Admitted, outcome.decided_by),
            Ok(outcome) if is_dry_run => (Verdict::WouldHaveRefused, outcome.decided_by),
            Ok(outcome) if outcome.is_busy() => (Verdict::Busy, outcome.decided_by),
            Ok(outcome) => (Verdict::Refused, outcome.decided_by),
            Err(_) if is_dry_run => (Verdict::WouldHaveRefused, DecidedBy::Nobody),
            Err(_) => (Verdict::Unavailable, DecidedBy::Nobody),
        };
        if let Ok(numbers) = outcome {
            limit.count_numbers(policy, answer.0, numbers);
        }
        limit.count(answer.0, answer.1);
        limit.count_units(answer.0, units);
        if has_subscriber() {
            let refused = outcome.ok().filter(|outcome| !outcome.admitted && !outcome.is_busy());
            span::record(policy, answer, refused.map(|outcome| outcome.wait.into()));
        }
        if let Some(start) = self.start {
            let outcome = outcome.as_ref().map_err(|reason| reason as &dyn fmt::Display);
            emit(policy, answer, outcome.copied(), caller().as_deref(), waited, start.elapsed());
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
                policy = policy.shown_name().text(),
                algorithm = policy.algorithm().as_str(),
                caller = caller(),
                wait = wait().map(field::debug),
                "rate limit call waits"
            );
        }
    }

    /// Records a call that was rejected without the store: it breaks a rule, its caller is denied,
    /// or it can never be admitted.
    #[cold]
    pub(crate) fn record_rejection(
        self,
        policy: &Policy,
        units: u32,
        is_dry_run: bool,
        error: &RateLimitError,
        caller: impl FnOnce() -> Option<String>,
    ) {
        let verdict = match error {
            _ if is_dry_run => Verdict::WouldHaveRefused,
            RateLimitError::InvalidPolicy(_) => Verdict::InvalidPolicy,
            RateLimitError::Denied(_) => Verdict::Denied,
            _ => Verdict::TooLarge,
        };
        let Some(limit) = self.limit else { return };
        limit.count(verdict, DecidedBy::Limiter);
        limit.count_units(verdict, units);
        let answer = (verdict, DecidedBy::Limiter);
        let wait = match error {
            RateLimitError::Denied(denied) => denied.retry_after(),
            _ => None,
        };
        span::record(policy, answer, wait);
        if let Some(start) = self.start {
            emit(policy, answer, Err(error), caller().as_deref(), Duration::ZERO, start.elapsed());
        }
    }
}

/// Emits the event of a call. An error is the reason why it was not decided.
#[cold]
fn emit(
    policy: &Policy,
    (verdict, decided_by): (Verdict, DecidedBy),
    outcome: Result<Outcome, &dyn fmt::Display>,
    caller: Option<&str>,
    waited: Duration,
    elapsed: Duration,
) {
    let (numbers, reason) = (outcome.ok(), outcome.err());
    let is_decided = if reason.is_some() { "not decided" } else { "decided" };
    tracing::debug!(
        policy = policy.shown_name().text(),
        algorithm = policy.algorithm().as_str(),
        caller,
        tier = numbers.map(|numbers| numbers.tier),
        outcome = verdict.as_str(),
        remaining = numbers.map(|numbers| numbers.remaining),
        wait = numbers.map(|numbers| field::debug(Duration::from(numbers.wait))),
        reason = reason.map(field::display),
        waited = Some(waited).filter(|waited| !waited.is_zero()).map(field::debug),
        decided_by = decided_by.as_str(),
        ?elapsed,
        "rate limit {is_decided}"
    );
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
    /// An override shuts the caller out.
    Denied,
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
        Self::Denied,
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
            Self::Denied => "denied",
            Self::TooLarge => "too_large",
            Self::InvalidPolicy => "invalid_policy",
        }
    }
}

/// Records a call that was not counted because memory is full. It is logged if `is_first` in a
/// while.
pub(crate) fn memory_full(policy: &'static str, is_first: bool, keys: usize, bytes: usize) {
    metrics::count("ratelimit_memory_full_total", &[("policy", policy)], 1);
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

/// Counts a command that could not be sent.
pub(crate) fn unsent(policy: &'static str, command: &'static str) {
    metrics::count("ratelimit_unsent_total", &[("policy", policy), ("command", command)], 1);
}

/// Logs how many commands could not be sent since the last time, with the policy, the failure and
/// the loss of one.
pub(crate) fn tell_unsent(
    unsent: usize,
    policy: &'static str,
    command: &'static str,
    loss: &'static str,
    reason: Option<UnavailableReason>,
) {
    tracing::warn!(
        unsent,
        policy,
        command,
        reason = reason.map(field::display),
        advice = reason.map(UnavailableReason::advice),
        "rate limit commands could not be sent to Redis, and after the last one {loss}"
    );
}

/// Records permits of calls in flight that other calls have taken on Redis.
pub(crate) fn permits_lost(policy: &'static str, permits: u64) {
    metrics::count("ratelimit_permits_lost_total", &[("policy", policy)], permits);
    tracing::warn!(
        policy,
        permits,
        "calls in flight have lost their permits: they were not renewed in time, or the store lost them"
    );
}

/// Logs a pause that only this process heeds, while it decides without Redis.
#[cfg(feature = "redis")]
pub(crate) fn pause_is_local(policy: &'static str, reason: UnavailableReason) {
    tracing::warn!(policy, %reason, "a pause could not be written: other processes do not heed it");
}

/// Records the answer that the candidate of a limit would have given, beside that of the limit.
pub(crate) fn candidate_decided(
    policy: &Policy,
    is_admitted: bool,
    would_admit: bool,
    caller: impl FnOnce() -> Option<String>,
) {
    let policy = policy.shown_name().text();
    let [outcome, candidate] = [is_admitted, would_admit]
        .map(|is| if is { Verdict::Admitted } else { Verdict::Refused }.as_str());
    let labels = [("policy", policy), ("outcome", outcome), ("candidate", candidate)];
    metrics::count("ratelimit_candidate_total", &labels, 1);
    if tracing::enabled!(Level::DEBUG) {
        let caller = caller();
        tracing::debug!(policy, caller, outcome, candidate, "rate limit candidate decided");
    }
}

/// Records that a caller has used most of a limit.
pub(crate) fn warned(decision: &Decision, percent: u8, caller: impl FnOnce() -> Option<String>) {
    let policy = decision.shown_name();
    metrics::count("ratelimit_warnings_total", &[("policy", policy)], 1);
    if tracing::enabled!(Level::INFO) {
        tracing::info!(
            policy,
            caller = caller(),
            percent,
            remaining = decision.remaining(),
            quota = decision.quota(),
            "limit nearly used up"
        );
    }
}
