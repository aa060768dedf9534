//! The one description of a call, built by the attribute, a check by hand, a gate or the dashboard.

use super::{
    Limiter,
    owned_call::{Options, OwnedCall},
};
use crate::{
    caller::Caller,
    decision::Decision,
    policy::Policy,
    request::{OnStoreError, Op, Outcome, Request},
    telemetry::LimitCounters,
};

/// A call as the pipeline receives it, from a check by hand, a task that outlives one, or an
/// annotated function: references, which stay in registers.
#[derive(Clone, Copy)]
pub struct Call<'a> {
    pub(crate) limiter: &'a Limiter,
    pub(crate) policy: &'a Policy,
    pub(crate) caller: &'a Caller,
    /// The caller that is recorded for observers, if it is not the one that is counted.
    pub(crate) observed_as: Option<&'a Caller>,
    /// The counters of the policy's name, unless the limiter's decisions are not recorded.
    pub(crate) counters: Option<&'static LimitCounters>,
    pub(crate) options: &'a Options,
}

impl<'a> Call<'a> {
    pub(super) fn is_peek(self) -> bool {
        self.options.op == Op::Peek
    }

    /// Returns the answer if the store cannot decide under this policy; none for that of the
    /// limiter.
    pub(super) fn on_store_error(self, policy: &Policy) -> Option<OnStoreError> {
        policy.answer(self.options.on_store_error)
    }

    /// The store's part of the check under this policy.
    #[inline]
    pub(super) fn request_under<'r>(self, policy: &'r Policy) -> Request<'r>
    where
        'a: 'r,
    {
        let Options { cost, id, op, .. } = *self.options;
        // A call of 0 units takes nothing.
        let op = if cost == 0 { Op::Peek } else { op };
        Request { written: self.policy, id, ..Request::new(policy, op, cost) }
    }

    #[inline]
    pub(super) fn counted(self, request: Request<'_>, outcome: Outcome) -> Decision {
        Decision::counted(self.limiter.inner.id, self.caller, request, outcome)
    }

    pub(super) fn caller_digest(self) -> Option<String> {
        self.limiter.caller_digest(self.caller)
    }

    #[inline]
    pub(super) fn owned(self) -> OwnedCall {
        let Self { policy, caller, observed_as, counters, options, .. } = self;
        let observed_as = observed_as.cloned().map(Box::new);
        let caller = caller.clone();
        OwnedCall { policy: *policy, caller, observed_as, counters, options: *options }
    }
}

impl OwnedCall {
    #[inline]
    pub(super) fn of<'a>(&'a self, limiter: &'a Limiter) -> Call<'a> {
        let Self { policy, caller, observed_as, counters, options } = self;
        let observed_as = observed_as.as_deref();
        Call { limiter, policy, caller, observed_as, counters: *counters, options }
    }
}
