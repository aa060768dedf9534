//! The straight path, on which most calls are decided: one unit, under a policy of one tier that no
//! override changes, decided in this process. Any other call has done nothing here, and is [started](Call::start_any)
//! as a call of any kind.

use std::task::Poll;

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

/// The form in which the starter of a check receives what becomes of it. A decision is large: it is
/// written where it is returned, and not moved.
pub(super) trait Start<A>: Sized {
    fn answered(answer: Answer<A>) -> Self;

    /// Goes on with a call that does not take the straight path.
    fn any(call: &Call<'_>) -> Self;
}

impl<A: Admission> Start<A> for Started<Answer<A>> {
    #[inline]
    fn answered(answer: Answer<A>) -> Self {
        Self::Ready(answer)
    }

    #[inline]
    fn any(call: &Call<'_>) -> Self {
        call.start_any()
    }
}

/// The straight path alone: any other call is pending, and nothing is done.
impl<A: Admission> Start<A> for Poll<Answer<A>> {
    #[inline]
    fn answered(answer: Answer<A>) -> Self {
        Self::Ready(answer)
    }

    #[inline]
    fn any(_: &Call<'_>) -> Self {
        Self::Pending
    }
}

impl<'a> Call<'a> {
    /// Starts the check, in the form that its starter asks for.
    #[expect(clippy::inline_always, reason = "so that the outcome stays in registers")]
    #[inline(always)]
    pub(super) fn start_as<A: Admission, S: Start<A>>(&self) -> S {
        if !self.is_straight() {
            return S::any(self);
        }
        match A::UNREAD {
            Some(new) if !observe::is_observed() => self.take_known(|()| new()),
            _ => self.take_known(|outcome| self.admit_known(outcome)),
        }
    }

    /// Takes one unit on the straight path, and calls `admit` with as much of the outcome as it reads.
    #[expect(clippy::inline_always, reason = "so that the outcome stays in registers")]
    #[inline(always)]
    fn take_known<A: Admission, S: Start<A>, D: Detail>(&self, admit: impl FnOnce(D) -> A) -> S {
        match self.limiter.inner.backend.take_known(self.policy, self.caller) {
            Straight::Admitted { detail, .. } => self.admitted(DecidedBy::Store, || admit(detail)),
            Straight::Refused { wait, reset } => self.refuse(wait, reset, DecidedBy::Store),
            Straight::Skipped => self.take_ahead(admit),
        }
    }

    /// Decides a call of Redis by units on lease or by the deny cache, if they can.
    #[inline(never)]
    fn take_ahead<A: Admission, S: Start<A>, D: Detail>(&self, admit: impl FnOnce(D) -> A) -> S {
        let (taken, decided_by) = self.limiter.inner.backend.take_ahead(self.policy, self.caller);
        match taken {
            Straight::Admitted { detail, .. } => self.admitted(decided_by, || admit(detail)),
            Straight::Refused { wait, reset } => self.refuse(wait, reset, decided_by),
            Straight::Skipped => S::any(self),
        }
    }

    /// Ends an admission on the straight path.
    #[expect(clippy::inline_always, reason = "so that the outcome stays in registers")]
    #[inline(always)]
    fn admitted<A: Admission, S: Start<A>>(
        &self,
        decided_by: DecidedBy,
        admit: impl FnOnce() -> A,
    ) -> S {
        self.untimed().count(self.policy, Verdict::Admitted, decided_by);
        S::answered(Ok(admit()))
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
    fn refuse<A: Admission, S: Start<A>>(
        &self,
        wait: Micros,
        reset: Micros,
        decided_by: DecidedBy,
    ) -> S {
        let outcome = Outcome { decided_by, ..Outcome::refused(wait, reset) };
        if observe::is_observed() {
            return S::answered(self.finish(&self.declared(), self.untimed(), Ok(outcome).into()));
        }
        self.untimed().count(self.policy, Verdict::Refused, decided_by);
        S::answered(Err(Exceeded::new(self.policy, outcome).into()))
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
