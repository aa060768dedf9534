//! The registry: all annotated functions of this program, called or not, and the policies that were
//! checked by hand.
//!
//! Floor 6: imports `callsite`, `policy` and `telemetry`. `overrides`, `limiter` and `web` import
//! it.

mod by_hand;
#[cfg(feature = "testing")]
mod lock;
mod nearest;
mod published;

use std::{collections::BTreeSet, fmt, sync::Once};

#[cfg(feature = "testing")]
pub use self::lock::{ChangeKind, LimitChange, LimitList, assert_locked};
pub use self::published::{PublishedLimit, PublishedTier, published_limits};
pub(crate) use self::{by_hand::counters, nearest::nearest};
use crate::{
    callsite::{Callsite, Declaration},
    policy::{Policy, QuotaUnit, Tier, plans},
    telemetry,
};

/// The message of tests that find no limit in their program.
#[cfg(feature = "testing")]
pub(crate) const NO_LIMIT: &str =
    "this program has no limit; name the library that has them: `use shop as _;`";

/// Returns the policies of all annotated functions of the program, of all its crates, sorted by
/// name.
///
/// A test that compares their lines notices each change of a limit:
///
/// ```standalone_crate
/// use ratelimit_runtime::{RateLimitError, limits::policies, rate_limit};
///
/// #[rate_limit(name = "greet", period = "1m", threshold = 5, key = user)]
/// async fn greet(user: &str) -> Result<(), RateLimitError> {
///     Ok(())
/// }
///
/// #[rate_limit(name = "search", period = "1h", threshold = plan.searches, key = plan.user)]
/// async fn search(plan: Plan) -> Result<(), RateLimitError> {
///     Ok(())
/// }
///
/// struct Plan {
///     user: u64,
///     searches: u32,
/// }
///
/// let limits: Vec<String> = policies().iter().map(ToString::to_string).collect();
/// assert_eq!(limits, [
///     "greet: sliding_window, 5 per 60s, key (user)",
///     "search: sliding_window, by plan.searches, key (plan.user)",
/// ]);
/// ```
///
/// A function that is not linked may be missing, such as one of a library of which nothing else is
/// used. Policies of checks by hand are not registered: see [`policies_by_hand`].
#[must_use]
pub fn policies() -> Vec<RegisteredPolicy> {
    let mut policies: Vec<_> = Callsite::all().flat_map(RegisteredPolicy::of).collect();
    policies.sort_by_key(|it| (it.name(), it.file(), it.line()));
    policies
}

/// Returns the windows of the calendar of this name that this process has checked by hand.
pub(crate) fn calendar_window_by_hand(name: &str) -> Option<Policy> {
    by_hand::policies()
        .into_iter()
        .find(|it| it.is_calendar() && [it.name(), it.shown_name().text()].contains(&name))
}

/// Returns the policies that this process has checked by hand or in a layer, the first one of each
/// name, sorted by name.
///
/// ```
/// use std::time::Duration;
/// use ratelimit_runtime::{Limiter, Policy, limits::policies_by_hand};
///
/// const MAIL: Policy = Policy::sliding_window("mail", Duration::from_secs(60), 9);
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// Limiter::in_memory().check(&MAIL, "alice").await.unwrap();
/// assert_eq!(policies_by_hand()[0].to_string(), "mail: sliding_window, 9 per 60s, checked by hand");
/// # }
/// ```
#[must_use]
pub fn policies_by_hand() -> Vec<RegisteredPolicy> {
    let mut policies: Vec<_> = by_hand::policies().iter().map(RegisteredPolicy::by_hand).collect();
    policies.sort_by_key(RegisteredPolicy::name);
    policies.dedup_by_key(|policy| policy.name());
    policies
}

/// Returns the limits of one annotated function, in the order in which they are declared; none if
/// it has no attribute.
///
/// ```
/// use ratelimit_runtime::{RateLimitError, limits::policies_of, rate_limit};
///
/// #[rate_limit(name = "greet", period = "1m", threshold = 5, key = user)]
/// async fn greet(user: &str) -> Result<(), RateLimitError> {
///     Ok(())
/// }
///
/// assert_eq!(policies_of(&greet)[0].name(), "greet");
/// ```
///
/// The function is found by the path in its type. All instances of a generic function are one, and
/// so are those of its type.
#[must_use]
pub fn policies_of<F>(_function: &F) -> Vec<RegisteredPolicy> {
    let sites = Callsite::all().filter(|site| site.is_of::<F>());
    let mut limits: Vec<_> = sites.flat_map(RegisteredPolicy::of).collect();
    limits.sort_by_key(|limit| limit.declaration().map(|it| (it.line, it.column)));
    limits
}

/// The declared limit of one annotated function, and its place in the source.
///
/// Its `Display` is one line without the place, so that a list of them changes only with the
/// limits.
#[derive(Clone)]
pub struct RegisteredPolicy {
    /// None if the policy is checked by hand.
    site: Option<&'static Callsite>,
    policy: Policy,
}

