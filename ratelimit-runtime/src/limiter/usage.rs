//! The usage of a limit by one caller: all tiers, for pages that customers see.

use std::time::Duration;

use super::Limiter;
use crate::{
    caller::IntoCaller,
    error::{RateLimitError, Unavailable},
    overrides::Enforcement,
    policy::Policy,
    registry::{self, RegisteredPolicy},
};

/// A limit for [`Limiter::usage`]: the name of an annotated function's limit, its entry in the
/// registry, or a policy.
#[derive(Clone, Copy, Debug)]
pub struct LimitRef<'a>(Result<Declared, &'a str>);

/// A declared policy, and the expressions of its values that are known only at a call.
type Declared = (Policy, &'static [&'static str]);

impl<'a> From<&'a str> for LimitRef<'a> {
    fn from(name: &'a str) -> Self {
        Self(Err(name))
    }
}

impl<'a> From<&'a RegisteredPolicy> for LimitRef<'a> {
    fn from(limit: &'a RegisteredPolicy) -> Self {
        Self(Ok((*limit.declared(), limit.dynamic_args())))
    }
}

impl<'a> From<&'a Policy> for LimitRef<'a> {
    fn from(policy: &'a Policy) -> Self {
        Self(Ok((*policy, &[])))
    }
}

impl LimitRef<'_> {
    /// Returns the name of the limit, and the plan if one is named.
    #[cfg(feature = "testing")]
    pub(crate) fn limit_and_plan(self) -> Result<(&'static str, Option<&'static str>), UsageError> {
        match self.declared() {
            Ok((policy, _)) => Ok((policy.name(), policy.plan())),
            Err(UsageError::HasPlans { limit, .. }) => Ok((limit, None)),
            Err(error) => Err(error),
        }
    }

    fn declared(self) -> Result<Declared, UsageError> {
        let name = match self.0 {
            Ok(declared) => return Ok(declared),
            Err(name) => name,
        };
        let mut found = registry::policies();
        found.retain(|limit| limit.is_named(name));
        found.dedup_by_key(|limit| limit.name());
        Err(match &found[..] {
            [limit, ..] if limit.name() == name => return LimitRef::from(limit).declared(),
            [plan, ..] => UsageError::HasPlans {
                limit: plan.declared().name(),
                plans: found.iter().map(RegisteredPolicy::name).collect(),
            },
            [] => UsageError::UnknownLimit {
                limit: name.to_owned(),
                nearest: registry::nearest(name, &registry::names()),
            },
        })
    }
}

/// The usage of a limit by one caller, from [`Limiter::usage`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitUsage {
    policy: Policy,
    enforcement: Enforcement,
    tiers: Vec<TierUsage>,
    concurrency: Option<TierUsage>,
    blocked_for: Option<Duration>,
}

impl LimitUsage {
    /// Returns the effective policy: overrides apply.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Returns the usage of each tier, in the policy's order.
    #[must_use]
    pub fn tiers(&self) -> &[TierUsage] {
        &self.tiers
    }

    /// Returns the calls in flight, of a limit with [`concurrency`](Policy::concurrency).
    #[must_use]
    pub fn concurrency(&self) -> Option<&TierUsage> {
        self.concurrency.as_ref()
    }

    /// Returns the time for which the caller is still shut out by a [`block`](Policy::block); none
    /// if it is not. Until then its calls are refused, whatever is left in the tiers.
    ///
    /// ```
    /// use std::time::Duration;
    /// use ratelimit_runtime::{Limiter, Policy};
    ///
    /// const SEARCH: Policy = Policy::fixed_window("search", Duration::from_secs(60), 1)
    ///     .block(&[Duration::from_secs(120)]);
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limiter = Limiter::in_memory();
    /// limiter.check(&SEARCH, "alice").await?;
    /// assert_eq!(limiter.usage(&SEARCH, "alice").await?.blocked_for(), None);
    /// limiter.check(&SEARCH, "alice").await.unwrap_err();
    /// let usage = limiter.usage(&SEARCH, "alice").await?;
    /// assert!(usage.blocked_for() > Some(Duration::from_secs(119)));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn blocked_for(&self) -> Option<Duration> {
        self.blocked_for
    }

    /// Returns the enforcement that overrides set, else [`Enforcement::On`].
    #[must_use]
    pub fn enforcement(&self) -> Enforcement {
        self.enforcement
    }
}

