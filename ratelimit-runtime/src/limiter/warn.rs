//! Warnings of callers who have used most of a limit: once for each caller and period, over the
//! fleet.
//!
//! A warning is itself a limit of one call a period, which is asked below the pipeline: nothing
//! records it.

use std::time::Duration;

use ratelimit_core::{Algorithm, rules::units_left};
use tokio::time::Instant;

use super::{Limiter, call::Call, owned_call::Options, warning::Warning};
use crate::{
    background,
    caller::Caller,
    decision::Decision,
    error::Replied,
    overrides::Effective,
    policy::Policy,
    request::{Op, Outcome, OutcomeKind, Request},
    telemetry,
};

/// Returns the limit of one warning, and the caller under it.
pub(super) fn limit_of(policy: &Policy, period: Duration, caller: &Caller) -> (Policy, Caller) {
    let mut of_policy = Caller::from(policy.name());
    of_policy.append(caller);
    let algorithm = match policy.calendar_unit() {
        Some(_) => Algorithm::CalendarWindow,
        None => Algorithm::FixedWindow,
    };
    let limit = Policy::new("ratelimit_runtime::warned", algorithm, period, 1);
    (policy.get_zone().map_or(limit, |zone| limit.zone(zone)), of_policy)
}

impl Call<'_> {
    /// Warns of the caller if this admitted call has reached the mark. On Redis, a task does it.
    pub(super) fn warn(self, effective: &Effective<'_>, outcome: &Outcome) {
        let (policy, mut outcome) = (effective.whole(), *outcome);
        effective.add_share(&mut outcome);
        let tier = policy.tier_of(outcome.tier);
        let (quota, percent) = (policy.quota_of(tier), self.options.warn_at);
        let mark = quota - units_left(quota, percent);
        let is_reached = outcome.remaining <= mark;
        let Options { op, cost, .. } = *self.options;
        let is_charged = op == Op::Take
            && cost > 0
            && outcome.decided_by.counts()
            // A repetition of a request id takes nothing, and so reaches no mark.
            && outcome.kind != OutcomeKind::Repeated;
        if !is_reached || !is_charged || effective.is_dry_run() || !self.limiter.warns() {
            return;
        }
        let (limit, of_policy) = limit_of(policy, tier.period(), self.caller);
        let (backend, on_store_error) = (&self.limiter.inner.backend, self.on_store_error(policy));
        let decision = Decision::new(policy, outcome);
        let warning = Warning { percent, caller: self.caller.clone(), decision };
        let request = Request::new(&limit, Op::Take, 1);
        // The deny cache may have the refusal of a warning from before another process has reset
        // the caller.
        let has_crossed = outcome.remaining.saturating_add(cost) > mark;
        if !(has_crossed && backend.redis().is_some())
            && let Some(decided) = backend.decide_now(request, &of_policy, on_store_error)
        {
            return self.limiter.on_warned(&warning, decided);
        }
        let limiter = self.limiter.clone();
        background::start(async move {
            let (backend, now) = (&limiter.inner.backend, Instant::now());
            let request = Request::new(&limit, Op::Take, 1);
            let decided =
                backend.decide(request, &of_policy, now, on_store_error, None).await.outcome;
            limiter.on_warned(&warning, decided);
        });
    }
}

impl Limiter {
    /// Returns `true` if anybody receives warnings.
    pub(super) fn warns(&self) -> bool {
        self.inner.is_instrumented || self.inner.on_warning.is_some()
    }

    /// Tells of a warning that is the first one of its period.
    fn on_warned(&self, warning: &Warning, decided: Replied<Outcome>) {
        if !decided.is_ok_and(|outcome| outcome.admitted && outcome.decided_by.counts()) {
            return;
        }
        if self.inner.is_instrumented {
            let digest = || self.caller_digest(&warning.caller);
            telemetry::warned(&warning.decision, warning.percent, digest);
        }
        if let Some(call) = &self.inner.on_warning {
            call(warning.clone());
        }
    }
}
