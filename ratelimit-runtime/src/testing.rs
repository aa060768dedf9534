//! Tests of limits: a limiter for each test, staged refusals, and assertions (feature `testing`).
//!
//! Enable the feature for tests alone. A production build has none of it:
//!
//! ```toml
//! [dev-dependencies]
//! ratelimit-runtime = { version = "0.2", features = ["testing"] }
//! tokio = { version = "1", features = ["macros", "rt", "test-util"] }
//! ```
//!
//! | function | effect |
//! |---|---|
//! | [`isolated`] | gives the calls inside a future a limiter of their own |
//! | [`refuse`], [`exhaust`], [`busy`], [`unavailable`] | stage a refusal of all calls of a limit inside it |
//! | [`refuse_for`], [`exhaust_for`], [`busy_for`], [`unavailable_for`] | stage a refusal of one caller's calls |
//! | [`restore`] | ends the staged refusals of a limit |
//! | [`assert_limited`] | asserts that so many calls pass, and that the promised wait is exact |
//! | [`assert_covered`], [`assert_covered_but`] | asserts that the tests of this process have seen each limit admit and refuse |
//! | `at` | sets the time of the calendar, with the feature `calendar` |
//! | [`on_redis`] | connects a limiter with keys of its own |
//!
//! The page [`guide::testing`](crate::guide::testing) shows them together.
//!
//! Floor 9: imports the limiter and the registry. Nothing imports it.

mod assertions;

use std::{
    borrow::Cow,
    process,
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

pub use self::assertions::{assert_covered, assert_covered_but, assert_limited};
#[cfg(feature = "calendar")]
use crate::{calendar, limiter::set_calendar};
use crate::{
    caller::Caller,
    key::IntoCaller,
    limiter::{LimitRef, Limiter, PlannedAnswer, PlannedRefusal, change_planned, run_isolated},
    request::OnStoreError,
};

/// The deadline of a limiter for tests, which may share a busy machine.
const DEADLINE: Duration = Duration::from_secs(10);

/// Runs a future whose calls are decided by a limiter of its own, in memory. Tests that run in
/// parallel then share no counts, although their functions name no limiter and the callers are the
/// same.
///
/// Calls of functions with an argument `limiter` keep that limiter. A task that the future spawns
/// is outside: wrap its future, too. The limiter, some kilobytes, stays for the rest of the
/// process.
///
/// ```
/// use ratelimit_runtime::{RateLimitError, rate_limit, testing};
///
/// #[rate_limit(period = "1h", threshold = 1, key = user)]
/// async fn report(user: &str) -> Result<(), RateLimitError> {
///     Ok(())
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// for _ in 0..2 {
///     testing::isolated(async {
///         report("alice").await.unwrap();
///         report("alice").await.unwrap_err();
///     })
///     .await;
/// }
/// # }
/// ```
///
/// # A served router
///
/// A server spawns a task for each connection: `isolated(axum::serve(..))` isolates no request. Let
/// a layer of the test isolate each of them, and stage refusals there, before `next.run(request)`:
///
#[cfg_attr(feature = "axum", doc = "```")]
#[cfg_attr(not(feature = "axum"), doc = "```ignore")]
/// use axum::{Router, extract::Request, middleware::{Next, from_fn}, routing::get};
/// use ratelimit_runtime::{Limiter, rate_limit, testing};
///
/// #[rate_limit(period = "1h", threshold = 1, key = "all")]
/// async fn report() -> axum::response::Result<&'static str> {
///     Ok("report")
/// }
///
/// fn isolated(app: Router) -> Router {
///     let limiter = Limiter::in_memory();
///     app.layer(from_fn(move |request: Request, next: Next| {
///         testing::isolated_with(limiter.clone(), next.run(request))
///     }))
/// }
///
/// # use axum::body::Body;
/// # use tower_service::Service;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// # for _ in 0..2 {
/// # let mut app = isolated(Router::new().route("/", get(report)));
/// # let mut status = async || {
/// #     let answer = tokio::spawn(app.call(Request::new(Body::empty())));
/// #     answer.await.unwrap().unwrap().status().as_u16()
/// # };
/// # assert_eq!([status().await, status().await], [200, 429]);
/// # }
/// # }
/// ```
pub fn isolated<F: Future>(future: F) -> impl Future<Output = F::Output> {
    isolated_with(Limiter::in_memory(), future)
}

/// Runs a future as [`isolated`], with this limiter: one of [`on_redis`], or one whose store does
/// not answer.
///
/// ```
/// use ratelimit_runtime::{Limiter, OnStoreError, RateLimitError, rate_limit, testing};
///
/// #[rate_limit(period = "1h", threshold = 1, key = user)]
/// async fn report(user: &str) -> Result<(), RateLimitError> {
///     Ok(())
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// // Nothing listens there.
/// let builder = Limiter::builder().on_store_error(OnStoreError::Deny);
/// let lost = builder.connect_lazy("redis://127.0.0.1:1/").unwrap();
/// let answer = testing::isolated_with(lost, report("alice")).await;
/// assert!(matches!(answer, Err(RateLimitError::Unavailable(_))));
/// # }
/// ```
pub fn isolated_with<F: Future>(limiter: Limiter, future: F) -> impl Future<Output = F::Output> {
    run_isolated(limiter, future)
}

/// Refuses all calls of a limit inside [`isolated`], with this wait. The limit is a name, or a
/// `&Policy` that is checked by hand. With [`Plans`](crate::Plans), `api` is the limit with all its
/// plans, and `api@pro` or `API.of("pro")` is one of them. A limit of calls in flight alone is
/// [`busy`].
///
/// ```
/// use std::time::Duration;
/// use ratelimit_runtime::{RateLimitError, rate_limit, testing};
///
/// #[rate_limit(name = "report", period = "1h", threshold = 100, key = user)]
/// async fn report(user: &str) -> Result<(), RateLimitError> {
///     Ok(())
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// testing::isolated(async {
///     testing::refuse("report", Duration::from_secs(7));
///     let Err(RateLimitError::Exceeded(refused)) = report("alice").await else { panic!() };
///     assert_eq!(refused.retry_after(), Duration::from_secs(7));
///     testing::restore("report");
///     report("alice").await.unwrap();
/// })
/// .await;
/// # }
/// ```
///
/// # Panics
///
/// Outside of [`isolated`], and for a name that no annotated function has.
#[track_caller]
pub fn refuse<'a>(limit: impl Into<LimitRef<'a>>, after: Duration) {
    stage(limit, None, PlannedRefusal::Exceeded(Some(after)));
}

