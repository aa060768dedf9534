//! The start of a call, the one entry of the pipeline.
//!
//! Most calls are [plain](Call::is_plain), and decided by [`Call::take_units`]. In memory it also
//! decides calls that have a cost or a request id, or take a permit. [`Call::start_any`] starts all
//! others, and plain ones that are left undecided.
//!
//! Two questions find the plain ones, [`Call::takes_one_unit`] and [`Call::takes_units_in_memory`].
//! As one function that returns an enum, a plain call takes 9 to 28 instructions more
//! (`--bench instructions`).

use std::pin::Pin;

use tokio::time::Instant;

#[cfg(feature = "testing")]
use super::isolated::has_planned;
use super::{
    admission::{Admission, CallPermit},
    backend::Decided,
    call::Call,
    owned_call::Options,
};
use crate::{
    decision::{Answer, CallEnd},
    error::Exceeded,
    observe,
    overrides::Effective,
    request::{Answered, DecidedBy, Op, Outcome, PlainAnswer, PlainOutcome, PlainTimes, Request},
    telemetry::{self, Recorder, Verdict},
    time::{Micros, Timestamp},
};

/// The future that brings an answer, on the heap: in place it would add some kilobytes to every
/// future that contains it.
pub(super) type PendingAnswer<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// An answer, or the future that brings it.
#[must_use]
pub enum Started<T> {
    /// The answer: the call was decided in memory, or by the deny cache.
    Ready(T),
    /// The future.
    Pending(PendingAnswer<T>),
}

/// Without the feature, no test plans an answer.
#[cfg(not(feature = "testing"))]
const fn has_planned() -> bool {
    false
}

