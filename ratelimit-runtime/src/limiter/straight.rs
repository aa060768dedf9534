//! The straight path, on which most calls are decided: one unit, under a policy of one tier that no
//! override changes, decided in this process. Any other call has done nothing here, and is [started](Call::start_any)
//! as a call of any kind.

use super::{admission::Admission, check::Call, pipeline::Started};
use crate::{
    algorithms::{Detail, Straight},
    decision::Answer,
    error::Exceeded,
    observe,
    overrides::Effective,
    request::{DecidedBy, Outcome},
    telemetry::{self, Recorder, Verdict},
    time::Micros,
};

impl<'a> Call<'a> {
    /// Starts the check. `answered` turns its answer into what the starter returns: a decision is large, and
    /// is written there at once. A call that memory does not decide on the straight path has done nothing
    /// yet. It goes on with `further`, which receives `true` if the call is a straight one.
    #[expect(clippy::inline_always, reason = "so that the outcome stays in registers")]
    #[inline(always)]
    pub(super) fn start_as<A: Admission, S>(
        &self,
        answered: impl FnOnce(Answer<A>) -> S,
        further: impl FnOnce(bool) -> S,
    ) -> S {
        if !self.is_straight() {
            return further(false);
        }
        let (backend, by) = (&self.limiter.inner.backend, DecidedBy::Store);
        let skip = || further(true);
        match A::UNREAD {
            Some(new) if !observe::is_observed() => {
                let taken = backend.take_known(self.policy, self.caller);
                self.end(taken, by, |()| new(), answered, skip)
            }
            _ => {
                let taken = backend.take_known(self.policy, self.caller);
                self.end(taken, by, |outcome| self.admit_known(outcome), answered, skip)
            }
        }
    }

    /// Starts a check that memory has not decided. A straight one is decided by units on lease or by the deny
    /// cache, if they can.
    #[inline(never)]
    pub(super) fn start_further<A: Admission>(&self, is_straight: bool) -> Started<Answer<A>> {
        if !is_straight {
            return self.start_any();
        }
        let (taken, by) = self.limiter.inner.backend.take_ahead(self.policy, self.caller);
        let admit = |outcome| self.admit_known(outcome);
        self.end(taken, by, admit, Started::Ready, || self.start_any())
    }

    /// Ends a call on the straight path, admitted by `admit` with as much of the outcome as it reads.
    #[expect(clippy::inline_always, reason = "so that the outcome stays in registers")]
    #[inline(always)]
    fn end<A: Admission, S, D: Detail>(
        &self,
        taken: Straight<D>,
        decided_by: DecidedBy,
        admit: impl FnOnce(D) -> A,
        answered: impl FnOnce(Answer<A>) -> S,
        skip: impl FnOnce() -> S,
    ) -> S {
        match taken {
            Straight::Admitted { detail, .. } => {
                self.untimed().count(self.policy, Verdict::Admitted, decided_by);
                answered(Ok(admit(detail)))
            }
            Straight::Refused { wait, reset } => answered(self.refuse(wait, reset, decided_by)),
            Straight::Skipped => skip(),
        }
    }

    /// Admits a call on the straight path.
    #[inline]
    fn admit_known<A: Admission>(&self, outcome: Outcome) -> A {
        if observe::is_observed() {
            return self.admit_observed(&self.declared(), outcome, None);
        }
        A::new(None, || self.counted(self.request_of(self.policy), outcome))
    }

    /// Returns `true` if the check takes the straight path, on which most calls are decided: it takes
    /// one unit, under a valid policy of one tier that no override changes, and is not timed.
    #[expect(clippy::inline_always, reason = "so that the call stays in registers")]
    #[inline(always)]
    fn is_straight(&self) -> bool {
        self.policy.is_simple()
            && self.options.is_one_unit
            && (!self.limiter.overrides().may_apply(self.policy) || self.is_declared())
            && !telemetry::is_timed(self.limiter.inner.is_instrumented)
    }

    /// Returns `true` if no override changes the call.
    #[inline(never)]
    fn is_declared(&self) -> bool {
        self.effective().is_declared()
    }

    /// Ends a refusal on the straight path.
    #[inline(never)]
    fn refuse<A: Admission>(
        &self,
        wait: Micros,
        reset: Micros,
        decided_by: DecidedBy,
    ) -> Answer<A> {
        let outcome = Outcome { decided_by, ..Outcome::refused(wait, reset) };
        if observe::is_observed() {
            return self.finish(&self.declared(), self.untimed(), Ok(outcome).into());
        }
        self.untimed().count(self.policy, Verdict::Refused, decided_by);
        Err(Exceeded::new(self.policy, outcome).into())
    }

    /// Returns the recorder of the straight path.
    #[inline]
    fn untimed(&self) -> Recorder<'a> {
        Recorder::untimed(self.limiter.inner.is_instrumented, self.counters)
    }

    /// Returns the policy and the enforcement as declared.
    #[inline]
    fn declared(&self) -> Effective<'a> {
        Effective::declared(self.policy, self.options.declared)
    }
}