/// Refuses the calls of one caller, as [`refuse`]. `caller` is the `key` of the call, or the caller
/// of its [scope](crate::caller::scope). A value also means the caller of its
/// [digest](Caller::digest), such as that of an API key under `Identity::header`.
///
/// # Panics
///
/// As [`refuse`].
#[track_caller]
pub fn refuse_for<'a>(
    limit: impl Into<LimitRef<'a>>,
    caller: impl IntoCaller<'a>,
    after: Duration,
) {
    stage(limit, Some(caller.into_caller()), PlannedRefusal::Exceeded(Some(after)));
}

/// Refuses all calls of a limit as if their quota was used up just now: the wait is the longest
/// period.
///
/// # Panics
///
/// As [`refuse`].
#[track_caller]
pub fn exhaust<'a>(limit: impl Into<LimitRef<'a>>) {
    stage(limit, None, PlannedRefusal::Exceeded(None));
}

/// Refuses the calls of one caller, as [`exhaust`].
///
/// # Panics
///
/// As [`refuse`].
#[track_caller]
pub fn exhaust_for<'a>(limit: impl Into<LimitRef<'a>>, caller: impl IntoCaller<'a>) {
    stage(limit, Some(caller.into_caller()), PlannedRefusal::Exceeded(None));
}

/// Refuses all calls of a limit as if too many were in flight:
/// [`RateLimitError::Busy`](crate::RateLimitError::Busy).
///
/// # Panics
///
/// As [`refuse`].
#[track_caller]
pub fn busy<'a>(limit: impl Into<LimitRef<'a>>) {
    stage(limit, None, PlannedRefusal::Busy);
}

/// Refuses the calls of one caller, as [`busy`].
///
/// # Panics
///
/// As [`refuse`].
#[track_caller]
pub fn busy_for<'a>(limit: impl Into<LimitRef<'a>>, caller: impl IntoCaller<'a>) {
    stage(limit, Some(caller.into_caller()), PlannedRefusal::Busy);
}

/// Refuses all calls of a limit as if the store could not be reached under [`OnStoreError::Deny`]:
/// [`RateLimitError::Unavailable`](crate::RateLimitError::Unavailable).
///
/// # Panics
///
/// As [`refuse`].
#[track_caller]
pub fn unavailable<'a>(limit: impl Into<LimitRef<'a>>) {
    stage(limit, None, PlannedRefusal::Unavailable);
}

