//! All that generated code may name. Not part of the public interface: it changes with the
//! attribute, and the two crates are released together.

mod part;

use std::{any::type_name, pin::Pin, time::Duration};

pub use std::{file, line, result::Result::Err};

pub use inventory::submit;

pub use self::part::{KeyPart, part};
pub use crate::site::{Declaration, Site};
use crate::{
    caller::{self, Caller},
    decision::{self, Charge},
    error::{InvalidPolicy, RateLimitError, Unavailable, UnavailableReason},
    fallback::OnStoreError,
    key::Subject,
    limiter::{Limiter, Terms, installed},
    observe,
    overrides::{Enforcement, Steered},
    policy::Policy,
    report::Begun,
    site::Resolved,
    store::{Outcome, Request},
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
    site: &'static Site,
    cost: Option<u32>,
    caller: Caller,
    limiter: Option<Limiter>,
    receiver: Option<&'static str>,
    max_wait: Duration,
    on_store_error: Option<OnStoreError>,
    dry_run: bool,
}

impl Call {
    /// A call of the function of this site.
    #[must_use]
    pub fn new(site: &'static Site) -> Self {
        Self {
            site,
            cost: None,
            caller: Caller::without_parts(),
            limiter: None,
            receiver: None,
            max_wait: Duration::ZERO,
            on_store_error: None,
            dry_run: site.declaration.dry_run,
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
        self.max_wait = max_wait;
    }

    /// Says what the call gets when the store cannot decide.
    pub fn on_store_error(&mut self, on_store_error: OnStoreError) {
        self.on_store_error = Some(on_store_error);
    }

    fn add_optional(&mut self, value: Option<&impl KeyPart>) {
        match value {
            Some(value) => self.caller.push(value),
            None => self.caller.push_none(),
        }
    }

    /// Decides the call, or says what to wait for.
    pub fn check(&mut self) -> Checked {
        let resolved = self.resolved();
        // The policy's literals were judged by the compiler.
        let judged = match self.cost {
            Some(cost) => resolved.policy.validate_with(Some(cost)),
            None => Ok(()),
        };
        self.decide(resolved, &resolved.policy, judged)
    }

    /// Decides the call under a policy that it brings, whatever name that has.
    pub fn check_under(&mut self, policy: &Policy) -> Checked {
        let resolved = self.resolved();
        let policy = policy.named_as(&resolved.policy);
        self.decide(resolved, &policy, policy.validate_with(self.cost))
    }

    fn resolved(&self) -> &'static Resolved {
        self.site.resolved(self.receiver)
    }

    fn decide(
        &mut self,
        resolved: &'static Resolved,
        policy: &Policy,
        judged: Result<(), InvalidPolicy>,
    ) -> Checked {
        if let Err(invalid) = judged {
            return Checked::Decided(self.refuse(invalid.into()));
        }
        let cost = self.cost.unwrap_or(1);
        match self.decider().overrides().steer(policy, cost, self.dry_run) {
            None => self.decide_under(resolved, policy),
            Some(Steered { enforcement: Enforcement::Off, .. }) => Checked::Decided(Ok(())),
            Some(Steered { policy, enforcement }) => {
                self.dry_run = enforcement == Enforcement::DryRun;
                self.decide_under(resolved, &policy)
            }
        }
    }

    fn decide_under(&self, resolved: &'static Resolved, policy: &Policy) -> Checked {
        let Some(store) = self.decider().memory().filter(|_| self.terms().max_wait.is_zero())
        else {
            return Checked::Undecided(Box::pin(self.clone().answer(resolved, *policy)));
        };
        let begun = Begun::now();
        let mut around = None;
        let caller = self.caller(resolved, policy, &mut around);
        let (subject, request) = (Subject::new(policy, caller.parts()), self.request(policy));
        let outcome = if begun.is_seen() || observe::is_observed() {
            store.decide(subject, request)
        } else {
            store.decide_unseen(subject, request)
        };
        begun.decided(policy, &outcome, self.dry_run, || self.decider().pseudonym(caller));
        if passes_unseen(&outcome) {
            return Checked::Decided(Ok(()));
        }
        Checked::Decided(self.conclude(caller, policy, outcome))
    }

    async fn answer(self, resolved: &Resolved, policy: Policy) -> Result<(), RateLimitError> {
        let begun = Begun::now();
        let mut around = None;
        let caller = self.caller(resolved, &policy, &mut around);
        let outcome = self.decider().decide_on(caller, self.request(&policy), self.terms()).await;
        begun.decided(&policy, &outcome, self.dry_run, || self.decider().pseudonym(caller));
        if passes_unseen(&outcome) {
            return Ok(());
        }
        self.conclude(caller, &policy, outcome)
    }

    /// What is made of an outcome that is not all well, or that someone looks at.
    fn conclude(
        &self,
        caller: &Caller,
        policy: &Policy,
        outcome: Result<Outcome, UnavailableReason>,
    ) -> Result<(), RateLimitError> {
        match outcome {
            Ok(outcome) if outcome.admitted => {
                let charge = Charge::new(caller.clone(), self.request(policy), &outcome);
                observe::record(|| Ok(decision::decide(policy, &outcome)?.with_charge(charge)));
                Ok(())
            }
            Ok(outcome) => self.refuse(decision::exceeded(policy, &outcome).into()),
            Err(reason) => self.refuse(Unavailable::new(policy.name(), reason).into()),
        }
    }

    /// Refuses the call, unless it is only rehearsed.
    fn refuse(&self, error: RateLimitError) -> Result<(), RateLimitError> {
        observe::record(|| Err(error.clone()));
        if self.dry_run {
            tracing::info!(%error, "dry run: this call would have been refused");
            return Ok(());
        }
        Err(error)
    }

    fn decider(&self) -> &Limiter {
        self.limiter.as_ref().unwrap_or_else(|| installed())
    }

    fn request<'a>(&self, policy: &'a Policy) -> Request<'a> {
        Request { policy, cost: self.cost.unwrap_or(1), record: true, id: None }
    }

    fn terms(&self) -> Terms {
        let terms = Terms { max_wait: self.max_wait, on_store_error: self.on_store_error };
        terms.rehearsed(self.dry_run)
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

/// Of an admitted call that no one looks at, nothing has to be made.
fn passes_unseen(outcome: &Result<Outcome, UnavailableReason>) -> bool {
    matches!(outcome, Ok(outcome) if outcome.admitted) && !observe::is_observed()
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
