//! The decision about a request before it is served, written once for all frameworks:
//! `tower/rate_limit.rs` and `actix/rate_limit.rs` apply it to their own requests and responses.

use std::fmt;

use super::{
    headers::HeaderSyntax,
    identity::{Identity, OnMissing, RequestHead, SharedFn},
    limit::{Limit, PlannedCheck},
    permits::Permits,
    refusal::Refusal,
};
use crate::{
    caller::{self, Caller},
    decision::Decision,
    error::RateLimitError,
    limiter::{Check, Limiter, limiter},
    observe::{Audience, observe_for},
    policy::Policy,
    telemetry,
};

/// The settings of a layer that applies limits.
pub(super) struct Gate<R> {
    pub(super) limits: Vec<Limit<R>>,
    pub(super) limiter: Option<Limiter>,
    pub(super) identity: Option<Identity<R>>,
    /// The treatment of a request without an ambient caller.
    pub(super) on_missing: OnMissing,
    pub(super) syntax: HeaderSyntax,
    pub(super) skip: Option<SharedFn<R, bool>>,
}

/// The checks of one request.
pub(super) struct PlannedChecks {
    limiter: Limiter,
    checks: Vec<PlannedCheck>,
    /// The ambient caller. It may see the numbers of all checks: their callers are found in its request.
    client: Caller,
}

impl<R: RequestHead + 'static> Gate<R> {
    pub(super) fn new(limit: Limit<R>) -> Self {
        Self {
            limits: vec![limit],
            limiter: None,
            identity: None,
            on_missing: OnMissing::default(),
            syntax: HeaderSyntax::default(),
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
            Ok(_) => self.limiter().record_without_caller(policy, None),
            Err(_) => telemetry::refused_without_caller(policy),
        }
        caller
    }
}

impl PlannedChecks {
    /// Decides the request: all limits admit it, or none counts it.
    pub(super) async fn check(&self) -> Result<Permits, RateLimitError> {
        match &self.checks[..] {
            [one] => Ok(self.check_of(one).await?.into()),
            all => {
                let checks = all.iter().map(|planned| self.check_of(planned));
                Ok(self.limiter.check_list(checks).await?.into())
            }
        }
    }

    fn check_of<'a>(&'a self, planned: &'a PlannedCheck) -> Check<'a> {
        let PlannedCheck { policy, cost, caller } = planned;
        self.limiter.check(policy, caller).cost(*cost).observed_as(&self.client)
    }

    /// Runs `call` and returns, with its output, the answers that its client may see.
    pub(super) async fn observe<F: Future>(
        &self,
        call: F,
    ) -> (F::Output, Vec<Result<Decision, RateLimitError>>) {
        let audience = Audience { caller: self.client.clone(), explicit_keys: false };
        let (output, observed) = observe_for(audience, call).await;
        (output, observed.answers)
    }
}

impl<R> Clone for Gate<R> {
    fn clone(&self) -> Self {
        Self {
            limits: self.limits.clone(),
            limiter: self.limiter.clone(),
            identity: self.identity.clone(),
            on_missing: self.on_missing,
            syntax: self.syntax,
            skip: self.skip.clone(),
        }
    }
}

impl<R> fmt::Debug for Gate<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate")
            .field("limits", &self.limits)
            .field("limiter", &self.limiter)
            .field("identity", &self.identity)
            .field("headers", &self.syntax)
            .finish_non_exhaustive()
    }
}
