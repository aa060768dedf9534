//! What operators see of decisions: an event for each at debug. It names the policy, never who
//! called.

use std::time::Duration;

use tokio::time::Instant;
use tracing::Level;

use crate::{
    error::UnavailableReason,
    policy::Policy,
    store::{Outcome, Source},
};

/// When a call that somebody wants to see was begun.
#[derive(Clone, Copy)]
pub(crate) struct Begun(Option<Instant>);

impl Begun {
    /// Now, if somebody listens: otherwise it costs a look at an atomic.
    #[inline]
    pub(crate) fn now() -> Self {
        Self(tracing::enabled!(Level::DEBUG).then(Instant::now))
    }

    /// Tells what came of the call.
    #[inline]
    pub(crate) fn decided(
        self,
        policy: &Policy,
        outcome: &Result<Outcome, UnavailableReason>,
        is_rehearsed: bool,
    ) {
        if let Some(begun) = self.0 {
            tell(policy, outcome, is_rehearsed, begun.elapsed());
        }
    }
}

#[cold]
fn tell(
    policy: &Policy,
    answer: &Result<Outcome, UnavailableReason>,
    is_rehearsed: bool,
    elapsed: Duration,
) {
    let outcome = match answer {
        Ok(outcome) if outcome.admitted => "admitted",
        _ if is_rehearsed => "would_have_refused",
        Ok(_) => "refused",
        Err(_) => "unavailable",
    };
    let source = match answer {
        Ok(outcome) => outcome.source.as_str(),
        Err(_) => Source::Nobody.as_str(),
    };
    let algorithm = policy.algorithm().as_str();
    match answer {
        Ok(decided) => tracing::debug!(
            policy = policy.name(),
            algorithm,
            tier = decided.tier,
            outcome,
            remaining = decided.remaining,
            wait = ?Duration::from_micros(decided.wait),
            source,
            ?elapsed,
            "rate limit decided"
        ),
        Err(reason) => tracing::debug!(
            policy = policy.name(),
            algorithm,
            outcome,
            %reason,
            source,
            ?elapsed,
            "rate limit not decided"
        ),
    }
}