impl Call<'_> {
    /// Starts the check. On return it is decided, unless Redis decides it or it may wait.
    #[inline(always)]
    pub(crate) fn start<A: Admission>(self) -> Started<Answer<A>> {
        if !A::DEFERS && self.takes_one_unit() {
            return self.take_units::<A, true>();
        }
        self.start_other()
    }

    /// Starts a call that takes more than one unit, or is not plain.
    #[inline(never)]
    fn start_other<A: Admission>(self) -> Started<Answer<A>> {
        let takes_permit = self.policy.get_concurrency().is_some();
        if takes_permit && observe::is_observed() {
            // A function of this request that has ended may hold the permit that this call needs.
            observe::free_ended();
        }
        // The next free permit is that of a call that waits for one.
        let is_first = !takes_permit || self.limiter.inner.queues.is_empty();
        // The decision of a call without a window is not one that a store counted.
        let is_counted = !A::READS || self.policy.has_window();
        let is_asked_once = !A::DEFERS && is_first && is_counted;
        if is_asked_once && self.takes_units_in_memory() {
            self.take_units::<A, false>()
        } else {
            self.start_any(false)
        }
    }

    /// Returns `true` for a plain call of one unit, which memory, a lease or the deny cache may
    /// decide.
    #[inline(always)]
    pub(super) fn takes_one_unit(self) -> bool {
        let Options { cost, id, .. } = self.options;
        *cost == 1 && id.is_none() && self.policy.is_one_tier() && self.is_plain()
    }

    /// Returns `true` for a plain call with a cost or a permit, if memory may decide it. A refusal
    /// of several units in the deny cache has more numbers than a plain one.
    #[inline(always)]
    pub(super) fn takes_units_in_memory(self) -> bool {
        let Options { cost, id, is_validated, .. } = self.options;
        // `is_surely_valid` knows of policies with one tier alone.
        let takes_permit_only = *is_validated && *cost == 1 && !self.policy.has_window();
        *cost > 0
            && self.limiter.is_in_memory()
            && (self.policy.is_surely_valid(*cost) || takes_permit_only)
            // No compiler has checked whether this policy admits request ids: `validate` does.
            && (*is_validated || id.is_none())
            && !self.policy.is_calendar()
            && self.is_plain()
    }

    /// Returns `true` for most calls: units are taken at once, no override changes the policy, and
    /// no subscriber sees the call.
    #[inline(always)]
    fn is_plain(self) -> bool {
        self.options.has_only_units
            && (!self.limiter.overrides().may_apply(self.policy) || self.is_declared())
            && !telemetry::is_traced(self.counters.is_some())
            && !has_planned()
    }

    /// Takes the units of a plain call, and a permit. One that `IS_SINGLE` takes one unit and no
    /// permit. Mostly nobody reads more of the answer than its times.
    #[inline(always)]
    pub(super) fn take_units<A: Admission, const IS_SINGLE: bool>(self) -> Started<Answer<A>> {
        // Before the call is counted, so that the first call of a thread is a sample.
        let is_sampled = self.counters.is_some_and(|limit| limit.of_thread().is_sample_due());
        if A::READS || is_sampled || observe::is_observed() {
            return self.take_units_and_read::<A, IS_SINGLE>(is_sampled);
        }
        let request = self.plain_request::<IS_SINGLE>();
        let Answered { answer, decided_by, at } =
            self.ask_for_units::<PlainTimes, IS_SINGLE>(request);
        let Some(answer) = answer else { return self.start_any(true) };
        if let Some(wait) = answer.refusal() {
            return self.refuse(wait, answer.reset(), decided_by, at);
        }
        let permit = self.count_taken::<IS_SINGLE>(decided_by);
        Started::Ready(Ok(A::new(permit, || unreachable!("`READS` is false"))))
    }

    /// Takes units for an answer of which the caller, an observer or a sample reads all.
    #[inline(never)]
    fn take_units_and_read<A: Admission, const IS_SINGLE: bool>(
        self,
        is_sampled: bool,
    ) -> Started<Answer<A>> {
        let request = self.plain_request::<IS_SINGLE>();
        let Answered { answer, decided_by, at } =
            &self.ask_for_units::<PlainOutcome, IS_SINGLE>(request);
        let (decided_by, at) = (*decided_by, *at);
        let Some(answer) = answer else { return self.start_any(true) };
        if observe::is_observed() {
            return self.finish_observed(&answer.outcome(decided_by, at));
        }
        // A refusal is a sample, too. Otherwise the next sample stays due while all calls are
        // refused, and each is read.
        if is_sampled && let Some(counters) = self.counters {
            counters.sample(self.policy, 0, answer.numbers.remaining);
        }
        if let Some(wait) = answer.refusal() {
            return self.refuse(wait, answer.reset(), decided_by, at);
        }
        let permit = self.count_taken::<IS_SINGLE>(decided_by);
        let outcome = || answer.outcome(decided_by, at);
        Started::Ready(Ok(A::new(permit, || self.counted(request, outcome()))))
    }

    /// Returns the request of a plain call. One unit is a constant in the code of a call that
    /// `IS_SINGLE`.
    #[inline(always)]
    fn plain_request<const IS_SINGLE: bool>(&self) -> Request<'_> {
        if IS_SINGLE {
            Request::new(self.policy, Op::Take, 1)
        } else {
            self.request_under(self.policy)
        }
    }

    /// Takes the units of a request, and a permit unless the call `IS_SINGLE`.
    #[inline(always)]
    fn ask_for_units<P: PlainAnswer, const IS_SINGLE: bool>(
        self,
        request: Request<'_>,
    ) -> Answered<P> {
        let takes_permit = !IS_SINGLE && request.takes_permit();
        self.limiter.inner.backend.take_units(request, self.caller, takes_permit)
    }

    /// Counts an admitted call, and returns its permit.
    #[inline]
    fn count_taken<const IS_SINGLE: bool>(self, decided_by: DecidedBy) -> Option<CallPermit> {
        if let Some(counters) = self.counters {
            counters.count(Verdict::Admitted, decided_by);
            if !IS_SINGLE {
                counters.count_units(Verdict::Admitted, self.options.cost);
            }
        }
        let takes_permit = !IS_SINGLE && self.policy.get_concurrency().is_some();
        takes_permit.then(|| CallPermit::Own(self.permit_in_memory(self.policy)))
    }

    /// Returns `true` if no override changes the call.
    #[inline(never)]
    fn is_declared(self) -> bool {
        self.effective().is_declared()
    }

    /// Refuses a plain call. Its numbers are passed in registers: a copy of an answer that was just
    /// written would wait for the write.
    #[inline(never)]
    fn refuse<A>(
        self,
        wait: Micros,
        reset: Micros,
        decided_by: DecidedBy,
        at: Timestamp,
    ) -> Started<Answer<A>> {
        if let Some(counters) = self.counters {
            counters.count(Verdict::Refused, decided_by);
            // Only a policy of one tier is refused on this way.
            counters.count_refusal(0);
            self.count_refused(self.limiter.inner.backend.uptime_of(at));
        }
        let outcome = Outcome { decided_by, ..Outcome::refused(wait, reset) };
        Started::Ready(Err(Exceeded::new(self.policy, outcome, self.is_shared()).into()))
    }

    /// Ends a plain call of which an observer reads the decision.
    #[inline(never)]
    fn finish_observed<A: Admission>(self, outcome: &Outcome) -> Started<Answer<A>> {
        let effective = Effective::declared(self.policy, self.options.declared);
        let recorder = Recorder::untimed(self.counters);
        let outcome = Ok(*outcome);
        let permit = self.permit_of(&self.request_under(self.policy), &outcome);
        Started::Ready(self.finish(&effective, recorder, &outcome, permit, CallEnd::default()))
    }

    /// Starts a check of any kind. One that `is_left` is a plain one without a decision: units on
    /// lease and the deny cache are not asked again, because this call may be the one that
    /// revalidates its refusal.
    #[cold]
    #[inline(never)]
    fn start_any<A: Admission>(self, is_left: bool) -> Started<Answer<A>> {
        let inner = &self.limiter.inner;
        let recorder = Recorder::new(self.counters);
        let effective = self.effective();
        if let Some(answer) = self.answer_without_store(&effective, recorder, CallEnd::default) {
            return Started::Ready(answer);
        }
        let is_left_to_redis = is_left && inner.backend.redis().is_some();
        if !is_left_to_redis && !self.may_wait(&effective) {
            let request = self.request(&effective);
            if let Some(outcome) = self.decide_now(&request) {
                let permit = self.permit_of(&request, &outcome);
                let end = CallEnd::default();
                return Started::Ready(self.finish(&effective, recorder, &outcome, permit, end));
            }
        }
        // Calls that units on lease decide have returned above: they do not pay for the notice.
        inner.notices.lease_of_few_units(self.policy);
        let (limiter, owned) = (self.limiter.clone(), self.owned());
        if !self.options.max_wait.is_zero() {
            return Started::Pending(Box::pin(limiter.wait(owned, recorder)));
        }
        let Effective { enforcement, changed, .. } = effective;
        Started::Pending(Box::pin(async move {
            let call = owned.of(&limiter);
            let effective = Effective { written: call.policy, enforcement, changed };
            let request = call.request(&effective);
            let Decided { outcome, permit } =
                call.decide(&effective, request, Instant::now()).await;
            call.finish(&effective, recorder, &outcome, permit, CallEnd::default())
        }))
    }
}