/// The usage of one tier, in units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TierUsage {
    period: Duration,
    quota: u32,
    remaining: u32,
    reset_after: Duration,
}

impl TierUsage {
    fn new(period: Duration, quota: u32, remaining: u32, reset_after: Duration) -> Self {
        Self { period, quota, remaining: remaining.min(quota), reset_after }
    }

    /// Returns the length of the window; zero for calls in flight.
    #[must_use]
    pub fn period(&self) -> Duration {
        self.period
    }

    /// Returns the largest number of units that can be left: the threshold, or the burst of a token
    /// bucket.
    #[must_use]
    pub fn quota(&self) -> u32 {
        self.quota
    }

    /// Returns the units that are used: the rest of the quota.
    #[must_use]
    pub fn used(&self) -> u32 {
        self.quota - self.remaining
    }

    /// Returns the units that are left.
    #[must_use]
    pub fn remaining(&self) -> u32 {
        self.remaining
    }

    /// Returns the time until the full quota is back, without further calls.
    #[must_use]
    pub fn reset_after(&self) -> Duration {
        self.reset_after
    }
}

/// The error of [`Limiter::usage`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UsageError {
    /// No annotated function has a limit of this name.
    #[error("no annotated function has a limit named `{limit}`; {}", advice(*.nearest))]
    #[non_exhaustive]
    UnknownLimit {
        /// The name.
        limit: String,
        /// The name that was probably meant.
        nearest: Option<&'static str>,
    },
    /// The limit has plans, whose numbers differ.
    #[error(
        "rate limit `{limit}` has plans with other numbers; name one of `{}`",
        .plans.join("`, `")
    )]
    #[non_exhaustive]
    HasPlans {
        /// The name of the limit.
        limit: &'static str,
        /// The names of its plans, such as `api@pro`.
        plans: Vec<&'static str>,
    },
    /// Values of the limit come with each call: these expressions.
    #[error(
        "the values of rate limit `{limit}` come with each call, by {}; pass them by \
         `RegisteredPolicy::with_tiers`",
        .expressions.join(", ")
    )]
    #[non_exhaustive]
    Dynamic {
        /// The name of the limit.
        limit: &'static str,
        /// The expressions, as written.
        expressions: &'static [&'static str],
    },
    /// The caller is denied, the policy breaks a rule, or Redis does not answer.
    #[error(transparent)]
    Failed(#[from] RateLimitError),
}

/// Returns what to write instead of a name that no limit has.
fn advice(nearest: Option<&str>) -> String {
    let nearest = nearest.map(|nearest| format!("`{nearest}` is one"));
    nearest.unwrap_or_else(|| "pass the `Policy` of a check by hand".to_owned())
}

