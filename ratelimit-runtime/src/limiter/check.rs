//! The one description of a call, built by the attribute, a check by hand, a gate or the dashboard.

use std::{borrow::Cow, fmt, time::Duration};

use super::Limiter;
use crate::{
    caller::Caller,
    key,
    overrides::Enforcement,
    policy::Policy,
    registry,
    request::{OnStoreError, Op},
    telemetry::PolicyCounters,
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
///     Policy::sliding_window("export", Duration::from_millis(50), 10).weighted();
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
    options: Options,
}

/// A call as the pipeline receives it, from a [`Check`], a task that outlives one, or an annotated
/// function: references, which stay in registers.
#[derive(Clone, Copy)]
pub(crate) struct Call<'a> {
    pub(crate) limiter: &'a Limiter,
    pub(crate) policy: &'a Policy,
    pub(crate) caller: &'a Caller,
    /// The caller that is recorded for observers, if it is not the one that is counted.
    pub(crate) observed_as: Option<&'a Caller>,
    /// The counters of the policy's name, if they are kept where the call comes from.
    pub(crate) counters: Option<&'a PolicyCounters>,
    pub(crate) options: &'a Options,
}

/// The options of a check that are plain values.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Options {
    pub(crate) cost: u32,
    pub(crate) id: Option<u64>,
    /// A peek reports what a take would get, whatever the enforcement.
    pub(crate) op: Op,
    pub(crate) max_wait: Duration,
    /// The limiter's own setting if `None`.
    pub(crate) on_store_error: Option<OnStoreError>,
    /// The enforcement that the source code declares.
    pub(crate) declared: Enforcement,
    /// `true` if the compiler has validated the policy and the cost.
    pub(crate) is_validated: bool,
    /// `true` if one unit is to be taken at once, without an id, and the declared enforcement refuses.
    pub(super) is_one_unit: bool,
}

impl Options {
    /// Sets the declared enforcement.
    #[inline]
    pub(crate) fn declare(&mut self, declared: Enforcement) {
        self.declared = declared;
        self.is_one_unit &= declared == Enforcement::On;
    }

    pub(crate) fn set_cost(&mut self, cost: u32) {
        self.cost = cost;
        self.is_one_unit &= cost == 1;
    }

    pub(crate) fn set_id(&mut self, id: &impl fmt::Display) {
        self.id = Some(key::hash_request_id(id));
        self.is_one_unit = false;
    }

    pub(crate) fn set_max_wait(&mut self, max_wait: Duration) {
        self.max_wait = max_wait;
        self.is_one_unit = false;
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            cost: 1,
            id: None,
            op: Op::Take,
            max_wait: Duration::ZERO,
            on_store_error: None,
            declared: Enforcement::On,
            is_validated: false,
            is_one_unit: true,
        }
    }
}

impl<'a> Check<'a> {
    #[inline]
    pub(super) fn new(limiter: &'a Limiter, policy: &'a Policy, caller: Cow<'a, Caller>) -> Self {
        if limiter.inner.is_instrumented && registry::is_new(policy) {
            registry::warn_of_conflict(policy);
            limiter.overrides().on_new_limit();
        }
        Self { limiter, policy, caller, observed_as: None, options: Options::default() }
    }

    #[inline]
    pub(super) fn as_call(&self) -> Call<'_> {
        let Self { limiter, policy, caller, observed_as, options } = self;
        Call { limiter, policy, caller, observed_as: *observed_as, counters: None, options }
    }

    /// Sets the units that the call takes, all or none; 1 by default. A call of 0 units is admitted
    /// and takes nothing.
    pub fn cost(mut self, cost: u32) -> Self {
        self.options.set_cost(cost);
        self
    }

    /// Sets an id under which the call is charged once. Until the policy's longest period has
    /// passed since the charge, a check with the same id is admitted without another one.
    ///
    /// Ids belong to one caller under one policy. They need a
    /// [sliding window](crate::Algorithm::SlidingWindow) without
    /// [`count_rejected`](Policy::count_rejected): it alone keeps an entry for each call.
    ///
    /// Take ids from the program, never from the client. A client that chooses the id, as in a
    /// header `idempotency-key`, repeats one id and is charged for one call.
    pub fn request_id(mut self, id: impl fmt::Display) -> Self {
        self.options.set_id(&id);
        self
    }

    /// Sets how long the call waits for room instead of being refused at once; 0 by default.
    ///
    /// Calls that wait stand in a line: first come, first served, for each policy and caller. A call is
    /// promised its turn when it arrives, and takes its units as of then. It is refused at once if the turn
    /// comes later than `max_wait`, or if the line is [full](crate::LimiterBuilder::max_line). While calls
    /// wait, a call that does not wait is refused, and told the wait until the end of the line.
    ///
    /// A sliding window has a line if it is [weighted](Policy::weighted). Otherwise the check fails with
    /// [`InvalidPolicy`](crate::InvalidPolicy).
    ///
    /// Dropping the future gives the turn to the next call of the same cost in this process, and so on; the
    /// last turn is given back. Nobody is served later than promised. A fixed window with several tiers keeps
    /// the units of a turn that is given back, unless no other turn comes after it; and while calls wait, a
    /// refund leaves one unit in each of its windows. A call with a [request id](Self::request_id) keeps its
    /// turn for its repetition.
    ///
    /// On Redis the line is that of all processes. Each call is one script, and each process asks for its
    /// line once a second. When calls of several processes leave, the order between processes may change.
    /// A call in a weighted window is also refused at once if more than some 32 000 calls have to leave the
    /// window before it. While calls wait under a key, and for two seconds after, no process gets units of it
    /// on [lease](Policy::lease): Redis decides each call.
    ///
    /// Resets, refunds and settles reach a line at once if this process makes them, and within a second if
    /// another does. [Overrides](crate::Overrides) reach the calls of each process at once. Under a higher limit
    /// calls come nearer, one after the other, and none is refused. Under a lower limit calls keep their turns
    /// while the first one has room. Without room for the first turn, the process asks for its line anew, in order.
    ///
    /// The call waits for Redis too. While Redis cannot decide, it asks again with pauses, and is answered by
    /// [`OnStoreError`] only when `max_wait` has passed. [`Decision::decided_by`](crate::Decision::decided_by)
    /// returns who admitted it.
    ///
    /// A call in a line also waits for a permit of [`concurrency`](Policy::concurrency), and holds it while it
    /// waits for its turn. A peek and a call of 0 units never wait.
    ///
    /// [`Decision::waited`](crate::Decision::waited) tells how long the call has waited. The guide has the
    /// [wait to expect](crate::guide::capacity#a-line).
    pub fn max_wait(mut self, max_wait: Duration) -> Self {
        self.options.set_max_wait(max_wait);
        self
    }

    /// Sets the answer for a call that the store cannot decide in time or has no room for; by
    /// default the limiter's own [setting](crate::LimiterBuilder::on_store_error).
    pub fn on_store_error(mut self, on_store_error: OnStoreError) -> Self {
        self.options.on_store_error = Some(on_store_error);
        self
    }

    /// Sets the caller that is recorded for observers.
    #[cfg(any(feature = "actix", feature = "tower"))]
    pub(crate) fn observed_as(self, caller: &'a Caller) -> Self {
        Self { observed_as: Some(caller), ..self }
    }

    pub(super) fn op(mut self, op: Op) -> Self {
        self.options.op = op;
        self.options.is_one_unit &= op == Op::Take;
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
