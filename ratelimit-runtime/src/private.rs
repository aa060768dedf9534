//! All that generated code may name. Not part of the public interface: it changes with the
//! attribute, and the two crates are released together.

use std::{
    any::type_name,
    fmt::Display,
    ops::Deref,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

pub use std::result::Result::Err;

use once_cell::sync::OnceCell;

use crate::{
    caller::{self, Caller},
    decision::{self, Charge},
    error::{InvalidPolicy, RateLimitError},
    fallback::OnStoreError,
    key::Key,
    limiter::{Limiter, Terms, installed},
    observe,
    policy::Policy,
    store::Request,
};

/// One annotated function, as a static in its body.
pub struct Site {
    /// The path of an item in the function's body.
    inner_path: fn() -> &'static str,
    /// What the attribute's literals say. Without a name it gets the function's path; what is only
    /// known at run time is 0, and a call brings its policy.
    policy: Policy,
    resolved: OnceCell<Resolved>,
    warned: AtomicBool,
}

struct Resolved {
    policy: Policy,
    /// Whether the path names a trait and not the type the method is called on.
    is_default_method: bool,
}

impl Site {
    /// The function in whose body `Here` is declared.
    #[must_use]
    pub const fn new<Here>(policy: Policy) -> Self {
        Self {
            inner_path: type_name::<Here>,
            policy,
            resolved: OnceCell::new(),
            warned: AtomicBool::new(false),
        }
    }

    fn resolve(&self, receiver: Option<&str>) -> Resolved {
        if !self.policy.name().is_empty() {
            return Resolved { policy: self.policy, is_default_method: false };
        }
        let path = enclosing_function((self.inner_path)());
        Resolved {
            policy: self.policy.named(path),
            is_default_method: receiver.is_some_and(|receiver| is_default_method(path, receiver)),
        }
    }

    fn warn_once_without_caller(&self, policy: &Policy) {
        if !self.warned.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                policy = policy.name(),
                "called without a `key` and outside `caller::scope`: all such calls share one limit"
            );
        }
    }
}

/// One call of an annotated function.
pub struct Call {
    site: &'static Site,
    cost: Option<u32>,
    caller: Caller,
    limiter: Option<Limiter>,
    receiver: Option<&'static str>,
    max_wait: Duration,
    on_store_error: Option<OnStoreError>,
    dry_run: bool,
}

impl Call {
    /// A call of the function of this site.
    #[must_use]
    pub fn new(site: &'static Site) -> Self {
        Self {
            site,
            cost: None,
            caller: Caller::without_parts(),
            limiter: None,
            receiver: None,
            max_wait: Duration::ZERO,
            on_store_error: None,
            dry_run: false,
        }
    }

    /// Names the type that a method is called on.
    pub fn receiver<T: ?Sized>(&mut self) {
        self.receiver = Some(type_name::<T>());
    }

    /// Brings the units that this call takes.
    pub fn cost(&mut self, cost: u32) {
        self.cost = Some(cost);
    }

    /// Has `limiter` decide instead of the installed one.
    pub fn limiter(&mut self, limiter: &Limiter) {
        self.limiter = Some(limiter.clone());
    }

    /// Has the call wait up to this long for its place.
    pub fn max_wait(&mut self, max_wait: Duration) {
        self.max_wait = max_wait;
    }

    /// Says what the call gets when the store cannot decide.
    pub fn on_store_error(&mut self, on_store_error: OnStoreError) {
        self.on_store_error = Some(on_store_error);
    }

    /// Has the call decided and recorded, but never refused.
    pub fn dry_run(&mut self) {
        self.dry_run = true;
    }

    fn add_optional(&mut self, value: Option<&impl KeyPart>) {
        match value {
            Some(value) => self.caller.push(value),
            None => self.caller.push_none(),
        }
    }

    /// Decides the call.
    ///
    /// # Errors
    ///
    /// The refusal.
    pub async fn check(self) -> Result<(), RateLimitError> {
        let resolved = self.site.resolved.get_or_init(|| self.site.resolve(self.receiver));
        // The policy's literals were judged by the compiler.
        let judged = match self.cost {
            Some(cost) => resolved.policy.validate_with(Some(cost)),
            None => Ok(()),
        };
        self.decide(resolved, &resolved.policy, judged).await
    }

    /// Decides the call under a policy that it brings, whatever name that has.
    ///
    /// # Errors
    ///
    /// The refusal.
    pub async fn check_under(self, policy: Policy) -> Result<(), RateLimitError> {
        let resolved = self.site.resolved.get_or_init(|| self.site.resolve(self.receiver));
        let policy = policy.named(resolved.policy.name());
        let judged = policy.validate_with(self.cost);
        self.decide(resolved, &policy, judged).await
    }

