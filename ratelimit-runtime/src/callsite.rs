//! One annotated function: what the attribute has written down about it.

mod name;

use std::{
    any::type_name,
    borrow::Cow,
    sync::atomic::{AtomicBool, Ordering},
};

use once_cell::sync::OnceCell;

use crate::policy::Policy;

/// One annotated function, as a static in its body.
pub struct Callsite {
    /// The path of an item in the function's body.
    inner_path: fn() -> &'static str,
    /// What the attribute's literals say. Without a name it gets the function's path; what is only
    /// known at run time is 0, and a call brings its policy.
    policy: Policy,
    pub(crate) declaration: Declaration,
    resolved: OnceCell<Resolved>,
    warned: AtomicBool,
}

/// What is written about a function beside its policy.
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
    /// Whether calls are never refused.
    pub dry_run: bool,
}

inventory::collect!(&'static Callsite);

/// What is known of a function once it has been called.
pub(crate) struct Resolved {
    pub(crate) policy: Policy,
    /// Whether the path names a trait and not the type the method is called on.
    pub(crate) is_default_method: bool,
}

impl Callsite {
    /// The function in whose body the function `_here` is declared.
    #[must_use]
    pub const fn new<Here: Copy>(_here: Here, policy: Policy, declaration: Declaration) -> Self {
        Self {
            inner_path: type_name::<Here>,
            policy,
            declaration,
            resolved: OnceCell::new(),
            warned: AtomicBool::new(false),
        }
    }

    /// All annotated functions of the program, without the copies of them that axum's
    /// `debug_handler` makes for its checks and never calls.
    pub(crate) fn all() -> impl Iterator<Item = &'static Self> {
        let sites = inventory::iter::<&'static Self>.into_iter().copied();
        sites.filter(|site| !(site.inner_path)().contains("::__axum_macros_check_"))
    }

    /// The policy by its name, as far as it is known without a call.
    pub(crate) fn policy(&self) -> Policy {
        self.resolve(None).policy
    }

    /// The same, for calls: resolved once, with the type that a method is called on.
    pub(crate) fn resolved(&self, receiver: Option<&str>) -> &Resolved {
        self.resolved.get_or_init(|| self.resolve(receiver))
    }

    fn resolve(&self, receiver: Option<&str>) -> Resolved {
        if !self.policy.name().is_empty() {
            return Resolved { policy: self.policy, is_default_method: false };
        }
        let is_default_method =
            receiver.is_some_and(|receiver| is_default_method(&self.path(), receiver));
        Resolved { policy: self.policy.named(name::of(self)), is_default_method }
    }

    /// The path of the function, with all functions and types that it is declared in.
    fn path(&self) -> Cow<'static, str> {
        name::enclosing_function((self.inner_path)())
    }

    pub(crate) fn warn_once_without_caller(&self, policy: &Policy) {
        if !self.warned.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                policy = policy.name(),
                "called without a `key` and outside `caller::scope`: all such calls share one limit"
            );
        }
    }
}

/// The path of a method names its type (`app::Mailer::send`, `<app::Mailer as app::Send>::send`,
/// `app::other::<impl app::Mailer>::send`), but that of a trait's default method names the trait
/// and is the same for all types that are its receiver.
fn is_default_method(path: &str, receiver: &str) -> bool {
    let owner = path.rsplit_once("::").map_or("", |(owner, _)| owner);
    let names_an_impl = owner.starts_with('<') || owner.contains("<impl ");
    let without_arguments = |path: &str| path.split('<').next().map(str::to_owned);
    !names_an_impl && without_arguments(owner) != without_arguments(receiver)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_default_method_needs_its_receiver() {
        for (path, receiver, expected) in [
            ("app::Mailer::send", "app::Mailer", false),
            ("app::Repo<_>::get", "app::Repo<app::User>", false),
            ("<app::Mailer as app::Send>::send", "app::Mailer", false),
            ("app::other::<impl app::Mailer>::send", "app::Mailer", false),
            ("app::Send::send", "app::Mailer", true),
            ("app::Send::send", "app::Repo<app::User>", true),
        ] {
            assert_eq!(is_default_method(path, receiver), expected, "{path} on {receiver}");
        }
    }
}
