//! Plans: several policies under one name, of which each call is decided by one.

mod names;

use std::fmt::{self, Write};

pub(crate) use self::names::labels;
use super::{Flags, Policy, PolicyName};
use crate::time::Micros;

const MAX_PLANS: usize = 8;

/// The plans of a limit: policies of other numbers under one name, of which each call chooses one
/// by the name of its plan.
///
/// All plans count under one key, so that a caller who changes the plan keeps its history. They
/// differ in their tiers, burst and calls in flight. Another algorithm or lease does not compile.
///
/// A plan is named `api@pro`: so it is overridden, and so header fields, events and metrics name
/// it. An override of `api` is used for all plans that have none of their own.
///
/// ```
/// use std::time::Duration;
/// use ratelimit_runtime::{Limiter, Plans, Policy};
///
/// const HOUR: Duration = Duration::from_secs(3_600);
/// const API: Plans = Plans::new("api", "free", Policy::sliding_window("free", HOUR, 1))
///     .plan("pro", Policy::sliding_window("pro", HOUR, 3));
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), ratelimit_runtime::RateLimitError> {
/// let limiter = Limiter::in_memory();
/// limiter.check(API.of("free"), "acme").await?;
/// assert!(limiter.check(API.of("free"), "acme").await.is_err());
/// // After an upgrade the first call still counts.
/// let decision = limiter.check(API.of("pro"), "acme").await?;
/// assert_eq!((decision.policy(), decision.plan()), ("api", Some("pro")));
/// assert_eq!(decision.remaining(), 1);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy)]
#[must_use]
pub struct Plans {
    /// The first one is the default.
    plans: [(&'static str, Policy); MAX_PLANS],
    count: usize,
}

impl Plans {
    /// Creates the plans of the limit `name`. Calls of an unknown plan are decided by this one, and
    /// each unknown name is logged once, 64 at most.
    ///
    /// # Panics
    ///
    /// If a name is empty, or that of the plan contains `@`. In a `const` it does not compile.
    pub const fn new(name: &'static str, default: &'static str, policy: Policy) -> Self {
        assert!(!name.is_empty(), "plans count under the name of their limit, which is not empty");
        let plans = Self { plans: [(default, policy.named(name)); MAX_PLANS], count: 0 };
        plans.plan(default, policy)
    }

    /// Adds a plan.
    ///
    /// # Panics
    ///
    /// If it is the ninth, its name is empty, contains `@` or is that of another plan, or its
    /// callers would have another history: under another algorithm or lease, with or without a
    /// window or [`count_rejected`](Policy::count_rejected). In a `const` it does not compile.
    pub const fn plan(mut self, name: &'static str, policy: Policy) -> Self {
        assert!(self.count < MAX_PLANS, "a limit has at most 8 plans");
        assert!(!name.is_empty(), "the name of a plan is not empty");
        let mut index = 0;
        while index < name.len() {
            assert!(name.as_bytes()[index] != b'@', "the name of a plan contains no `@`");
            index += 1;
        }
        let first = self.plans[0].1;
        assert!(
            first.state() as u8 == policy.state() as u8,
            "the plans of a limit count alike: they have one algorithm"
        );
        assert!(is_same_length(first.lease, policy.lease), "the plans of a limit have one lease");
        assert!(
            first.has_window() == policy.has_window()
                && first.counts_rejected() == policy.counts_rejected(),
            "all plans of a limit or none have a window, and all or none count rejected calls"
        );
        let mut other = 0;
        while other < self.count {
            let (known, flags) = (self.plans[other].0, self.plans[other].1.flags);
            assert!(!is_same_text(known, name), "two plans of a limit have one name");
            assert!(
                !flags.has_plan(name),
                "two plans of a limit have names of one hash: rename one"
            );
            other += 1;
        }
        let mut policy = policy.named_as(&first);
        policy.flags = policy.flags.with_plan(name);
        self.plans[self.count] = (name, policy);
        self.count += 1;
        self
    }

    /// Returns the name of the limit.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.plans[0].1.name()
    }

    /// Returns the policy of the default plan.
    pub fn default_policy(&self) -> &Policy {
        self.known(0)
    }

    /// Returns the policy of the default plan, whose name is not known yet.
    pub(crate) const fn first(&self) -> &Policy {
        &self.plans[0].1
    }

    /// Returns the policy of the plan at this index, likewise.
    pub(crate) const fn at(&self, index: usize) -> Option<&Policy> {
        if index < self.count { Some(&self.plans[index].1) } else { None }
    }

    /// Returns the plans with their names, the default one first.
    pub fn all(&self) -> &[(&'static str, Policy)] {
        for index in 0..self.count {
            self.known(index);
        }
        self.listed()
    }

    fn listed(&self) -> &[(&'static str, Policy)] {
        &self.plans[..self.count]
    }

    /// Returns the policy of a plan. The names of all plans are known from then on.
    fn known(&self, index: usize) -> &Policy {
        let policy = &self.plans[index].1;
        if names::find(policy.name(), policy.flags).is_none() {
            names::register(self);
        }
        policy
    }

    /// Returns the policy of this plan; that of the default plan if there is none of this name.
    pub fn of(&self, plan: impl fmt::Display) -> &Policy {
        let name = |index| self.listed().get(index).map(|(name, _)| *name);
        let mut rest = Rest { names: std::array::from_fn(name) };
        // A `Display` that fails has written the name already.
        let _ = write!(rest, "{plan}");
        if let Some(index) = rest.names.iter().position(|rest| *rest == Some("")) {
            return self.known(index);
        }
        names::log_unknown(self, &plan);
        self.default_policy()
    }
}

/// Returns the name of the plan of the policy with this name and these flags, if it is one.
pub(crate) fn plan(policy: &str, flags: Flags) -> Option<&'static str> {
    names::find(policy, flags).map(|(plan, _)| plan)
}

/// Returns the name of that plan as a limit of its own.
#[inline]
pub(super) fn label(policy: &str, flags: Flags) -> Option<PolicyName> {
    names::find(policy, flags).map(|(_, label)| label)
}

/// Returns the name by which operators and clients know the policy with this name and these flags.
pub(crate) fn shown(policy: &'static str, flags: Flags) -> &'static str {
    label(policy, flags).map_or(policy, PolicyName::text)
}

/// Returns the name of the limit of an overridden one, which may be that of a plan.
pub(crate) fn limit_of(name: &str) -> &str {
    name.rsplit_once('@').map_or(name, |(limit, _)| limit)
}

/// Shows the names of the plans.
impl fmt::Debug for Plans {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.listed().iter().map(|(name, _)| *name);
        write!(f, "Plans of {}: ", self.name())?;
        f.debug_list().entries(names).finish()
    }
}

/// The rest of each name after the text that was written; none if it is another name.
struct Rest {
    names: [Option<&'static str>; MAX_PLANS],
}

impl Write for Rest {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for name in &mut self.names {
            *name = name.and_then(|name| name.strip_prefix(text));
        }
        Ok(())
    }
}

const fn is_same_length(one: Option<Micros>, other: Option<Micros>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => one.get() == other.get(),
        (None, None) => true,
        _ => false,
    }
}

pub(crate) const fn is_same_text(one: &str, other: &str) -> bool {
    let (one, other) = (one.as_bytes(), other.as_bytes());
    let mut index = 0;
    while index < one.len() && index < other.len() && one[index] == other[index] {
        index += 1;
    }
    index == one.len() && index == other.len()
}