impl Limiter {
    /// Returns what `caller` has used of a limit and what is left, in each tier, and the rest of a
    /// [block](LimitUsage::blocked_for). It takes nothing. The limit is that of an annotated
    /// function, by its name or by [`policies_of`](crate::limits::policies_of), or a policy.
    ///
    /// ```
    /// use ratelimit_runtime::{Limiter, RateLimitError, limits::policies_of, rate_limit};
    ///
    /// #[rate_limit(
    ///     name = "mail",
    ///     tier(period = "1m", threshold = 2),
    ///     tier(period = "1h", threshold = 10),
    ///     key = user,
    ///     limiter = limiter
    /// )]
    /// async fn send_mail(limiter: &Limiter, user: &str) -> Result<(), RateLimitError> {
    ///     Ok(())
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limiter = Limiter::in_memory();
    /// send_mail(&limiter, "alice").await?;
    /// let usage = limiter.usage("mail", "alice").await?;
    /// let lines: Vec<_> = usage.tiers().iter().map(|tier| (tier.used(), tier.quota())).collect();
    /// assert_eq!(lines, [(1, 2), (1, 10)]);
    /// let usage = limiter.usage(&policies_of(&send_mail)[0], "alice").await?;
    /// assert_eq!(usage.tiers()[0].remaining(), 1);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// One of [`Plans`](crate::Plans) is named with its plan, such as `api@pro`.
    /// [`caller!`](crate::caller!) makes the caller of a `key` with several parts. A trait's
    /// default method without a `name` counts under the type of its receiver too:
    /// `caller!(type_name::<T>(), user)`.
    ///
    /// # Values that come with a call
    ///
    /// A threshold such as `plan.searches` has no value without a call, and that of another
    /// caller's call would be wrong. Pass the caller's own:
    ///
    /// ```standalone_crate
    /// # use std::time::Duration;
    /// # use ratelimit_runtime::{Limiter, RateLimitError, Tier, limits::policies_of, rate_limit};
    /// #[rate_limit(name = "search", period = "1h", threshold = searches, cost = words, key = user)]
    /// async fn search(user: u64, searches: u32, words: u32) -> Result<(), RateLimitError> {
    ///     Ok(())
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let limiter = Limiter::in_memory();
    /// let plan = [Tier::new(Duration::from_secs(3600), 500)];
    /// let policy = policies_of(&search)[0].with_tiers(&plan);
    /// assert_eq!(limiter.usage(&policy, 42).await?.tiers()[0].remaining(), 500);
    /// assert!(limiter.usage("search", 42).await.is_err());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// An override of all tiers, also one of this caller, gives a limit values without a call.
    ///
    /// # Precision
    ///
    /// On Redis, one command reads all tiers at one instant. In memory they are read one after the
    /// other. Units on [lease](Policy::lease) and turns in a line are used. Of several functions
    /// that share a name, a name means the first in [`policies`](crate::limits::policies);
    /// [`conflicts`](crate::limits::conflicts) shows those that differ.
    ///
    /// # Errors
    ///
    /// - [`UsageError::UnknownLimit`] if no annotated function has the name.
    /// - [`UsageError::HasPlans`] if the limit has [`Plans`](crate::Plans): `api@pro` is one.
    /// - [`UsageError::Dynamic`] if values of the limit come with each call.
    /// - [`UsageError::Failed`] if the caller is [denied](crate::Denied), the policy breaks a rule
    ///   or Redis does not answer, whatever
    ///   [`on_store_error`](crate::LimiterBuilder::on_store_error) is.
    pub async fn usage<'a>(
        &self,
        limit: impl Into<LimitRef<'a>>,
        caller: impl IntoCaller<'a>,
    ) -> Result<LimitUsage, UsageError> {
        let (declared, expressions) = limit.into().declared()?;
        let caller = caller.into_caller();
        let effective = self.overrides().effective(&declared, &caller, Enforcement::On);
        if let Some(denied) = effective.answer() {
            return Err(denied.clone().into());
        }
        let policy = *effective.policy();
        let lacks_numbers = !effective.replaces_tiers() || policy.lacks_numbers();
        if !expressions.is_empty() && lacks_numbers {
            return Err(UsageError::Dynamic { limit: declared.name(), expressions });
        }
        policy.validate_shape().map_err(RateLimitError::from)?;
        let usage = self.inner.backend.usage(&policy, &caller).await;
        let usage = usage
            .map_err(|reason| RateLimitError::from(Unavailable::new(policy.name(), reason)))?;
        let tiers = policy.tiers().iter().zip(usage.tiers);
        let tiers = tiers.map(|(tier, outcome)| {
            let quota = policy.quota_of(*tier);
            TierUsage::new(tier.period(), quota, outcome.remaining, outcome.reset.into())
        });
        let concurrency = policy
            .get_concurrency()
            .map(|permits| TierUsage::new(Duration::ZERO, permits, usage.free, Duration::ZERO));
        let (tiers, enforcement) = (tiers.collect(), effective.enforcement);
        let blocked_for = Some(usage.blocked.into()).filter(|left: &Duration| !left.is_zero());
        Ok(LimitUsage { policy, enforcement, tiers, concurrency, blocked_for })
    }
}
