//! Calls without a caller, and the limits that have received one.

use std::sync::atomic::Ordering;

use super::{LimitCounters, limits, metrics};
use crate::policy::PolicyName;

/// Records a call without a caller, in the metrics if `is_enabled`. The first one of each limit is
/// logged.
pub(crate) fn without_caller(limit: &'static LimitCounters, is_enabled: bool) {
    if is_enabled {
        metrics::without_caller(limit.name, &limit.metrics);
    }
    let is_known = limit.is_without_caller.load(Ordering::Relaxed);
    if !is_known && !limit.is_without_caller.swap(true, Ordering::Relaxed) {
        tracing::error!(
            policy = limit.name,
            "called without a `key`, and outside `caller::scope` and identity layers: all such calls share one bucket; \
             add `IdentityLayer` (axum, tower, tonic) or `IdentityMiddleware` (actix-web) around the service, or a `key`"
        );
    }
}

/// Logs the first request of each limit that is refused because it passed no identity layer.
#[cfg(any(feature = "actix", feature = "tower"))]
pub(crate) fn refused_without_caller(limit: &LimitCounters) {
    if !limit.is_refusal_logged.swap(true, Ordering::Relaxed) {
        tracing::error!(
            policy = limit.name,
            "requests refused: they passed no layer that identifies their callers; add `IdentityLayer` (axum, tower, \
             tonic) or `IdentityMiddleware` (actix-web) further out, or set `identity` or `on_missing` of this limit's layer"
        );
    }
}

/// Returns `true` once a call of this limit came without a caller.
pub(crate) fn shares_one_bucket(policy: &'static str) -> bool {
    let limit = limits::find(PolicyName::new(policy));
    limit.is_some_and(|limit| limit.is_without_caller.load(Ordering::Relaxed))
}
