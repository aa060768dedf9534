//! What operators see of decisions: an event for each at debug, and, with the feature `metrics`, how
//! many there were. Both name the policy, and never who called: of that
//! an event has a digest, if it was asked for.

#[cfg(any(feature = "metrics", feature = "dashboard"))]
mod by_name;
#[cfg(feature = "metrics")]
mod metrics;
#[cfg(feature = "dashboard")]
pub(crate) mod stats;

use std::time::Duration;

use tokio::time::Instant;
use tracing::Level;

use crate::{
    error::{RateLimitError, UnavailableReason},
    policy::Policy,
    request::{DecidedBy, Outcome},
};

/// When a call was begun that somebody wants to see more of than to count it.
#[derive(Clone, Copy)]
pub(crate) struct Timer(Option<Instant>);

impl Timer {
    /// Now, if somebody listens: otherwise it costs a look at an atomic.
    #[inline]
    pub(crate) fn now() -> Self {
        let is_seen = is_tallied() || tracing::enabled!(Level::DEBUG);
        Self(is_seen.then(Instant::now))
    }

    /// Whether somebody listens. Who only counts calls asks for no more than the answer.
    #[inline]
    pub(crate) fn is_seen(self) -> bool {
        self.0.is_some()
    }

    /// Tells what came of the call, and what the one who `caller` is shall be called, if anything.
    #[inline]
    pub(crate) fn decided(
        self,
        policy: &Policy,
        outcome: &Result<Outcome, UnavailableReason>,
        is_rehearsed: bool,
        caller: impl FnOnce() -> Option<String>,
    ) {
        if cfg!(feature = "metrics") || self.is_seen() {
            tell(policy, outcome, is_rehearsed, caller, self.0);
        }
    }
}

impl Timer {
    /// Tells of a call that was refused by the limit's numbers alone.
    #[cold]
    pub(crate) fn turned_away(
        self,
        policy: &Policy,
        error: &RateLimitError,
        is_rehearsed: bool,
        caller: impl FnOnce() -> Option<String>,
    ) {
        let answer = match error {
            _ if is_rehearsed => Verdict::WouldHaveRefused,
            RateLimitError::InvalidPolicy(_) => Verdict::InvalidPolicy,
            _ => Verdict::TooLarge,
        };
        count(policy, answer, DecidedBy::Limiter, None);
        let Some(elapsed) = self.0.map(|begun| begun.elapsed()) else { return };
        tracing::debug!(
            policy = policy.name(),
            algorithm = policy.algorithm().as_str(),
            caller = tracing::enabled!(Level::DEBUG).then(caller).flatten(),
            outcome = answer.as_str(),
            reason = %error,
            decided_by = DecidedBy::Limiter.as_str(),
            ?elapsed,
            "rate limit not decided"
        );
    }
}

#[inline]
fn is_tallied() -> bool {
    #[cfg(feature = "dashboard")]
    return stats::is_kept();
    #[cfg(not(feature = "dashboard"))]
    false
}

/// What a call got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Admitted,
    Refused,
    /// A dry run admitted it.
    WouldHaveRefused,
    /// Not decided.
    Unavailable,
    /// The limit can never admit it.
    TooLarge,
    /// The limit breaks a rule.
    InvalidPolicy,
}

impl Verdict {
    #[cfg(any(feature = "metrics", feature = "dashboard"))]
    pub(crate) const ALL: [Self; 6] = [
        Self::Admitted,
        Self::Refused,
        Self::WouldHaveRefused,
        Self::Unavailable,
        Self::TooLarge,
        Self::InvalidPolicy,
    ];

    pub(crate) fn as_str(self) -> &'static str {
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

fn count(policy: &Policy, answer: Verdict, decided_by: DecidedBy, outcome: Option<&Outcome>) {
    #[cfg(feature = "metrics")]
    metrics::decided(policy.name(), answer, decided_by);
    #[cfg(feature = "dashboard")]
    stats::decided(policy, answer, decided_by, outcome);
    let _ = (policy, answer, decided_by, outcome);
}

fn tell(
    policy: &Policy,
    answer: &Result<Outcome, UnavailableReason>,
    is_rehearsed: bool,
    caller: impl FnOnce() -> Option<String>,
    begun: Option<Instant>,
) {
    let (outcome, decided_by) = match answer {
        Ok(outcome) if outcome.admitted => (Verdict::Admitted, outcome.decided_by),
        Ok(outcome) if is_rehearsed => (Verdict::WouldHaveRefused, outcome.decided_by),
        Ok(outcome) => (Verdict::Refused, outcome.decided_by),
        Err(_) if is_rehearsed => (Verdict::WouldHaveRefused, DecidedBy::Nobody),
        Err(_) => (Verdict::Unavailable, DecidedBy::Nobody),
    };
    count(policy, outcome, decided_by, answer.as_ref().ok());
    let Some(elapsed) = begun.map(|begun| begun.elapsed()) else { return };
    let (outcome, decided_by) = (outcome.as_str(), decided_by.as_str());
    let algorithm = policy.algorithm().as_str();
    let caller = tracing::enabled!(Level::DEBUG).then(caller).flatten();
    match answer {
        Ok(decided) => tracing::debug!(
            policy = policy.name(),
            algorithm,
            caller,
            tier = decided.tier,
            outcome,
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
            outcome,
            %reason,
            decided_by,
            ?elapsed,
            "rate limit not decided"
        ),
    }
}

/// A server was asked for a decision.
pub(crate) fn asked<T, E>(answer: &Result<T, E>, sent: Instant) {
    #[cfg(feature = "metrics")]
    metrics::asked(answer.is_ok(), sent.elapsed());
    let _ = (answer, sent);
}

/// The stores in memory hold so many keys and bytes more, or fewer.
#[inline]
pub(crate) fn memory_held(keys: i64, bytes: i64) {
    #[cfg(feature = "metrics")]
    {
        metrics::keys_held(keys);
        metrics::bytes_held(bytes);
    }
    let _ = (keys, bytes);
}

/// A call of the limit, which holds so much of a store in memory, found no room there; an event
/// only if it is the first in a while.
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

/// A server is left alone, or answers again.
pub(crate) fn server_is_up(server: &str, is_up: bool) {
    #[cfg(feature = "metrics")]
    metrics::server_is_up(server, is_up);
    let _ = (server, is_up);
}
