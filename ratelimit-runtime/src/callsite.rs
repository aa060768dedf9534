//! Callsites: one static for each annotated function, as the attribute declares it.
//!
//! Floor 5: imports `policy`. `registry` and `macro_support` import it.

mod name;

use std::{any::type_name, borrow::Cow};

use once_cell::sync::OnceCell;

use crate::{
    policy::{Plans, Policy},
    telemetry::{self, LimitCounters},
};

/// One annotated function, as a static in its body.
pub struct Callsite {
    /// The path of an item in the function's body.
    inner_path: fn() -> &'static str,
    /// The policy of the attribute's literals. Its name is empty if none was written; the
    /// function's path is the name then. A value that is known only at the call is 0.
    pub(crate) policy: Policy,
    /// The plans of which each call chooses one; the policy is then the default one.
    pub(crate) plans: Option<&'static Plans>,
    pub(crate) declaration: Declaration,
    resolved: OnceCell<Resolved>,
}

/// The declaration of a function beside its policy.
#[derive(Clone, Copy)]
pub struct Declaration {
    /// The source file, as the compiler was given it.
    pub file: &'static str,
    /// The line of the attribute.
    pub line: u32,
    /// The column of the attribute.
    pub column: u32,
    /// The path of the module.
    pub module: &'static str,
    /// The expressions in the policy that are evaluated for each call.
    pub dynamic: &'static [&'static str],
    /// The cost, as written.
    pub cost: &'static str,
    /// The parts of the key, as written; none for the ambient caller.
    pub key: &'static [&'static str],
    /// `true` if calls are never refused.
    pub dry_run: bool,
    /// Further arguments, each with its value or its expression: `leave`, `skip` and others that
    /// the policy lacks.
    pub others: &'static [(&'static str, &'static str)],
}

inventory::collect!(&'static Callsite);

/// The policy and the kind of a function, resolved at its first call.
pub(crate) struct Resolved {
    pub(crate) policy: Policy,
    /// `true` if the path names a trait instead of the type on which the method is called.
    pub(crate) is_default_method: bool,
    pub(crate) counters: &'static LimitCounters,
}

impl Callsite {
    /// Creates the callsite of the function whose body declares the function `_here`. It is a
    /// static, so that a panic is a compile error.
    ///
    /// # Panics
    ///
    /// If the program lacks the feature that the policy needs.
    #[must_use]
    pub const fn new<Here: Copy>(_here: Here, policy: Policy, declaration: Declaration) -> Self {
        assert!(
            cfg!(feature = "calendar") || !policy.is_calendar(),
            "a `calendar_window` needs the feature `calendar` of `ratelimit-runtime`"
        );
        let (inner_path, resolved) = (type_name::<Here>, OnceCell::new());
        Self { inner_path, policy, plans: None, declaration, resolved }
    }

    /// Creates the callsite of a function whose calls have plans.
    #[must_use]
    pub const fn of_plans<Here: Copy>(
        here: Here,
        plans: &'static Plans,
        declaration: Declaration,
    ) -> Self {
        let mut callsite = Self::new(here, *plans.first(), declaration);
        callsite.plans = Some(plans);
        callsite
    }

    /// Returns all annotated functions of the program, without the copies that axum's
    /// `debug_handler` makes for its checks and never calls.
    pub(crate) fn all() -> impl Iterator<Item = &'static Self> {
        let sites = inventory::iter::<&'static Self>.into_iter().copied();
        sites.filter(|site| !(site.inner_path)().contains("::__axum_macros_check_"))
    }

    /// Returns the named policy, as far as it is known without a call.
    pub(crate) fn policy(&self) -> Policy {
        self.resolve(None).policy
    }

    /// Returns the named policy and the kind of the function, resolved at the first call with the
    /// type on which a method is called.
    #[inline]
    pub(crate) fn resolved(&self, self_type: Option<&str>) -> &Resolved {
        self.resolved.get().unwrap_or_else(|| self.resolved_first(self_type))
    }

    #[cold]
    fn resolved_first(&self, self_type: Option<&str>) -> &Resolved {
        self.resolved.get_or_init(|| self.resolve(self_type))
    }

    fn resolve(&self, self_type: Option<&str>) -> Resolved {
        let (mut policy, mut is_default_method) = (self.policy, false);
        if policy.name().is_empty() {
            policy = policy.named(name::of(self));
            is_default_method =
                self_type.is_some_and(|it| self::is_default_method(&self.path(), it));
        }
        Resolved { policy, is_default_method, counters: telemetry::counters_of(&policy) }
    }

    /// Returns `true` if this is a limit of the function with this type.
    pub(crate) fn is_of<F>(&self) -> bool {
        name::without_arguments(&self.path()) == name::without_arguments(type_name::<F>())
    }

    /// Returns the path of the function, with the functions and types in which it is declared.
    fn path(&self) -> Cow<'static, str> {
        name::enclosing_function((self.inner_path)())
    }
}

/// Returns `true` if the path is that of a trait's default method: it names the trait, and is the
/// same for all types. The path of any other method names its type: `app::Mailer::send`,
/// `<app::Mailer as app::Send>::send`, `app::other::<impl app::Mailer>::send`.
fn is_default_method(path: &str, self_type: &str) -> bool {
    let owner = path.rsplit_once("::").map_or("", |(owner, _)| owner);
    let names_an_impl = owner.starts_with('<') || owner.contains("<impl ");
    let without_arguments = |path: &str| path.split('<').next().map(str::to_owned);
    !names_an_impl && without_arguments(owner) != without_arguments(self_type)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seen without the feature: `cargo test -p ratelimit-runtime --no-default-features --lib`.
    #[cfg(not(feature = "calendar"))]
    #[test]
    #[should_panic(expected = "needs the feature `calendar` of `ratelimit-runtime`")]
    fn a_window_of_the_calendar_names_its_feature() {
        let declaration = Declaration {
            file: "",
            line: 1,
            column: 1,
            module: "",
            dynamic: &[],
            cost: "",
            key: &[],
            dry_run: false,
            others: &[],
        };
        let monthly = Policy::calendar_window("monthly", ratelimit_core::CalendarUnit::Month, 100);
        let _ = Callsite::new(|| (), monthly, declaration);
    }

    #[test]
    fn only_a_default_method_needs_its_self_type() {
        for (path, self_type, expected) in [
            ("app::Mailer::send", "app::Mailer", false),
            ("app::Repo<_>::get", "app::Repo<app::User>", false),
            ("<app::Mailer as app::Send>::send", "app::Mailer", false),
            ("app::other::<impl app::Mailer>::send", "app::Mailer", false),
            ("app::Send::send", "app::Mailer", true),
            ("app::Send::send", "app::Repo<app::User>", true),
        ] {
            assert_eq!(is_default_method(path, self_type), expected, "{path} on {self_type}");
        }
    }
}
