//! The decision about a request before it is served, written once for all frameworks:
//! `tower/rate_limit.rs` and `actix/rate_limit.rs` apply it to their own requests and responses.

use std::{fmt, sync::Arc, time::Duration};

use super::{
    headers::HeaderSyntax,
    identity::{Identity, OnMissing, RequestHead, SharedFn},
    limit::{Limit, PlannedCheck},
    permits::Permits,
    refusal::Refusal,
    response::{BusyWait, ResponseSettings},
};
use crate::{
    caller::{self, Caller},
    error::RateLimitError,
    limiter::{Check, Limiter, limiter},
    observe::{Audience, Observation, observe_for},
    policy::Policy,
    telemetry,
};

/// A layer or middleware that applies limits to requests of type `R` before they are served:
/// `web::tower::RateLimitLayer` or `web::actix::RateLimitMiddleware`.
#[must_use = "a layer does nothing until it is added to a service"]
pub struct RateLimitLayer<R, H> {
    pub(super) gate: Arc<Gate<R>>,
    pub(super) responder: H,
}

/// The settings of a layer that applies limits.
pub(super) struct Gate<R> {
    limits: Vec<Limit<R>>,
    limiter: Option<Limiter>,
    identity: Option<Identity<R>>,
    /// The treatment of a request without an ambient caller.
    on_missing: OnMissing,
    pub(super) reply: ResponseSettings,
    skip: Option<SharedFn<R, bool>>,
}

impl<R, H> RateLimitLayer<R, H> {
    /// Adds a limit, which is decided together with those before it, as by
    /// [`check_all`](Limiter::check_all). Add the narrowest first.
    pub fn and(self, limit: impl Into<Limit<R>>) -> Self {
        self.with(|gate| gate.limits.push(limit.into()))
    }

    /// Sets the limiter; the installed one by default.
    pub fn limiter(self, limiter: Limiter) -> Self {
        self.with(|gate| gate.limiter = Some(limiter))
    }

    /// Counts for the caller that `identity` finds, instead of the ambient one. It does not change
    /// the ambient caller of the service.
    pub fn identity(self, identity: Identity<R>) -> Self {
        self.with(|gate| gate.identity = Some(identity))
    }

    /// Sets the treatment of requests without an ambient caller, if no [`identity`](Self::identity)
    /// is set: those that passed no layer with an identity. [`OnMissing::Reject`] by default, which
    /// is also logged at `error`, once for each limit. [`OnMissing::Shared`] counts all of them
    /// together.
    pub fn on_missing(self, on_missing: OnMissing) -> Self {
        self.with(|gate| gate.on_missing = on_missing)
    }

    /// Sets the syntax of the rate limit headers. An [`IdentityLayer`](super::IdentityLayer)
    /// further out replaces them by its own.
    pub fn headers(self, syntax: HeaderSyntax) -> Self {
        self.with(|gate| gate.reply.syntax = syntax)
    }

    /// Sets the wait that clients are told by a [`Busy`](crate::Busy), or `None` for none, instead
    /// of that of the limiter: [`retry_busy_after`](crate::LimiterBuilder::retry_busy_after).
    pub fn retry_busy_after(self, wait: impl Into<Option<Duration>>) -> Self {
        self.with(|gate| gate.reply.busy_wait = BusyWait::OfLayer(wait.into()))
    }

    /// Passes on requests for which `skip` returns `true`, uncounted.
    ///
    /// Do not decide by what the client writes, such as a header or a method: clients could skip
    /// the limit. Paths are safe, because they select the handler; see
    /// [`paths`](super::middleware::paths).
    pub fn skip(self, skip: impl Fn(&R) -> bool + Send + Sync + 'static) -> Self {
        self.with(|gate| gate.skip = Some(Arc::new(skip)))
    }

    fn with(mut self, change: impl FnOnce(&mut Gate<R>)) -> Self {
        change(Arc::make_mut(&mut self.gate));
        self
    }
}

