//! Calls without a caller, and the limits that have received one.

use std::sync::atomic::{AtomicBool, Ordering};

use once_cell::sync::Lazy;
#[cfg(feature = "metrics")]
use {::metrics::Counter, once_cell::sync::OnceCell};

#[cfg(feature = "metrics")]
use super::metrics;
use super::{PolicyCounters, per_policy::PerPolicy};
use crate::policy::{Policy, PolicyName};

static LIMITS: Lazy<PerPolicy<WithoutCaller>> = Lazy::new(PerPolicy::default);

/// The calls of one limit without a caller.
#[derive(Default)]
pub(super) struct WithoutCaller {
    is_known: AtomicBool,
    #[cfg(any(feature = "actix", feature = "tower"))]
    is_refusal_known: AtomicBool,
    #[cfg(feature = "metrics")]
    calls: OnceCell<Counter>,
}

/// Records a call without a caller, in the metrics if `is_enabled`. The first one of each limit is logged.
pub(crate) fn without_caller(policy: &Policy, counters: Option<&PolicyCounters>, is_enabled: bool) {
    let limit = match counters {
        Some(counters) => *counters.without_caller.get_or_init(|| LIMITS.of(policy)),
        None => LIMITS.of(policy),
    };
    #[cfg(feature = "metrics")]
    if is_enabled {
        metrics::without_caller(policy.name(), &limit.calls);
    }
    let _ = is_enabled;
    let is_known = limit.is_known.load(Ordering::Relaxed);
    if !is_known && !limit.is_known.swap(true, Ordering::Relaxed) {
        tracing::error!(
            policy = policy.name(),
            "called without a `key`, and outside `caller::scope` and identity layers: all such calls share one bucket; \
             add `IdentityLayer` (axum, tower, tonic) or `IdentityMiddleware` (actix-web) around the service, or a `key`"
        );
    }
}

/// Logs the first request of each limit that is refused because it passed no identity layer.
#[cfg(any(feature = "actix", feature = "tower"))]
pub(crate) fn refused_without_caller(policy: &Policy) {
    if !LIMITS.of(policy).is_refusal_known.swap(true, Ordering::Relaxed) {
        tracing::error!(
            policy = policy.name(),
            "requests refused: they passed no layer that identifies their callers; add `IdentityLayer` (axum, tower, \
             tonic) or `IdentityMiddleware` (actix-web) further out, or set `identity` or `on_missing` of this limit's layer"
        );
    }
}

/// Returns `true` once a call of this limit came without a caller.
pub(crate) fn shares_one_bucket(policy: &'static str) -> bool {
    LIMITS.find(PolicyName::new(policy)).is_some_and(|limit| limit.is_known.load(Ordering::Relaxed))
}
