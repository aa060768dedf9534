//! The decision of a call on the current span, which its subscriber exports: OpenTelemetry, or
//! lines of a log.
//!
//! `tracing` records a field only if the span was made with it. So a service chooses the spans.

use std::time::Duration;

use tracing::{Metadata, Span, dispatcher};

use super::Verdict;
use crate::{policy::Policy, request::DecidedBy};

/// Returns `true` if the current span has fields for decisions.
#[cold]
pub(super) fn has_fields() -> bool {
    dispatcher::get_default(|subscriber| {
        let fields = subscriber.current_span().metadata().map(Metadata::fields);
        fields.is_some_and(|it| it.iter().any(|field| field.name().starts_with("rate_limit.")))
    })
}

/// Records the answer to a call in those fields that the current span has, and the wait of one that
/// is refused.
#[cold]
pub(super) fn record(policy: &Policy, answer: (Verdict, DecidedBy), wait: Option<Duration>) {
    let (span, (verdict, decided_by)) = (Span::current(), answer);
    span.record("rate_limit.policy", policy.shown_name().text());
    span.record("rate_limit.decision", verdict.as_str());
    span.record("rate_limit.decided_by", decided_by.as_str());
    if let Some(wait) = wait {
        // Rounded up, because callers wait for it.
        let millis = wait.as_micros().div_ceil(1_000);
        span.record("rate_limit.wait_ms", u64::try_from(millis).unwrap_or(u64::MAX));
    }
}