impl RegisteredPolicy {
    fn by_hand(policy: &Policy) -> Self {
        Self { site: None, policy: *policy }
    }

    /// Returns the policy of a function's limit, or those of its plans.
    fn of(site: &'static Callsite) -> Vec<Self> {
        let limit = |policy| Self { site: Some(site), policy };
        match site.plans {
            Some(plans) => plans.all().iter().map(|(_, policy)| limit(*policy)).collect(),
            None => vec![limit(site.policy())],
        }
    }

    fn declaration(&self) -> Option<&'static Declaration> {
        self.site.map(|site| &site.declaration)
    }

    /// Returns `true` for a policy that is no function's: one that the program or a layer checks by
    /// hand. Only [`conflicts`] and [`policies_by_hand`] return such policies.
    #[must_use]
    pub fn is_by_hand(&self) -> bool {
        self.site.is_none()
    }

    /// Returns the name under which calls are counted: the argument `name`, or else the function's
    /// path. Of a plan it is `api@pro`, of those that count as `api`.
    ///
    /// Calls of a trait's default method are counted under the trait's path and the type of the
    /// receiver.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.policy.shown_name().text()
    }

    /// Returns `true` if this is the name of the limit with all its plans, or of this one of them.
    pub(crate) fn is_named(&self, name: &str) -> bool {
        [self.name(), self.policy.name()].contains(&name)
    }

    /// Returns the source file, with the path that was passed to the compiler; `""` for a policy
    /// that is checked by hand.
    #[must_use]
    pub fn file(&self) -> &'static str {
        self.declaration().map_or("", |declaration| declaration.file)
    }

    /// Returns the line of the attribute, from 1 on; 0 for a policy that is checked by hand.
    #[must_use]
    pub fn line(&self) -> u32 {
        self.declaration().map_or(0, |declaration| declaration.line)
    }

    /// Returns the declared policy with these tiers, for values that come with each call:
    /// [`Limiter::usage`](crate::Limiter::usage) has an example. `burst` and `concurrency` that
    /// come with the call are set on the result.
    pub fn with_tiers(&self, tiers: &[Tier]) -> Policy {
        self.policy.with_tiers(tiers)
    }

    /// Returns the policy, unless some of its values are [dynamic](Self::dynamic_args).
    #[must_use]
    pub fn policy(&self) -> Option<&Policy> {
        self.dynamic_args().is_empty().then_some(&self.policy)
    }

    /// Returns the expressions of the policy that are evaluated for each call, as written.
    #[must_use]
    pub fn dynamic_args(&self) -> &'static [&'static str] {
        self.declaration().map_or(&[], |declaration| declaration.dynamic)
    }

    /// Returns the expression of a call's cost, as written; `1` by default.
    #[must_use]
    pub fn cost(&self) -> &'static str {
        self.declaration().map_or("1", |declaration| declaration.cost)
    }

    /// Returns the expressions of the key's parts, as written; none if the ambient caller is
    /// counted.
    #[must_use]
    pub fn key(&self) -> &'static [&'static str] {
        self.declaration().map_or(&[], |declaration| declaration.key)
    }

    /// Returns the policy as far as it is known without a call: a dynamic value is 0.
    pub fn declared(&self) -> &Policy {
        &self.policy
    }

    /// Returns `true` once a call of this process came without a caller: without a `key`, and
    /// outside [`caller::scope`](crate::caller::scope) and identity layers. All such calls share
    /// one bucket, and each client can use up the quota of the others.
    ///
    /// ```standalone_crate
    /// use ratelimit_runtime::{RateLimitError, limits::policies, rate_limit};
    ///
    /// #[rate_limit(name = "greet", period = 60, threshold = 5)]
    /// async fn greet() -> Result<(), RateLimitError> {
    ///     Ok(())
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// assert!(!policies()[0].shares_one_bucket());
    /// greet().await.unwrap();
    /// assert!(policies()[0].shares_one_bucket());
    /// # }
    /// ```
    #[must_use]
    pub fn shares_one_bucket(&self) -> bool {
        telemetry::shares_one_bucket(self.name())
    }

    /// Returns `true` if both have one name and different limits. Checks by hand may bring other
    /// numbers: plans do. They conflict if callers have another history or time zone under them.
    fn conflicts_with(&self, other: &Self) -> bool {
        self.name() == other.name()
            && if self.is_by_hand() || other.is_by_hand() {
                let [own, other] = [self, other].map(|it| &it.policy);
                own.state() != other.state() || own.zone_or_utc() != other.zone_or_utc()
            } else {
                self.policy != other.policy || self.dynamic_args() != other.dynamic_args()
            }
    }

    /// Returns `true` if the attribute has the argument `dry_run`.
    #[must_use]
    pub fn is_dry_run(&self) -> bool {
        self.declaration().is_some_and(|declaration| declaration.dry_run)
    }
}

