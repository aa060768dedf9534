//! All that generated code may name. Not part of the public interface: it changes with the
//! attribute, and the two crates are released together.

mod key_part;
mod output;
mod units;

use std::{any::type_name, borrow::Cow, pin::Pin, time::Duration};
pub use std::{
    column, file, line, module_path,
    result::Result::{self, Err, Ok},
};

pub use inventory::submit;

pub use self::{
    key_part::{KeyPart, part},
    output::{Output, never},
    units::{Units, number},
};
pub use crate::callsite::{Callsite, Declaration};
use crate::{
    caller::{self, Caller},
    callsite::Resolved,
    error::RateLimitError,
    limiter::{Asked, Limiter, Terms, installed},
    overrides::Enforcement,
    policy::Policy,
    request::OnStoreError,
};

/// What has come of a call.
#[must_use]
pub enum Checked {
    /// The answer, at once: in memory.
    Decided(Result<(), RateLimitError>),
    /// What brings the answer; on the heap, because every function with the attribute would
    /// otherwise be a future of some kilobytes.
    Undecided(Pin<Box<dyn Future<Output = Result<(), RateLimitError>> + Send>>),
}

/// One call of an annotated function.
#[derive(Clone)]
pub struct Call {
    site: &'static Callsite,
    cost: Option<u32>,
    caller: Caller,
    limiter: Option<Limiter>,
    receiver: Option<&'static str>,
    terms: Terms,
}

impl Call {
    /// A call of the function of this site.
    #[must_use]
    pub fn new(site: &'static Callsite) -> Self {
        Self {
            site,
            cost: None,
            caller: Caller::without_parts(),
            limiter: None,
            receiver: None,
            terms: Terms::default(),
        }
    }

    /// Names the type that a method is called on.
    pub fn receiver<T: ?Sized>(&mut self) {
        self.receiver = Some(type_name::<T>());
    }

    /// Brings the units that this call takes.
    pub fn cost(&mut self, cost: u32) {
        self.cost = Some(cost);
    }

    /// Has `limiter` decide instead of the installed one.
    pub fn limiter(&mut self, limiter: &Limiter) {
        self.limiter = Some(limiter.clone());
    }

    /// Has the call wait up to this long for its place.
    pub fn max_wait(&mut self, max_wait: Duration) {
        self.terms.max_wait = max_wait;
    }

    /// Says what the call gets when the store cannot decide.
    pub fn on_store_error(&mut self, on_store_error: OnStoreError) {
        self.terms.on_store_error = Some(on_store_error);
    }

    /// Decides the call, or says what to wait for.
    pub fn check(&mut self) -> Checked {
        let resolved = self.site.resolved(self.receiver);
        // The policy's literals were judged by the compiler.
        self.decide(resolved, &resolved.policy, self.cost.is_none())
    }

    /// Decides the call under a policy that it brings, whatever name that has.
    pub fn check_under(&mut self, policy: &Policy) -> Checked {
        let resolved = self.site.resolved(self.receiver);
        self.decide(resolved, &policy.named_as(&resolved.policy), false)
    }

    fn decide(&self, resolved: &'static Resolved, policy: &Policy, is_judged: bool) -> Checked {
        let mut around = None;
        let (limiter, asked) = (self.decider(), self.asked(policy));
        let effective = limiter.effective(&asked);
        let course = limiter.course(asked, &effective);
        let pseudonym = || limiter.pseudonym(self.caller(resolved, course.policy(), &mut None));
        if let Some(answer) = course.undecided(is_judged, pseudonym) {
            return Checked::Decided(answer.map(drop));
        }
        let Some(store) = course.memory(self.terms) else {
            let later = self.clone().decide_later(resolved, *policy, is_judged);
            return Checked::Undecided(Box::pin(later));
        };
        let caller = self.caller(resolved, course.policy(), &mut around);
        Checked::Decided(course.decide_in(store, caller, self.terms))
    }

    async fn decide_later(
        self,
        resolved: &Resolved,
        policy: Policy,
        is_judged: bool,
    ) -> Result<(), RateLimitError> {
        let (asked, mut around) = (self.asked(&policy), None);
        let caller = Cow::Borrowed(self.caller(resolved, &policy, &mut around));
        self.decider().decide_call(asked, is_judged, caller, self.terms).await.map(drop)
    }

    #[inline]
    fn asked<'a>(&self, policy: &'a Policy) -> Asked<'a> {
        let is_dry_run = self.site.declaration.dry_run;
        Asked {
            policy,
            cost: self.cost.unwrap_or(1),
            id: None,
            declared: if is_dry_run { Enforcement::DryRun } else { Enforcement::On },
            is_annotated: true,
            observed_as: None,
        }
    }

    fn decider(&self) -> &Limiter {
        self.limiter.as_ref().unwrap_or_else(|| installed())
    }

    /// Who is counted: the parts of the key, or who is found `around` them.
    #[inline]
    fn caller<'a>(
        &'a self,
        resolved: &Resolved,
        policy: &Policy,
        around: &'a mut Option<Caller>,
    ) -> &'a Caller {
        if self.caller.is_empty() || resolved.is_default_method {
            around.insert(self.caller_around(resolved, policy))
        } else {
            &self.caller
        }
    }

    fn caller_around(&self, resolved: &Resolved, policy: &Policy) -> Caller {
        let mut caller = Caller::without_parts();
        if let Some(receiver) = self.receiver.filter(|_| resolved.is_default_method) {
            caller.push(receiver);
        }
        if !self.caller.is_empty() {
            caller.append(&self.caller);
        } else if let Some(ambient) = caller::current() {
            caller.append(&ambient);
        } else {
            self.site.warn_once_without_caller(policy);
            caller.append(&Caller::shared());
        }
        caller
    }
}

/// Whether a call is to be checked.
#[must_use]
pub const fn unless(skip: bool) -> bool {
    !skip
}

/// A number of microseconds as a `Duration`.
#[must_use]
pub const fn micros(micros: u64) -> Duration {
    Duration::from_micros(micros)
}
