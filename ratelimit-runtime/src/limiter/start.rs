//! The start of a call, the one entry of the pipeline.
//!
//! Most calls are plain, and are decided by three functions: [`Call::is_plain`], the backend's `take_one`, and
//! [`Call::finish_plain`]. [`Call::start_any`] starts all others.

use std::pin::Pin;

use tokio::time::Instant;

#[cfg(feature = "testing")]
use super::isolated::has_planned;
use super::{
    admission::Admission,
    call::{Call, OwnedCall},
    permit::Decided,
};
use crate::{
    decision::Answer,
    error::Exceeded,
    observe,
    overrides::Effective,
    request::{DecidedBy, Mark, OneUnit, Op, Outcome, Request},
    telemetry::{self, LimitCounters, Recorder, Verdict},
    time::Micros,
};

/// The future that brings an answer, on the heap: in place it would add some kilobytes to every future that
/// contains it.
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
    #[expect(clippy::inline_always, reason = "so that the call stays in registers")]
    #[inline(always)]
    pub(crate) fn start<A: Admission>(&self) -> Started<Answer<A>> {
        if !self.is_plain() {
            return self.start_any(false);
        }
        let is_observed = observe::is_observed();
        let is_sampled = self.counters.is_some_and(LimitCounters::is_sampled);
        let backend = &self.limiter.inner.backend;
        match backend.take_one(self.policy, self.caller, A::READS || is_observed || is_sampled) {
            Some(unit) => self.finish_plain(unit, is_observed, is_sampled),
            None => self.start_any(true),
        }
    }

    /// Returns `true` for most calls: one unit is taken at once, under a valid policy of one tier that no
    /// override changes, and the call is not timed.
    #[expect(clippy::inline_always, reason = "so that the call stays in registers")]
    #[inline(always)]
    pub(super) fn is_plain(&self) -> bool {
        self.policy.is_simple()
            && self.options.is_one_unit
            && (!self.limiter.overrides().may_apply(self.policy) || self.is_declared())
            && !telemetry::is_timed(self.counters.is_some())
            && !has_planned()
    }

    /// Returns `true` if no override changes the call.
    #[inline(never)]
    fn is_declared(&self) -> bool {
        self.effective().is_declared()
    }

    /// Ends a plain call. Each way writes its answer in place: it is large.
    #[expect(clippy::inline_always, reason = "so that the answer stays in registers")]
    #[inline(always)]
    fn finish_plain<A: Admission>(
        &self,
        unit: OneUnit,
        is_observed: bool,
        is_sampled: bool,
    ) -> Started<Answer<A>> {
        if is_observed {
            return self.finish_observed(&unit);
        }
        if !unit.is_taken {
            return self.refuse(unit.wait, unit.reset, unit.decided_by, unit.mark);
        }
        if let Some(counters) = self.counters {
            counters.count(Verdict::Admitted, unit.decided_by);
            if is_sampled {
                counters.sample(self.policy, 0, unit.remaining);
            }
        }
        let decision = || self.counted(Request::new(self.policy, Op::Take, 1), unit.outcome());
        Started::Ready(Ok(A::new(None, decision)))
    }

    /// Refuses a plain call. Its numbers are passed in registers: a copy of an answer that was just written
    /// would wait for the write.
    #[inline(never)]
    fn refuse<A>(
        &self,
        wait: Micros,
        reset: Micros,
        decided_by: DecidedBy,
        mark: Mark,
    ) -> Started<Answer<A>> {
        if let Some(counters) = self.counters {
            counters.count(Verdict::Refused, decided_by);
            counters.count_refusal(0);
            self.count_refused(self.limiter.inner.backend.uptime_of(mark));
        }
        let outcome = Outcome { decided_by, ..Outcome::refused(wait, reset) };
        Started::Ready(Err(Exceeded::new(self.policy, outcome).into()))
    }

    /// Ends a plain call of which an observer reads the decision.
    #[inline(never)]
    fn finish_observed<A: Admission>(&self, unit: &OneUnit) -> Started<Answer<A>> {
        let effective = Effective::declared(self.policy, self.options.declared);
        Started::Ready(self.finish(&effective, self.untimed(), &Ok(unit.outcome()), None))
    }

    #[inline]
    fn untimed(&self) -> Recorder {
        Recorder::untimed(self.counters)
    }

    /// Starts a check of any kind. One that `is_plain` has been left undecided: units on lease and the deny
    /// cache are not asked again, because this call may be the one that revalidates its refusal.
    #[cold]
    #[inline(never)]
    fn start_any<A: Admission>(&self, is_plain: bool) -> Started<Answer<A>> {
        let inner = &self.limiter.inner;
        let recorder = Recorder::new(self.counters);
        let effective = self.effective();
        if let Some(answer) = self.answer_without_store(&effective, recorder, || None) {
            return Started::Ready(answer);
        }
        let is_left_to_redis = is_plain && inner.backend.redis().is_some();
        if !is_left_to_redis && !self.may_wait(&effective) {
            let request = self.request(&effective);
            if let Some(outcome) = self.decide_now(&request) {
                let permit = self.permit_in_memory(&request, &outcome);
                let answer: Answer<A> = self.finish(&effective, recorder, &outcome, None);
                return Started::Ready(match (answer, permit) {
                    (Ok(admission), Some(permit)) => Ok(admission.holding(permit)),
                    (answer, _) => answer,
                });
            }
        }
        inner.notices.lease_of_few_units(self.policy);
        let owned = OwnedCall::of(*self);
        if !self.options.max_wait.is_zero() {
            return Started::Pending(Box::pin(owned.wait(recorder)));
        }
        let Effective { enforcement, changed, .. } = effective;
        Started::Pending(Box::pin(async move {
            let call = owned.as_call();
            let effective = Effective { written: call.policy, enforcement, changed };
            let request = call.request(&effective);
            let Decided { outcome, permit } = call.decide(request, Instant::now()).await;
            call.finish(&effective, recorder, &outcome, permit)
        }))
    }
}
