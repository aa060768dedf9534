//! A check by hand, and its future.

use std::{
    borrow::Cow,
    fmt, mem,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use super::{
    Limiter,
    call::Call,
    owned_call::{CallKind, Options},
    start::{PendingAnswer, Started},
};
use crate::{
    caller::Caller,
    decision::{Answer, Decision},
    error::RateLimitError,
    key,
    policy::Policy,
    registry,
    request::{OnStoreError, Op},
    telemetry::LimitCounters,
};

/// A call to be checked: await it, or add to it first.
///
/// [`Limiter::check`] makes one that takes units, [`Limiter::peek`] one that only reports. Nothing
/// happens before the check is awaited. Its output is `Result<Decision, RateLimitError>`.
///
/// A check is an [`IntoFuture`]: call [`into_future`](IntoFuture::into_future) where a future is
/// expected, as in `tokio::join!`.
///
/// ```
/// use std::time::Duration;
/// use ratelimit_runtime::{Limiter, Policy};
///
/// const EXPORT: Policy =
///     Policy::sliding_window("export", Duration::from_millis(50), 10);
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), ratelimit_runtime::RateLimitError> {
/// let limiter = Limiter::in_memory();
/// limiter.check(&EXPORT, "alice").cost(10).request_id("job-7").await?;
/// // A retry of the same job is charged once.
/// limiter.check(&EXPORT, "alice").cost(10).request_id("job-7").await?;
/// // Another job waits until the window has room.
/// limiter.check(&EXPORT, "alice").cost(10).max_wait(Duration::from_secs(1)).await?;
/// assert_eq!(limiter.peek(&EXPORT, "alice").cost(0).await?.remaining(), 0);
/// # Ok(())
/// # }
/// ```
#[must_use = "a check does nothing until it is awaited"]
#[derive(Clone)]
pub struct Check<'a> {
    limiter: &'a Limiter,
    policy: &'a Policy,
    caller: Cow<'a, Caller>,
    observed_as: Option<&'a Caller>,
    /// The counters of the policy's name, unless the limiter's decisions are not recorded.
    counters: Option<&'static LimitCounters>,
    options: Options,
}

impl<'a> Check<'a> {
    #[inline(always)]
    pub(super) fn new(limiter: &'a Limiter, policy: &'a Policy, caller: Cow<'a, Caller>) -> Self {
        let on_new = || {
            registry::warn_of_conflict(policy);
            limiter.overrides().on_new_limit(policy);
        };
        let counters = limiter.is_instrumented().then(|| registry::counters(policy, on_new));
        Self { limiter, policy, caller, observed_as: None, counters, options: Options::default() }
    }

