//! The limits of this program: all annotated functions in it, called or not.

use std::{fmt, sync::Once};

use crate::{callsite::Callsite, policy::Policy};

/// All annotated functions of this program, of all its crates, by name.
///
/// It makes a limit visible that is hidden in a module, and a test of yours notice when one has
/// changed:
///
/// ```
/// use ratelimit_runtime::{RateLimitError, policies, rate_limit};
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
/// A function that the program never links, such as one of a library that nothing else of is used,
/// may be missing.
#[must_use]
pub fn policies() -> Vec<RegisteredPolicy> {
    let mut policies: Vec<_> =
        Callsite::all().map(|site| RegisteredPolicy { site, policy: site.policy() }).collect();
    policies.sort_by_key(|it| (it.name(), it.file(), it.line()));
    policies
}

/// An annotated function, as the source says.
///
/// Its `Display` is one line without the place in the source, so that a list of them is the same as
/// long as the limits are.
#[derive(Clone)]
pub struct RegisteredPolicy {
    site: &'static Callsite,
    policy: Policy,
}

impl RegisteredPolicy {
    /// The name that its calls are counted under: the function's path, or what `name` says.
    ///
    /// A trait's default method is counted for each type under the trait's path and that type.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.policy.name()
    }

    /// The source file, as the compiler was given it.
    #[must_use]
    pub fn file(&self) -> &'static str {
        self.site.declaration.file
    }

    /// The line of the attribute.
    #[must_use]
    pub fn line(&self) -> u32 {
        self.site.declaration.line
    }

    /// The policy, unless [calls](Self::dynamic_args) bring values.
    #[must_use]
    pub fn policy(&self) -> Option<&Policy> {
        self.dynamic_args().is_empty().then_some(&self.policy)
    }

    /// The expressions of the policy that are evaluated for each call, as written.
    #[must_use]
    pub fn dynamic_args(&self) -> &'static [&'static str] {
        self.site.declaration.dynamic
    }

    /// What a call takes, as written.
    #[must_use]
    pub fn cost(&self) -> &'static str {
        self.site.declaration.cost
    }

    /// The parts of the key, as written; none where the ambient caller is counted.
    #[must_use]
    pub fn key(&self) -> &'static [&'static str] {
        self.site.declaration.key
    }

    /// Returns the policy as far as it is known without a call: a value that calls bring is 0.
    #[must_use]
    pub fn declared(&self) -> &Policy {
        &self.policy
    }

    /// Returns `true` if calls of both are counted together under different limits.
    pub(crate) fn conflicts_with(&self, other: &Self) -> bool {
        self.name() == other.name()
            && (self.policy != other.policy || self.dynamic_args() != other.dynamic_args())
    }

    /// Whether calls are decided and recorded, but never refused.
    #[must_use]
    pub fn is_dry_run(&self) -> bool {
        self.site.declaration.dry_run
    }
}

impl fmt::Display for RegisteredPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name(), self.policy.algorithm().as_str())?;
        match self.policy() {
            Some(policy) => {
                for tier in policy.tiers() {
                    write!(f, ", {} per {:?}", tier.threshold(), tier.period())?;
                }
            }
            None => write!(f, ", by {}", self.dynamic_args().join(", "))?,
        }
        if let Some(burst) = self.policy().and_then(Policy::explicit_burst) {
            write!(f, ", burst {burst}")?;
        }
        if self.cost() != "1" {
            write!(f, ", cost {}", self.cost())?;
        }
        match self.key() {
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
        write!(f, "{self} at {}:{}", self.file(), self.line())
    }
}

/// Functions of one name whose limits differ, and which so disturb each other: each call is decided
/// by its own limit, over the history of both.
///
/// They are also logged at `warn` when a limiter is [installed](crate::install).
#[must_use]
pub fn conflicts() -> Vec<(RegisteredPolicy, RegisteredPolicy)> {
    let policies = policies();
    let pairs = policies.windows(2).filter(|pair| {
        let [first, second] = pair else { return false };
        first.conflicts_with(second)
    });
    pairs.map(|pair| (pair[0].clone(), pair[1].clone())).collect()
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