impl fmt::Display for RegisteredPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name(), self.policy.algorithm().as_str())?;
        match self.policy() {
            Some(policy) => {
                for tier in policy.tiers() {
                    write!(f, ", {} per {}", tier.threshold(), policy.period_text(*tier))?;
                }
                if let Some(calls) = policy.get_concurrency() {
                    write!(f, ", {calls} in flight")?;
                }
            }
            None => write!(f, ", by {}", self.dynamic_args().join(", "))?,
        }
        if let Some(burst) = self.policy().and_then(Policy::get_burst) {
            write!(f, ", burst {burst}")?;
        }
        if let Some(lease) = self.policy().and_then(Policy::get_lease) {
            write!(f, ", lease {lease:?}")?;
        }
        for (index, length) in self.policy.get_block().enumerate() {
            write!(f, "{} {length:?}", if index == 0 { ", blocks for" } else { "," })?;
        }
        if self.policy.get_quota_unit() != QuotaUnit::Requests {
            write!(f, ", in {}", self.policy.get_quota_unit().as_str())?;
        }
        if self.cost() != "1" {
            write!(f, ", cost {}", self.cost())?;
        }
        match self.key() {
            _ if self.is_by_hand() => f.write_str(", checked by hand")?,
            [] => f.write_str(", key of the ambient caller")?,
            parts => write!(f, ", key ({})", parts.join(", "))?,
        }
        if self.policy.counts_rejected() {
            f.write_str(", count_rejected")?;
        }
        if self.is_dry_run() {
            f.write_str(", dry_run")?;
        }
        Ok(())
    }
}

impl fmt::Debug for RegisteredPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.site {
            Some(_) => write!(f, "{self} at {}:{}", self.file(), self.line()),
            None => write!(f, "{self}"),
        }
    }
}

/// Returns the pairs of functions that share a name and differ in their limits. Each call is
/// decided by its own limit, over the history of both. If they differ in the algorithm, each has a
/// history of its own.
///
/// A policy that is [checked by hand](RegisteredPolicy::is_by_hand) is in a pair if a caller has
/// another history under it: a peek by another algorithm finds nothing. It is also in a pair if its
/// time zone is another one: the windows of one history then end by either. Such a policy is known
/// from its first check on.
///
/// They are also logged at `warn`: those of functions when a limiter is
/// [installed](crate::install), those of checks by hand at the first check.
///
/// ```standalone_crate
/// use std::time::Duration;
/// use ratelimit_runtime::{Limiter, Policy, RateLimitError, limits::conflicts, rate_limit};
///
/// #[rate_limit(name = "export", period = "1m", threshold = 100, key = user, algorithm = token_bucket)]
/// async fn export(user: &str) -> Result<(), RateLimitError> {
///     Ok(())
/// }
///
/// /// The function has a bucket, which this is not.
/// const EXPORT: Policy = Policy::sliding_window("export", Duration::from_secs(60), 100);
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), RateLimitError> {
/// Limiter::in_memory().peek(&EXPORT, "alice").await?;
/// let pairs = conflicts();
/// let (declared, by_hand) = &pairs[0];
/// assert!(!declared.is_by_hand() && by_hand.is_by_hand());
/// # Ok(())
/// # }
/// ```
#[must_use]
pub fn conflicts() -> Vec<(RegisteredPolicy, RegisteredPolicy)> {
    let policies = policies();
    let pairs = policies.windows(2).filter(|pair| pair[0].conflicts_with(&pair[1]));
    let mut pairs: Vec<_> = pairs.map(|pair| (pair[0].clone(), pair[1].clone())).collect();
    pairs.extend(by_hand::policies().iter().filter_map(conflict_of));
    pairs
}

/// Returns the conflict of a policy that is checked by hand: with a function, or an earlier such
/// policy.
fn conflict_of(policy: &Policy) -> Option<(RegisteredPolicy, RegisteredPolicy)> {
    let second = RegisteredPolicy::by_hand(policy);
    let earlier = by_hand::policies().into_iter().take_while(|earlier| earlier != policy);
    let earlier = earlier.map(|policy| RegisteredPolicy::by_hand(&policy));
    let first = policies().into_iter().chain(earlier).find(|it| it.conflicts_with(&second))?;
    Some((first, second))
}

/// Logs the conflict of a new policy that is checked by hand.
#[cold]
pub(crate) fn warn_of_conflict(policy: &Policy) {
    if let Some((first, second)) = conflict_of(policy) {
        tracing::warn!(?first, ?second, "two limits of one name differ in history or time zone");
    }
}

/// Returns the names of all limits that are declared or were checked by hand.
pub(crate) fn names() -> BTreeSet<&'static str> {
    let declared = policies().into_iter().flat_map(|limit| [limit.name(), limit.policy.name()]);
    let by_hand = by_hand::policies().into_iter().map(|policy| policy.name());
    declared.chain(by_hand).chain(plans::labels()).collect()
}

/// Logs the conflicts, once in a process.
pub(crate) fn warn_of_conflicts() {
    static WARNED: Once = Once::new();
    WARNED.call_once(|| {
        for (first, second) in conflicts() {
            tracing::warn!(?first, ?second, "two functions of one name have different limits");
        }
    });
}
