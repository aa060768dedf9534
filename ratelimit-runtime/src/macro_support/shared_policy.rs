//! Checks of a policy that an attribute names by its path. They run in constants: the compiler
//! reports a failure at the argument.

use std::fmt::Display;

use ratelimit_core::Algorithm;

use crate::{
    callsite::Callsite,
    policy::{Plans, Policy, plans::is_same_text},
};

/// Asserts that calls under the policy ask the store, as an argument needs.
macro_rules! assert_asks_store {
    ($policy:ident, $argument:literal) => {
        assert!(
            $policy.get_lease().is_none(),
            concat!(
                "`",
                $argument,
                "` needs the store at each call, and under the policy's `lease` a process decides \
                 without it"
            )
        )
    };
}

/// Asserts that the policy shuts no callers out, as an argument needs.
macro_rules! assert_no_block {
    ($policy:ident, $argument:literal, $reason:literal) => {
        assert!(
            !$policy.has_block(),
            concat!("`", $argument, "` does not go with a policy that has a `block`: ", $reason)
        )
    };
}

/// The type of a policy, which one of several plans is not.
#[diagnostic::on_unimplemented(
    message = "`policy` names `{Self}`, which is not a `Policy`",
    label = "not a `Policy`",
    note = "`Plans` need the argument `plan = ..`, which chooses one of them"
)]
pub trait IsPolicy {
    /// The type itself.
    type This;
}

impl IsPolicy for Policy {
    type This = Self;
}

/// Returns a policy as it is. For another type the error is that of the trait.
pub const fn one_policy<P: IsPolicy<This = P>>(policy: &P) -> &P::This {
    policy
}

/// Returns the policy that functions share.
///
/// # Panics
///
/// If it has no name.
#[track_caller]
pub const fn shared_policy(policy: &Policy) -> Policy {
    assert!(
        !policy.name().is_empty(),
        "functions share this policy's counts under its name, which must not be empty"
    );
    *policy
}

/// Returns the policy of the plan at this index.
pub const fn plan_at(plans: &Plans, index: usize) -> Option<&Policy> {
    plans.at(index)
}

/// A type that can name a [`plan`](macro@crate::rate_limit#plan): every type that implements
/// `Display`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot name a plan",
    label = "the plan is the text of this value, and `{Self}` has no `Display`",
    note = "name a field that has a `Display`, as `customer.plan`; or implement `std::fmt::Display` for `{Self}`"
)]
pub trait PlanName: Display {}

#[diagnostic::do_not_recommend]
impl<T: Display> PlanName for T {}

/// Returns the policy of a call's plan.
pub fn plan_of(callsite: &Callsite, plan: &impl PlanName) -> Policy {
    callsite.plans.map_or(callsite.policy, |plans| *plans.of(plan))
}

/// Asserts that two limits of one function count under two names.
///
/// # Panics
///
/// If the names are equal.
#[track_caller]
pub const fn names_apart(one: &str, other: &str) {
    assert!(
        !is_same_text(one, other),
        "two limits of one function have one name, and would disturb each other"
    );
}

/// Asserts that calls under the policy take units.
///
/// # Panics
///
/// If there is no window.
#[track_caller]
pub const fn takes_costs(policy: &Policy) {
    assert!(
        policy.has_window(),
        "`cost` needs a window: a policy of `concurrency` alone has nothing to count"
    );
}

/// Asserts that calls under the policy can take a number of units that is known at run time.
///
/// # Panics
///
/// If they cannot.
#[track_caller]
pub const fn takes_dynamic_costs(policy: &Policy) {
    takes_costs(policy);
    assert!(
        !policy.counts_rejected(),
        "a `cost` that is no number does not go with a policy under `count_rejected`: a refused call \
         takes its units too, and one of many units could fill a whole window"
    );
}

/// Asserts that calls under the policy can wait.
///
/// # Panics
///
/// If they cannot.
#[track_caller]
pub const fn takes_waits(policy: &Policy) {
    assert!(
        !policy.is_calendar(),
        "`max_wait` does not go with a policy of the algorithm `calendar_window`, whose windows are long \
         and end together for all callers"
    );
    assert_asks_store!(policy, "max_wait");
    assert_no_block!(
        policy,
        "max_wait",
        "who is shut out for asking too soon does not stand in line"
    );
}

/// Asserts that calls under the policy can leave a share of it.
///
/// # Panics
///
/// If they cannot.
#[track_caller]
pub const fn takes_leaves(policy: &Policy) {
    assert!(
        !policy.counts_rejected(),
        "`leave` does not go with a policy under `count_rejected`: refused calls are counted too, and \
         would use up what they are to leave"
    );
    assert_asks_store!(policy, "leave");
    assert_no_block!(
        policy,
        "leave",
        "a refused call that leaves a share to others would shut out the caller's other calls"
    );
}

/// Asserts that callers under the policy can be warned of.
///
/// # Panics
///
/// If they cannot.
#[track_caller]
pub const fn takes_warnings(policy: &Policy) {
    assert!(
        policy.has_window(),
        "`warn_at` needs a window: a policy of `concurrency` alone has nothing to count"
    );
    assert!(
        !policy.has_tiers(),
        "`warn_at` needs a policy of one tier: a decision has the numbers of one, and another may \
         reach its mark"
    );
}

/// Asserts that calls under the policy can be settled at any number of units.
///
/// # Panics
///
/// If they cannot.
#[track_caller]
pub const fn takes_settles(policy: &Policy) {
    assert!(
        policy.has_window(),
        "`settle` needs a window: a policy of `concurrency` alone has nothing to count"
    );
    assert!(
        !policy.counts_rejected(),
        "`settle` does not go with a policy under `count_rejected`: calls are recorded that have no \
         output to settle by"
    );
    assert_asks_store!(policy, "settle");
}

/// Asserts that calls under the policy can have request ids.
///
/// # Panics
///
/// If they cannot.
#[track_caller]
pub const fn takes_request_ids(policy: &Policy) {
    assert!(
        policy.has_window(),
        "`request_id` needs a window: a policy of `concurrency` alone has nothing to count"
    );
    assert!(
        matches!(policy.algorithm(), Algorithm::SlidingWindow),
        "`request_id` needs a policy of the algorithm `sliding_window`, which remembers each call"
    );
    assert!(
        !policy.counts_rejected(),
        "`request_id` does not go with a policy under `count_rejected`: an admitted call and a \
         refused one would have the same name"
    );
    assert_asks_store!(policy, "request_id");
    assert_no_block!(
        policy,
        "request_id",
        "a repeat of an admitted call would be refused while its caller is blocked"
    );
}