    #[inline]
    pub(super) fn as_call(&self) -> Call<'_> {
        let Self { limiter, policy, caller, observed_as, counters, options } = self;
        let (observed_as, counters) = (*observed_as, *counters);
        Call { limiter, policy, caller, observed_as, counters, options }
    }

    /// Sets the units that the call takes, all or none; 1 by default. A call of 0 units is admitted
    /// and takes nothing.
    pub fn cost(mut self, cost: u32) -> Self {
        self.options.cost(cost);
        self
    }

    /// Sets an id under which the call is charged once. Until the policy's longest period has
    /// passed since the charge, a check with the same id is admitted without another one. If it has
    /// another cost, its settle does nothing.
    ///
    /// Ids belong to one caller under one policy. They need a
    /// [sliding window](crate::Algorithm::SlidingWindow) without
    /// [`count_rejected`](Policy::count_rejected): it alone keeps an entry for each call.
    ///
    /// Take ids from the program, never from the client. A client that chooses the id, as in a
    /// header `idempotency-key`, repeats one id and is charged for one call.
    pub fn request_id(mut self, id: impl fmt::Display) -> Self {
        self.options.request_id(key::hash_request_id(&id));
        self
    }

    /// Sets how long the call waits for room instead of being refused at once; 0 by default.
    ///
    /// Calls that wait stand in a line: first come, first served, for each policy and caller. A
    /// call is promised its turn when it arrives, and takes its units as of then. It is refused at
    /// once if the turn comes later than `max_wait`, or if the line is
    /// [full](crate::LimiterBuilder::max_line). While calls wait, a call that does not wait is
    /// refused, with the wait until the end of the line.
    ///
    /// Dropping the future gives the turn to the next call of the same policy and cost in this
    /// process, and so on; the last turn is given back. Nobody is served later than promised. A
    /// fixed window with several tiers keeps the units of a turn that is given back, unless no
    /// other turn comes after it; and while calls wait, a refund leaves one unit in each of its
    /// windows. A call with a [request id](Self::request_id) keeps its turn for its repetition.
    ///
    /// On Redis the line is that of all processes. Each call is one script, and each process asks
    /// for its line once a second. When calls of several processes leave, the order between
    /// processes may change. A call in a sliding window is also refused at once if more than some
    /// 32 000 calls have to leave the window before it. While calls wait under a key, and for two
    /// seconds after, no process gets units of it on [lease](Policy::lease): Redis decides each
    /// call.
    ///
    /// Resets, refunds and settles reach a line at once if this process makes them, and within a
    /// second if another does. [Overrides](crate::Overrides) reach the calls of each process at
    /// once. Under a higher limit calls come nearer, one after the other, and none is refused.
    /// Under a lower limit calls keep their turns while the first one has room. Without room for
    /// the first turn, the calls that were promised a turn under a higher limit ask anew, in order.
    /// The others keep their turns.
    ///
    /// The call waits for Redis too. While Redis cannot decide, it asks again with pauses, and is
    /// answered by [`OnStoreError`] only when `max_wait` has passed.
    /// [`Decision::decided_by`](crate::Decision::decided_by) returns who admitted it.
    ///
    /// A call in a line also waits for a permit of [`concurrency`](Policy::concurrency), and holds
    /// it while it waits for its turn. A peek and a call of 0 units never wait.
    ///
    /// [`Decision::waited`](crate::Decision::waited) returns the time waited. The guide has the
    /// [wait to expect](crate::guide::waiting#lines).
    ///
    /// # Faults of lines
    ///
    /// A waiting call has its turn by the clock of its process, and needs Redis only for a question
    /// once a second for its line.
    ///
    /// - **Redis cannot decide.** The call asks again, after pauses of 20 ms to 320 ms, until Redis
    ///   answers or its `max_wait` has passed. Only then does it get the answer of
    ///   [`OnStoreError`]. A call whose turn comes during the outage arrives anew.
    /// - **The reply is lost with its connection.** A sliding window recognizes the charge of the
    ///   call. A bucket, a counter and a fixed window may charge it once more for each lost reply.
    /// - **Redis has lost the turn**, by a restart, a failover or `FLUSHALL`. The process notices
    ///   within a second, and its calls arrive anew, in their order. Turns that come before that
    ///   pass, beside what the new counts admit.
    /// - **The clock of Redis steps.** Calls pass at their turns by the clock of their process.
    ///   Redis no longer counts the turns that lay ahead, and admits others beside them.
    /// - **A process is killed.** Its turns pass unused.
    /// - **A process has no processor time.** Its calls pass late, so a remote may see more calls
    ///   than the threshold within a period.
    pub fn max_wait(mut self, max_wait: Duration) -> Self {
        self.options.max_wait(max_wait);
        self
    }

    /// Admits the call only if at least this share of each tier is left after it, in percent; 0 by
    /// default.
    ///
    /// It is for calls that matter less: others find the share when they come, and may use all of
    /// it. The share is rounded up to whole units, and is one of the [burst](Policy::burst) of a
    /// token bucket, and of the [permits](Policy::concurrency) too. [`Decision::remaining`] and
    /// [`Decision::threshold`] are what a call with the same share may use. A share of all units,
    /// such as 100, fails with [`TooLarge`](crate::RateLimitError::TooLarge).
    ///
    /// It does not go with [`max_wait`](Self::max_wait), [`count_rejected`](Policy::count_rejected)
    /// and a [`lease`](Policy::lease): the check fails with
    /// [`InvalidPolicy`](crate::InvalidPolicy).
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use ratelimit_runtime::{Limiter, Policy};
    /// const SEARCH: Policy = Policy::sliding_window("search", Duration::from_secs(60), 10);
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), ratelimit_runtime::RateLimitError> {
    /// let limiter = Limiter::in_memory();
    /// limiter.check(&SEARCH, "alice").cost(8).await?;
    /// // A crawler would take one of the last two, which are 20 percent.
    /// assert!(limiter.check(&SEARCH, "alice").leave(20).await.is_err());
    /// limiter.check(&SEARCH, "alice").cost(2).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn leave(mut self, percent: u32) -> Self {
        self.options.leave(percent);
        self
    }

    /// Warns of the caller once this share of the quota is used, in percent: at most once in a
    /// period, over all processes. By default nobody warns.
    ///
    /// An admitted call after which at most the rest is left warns, unless another one has done so
    /// within the period. [`LimiterBuilder::on_warning`](crate::LimiterBuilder::on_warning)
    /// receives the warning. It is also logged at `info`, and counted as
    /// `ratelimit_warnings_total`. A task asks Redis for it, which this call does not await. Peeks
    /// and calls that no store counts do not warn. While Redis cannot decide, each process warns
    /// for itself under [`OnStoreError::Local`], and not at all otherwise.
    ///
    /// The policy has one tier; otherwise the check fails with
    /// [`InvalidPolicy`](crate::InvalidPolicy). Under an override with several tiers, that with the
    /// fewest units left warns.
    pub fn warn_at(mut self, percent: u32) -> Self {
        self.options.warn_at(percent);
        self
    }

    /// Sets the answer for a call that the store cannot decide in time or has no room for; by
    /// default that of the [policy](Policy::on_store_error), or the limiter's own
    /// [setting](crate::LimiterBuilder::on_store_error).
    pub fn on_store_error(mut self, on_store_error: OnStoreError) -> Self {
        self.options.on_store_error(on_store_error);
        self
    }

    /// Sets the caller that is recorded for observers.
    #[cfg(any(feature = "actix", feature = "tower"))]
    pub(crate) fn observed_as(self, caller: &'a Caller) -> Self {
        Self { observed_as: Some(caller), ..self }
    }

    /// Marks the check as one of several.
    pub(super) fn join(&mut self) {
        self.options.kind = CallKind::JointCheck;
    }

    pub(super) fn op(mut self, op: Op) -> Self {
        self.options.op = op;
        self.options.has_only_units &= op == Op::Take;
        self
    }
}

