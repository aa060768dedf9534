//! The items that generated code names, exported as `__private`. They change with the attribute;
//! the crates are released together.
//!
//! Floor 9: nothing in this crate imports it.
#![allow(clippy::must_use_candidate, reason = "generated code uses what it asks for")]

mod before;
mod charge;
mod key_part;
mod output;
mod request_id;
mod return_type;
mod shared_policy;
mod units;

use std::{any::type_name, time::Duration};
pub use std::{
    column, file, line, module_path,
    result::Result::{self, Err, Ok},
};

pub use inventory::submit;

pub use self::{
    charge::{Charge, MayCharge},
    key_part::{KeyPart, part},
    output::{Output, never},
    request_id::RequestId,
    return_type::{
        RefusalAsForeign, RefusalAsForeignError, RefusalAsImplTrait, RefusalAsInfallible,
        RefusalAsIntoResponse, RefusalAsNever, RefusalAsOption, RefusalAsPoemError,
        RefusalAsResponder, RefusalAsRocketStatus, RefusalAsSalvoError, RefusalAsUnit,
        RefusalAsWarpRejection, RefusalInBox,
    },
    shared_policy::{
        PlanName, names_apart, one_policy, plan_at, plan_of, shared_policy, takes_costs,
        takes_dynamic_costs, takes_leaves, takes_request_ids, takes_settles, takes_waits,
        takes_warnings,
    },
    units::{Units, number},
};
use crate::{
    caller::{self, Caller},
    callsite::Resolved,
    decision::{Answer, Decision},
    error::RateLimitError,
    limiter::{Admission, Call, CallKind, FunctionCall, Limiter},
    overrides::Enforcement,
    policy::Policy,
    telemetry::{self, LimitCounters},
};
pub use crate::{
    callsite::{Callsite, Declaration},
    limiter::{
        JointCheck, Options, PermitGuard, Started, admit_all, admitted, decide_all, limiter,
    },
    rejection::ErrorFromRejection,
};

/// One call of an annotated function, as its prologue builds it.
pub struct CallBuilder {
    callsite: &'static Callsite,
    /// The caller, to which the parts of the key are added.
    pub caller: Caller,
    self_type: Option<&'static str>,
    /// The options, which the arguments of the attribute set.
    pub options: Options,
}

impl CallBuilder {
    /// A call of the function of this callsite.
    #[inline]
    pub fn new(callsite: &'static Callsite) -> Self {
        let declared =
            if callsite.declaration.dry_run { Enforcement::DryRun } else { Enforcement::On };
        let mut options = Options::default();
        options.is_validated = true;
        options.kind = CallKind::Function;
        options.declare(declared);
        Self { callsite, caller: Caller::without_parts(), self_type: None, options }
    }

    /// Sets the type on which a method is called.
    pub fn self_type<T: ?Sized>(&mut self) {
        self.self_type = Some(type_name::<T>());
    }

    // Each start has one type, and so is compiled here. A generic one would be compiled in each
    // program, where its calls are not inlined: a decision took 8 % more instructions.

    /// Starts the check of this call.
    pub fn admit(&self, limiter: &Limiter) -> Started<Result<(), RateLimitError>> {
        self.start(limiter)
    }

    /// Starts the check under a policy whose values come with the call. It gets the callsite's
    /// name.
    pub fn admit_under(&self, limiter: &Limiter, policy: &Policy) -> Started<Answer<()>> {
        self.start_under(limiter, policy)
    }

    /// Starts the check of a call under a policy with `concurrency`. The call is in flight until
    /// its [`PermitGuard`] is dropped: keep it in a local until the end of the body.
    pub fn hold(&self, limiter: &Limiter) -> Started<Result<PermitGuard, RateLimitError>> {
        self.start(limiter)
    }

    /// Starts the check of a call under a policy with `concurrency`, as
    /// [`admit_under`](Self::admit_under).
    pub fn hold_under(&self, limiter: &Limiter, policy: &Policy) -> Started<Answer<PermitGuard>> {
        self.start_under(limiter, policy)
    }

    /// Starts the check of a call whose body sees the decision.
    pub fn decide(&self, limiter: &Limiter) -> Started<Result<Decision, RateLimitError>> {
        self.start(limiter)
    }

    /// Starts the check of a call whose body sees the decision, as
    /// [`admit_under`](Self::admit_under).
    pub fn decide_under(&self, limiter: &Limiter, policy: &Policy) -> Started<Answer> {
        self.start_under(limiter, policy)
    }

    /// Returns the decision of a call that is not checked.
    pub fn skipped(&self) -> Decision {
        Decision::of_skipped(&self.callsite.resolved(self.self_type).policy)
    }