    async fn decide(
        &self,
        resolved: &Resolved,
        policy: &Policy,
        judged: Result<(), InvalidPolicy>,
    ) -> Result<(), RateLimitError> {
        let limiter = self.limiter.as_ref().unwrap_or_else(|| installed());
        let key = self.key(limiter, resolved, policy);
        let request = Request { policy, cost: self.cost.unwrap_or(1), record: true, id: None };
        // A dry run lets every call pass, and so lets none wait.
        let max_wait = if self.dry_run { Duration::ZERO } else { self.max_wait };
        let terms = Terms { max_wait, on_store_error: self.on_store_error };
        let outcome = match judged {
            Ok(()) => limiter.decide_on(&key, request, terms).await,
            Err(invalid) => Err(invalid.into()),
        };
        observe::record(|| {
            let outcome = outcome.clone()?;
            let charge = Charge::new(key, request, &outcome);
            Ok(decision::decide(policy, &outcome)?.with_charge(charge))
        });
        let error = match outcome {
            Ok(outcome) if outcome.admitted => return Ok(()),
            Ok(outcome) => decision::exceeded(policy, &outcome).into(),
            Err(error) => error,
        };
        if self.dry_run {
            tracing::info!(%error, "dry run: this call would have been refused");
            return Ok(());
        }
        Err(error)
    }

    fn key(&self, limiter: &Limiter, resolved: &Resolved, policy: &Policy) -> Key {
        if !self.caller.is_empty() && !resolved.is_default_method {
            return limiter.key(policy, &self.caller);
        }
        let mut caller = Caller::without_parts();
        if let Some(receiver) = self.receiver.filter(|_| resolved.is_default_method) {
            caller.push(receiver);
        }
        if !self.caller.is_empty() {
            caller.append(&self.caller);
        } else if let Some(ambient) = caller::current() {
            caller.append(&ambient);
        } else {
            self.site.warn_once_without_caller(policy);
            caller.append(&Caller::shared());
        }
        limiter.key(policy, &caller)
    }
}

/// A part of the key. Method look-up finds the first `add_to` that fits: here for an `Option`, one
/// `Deref` further for a reference to one, and at last for everything else. The bounds are on the
/// methods, so that a value without a `Display` is reported as such and not as a missing method.
pub struct Part<'a, T: ?Sized>(Borrowed<'a, T>);

/// The second place where method look-up finds `add_to`.
pub struct Borrowed<'a, T: ?Sized>(Plain<'a, T>);

/// The last place where method look-up finds `add_to`.
pub struct Plain<'a, T: ?Sized>(&'a T);

/// The part that `value` makes.
pub const fn part<T: ?Sized>(value: &T) -> Part<'_, T> {
    Part(Borrowed(Plain(value)))
}

impl<'a, T: ?Sized> Deref for Part<'a, T> {
    type Target = Borrowed<'a, T>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl<'a, T: ?Sized> Deref for Borrowed<'a, T> {
    type Target = Plain<'a, T>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl<T> Part<'_, Option<T>> {
    /// Adds the value, or a part that no value equals.
    pub fn add_to(&self, call: &mut Call)
    where
        T: KeyPart,
    {
        call.add_optional(self.0.0.0.as_ref());
    }
}

impl<T> Borrowed<'_, &Option<T>> {
    /// Adds the value, or a part that no value equals.
    pub fn add_to(&self, call: &mut Call)
    where
        T: KeyPart,
    {
        call.add_optional(self.0.0.as_ref());
    }
}

impl<T: ?Sized> Plain<'_, T> {
    /// Adds the value.
    pub fn add_to(&self, call: &mut Call)
    where
        T: KeyPart,
    {
        call.caller.push(self.0);
    }
}

/// What can be a part of a key.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be part of a rate limit's key",
    label = "the key is made of the text of this value",
    note = "a part of the key is anything that implements `Display`, or an `Option` of it; name a field, or write a tuple for several parts"
)]
pub trait KeyPart: Display {}

#[diagnostic::do_not_recommend]
impl<T: Display + ?Sized> KeyPart for T {}

/// Whether a call is to be checked.
#[must_use]
pub const fn unless(skip: bool) -> bool {
    !skip
}

/// A number of microseconds as a `Duration`.
#[must_use]
pub const fn micros(micros: u64) -> Duration {
    Duration::from_micros(micros)
}

/// The path of the function in whose body the item of this path is declared.
fn enclosing_function(inner: &'static str) -> &'static str {
    let function = inner.rsplit_once("::").map_or(inner, |(function, _)| function);
    function.trim_end_matches("::{{closure}}")
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
    fn the_function_is_found_around_the_item_in_its_body() {
        assert_eq!(enclosing_function("app::say_hi::{{closure}}::Here"), "app::say_hi");
        assert_eq!(
            enclosing_function("app::outer::{{closure}}::say_hi::Here"),
            "app::outer::{{closure}}::say_hi"
        );
    }

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