/// Shows neither the caller nor the id.
impl fmt::Debug for Check<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Check")
            .field("policy", &self.policy)
            .field("cost", &self.options.cost)
            .field("max_wait", &self.options.max_wait)
            .field("on_store_error", &self.options.on_store_error)
            .finish_non_exhaustive()
    }
}

impl<'a> IntoFuture for Check<'a> {
    type Output = Result<Decision, RateLimitError>;
    type IntoFuture = CheckFuture<'a>;

    fn into_future(self) -> CheckFuture<'a> {
        CheckFuture { check: self, stage: Stage::New }
    }
}

/// The future of a [`Check`], which is decided at the first poll; in memory nothing is boxed.
///
/// It panics if it is polled after it was ready.
#[must_use = "a check does nothing until it is awaited"]
pub struct CheckFuture<'a> {
    check: Check<'a>,
    stage: Stage,
}

/// The stage of a check.
enum Stage {
    New,
    Pending(PendingAnswer<Answer<Decision>>),
    Ready,
}

impl Stage {
    /// Polls a check that is not decided yet.
    fn poll(
        &mut self,
        mut future: PendingAnswer<Answer<Decision>>,
        context: &mut Context<'_>,
    ) -> Poll<Answer<Decision>> {
        let polled = future.as_mut().poll(context);
        if polled.is_pending() {
            *self = Self::Pending(future);
        }
        polled
    }
}

impl Future for CheckFuture<'_> {
    type Output = Result<Decision, RateLimitError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { check, stage } = self.get_mut();
        if matches!(stage, Stage::New) {
            *stage = Stage::Ready;
            return match check.as_call().start() {
                Started::Ready(answer) => Poll::Ready(answer),
                Started::Pending(future) => stage.poll(future, context),
            };
        }
        match mem::replace(stage, Stage::Ready) {
            Stage::Pending(future) => stage.poll(future, context),
            Stage::New | Stage::Ready => panic!("a check was polled after it was ready"),
        }
    }
}

impl fmt::Debug for CheckFuture<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CheckFuture").finish_non_exhaustive()
    }
}
