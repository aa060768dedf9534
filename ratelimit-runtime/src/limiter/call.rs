//! The one description of a call, built by the attribute, a check by hand, a gate or the dashboard.

use std::{fmt, time::Duration};

use super::Limiter;
use crate::{
    caller::Caller,
    decision::Decision,
    key,
    overrides::Enforcement,
    policy::Policy,
    request::{OnStoreError, Op, Outcome, Request},
    telemetry::LimitCounters,
};

/// A call as the pipeline receives it, from a check by hand, a task that outlives one, or an annotated
/// function: references, which stay in registers.
#[derive(Clone, Copy)]
pub(crate) struct Call<'a> {
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
}

/// A call that outlives the expression which made it.
pub(crate) struct OwnedCall {
    pub(crate) limiter: Limiter,
    pub(crate) policy: Policy,
    pub(crate) caller: Caller,
    /// On the heap: only layers set it.
    pub(crate) observed_as: Option<Box<Caller>>,
    pub(crate) counters: Option<&'static LimitCounters>,
    pub(crate) options: Options,
}

impl OwnedCall {
    #[inline]
    pub(super) fn of(call: Call<'_>) -> Self {
        let Call { limiter, policy, caller, observed_as, counters, options } = call;
        Self {
            limiter: limiter.clone(),
            policy: *policy,
            caller: caller.clone(),
            observed_as: observed_as.cloned().map(Box::new),
            counters,
            options: *options,
        }
    }

    pub(super) fn as_call(&self) -> Call<'_> {
        let Self { limiter, policy, caller, observed_as, counters, options } = self;
        let observed_as = observed_as.as_deref();
        Call { limiter, policy, caller, observed_as, counters: *counters, options }
    }
}

/// The options of a check that are plain values.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Options {
    pub(crate) cost: u32,
    pub(crate) id: Option<u64>,
    /// The share of each tier that is left after the call, in percent.
    pub(crate) leave: u8,
    /// The used share of the quota at which the limiter warns, in percent; 0 for none.
    pub(crate) warn_at: u8,
    /// A peek reports what a take would get, whatever the enforcement.
    pub(crate) op: Op,
    pub(crate) max_wait: Duration,
    /// The limiter's own setting if `None`.
    pub(crate) on_store_error: Option<OnStoreError>,
    /// The enforcement that the source code declares.
    pub(crate) declared: Enforcement,
    /// `true` if the compiler has validated the policy and the cost.
    pub(crate) is_validated: bool,
    /// `true` if the call is one of several that are decided together: it warns once all are admitted.
    pub(super) is_joint: bool,
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

    pub(crate) fn set_leave(&mut self, percent: u32) {
        self.leave = u8::try_from(percent).map_or(100, |percent| percent.min(100));
        self.is_one_unit &= percent == 0;
    }

    pub(crate) fn set_warn_at(&mut self, percent: u32) {
        self.warn_at = u8::try_from(percent).unwrap_or(u8::MAX);
        self.is_one_unit &= percent == 0;
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
            leave: 0,
            warn_at: 0,
            on_store_error: None,
            declared: Enforcement::On,
            is_validated: false,
            is_joint: false,
            is_one_unit: true,
        }
    }
}
