//! The ambient caller of the current task, and the macro that makes a caller.
//!
//! Floor 2: imports `key`. Every room above may import it.

use std::{
    future::Future,
    sync::atomic::{AtomicBool, Ordering},
};

pub(crate) use crate::key::{Caller, IntoCaller};

tokio::task_local! {
    static CURRENT: Caller;
}

/// `true` once [`scope`] has had a caller: the refusals of a program without one ask no task.
static HAS_SCOPES: AtomicBool = AtomicBool::new(false);

/// Makes a [`Caller`](crate::Caller) of one part for each argument, as the attribute's `key` does.
///
/// Text and integers need no formatter, so it is faster than [`Caller::from`](crate::Caller). An
/// `Option` is a part too, and so is every value that implements [`Display`](std::fmt::Display). A
/// `Caller` is also a part: that of the request, with what the request names.
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

/// Runs `future` with `caller` as the ambient caller. Annotated functions without a `key` are
/// counted under it.
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
    // Mostly it is only read, which does not take the cache line from other threads.
    if !HAS_SCOPES.load(Ordering::Relaxed) {
        HAS_SCOPES.store(true, Ordering::Relaxed);
    }
    CURRENT.scope(caller.into(), future)
}

/// Returns the ambient caller of the current task, if [`scope`] has set one.
#[must_use]
pub fn current() -> Option<Caller> {
    CURRENT.try_with(Clone::clone).ok()
}

/// Returns `true` if this caller of a key is one client: the ambient caller is in it, or there is
/// none and the call has a caller.
#[inline(always)]
pub(crate) fn is_of_current(counted: &Caller) -> bool {
    let in_scope = if HAS_SCOPES.load(Ordering::Relaxed) { is_of_scope(counted) } else { None };
    in_scope.unwrap_or_else(|| !counted.is_shared())
}

/// Returns `true` if the ambient caller is in this one; nothing if there is none.
#[inline(never)]
fn is_of_scope(counted: &Caller) -> Option<bool> {
    let has_client = |client: &Caller| (!client.is_shared()).then(|| counted.has(client));
    CURRENT.try_with(has_client).ok().flatten()
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
}
