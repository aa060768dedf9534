//! The caller of a call: the parts of its key, and the ambient caller of the current task.

// Floor 2: imports `key`. Every room above may import it.

use std::{borrow::Cow, fmt, future::Future};

use crate::key::{self, InlineBytes};

tokio::task_local! {
    static CURRENT: Caller;
}

/// The identity under which a call is counted: one or more parts.
///
/// Every [`Display`](fmt::Display) type converts into a caller of one part. Different parts always make
/// different callers: `("a/b", "c")` is not `("a", "b/c")`, and empty parts count.
///
/// ```
/// use ratelimit_runtime::caller::Caller;
///
/// let user = Caller::from("user-42");
/// let tenant_user = Caller::from("acme").and(42);
/// assert_ne!(user, tenant_user);
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Caller {
    parts: InlineBytes,
}

impl Caller {
    /// Adds a further part.
    #[must_use]
    pub fn and(mut self, part: impl fmt::Display) -> Self {
        key::push_display(&mut self.parts, &part);
        self
    }

    /// Returns a caller of one part that appears in keys only as its SHA-256. `Identity::header`
    /// returns the same.
    ///
    /// ```
    /// use ratelimit_runtime::Caller;
    ///
    /// assert_ne!(Caller::digest("sk-live-4711"), Caller::from("sk-live-4711"));
    /// ```
    #[must_use]
    pub fn digest(part: impl fmt::Display) -> Self {
        let mut caller = Self::without_parts();
        caller.push_digest(&part);
        caller
    }

    /// Returns `caller` as the second extractor of an identity finds it, after `Identity::or`. Apply it
    /// twice for the third extractor.
    #[must_use]
    pub fn alternative(caller: impl Into<Self>) -> Self {
        caller.into().marked()
    }

    /// Returns this caller after the mark of an alternative extractor.
    pub(crate) fn marked(self) -> Self {
        let mut caller = Self::without_parts();
        caller.push_or();
        caller.append(&self);
        caller
    }

    /// Returns the caller of one absent part: the one that `key` makes of `Option::None`.
    ///
    /// ```
    /// use ratelimit_runtime::Caller;
    ///
    /// assert_ne!(Caller::none(), Caller::from("None"));
    /// ```
    #[must_use]
    pub fn none() -> Self {
        let mut caller = Self::without_parts();
        caller.push_none();
        caller
    }

    /// Adds all parts of another caller.
    ///
    /// ```
    /// use ratelimit_runtime::Caller;
    ///
    /// // `key = (tenant, user)` with a `user` that is `None`.
    /// let anonymous = Caller::from("acme").join(&Caller::none());
    /// assert_ne!(anonymous, Caller::from("acme"));
    /// assert_eq!(Caller::from("acme").join(&Caller::from(42)), Caller::from("acme").and(42));
    /// ```
    #[must_use]
    pub fn join(mut self, other: &Self) -> Self {
        self.append(other);
        self
    }

    pub(crate) fn push_or(&mut self) {
        key::push_or(&mut self.parts);
    }

    pub(crate) fn push_digest(&mut self, part: &(impl fmt::Display + ?Sized)) {
        key::push_digest(&mut self.parts, part);
    }

    #[inline]
    pub(crate) fn without_parts() -> Self {
        Self { parts: InlineBytes::new() }
    }

    /// Returns the caller under which all calls without a caller are counted, for look-ups by
    /// operators.
    #[must_use]
    pub fn shared() -> Self {
        let mut caller = Self::without_parts();
        key::push_shared(&mut caller.parts);
        caller
    }

    pub(crate) fn push(&mut self, part: &(impl fmt::Display + ?Sized)) {
        key::push_display(&mut self.parts, part);
    }

    /// Adds the part of [`push`](Self::push) for a value that displays as `text`.
    #[inline]
    pub(crate) fn push_str(&mut self, text: &str) {
        key::push_str(&mut self.parts, text);
    }

    /// Adds the part of [`push`](Self::push) for a number. Returns `false`, and adds nothing, if it has
    /// more than eight digits.
    pub(crate) fn push_number(&mut self, number: u32) -> bool {
        self.parts.append_number(number)
    }

    pub(crate) fn push_none(&mut self) {
        key::push_none(&mut self.parts);
    }

    /// Adds another caller as one part of a key.
    pub(crate) fn push_caller(&mut self, other: &Self) {
        key::push_caller(&mut self.parts, &other.parts);
    }

