//! The one description of a call, built by the attribute, a check by hand, a gate or the dashboard.

use super::{
    Limiter,
    owned_call::{Options, OwnedCall},
};
use crate::{caller::Caller, policy::Policy, telemetry::LimitCounters};

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

impl Call<'_> {
    #[inline]
    pub(super) fn owned(self) -> OwnedCall {
        let Self { policy, caller, observed_as, counters, options, .. } = self;
        let (policy, caller, options) = (*policy, caller.clone(), *options);
        let observed_as = observed_as.cloned().map(Box::new);
        OwnedCall { policy, caller, observed_as, counters, options }
    }
}

impl OwnedCall {
    pub(super) fn of<'a>(&'a self, limiter: &'a Limiter) -> Call<'a> {
        let Self { policy, caller, observed_as, counters, options } = self;
        let observed_as = observed_as.as_deref();
        Call { limiter, policy, caller, observed_as, counters: *counters, options }
    }
}