/// Refuses the calls of one caller, as [`unavailable`].
///
/// # Panics
///
/// As [`refuse`].
#[track_caller]
pub fn unavailable_for<'a>(limit: impl Into<LimitRef<'a>>, caller: impl IntoCaller<'a>) {
    stage(limit, Some(caller.into_caller()), PlannedRefusal::Unavailable);
}

/// Ends the staged refusals of a limit, also those of single callers: the limiter decides its calls
/// again.
///
/// # Panics
///
/// As [`refuse`].
#[track_caller]
pub fn restore<'a>(limit: impl Into<LimitRef<'a>>) {
    let (limit, plan) = limit_and_plan(limit);
    change(|planned| planned.retain(|it| it.limit != limit || plan.is_some() && it.plan != plan));
}

/// Sets the time of the calendar inside [`isolated`], for limits with
/// [`calendar_window`](crate::Policy::calendar_window). It goes on from there, with tokio's clock.
///
/// ```
/// use std::time::Duration;
/// use ratelimit_runtime::{RateLimitError, rate_limit, testing};
///
/// #[rate_limit(algorithm = calendar_window, period = "month", threshold = 1, zone = "Europe/Berlin", key = user)]
/// async fn bill(user: &str) -> Result<(), RateLimitError> {
///     Ok(())
/// }
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// testing::isolated(async {
///     testing::at("2026-03-29T00:59:00Z");
///     bill("alice").await.unwrap();
///     let Err(RateLimitError::Exceeded(refused)) = bill("alice").await else { panic!() };
///     // April starts at 22:00 UTC, in summer time.
///     assert_eq!(refused.retry_after(), Duration::from_secs((2 * 24 + 21) * 3_600 + 60));
///     tokio::time::advance(refused.retry_after()).await;
///     bill("alice").await.unwrap();
/// })
/// .await;
/// # }
/// ```
///
/// # Panics
///
/// Outside of [`isolated`], on Redis, and for a text that is no time with an offset from UTC.
#[cfg(feature = "calendar")]
#[track_caller]
pub fn at(time: &str) {
    let unix = calendar::parse(time);
    let unix = unix.unwrap_or_else(|| panic!("`{time}` is no time such as `2026-03-29T00:59:00Z`"));
    set_calendar(unix).unwrap_or_else(|| {
        panic!("the time of the calendar is set inside `testing::isolated(..)`, in memory")
    });
}

#[track_caller]
fn stage<'a>(
    limit: impl Into<LimitRef<'a>>,
    caller: Option<Cow<'_, Caller>>,
    refusal: PlannedRefusal,
) {
    let (limit, plan) = limit_and_plan(limit);
    let caller = caller.map(Cow::into_owned);
    change(|planned| {
        planned.retain(|it| (it.limit, it.plan, &it.caller) != (limit, plan, &caller));
        planned.push(PlannedAnswer { limit, plan, caller, refusal });
    });
}

#[track_caller]
fn limit_and_plan<'a>(limit: impl Into<LimitRef<'a>>) -> (&'static str, Option<&'static str>) {
    limit.into().limit_and_plan().unwrap_or_else(|error| panic!("{error}"))
}

#[track_caller]
fn change(change: impl FnOnce(&mut Vec<PlannedAnswer>)) {
    change_planned(change).unwrap_or_else(|| {
        panic!(
            "refusals are staged inside `testing::isolated(..)`; a task that is spawned inside is outside: \
             wrap its future, too"
        )
    });
}

/// Connects a limiter whose keys are those of no other one. A lost Redis is an error
/// ([`OnStoreError::Deny`]), and the deadline is 10 s. The keys expire by themselves.
///
/// A paused clock does not move the time of Redis, and lets deadlines pass at once: leave the clock
/// alone.
///
/// # Panics
///
/// If Redis cannot be reached.
pub async fn on_redis(url: &str) -> Limiter {
    static LIMITERS: AtomicU64 = AtomicU64::new(0);

    let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros();
    let number = LIMITERS.fetch_add(1, Ordering::Relaxed);
    let prefix = format!("test-{started:x}-{}-{number}", process::id());
    let builder = Limiter::builder().prefix(prefix).deadline(DEADLINE);
    let connected = builder.on_store_error(OnStoreError::Deny).connect(url).await;
    connected.unwrap_or_else(|error| panic!("{error}; start the server before the tests"))
}
