//! One call and the one road that it takes: effective policy, validation, backend, telemetry, answer.
//!
//! The attribute, a check by hand, a gate and a page each make a [`Check`]. [`Check::start`] is the
//! only entry, [`Check::finish`] the only exit. [`wait`](super::wait) has the only loop.

use std::{
    borrow::Cow,
    fmt,
    future::IntoFuture,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use super::Limiter;
use crate::{
    caller::Caller,
    decision::{Decision, Receipt},
    error::{Exceeded, RateLimitError, Unavailable, UnavailableReason},
    key, observe,
    overrides::{Effective, Enforcement},
    policy::Policy,
    request::{DecidedBy, Detail, OnStoreError, Op, Outcome, Request},
    telemetry::Timer,
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
/// const EXPORT: Policy = Policy::sliding_window("export", Duration::from_millis(50), 10);
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
    pub(super) limiter: &'a Limiter,
    pub(super) policy: &'a Policy,
    pub(super) caller: Cow<'a, Caller>,
    /// The caller that observers see with the answer, if it is not the one who is counted.
    pub(super) observed_as: Option<Cow<'a, Caller>>,
    pub(super) terms: Terms,
}

/// The terms of a check that are plain values.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
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
}

impl Default for Terms {
    fn default() -> Self {
        Self {
            cost: 1,
            id: None,
            op: Op::Take,
            max_wait: Duration::ZERO,
            on_store_error: None,
            declared: Enforcement::On,
            is_validated: false,
        }
    }
}

/// The answer to a check.
pub(crate) type Answer<A> = Result<A, RateLimitError>;

/// An answer, or the future that brings it.
#[must_use]
pub enum Started<T> {
    /// The answer: calls are counted in memory.
    Ready(T),
    /// The future, on the heap: in place it would add some kilobytes to every future that holds it.
    Pending(Pin<Box<dyn Future<Output = T> + Send>>),
}

/// The part of an admission that the author of a check receives.
pub(crate) trait Admission: Sized + Send + 'static {
    /// The parts of the outcome that are read.
    const DETAIL: Detail;

    fn new(decision: impl FnOnce() -> Decision) -> Self;
}

/// An annotated function learns only that its body may run.
impl Admission for () {
    const DETAIL: Detail = Detail::Admission;

    #[inline]
    fn new(_: impl FnOnce() -> Decision) -> Self {}
}

/// A check by hand returns the decision.
impl Admission for Decision {
    const DETAIL: Detail = Detail::Full;

    #[inline]
    fn new(decision: impl FnOnce() -> Decision) -> Self {
        decision()
    }
}

impl<'a> Check<'a> {
    #[inline]
    pub(crate) fn new(
        limiter: &'a Limiter,
        policy: &'a Policy,
        caller: Cow<'a, Caller>,
        terms: Terms,
    ) -> Self {
        Self { limiter, policy, caller, observed_as: None, terms }
    }

    /// Sets the units that the call takes, all or none; 1 by default. A call of 0 units is admitted
    /// and takes nothing.
    pub fn cost(mut self, cost: u32) -> Self {
        self.terms.cost = cost;
        self
    }

    /// Sets an id under which the call is charged once. A check with the same id within the longest
    /// period of an admitted one is admitted again for free.
    ///
    /// Ids belong to one caller under one policy. They need a
    /// [sliding window](crate::Algorithm::SlidingWindow) without
    /// [`count_rejected`](Policy::count_rejected): it alone keeps an entry for each call.
    ///
    /// Take ids from the program, never from the client. A client that chooses the id, as in a
    /// header `idempotency-key`, repeats one id and is charged for one call.
    pub fn request_id(mut self, id: impl fmt::Display) -> Self {
        self.terms.id = Some(key::hash_request_id(&id));
        self
    }

    /// Sets how long the call waits for room instead of being refused at once; 0 by default.
    ///
    /// The call sleeps until the limit would admit it, and is decided again. It is refused at once
    /// if the wait exceeds what is left of `max_wait`. Dropping the future while it waits costs
    /// nothing. A peek never waits.
    ///
    /// Under [`count_rejected`](Policy::count_rejected) one refusal is recorded, when the call gives
    /// up. [Overrides](crate::Overrides) reach a waiting call at once.
    pub fn max_wait(mut self, max_wait: Duration) -> Self {
        self.terms.max_wait = max_wait;
        self
    }

    /// Sets the answer for a call that the store cannot decide in time; by default the limiter's own
    /// [setting](crate::LimiterBuilder::on_store_error).
    pub fn on_store_error(mut self, on_store_error: OnStoreError) -> Self {
        self.terms.on_store_error = Some(on_store_error);
        self
    }

    /// Sets the caller that observers see with the answer.
    #[cfg(feature = "tower")]
    pub(crate) fn observed_as(mut self, caller: Caller) -> Self {
        self.observed_as = Some(Cow::Owned(caller));
        self
    }

