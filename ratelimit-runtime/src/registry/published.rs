//! The limits of a program as its customers may know them.

use super::{RegisteredPolicy, policies};

/// A limit as customers may know it: without its key, its cost and its place in the source.
///
/// With the feature `overrides` it is serialized by serde. A number that comes with each call is
/// `None`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "overrides", derive(serde::Serialize))]
#[non_exhaustive]
pub struct PublishedLimit {
    /// The name, as it is in `RateLimit-Policy` and in errors.
    pub name: &'static str,
    /// The algorithm, as it is written in the attribute.
    pub algorithm: &'static str,
    /// The windows, all of which a call must pass.
    pub tiers: Vec<PublishedTier>,
    /// The [unit](crate::QuotaUnit) of the quota.
    pub unit: &'static str,
    /// The tokens of a full bucket, if they are not the threshold.
    pub burst: Option<u32>,
    /// The calls in flight at one time.
    pub concurrency: Option<u32>,
}

/// A window of a [`PublishedLimit`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "overrides", derive(serde::Serialize))]
#[non_exhaustive]
pub struct PublishedTier {
    /// The units in any one period.
    pub threshold: Option<u32>,
    /// The period in milliseconds.
    pub period_ms: Option<u64>,
}

/// Returns the limits of all annotated functions that refuse calls, sorted by name, for a page or a
/// document that customers read. Limits in a dry run are left out.
///
/// ```standalone_crate
/// use ratelimit_runtime::{RateLimitError, limits::published_limits, rate_limit};
///
/// #[rate_limit(name = "search", period = "1m", threshold = 30, key = user)]
/// async fn search(user: &str) -> Result<(), RateLimitError> {
///     Ok(())
/// }
///
/// let limits = published_limits();
/// assert_eq!(limits[0].name, "search");
/// assert_eq!(limits[0].tiers[0].threshold, Some(30));
/// assert_eq!(limits[0].tiers[0].period_ms, Some(60_000));
/// ```
#[must_use]
pub fn published_limits() -> Vec<PublishedLimit> {
    let declared = policies();
    let refusing = declared.iter().filter(|limit| !limit.is_dry_run());
    let mut limits: Vec<_> = refusing.map(PublishedLimit::of).collect();
    limits.dedup();
    limits
}

impl PublishedLimit {
    fn of(limit: &RegisteredPolicy) -> Self {
        let policy = limit.declared();
        // A value that comes with each call is 0 there.
        let known = |number: u32| Some(number).filter(|number| *number > 0);
        let tiers = policy.tiers().iter().map(|tier| PublishedTier {
            threshold: known(tier.threshold()),
            period_ms: Some(tier.micros().get() / 1_000).filter(|period| *period > 0),
        });
        Self {
            name: limit.name(),
            algorithm: policy.algorithm().as_str(),
            tiers: tiers.collect(),
            unit: policy.get_quota_unit().as_str(),
            burst: policy.get_burst().and_then(known),
            concurrency: policy.get_concurrency().and_then(known),
        }
    }
}