    /// Returns the call as one of several, which are decided together.
    pub fn join(&self, limiter: &Limiter) -> JointCheck {
        self.part(limiter, None)
    }

    /// Returns the call as one of several, as [`admit_under`](Self::admit_under).
    pub fn join_under(&self, limiter: &Limiter, policy: &Policy) -> JointCheck {
        self.part(limiter, Some(policy))
    }

    fn part(&self, limiter: &Limiter, given: Option<&Policy>) -> JointCheck {
        let resolved = self.callsite.resolved(self.self_type);
        let declared = &resolved.policy;
        let given = given.map(|policy| Box::new(policy.named_as(declared)));
        let policy = given.as_deref().unwrap_or(declared);
        let counters = recorded(limiter, resolved, policy);
        let is_elsewhere = self.caller.is_empty() || resolved.is_default_method;
        let elsewhere = is_elsewhere.then(|| self.ambient_or_shared(limiter, resolved, policy));
        let (limiter, mut options) = (limiter.clone(), self.options);
        options.kind = CallKind::JointFunction;
        let call = |caller, observed_as| {
            let call =
                FunctionCall { limiter, declared, given, caller, observed_as, counters, options };
            JointCheck::new(call)
        };
        match elsewhere {
            None => call(self.caller.clone(), None),
            Some((caller, observed_as)) => call(caller, observed_as.map(Box::new)),
        }
    }

    /// Starts the check under a policy that comes with the call.
    #[inline]
    fn start_under<A: Admission>(&self, limiter: &Limiter, policy: &Policy) -> Started<Answer<A>> {
        let resolved = self.callsite.resolved(self.self_type);
        let policy = &policy.named_as(&resolved.policy);
        self.start_as(limiter, resolved, policy, recorded(limiter, resolved, policy))
    }

    /// Starts the check under the callsite's own policy.
    #[inline]
    fn start<A: Admission>(&self, limiter: &Limiter) -> Started<Answer<A>> {
        let resolved = self.callsite.resolved(self.self_type);
        let counters = limiter.is_instrumented().then_some(resolved.counters);
        self.start_as(limiter, resolved, &resolved.policy, counters)
    }

    #[inline]
    fn start_as<A: Admission>(
        &self,
        limiter: &Limiter,
        resolved: &'static Resolved,
        policy: &Policy,
        counters: Option<&'static LimitCounters>,
    ) -> Started<Answer<A>> {
        let options = &self.options;
        let call = |caller| Call { limiter, policy, caller, observed_as: None, counters, options };
        if self.caller.is_empty() || resolved.is_default_method {
            let (caller, observed_as) = self.ambient_or_shared(limiter, resolved, policy);
            return start_elsewhere(Call { observed_as: observed_as.as_ref(), ..call(&caller) });
        }
        call(&self.caller).start()
    }

    /// Returns the caller of a call without a key: the ambient one, or the one that all such calls
    /// share. A trait's default method counts each type for itself: the caller without the type is
    /// the second one.
    fn ambient_or_shared(
        &self,
        limiter: &Limiter,
        resolved: &Resolved,
        policy: &Policy,
    ) -> (Caller, Option<Caller>) {
        let mut caller = Caller::without_parts();
        if !self.caller.is_empty() {
            caller.append(&self.caller);
        } else if let Some(ambient) = caller::current() {
            caller.append(&ambient);
        } else {
            limiter.record_without_caller(telemetry::counters_of(policy));
            caller.append(&Caller::shared());
        }
        let Some(self_type) = self.self_type.filter(|_| resolved.is_default_method) else {
            return (caller, None);
        };
        let mut of_type = Caller::without_parts();
        of_type.push(self_type);
        of_type.append(&caller);
        (of_type, Some(caller))
    }
}

/// A function of its own: a call without a key is rarer.
#[inline(never)]
fn start_elsewhere<A: Admission>(call: Call<'_>) -> Started<Answer<A>> {
    call.start()
}

/// Returns the counters of a call's limit. Calls of a plan have those of the plan.
#[inline]
fn recorded(
    limiter: &Limiter,
    resolved: &'static Resolved,
    policy: &Policy,
) -> Option<&'static LimitCounters> {
    let counters = || match policy.label() {
        None => resolved.counters,
        Some(_) => telemetry::counters_of(policy),
    };
    limiter.is_instrumented().then(counters)
}

/// Returns the caller to which `caller!` adds its parts.
#[inline]
pub fn caller_without_parts() -> Caller {
    Caller::without_parts()
}

/// Returns `true` if a call is checked.
pub const fn runs_check(skip: bool) -> bool {
    !skip
}

/// Returns a number of microseconds as a `Duration`.
pub const fn micros(micros: u64) -> Duration {
    Duration::from_micros(micros)
}
