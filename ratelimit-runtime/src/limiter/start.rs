//! The start of a call, the one entry of the pipeline.
//!
//! Most calls are plain, and are decided by three functions: [`Call::is_plain`], the backend's `take_units`, and
//! [`Call::finish_plain`]. [`Call::start_any`] starts all others.

use std::pin::Pin;

use tokio::time::Instant;

#[cfg(feature = "testing")]
use super::isolated::has_planned;
use super::{admission::Admission, backend::Decided, call::Call};
use crate::{
    decision::Answer,
    error::Exceeded,
    observe,
    overrides::Effective,
    request::{DecidedBy, Mark, Op, Outcome, PlainOutcome, Request},
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
    pub(crate) fn start<A: Admission>(self) -> Started<Answer<A>> {
        match self.options.cost {
            _ if !self.is_plain() => self.copied().start_any(false),
            1 => self.take_units(1),
            _ => self.copied().start_with_cost(),
        }
    }

    /// Returns a copy for a function that is not inlined. Itself, the call would be in memory from its start on.
    #[expect(clippy::inline_always, reason = "so that the call stays in registers")]
    #[inline(always)]
    fn copied(self) -> Self {
        Self { ..self }
    }

    /// Starts a call of a cost. A refusal of several units in the deny cache has more numbers than a plain one.
    #[inline(never)]
    fn start_with_cost<A: Admission>(self) -> Started<Answer<A>> {
        let cost = self.options.cost;
        if cost > 0 && self.has_valid_cost() && self.limiter.is_in_memory() {
            self.take_units(cost)
        } else {
            self.start_any(false)
        }
    }

    /// Returns `true` if the cost of a plain call breaks no rule.
    #[inline]
    pub(super) fn has_valid_cost(self) -> bool {
        self.options.cost <= 1 || self.options.cost <= self.policy.surely_valid_cost()
    }

    /// Takes units of a plain call.
    #[expect(clippy::inline_always, reason = "so that one unit is a constant")]
    #[inline(always)]
    fn take_units<A: Admission>(self, units: u32) -> Started<Answer<A>> {
        let is_observed = observe::is_observed();
        let is_sampled = self.counters.is_some_and(LimitCounters::is_sampled);
        let reads = A::READS || is_observed || is_sampled;
        let backend = &self.limiter.inner.backend;
        match &backend.take_units(self.policy, self.caller, units, reads) {
            Some(outcome) => self.finish_plain(units, outcome, is_observed, is_sampled),
            None => self.copied().start_any(true),
        }
    }

    /// Returns `true` for most calls: units are taken at once, under a valid policy of one tier that no
    /// override changes, and the call is not timed.
    #[expect(clippy::inline_always, reason = "so that the call stays in registers")]
    #[inline(always)]
    pub(super) fn is_plain(self) -> bool {
        self.policy.is_simple()
            && self.options.is_plain
            && (!self.limiter.overrides().may_apply(self.policy) || self.copied().is_declared())
            && !telemetry::is_timed(self.counters.is_some())
            && !has_planned()
    }

    /// Returns `true` if no override changes the call.
    #[inline(never)]
    fn is_declared(self) -> bool {
        self.effective().is_declared()
    }

    /// Ends a plain call. Each way writes its answer in place: it is large.
    #[expect(clippy::inline_always, reason = "so that the answer stays in registers")]
    #[inline(always)]
    fn finish_plain<A: Admission>(
        self,
        units: u32,
        outcome: &PlainOutcome,
        is_observed: bool,
        is_sampled: bool,
    ) -> Started<Answer<A>> {
        if is_observed {
            return self.copied().finish_observed(outcome);
        }
        if !outcome.is_taken {
            let PlainOutcome { wait, reset, decided_by, mark, .. } = *outcome;
            return self.copied().refuse(wait, reset, decided_by, mark);
        }
        if let Some(counters) = self.counters {
            counters.count(Verdict::Admitted, outcome.decided_by);
            counters.count_units(Verdict::Admitted, units);
            if is_sampled {
                counters.sample(self.policy, 0, outcome.remaining);
            }
        }
        let request = Request::new(self.policy, Op::Take, units);
        let decision = || self.counted(request, outcome.outcome());
        Started::Ready(Ok(A::new(None, decision)))
    }

    /// Refuses a plain call. Its numbers are passed in registers: a copy of an answer that was just written
    /// would wait for the write.
    #[inline(never)]
    fn refuse<A>(
        self,
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
    fn finish_observed<A: Admission>(self, outcome: &PlainOutcome) -> Started<Answer<A>> {
        let effective = Effective::declared(self.policy, self.options.declared);
        let recorder = Recorder::untimed(self.counters);
        Started::Ready(self.finish(&effective, recorder, &Ok(outcome.outcome()), None))
    }

    /// Starts a check of any kind. One that `is_plain` has been left undecided: units on lease and the deny
    /// cache are not asked again, because this call may be the one that revalidates its refusal.
    #[cold]
    #[inline(never)]
    fn start_any<A: Admission>(self, is_plain: bool) -> Started<Answer<A>> {
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
                return Started::Ready(self.finish(&effective, recorder, &outcome, permit));
            }
        }
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
            let Decided { outcome, permit } = call.decide(request, Instant::now()).await;
            call.finish(&effective, recorder, &outcome, permit)
        }))
    }
}