    pub(super) fn op(mut self, op: Op) -> Self {
        self.terms.op = op;
        self
    }

    /// Starts the check. In memory it is decided on return, unless it may wait.
    #[inline]
    pub(crate) fn start<A: Admission>(self) -> Started<Answer<A>> {
        let effective = self.effective();
        if let Some(answer) = self.answer_without_store(&effective) {
            return Started::Ready(answer);
        }
        let timer = Timer::start(self.limiter.inner.is_instrumented);
        if !self.may_wait(&effective)
            && let Some(outcome) = self.decide_now::<A>(&effective, timer)
        {
            return Started::Ready(self.finish(&effective, timer, outcome));
        }
        Started::Pending(Box::pin(self.into_pending().run()))
    }

    /// Applies overrides before validation, so that an override can repair an invalid policy.
    #[inline]
    pub(super) fn effective(&self) -> Effective<'a> {
        self.limiter.overrides().effective(self.policy, self.terms.declared)
    }

    /// Returns `true` if a refusal may be followed by a wait. A dry run refuses nothing.
    #[inline]
    pub(super) fn may_wait(&self, effective: &Effective<'_>) -> bool {
        !self.terms.max_wait.is_zero() && !self.is_peek() && !effective.is_dry_run()
    }

    pub(super) fn is_peek(&self) -> bool {
        self.terms.op == Op::Peek
    }

    /// The store's part of the check.
    #[inline]
    pub(super) fn request<'r>(&'r self, effective: &'r Effective<'_>) -> Request<'r> {
        let Terms { cost, id, op, .. } = self.terms;
        // A call of 0 units takes nothing.
        let op = if cost == 0 { Op::Peek } else { op };
        Request { policy: effective.policy(), written: self.policy, op, cost, id }
    }

    /// Returns the answer of a call that no store decides: enforcement is off, a rule is broken, or
    /// the limit can never admit the call.
    #[inline]
    pub(super) fn answer_without_store<A: Admission>(
        &self,
        effective: &Effective<'_>,
    ) -> Option<Answer<A>> {
        if effective.is_off() && !self.is_peek() {
            return Some(Ok(A::new(|| self.uncounted(effective))));
        }
        // Overrides are validated when they are set.
        if self.terms.is_validated {
            return None;
        }
        let error = self.validate(effective.policy()).err()?;
        Some(self.reject(effective, error))
    }

    /// Validates the policy and the call.
    fn validate(&self, policy: &Policy) -> Result<(), RateLimitError> {
        if self.terms.id.is_some() {
            policy.validate_request_id()?;
        }
        Ok(policy.validate_call(self.terms.cost)?)
    }

    /// Answers a call that breaks a rule or can never be admitted.
    #[cold]
    fn reject<A: Admission>(&self, effective: &Effective<'_>, error: RateLimitError) -> Answer<A> {
        let timer = Timer::start(self.limiter.inner.is_instrumented);
        // A limit of 0 units admits a call of 0 units.
        if self.terms.cost == 0 && matches!(error, RateLimitError::TooLarge(_)) {
            let outcome = Outcome::unlimited(self.request(effective));
            let outcome = Outcome { decided_by: DecidedBy::Limiter, ..outcome };
            self.record(timer, effective, &Ok(outcome));
            return Ok(A::new(|| self.uncounted(effective)));
        }
        if self.is_peek() {
            return Err(error);
        }
        let is_dry_run = effective.is_dry_run();
        timer.record_rejection(effective.policy(), is_dry_run, &error, || self.caller_digest());
        if let RateLimitError::InvalidPolicy(invalid) = &error {
            self.limiter.inner.notices.invalid_policy(invalid);
        }
        self.enforce(effective, None, error, false)
    }

    /// Decides the call in memory, in the detail that anyone reads.
    #[inline]
    fn decide_now<A: Admission>(
        &self,
        effective: &Effective<'_>,
        timer: Timer,
    ) -> Option<Result<Outcome, UnavailableReason>> {
        let is_watched = timer.is_running() || observe::is_observed();
        let detail = if is_watched { Detail::Full } else { A::DETAIL };
        let request = self.request(effective);
        self.limiter.inner.backend.decide_now(request, &self.caller, detail, self.terms)
    }

    /// Records the outcome and makes the answer of it. Every check that a store decides ends here.
    #[inline]
    pub(super) fn finish<A: Admission>(
        &self,
        effective: &Effective<'_>,
        timer: Timer,
        outcome: Result<Outcome, UnavailableReason>,
    ) -> Answer<A> {
        self.record(timer, effective, &outcome);
        match outcome {
            Ok(outcome) if outcome.admitted => Ok(self.admit(effective, &outcome)),
            Ok(outcome) => {
                let error = Exceeded::new(effective.policy(), &outcome).into();
                self.enforce(effective, Some(&outcome), error, true)
            }
            Err(reason) => {
                let error = Unavailable::new(effective.policy().name(), reason).into();
                self.enforce(effective, None, error, false)
            }
        }
    }

    #[inline]
    fn admit<A: Admission>(&self, effective: &Effective<'_>, outcome: &Outcome) -> A {
        let decision = || {
            let decision = Decision::new(effective.policy(), outcome);
            match self.request(effective) {
                request if request.op == Op::Take => {
                    let caller = self.caller.clone().into_owned();
                    decision.with_receipt(Receipt::new(caller, request, outcome))
                }
                _ => decision,
            }
        };
        if observe::is_observed() && !self.is_peek() {
            let decision = decision();
            observe::record(|| (Some(self.observed_caller()), Ok(decision.clone())));
            return A::new(|| decision);
        }
        A::new(decision)
    }

    /// Refuses the call, or lets it pass in a dry run. `is_of_quota` is `true` if the error is about
    /// the caller's quota.
    #[cold]
    fn enforce<A: Admission>(
        &self,
        effective: &Effective<'_>,
        outcome: Option<&Outcome>,
        error: RateLimitError,
        is_of_quota: bool,
    ) -> Answer<A> {
        if self.is_peek() {
            return Err(error);
        }
        observe::record(|| (is_of_quota.then(|| self.observed_caller()), Err(error.clone())));
        if !effective.is_dry_run() {
            return Err(error);
        }
        self.limiter.inner.notices.would_have_refused(effective.policy().name(), &error);
        Ok(A::new(|| match outcome {
            Some(outcome) => Decision::new(effective.policy(), outcome),
            None => self.uncounted(effective),
        }))
    }

    /// Returns the decision of a call that passes without being counted.
    fn uncounted(&self, effective: &Effective<'_>) -> Decision {
        Decision::new(effective.policy(), &Outcome::unlimited(self.request(effective)))
    }

    /// Records the outcome. A peek is not a call of the limit.
    #[inline]
    fn record(
        &self,
        timer: Timer,
        effective: &Effective<'_>,
        outcome: &Result<Outcome, UnavailableReason>,
    ) {
        if !self.is_peek() {
            let (policy, is_dry_run) = (effective.policy(), effective.is_dry_run());
            timer.record(policy, is_dry_run, outcome, || self.caller_digest());
        }
    }

    fn observed_caller(&self) -> Caller {
        self.observed_as.as_ref().unwrap_or(&self.caller).clone().into_owned()
    }

    fn caller_digest(&self) -> Option<String> {
        self.limiter.caller_digest(&self.caller)
    }

    fn into_pending(self) -> PendingCheck {
        let Self { limiter, policy, caller, observed_as, terms } = self;
        PendingCheck {
            limiter: limiter.clone(),
            policy: *policy,
            caller: caller.into_owned(),
            observed_as: observed_as.map(Cow::into_owned),
            terms,
        }
    }
}

