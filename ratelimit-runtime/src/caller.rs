//! Who is calling: the parts that a key is made of, and the caller of the current task.

use std::{fmt, future::Future};

use crate::key::{self, InlineBytes};

tokio::task_local! {
    static CURRENT: Caller;
}

/// The identity a call is counted under: one or more parts.
///
/// Anything with a [`Display`](fmt::Display) is a caller of one part.
/// Different parts always make different callers: `("a/b", "c")` is not `("a", "b/c")`, and empty
/// parts count.
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
    /// A caller that `part` follows as a further part.
    #[must_use]
    pub fn and(mut self, part: impl fmt::Display) -> Self {
        key::push_part(&mut self.parts, &part);
        self
    }

    /// The caller of one part that stands in the store's keys as its SHA-256: the caller of
    /// `Identity::header`.
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

    /// `caller` as the second source of an identity finds it, behind `Identity::or`; of the third
    /// source, its alternative in turn.
    #[must_use]
    pub fn alternative(caller: impl Into<Self>) -> Self {
        caller.into().marked()
    }

    /// This caller behind the mark of an alternative source.
    pub(crate) fn marked(self) -> Self {
        let mut caller = Self::without_parts();
        caller.push_or();
        caller.append(&self);
        caller
    }

    pub(crate) fn push_or(&mut self) {
        key::push_or(&mut self.parts);
    }

    pub(crate) fn push_digest(&mut self, part: &(impl fmt::Display + ?Sized)) {
        key::push_digest(&mut self.parts, part);
    }

    pub(crate) fn without_parts() -> Self {
        Self { parts: InlineBytes::new() }
    }

    /// The one caller of all calls that have none.
    pub(crate) fn shared() -> Self {
        let mut caller = Self::without_parts();
        key::push_shared(&mut caller.parts);
        caller
    }

    pub(crate) fn push(&mut self, part: &(impl fmt::Display + ?Sized)) {
        key::push_part(&mut self.parts, part);
    }

    /// Adds the same part as [`push`](Self::push) does for a value that displays as `text`.
    pub(crate) fn push_text(&mut self, text: &str) {
        key::push_text(&mut self.parts, text);
    }

    pub(crate) fn push_none(&mut self) {
        key::push_none(&mut self.parts);
    }

    pub(crate) fn append(&mut self, other: &Self) {
        self.parts.append(&other.parts);
    }

    pub(crate) fn parts(&self) -> &[u8] {
        &self.parts
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }
}

impl<T: fmt::Display> From<T> for Caller {
    fn from(part: T) -> Self {
        Self::without_parts().and(part)
    }
}

/// Names no one: an identity does not belong in a log.
impl fmt::Debug for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Caller").finish_non_exhaustive()
    }
}

/// Runs `future` with `caller` as the ambient caller: annotated functions without a `key` that are
/// called in it are counted under this caller.
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

/// The ambient caller of the current task, if [`scope`] has set one.
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
    fn debug_names_no_one() {
        assert!(!format!("{:?}", Caller::from("user-42")).contains("42"));
    }
}