impl<R, H: Clone> Clone for RateLimitLayer<R, H> {
    fn clone(&self) -> Self {
        Self { gate: Arc::clone(&self.gate), responder: self.responder.clone() }
    }
}

impl<R, H> fmt::Debug for RateLimitLayer<R, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Gate { limits, limiter, identity, reply, .. } = &*self.gate;
        f.debug_struct("RateLimitLayer")
            .field("limits", limits)
            .field("limiter", limiter)
            .field("identity", identity)
            .field("headers", &reply.syntax)
            .finish_non_exhaustive()
    }
}

/// The checks of one request.
pub(super) struct PlannedChecks {
    limiter: Limiter,
    checks: Vec<PlannedCheck>,
    /// The ambient caller. It may see the numbers of all checks: their callers are found in its
    /// request.
    client: Caller,
}

impl<R: RequestHead + 'static> Gate<R> {
    pub(super) fn new(limit: Limit<R>) -> Self {
        Self {
            limits: vec![limit],
            limiter: None,
            identity: None,
            on_missing: OnMissing::default(),
            reply: ResponseSettings::default(),
            skip: None,
        }
    }

    /// Returns the checks of a request; `None` for one that no limit counts.
    pub(super) fn plan(&self, request: &R) -> Result<Option<PlannedChecks>, Refusal> {
        if self.skip.as_ref().is_some_and(|skip| skip(request)) {
            return Ok(None);
        }
        let ambient = caller::current();
        let caller = |policy: &Policy| match (&self.identity, &ambient) {
            (Some(identity), _) => identity.caller(request),
            (None, Some(caller)) => Ok(caller.clone()),
            (None, None) => self.without_caller(policy),
        };
        let checks = self.limits.iter().filter_map(|limit| limit.plan(request, caller));
        let checks = checks.collect::<Result<Vec<_>, _>>()?;
        if checks.is_empty() {
            return Ok(None);
        }
        let client = ambient.unwrap_or_else(Caller::shared);
        Ok(Some(PlannedChecks { limiter: self.limiter().clone(), checks, client }))
    }

    fn limiter(&self) -> &Limiter {
        self.limiter.as_ref().unwrap_or_else(|| limiter())
    }

    /// Treats a request that has passed no layer with an identity.
    fn without_caller(&self, policy: &Policy) -> Result<Caller, Refusal> {
        let caller = self.on_missing.caller();
        match caller {
            Ok(_) => self.limiter().record_without_caller(telemetry::counters_of(policy)),
            Err(_) => telemetry::refused_without_caller(telemetry::counters_of(policy)),
        }
        caller
    }
}

impl PlannedChecks {
    /// Decides the request: all limits admit it, or none counts it.
    pub(super) async fn check(&self) -> Result<Permits, RateLimitError> {
        match &self.checks[..] {
            // One limit alone needs no look at others before it counts.
            [one] => Ok(Permits::of([self.check_of(one).await?])),
            all => {
                let checks: Vec<_> = all.iter().map(|planned| self.check_of(planned)).collect();
                Ok(Permits::of(self.limiter.check_list(&checks).await?))
            }
        }
    }

    fn check_of<'a>(&'a self, planned: &'a PlannedCheck) -> Check<'a> {
        let PlannedCheck { policy, cost, leave, caller } = planned;
        let check = self.limiter.check(policy, caller).cost(*cost).leave(*leave);
        check.observed_as(&self.client)
    }

    /// Runs `call` and returns, with its output, the answers that its client may see, and its
    /// functions' permits.
    pub(super) fn observe<F: Future>(
        &self,
        call: F,
    ) -> impl Future<Output = (F::Output, Observation)> + use<F> {
        let audience = Audience { caller: self.client.clone(), explicit_keys: false };
        observe_for(audience, call)
    }
}

impl<R> Clone for Gate<R> {
    fn clone(&self) -> Self {
        Self {
            limits: self.limits.clone(),
            limiter: self.limiter.clone(),
            identity: self.identity.clone(),
            skip: self.skip.clone(),
            ..*self
        }
    }
}