/// A check that outlives the expression which made it.
pub(super) struct PendingCheck {
    limiter: Limiter,
    policy: Policy,
    caller: Caller,
    observed_as: Option<Caller>,
    terms: Terms,
}

impl PendingCheck {
    pub(super) fn as_check(&self) -> Check<'_> {
        Check {
            limiter: &self.limiter,
            policy: &self.policy,
            caller: Cow::Borrowed(&self.caller),
            observed_as: self.observed_as.as_ref().map(Cow::Borrowed),
            terms: self.terms,
        }
    }
}

impl<'a> IntoFuture for Check<'a> {
    type Output = Result<Decision, RateLimitError>;
    type IntoFuture = CheckFuture<'a>;

    fn into_future(self) -> CheckFuture<'a> {
        CheckFuture(State::New(self))
    }
}

/// The future of a [`Check`]. The call is decided at the first poll; in memory nothing is boxed.
#[must_use = "a check does nothing until it is awaited"]
pub struct CheckFuture<'a>(State<'a>);

#[expect(clippy::large_enum_variant, reason = "in memory the check is never boxed")]
enum State<'a> {
    New(Check<'a>),
    Pending(Pin<Box<dyn Future<Output = Answer<Decision>> + Send>>),
    Done,
}

impl Future for CheckFuture<'_> {
    type Output = Result<Decision, RateLimitError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let state = &mut self.get_mut().0;
        if let State::New(_) = state
            && let State::New(check) = std::mem::replace(state, State::Done)
        {
            match check.start() {
                Started::Ready(answer) => return Poll::Ready(answer),
                Started::Pending(future) => *state = State::Pending(future),
            }
        }
        match state {
            State::Pending(future) => future.as_mut().poll(context),
            State::New(_) | State::Done => panic!("a check was polled after it was ready"),
        }
    }
}

/// Shows neither the caller nor the id.
impl fmt::Debug for Check<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Check")
            .field("policy", &self.policy)
            .field("cost", &self.terms.cost)
            .field("max_wait", &self.terms.max_wait)
            .field("on_store_error", &self.terms.on_store_error)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for CheckFuture<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CheckFuture").finish_non_exhaustive()
    }
}