    pub(crate) fn append(&mut self, other: &Self) {
        self.parts.append(&other.parts);
    }

    #[inline]
    pub(crate) fn parts(&self) -> &InlineBytes {
        &self.parts
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }
}

/// A value that names a caller: a [`Caller`] or a reference to one, or a value that converts into
/// one, as every [`Display`](fmt::Display) type does.
pub trait IntoCaller<'a> {
    /// Returns the caller; a reference is not cloned.
    fn into_caller(self) -> Cow<'a, Caller>;
}

impl<'a, T: Into<Caller>> IntoCaller<'a> for T {
    #[inline]
    fn into_caller(self) -> Cow<'a, Caller> {
        Cow::Owned(self.into())
    }
}

impl<'a> IntoCaller<'a> for &'a Caller {
    #[inline]
    fn into_caller(self) -> Cow<'a, Caller> {
        Cow::Borrowed(self)
    }
}

/// Makes a [`Caller`](crate::Caller) of one part for each argument, as the attribute's `key` does.
///
/// Text and integers need no formatter, so it is faster than [`Caller::from`](crate::Caller). An
/// `Option` is a part too, and so is every value that implements [`Display`](std::fmt::Display). A `Caller`
/// is also a part: that of the request, with what the request names.
///
/// ```
/// use ratelimit_runtime::{Caller, caller};
///
/// let by_address_and_account = caller!(caller::current(), "alice");
/// assert_eq!(by_address_and_account, Caller::none().and("alice"));
/// ```
///
/// ```
/// use std::time::Duration;
/// use ratelimit_runtime::{Caller, Limiter, Policy, caller};
///
/// const EXPORT: Policy = Policy::token_bucket("export", Duration::from_secs(1), 10);
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), ratelimit_runtime::RateLimitError> {
/// # let (tenant, user) = ("acme", 42);
/// let limiter = Limiter::in_memory();
/// // By reference, so that the caller is not moved.
/// limiter.check(&EXPORT, &caller!(tenant, user)).await?;
/// assert!(caller!(tenant, user) == Caller::from(tenant).and(user));
/// # Ok(())
/// # }
/// ```
#[macro_export]
macro_rules! caller {
    ($($part:expr),+ $(,)?) => {{
        let mut caller = $crate::__private::caller_without_parts();
        $($crate::__private::KeyPart::push_to(
            $crate::__private::part(&($part)).pick(),
            &mut caller,
        );)+
        caller
    }};
}

impl<T: fmt::Display> From<T> for Caller {
    fn from(part: T) -> Self {
        Self::without_parts().and(part)
    }
}

/// Shows no part: an identity does not belong in a log.
impl fmt::Debug for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Caller").finish_non_exhaustive()
    }
}

/// Runs `future` with `caller` as the ambient caller. Annotated functions without a `key` are counted
/// under it.
///
/// The scope covers the future itself, not tasks that it spawns.
///
/// ```
/// use ratelimit_runtime::{caller, rate_limit, RateLimitError};
///
/// #[rate_limit(period = 60, threshold = 1)]
/// async fn greet() -> Result<&'static str, RateLimitError> {
///     Ok("hello")
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// assert!(caller::scope("alice", greet()).await.is_ok());
/// assert!(caller::scope("alice", greet()).await.is_err());
/// assert!(caller::scope("bob", greet()).await.is_ok());
/// # }
/// ```
pub fn scope<F, C>(caller: C, future: F) -> impl Future<Output = F::Output> + use<F, C>
where
    F: Future,
    C: Into<Caller>,
{
    CURRENT.scope(caller.into(), future)
}

/// Returns the ambient caller of the current task, if [`scope`] has set one.
#[must_use]
pub fn current() -> Option<Caller> {
    CURRENT.try_with(Clone::clone).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_innermost_scope_names_the_caller() {
        assert_eq!(current(), None);
        scope("outer", async {
            assert_eq!(current(), Some("outer".into()));
            scope("inner", async { assert_eq!(current(), Some("inner".into())) }).await;
            assert_eq!(current(), Some("outer".into()));
        })
        .await;
        assert_eq!(current(), None);
    }

    #[test]
    fn debug_shows_no_part() {
        assert!(!format!("{:?}", Caller::from("user-42")).contains("42"));
    }
}
