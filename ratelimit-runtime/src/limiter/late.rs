//! The units and the permit of a call that was refused because Redis had not answered in time: they
//! are given back.

use std::sync::Arc;

use super::call::Call;
use crate::{
    background,
    decision::Decision,
    overrides::Effective,
    redis::LateReply,
    request::{OnStoreError, Op, Outcome, Request},
};

/// Returns `true` if the units of a call are given back. A repetition of a request id finds its
/// charge instead.
fn has_own_units(request: &Request<'_>) -> bool {
    request.id.is_none() && request.policy.has_window()
}

impl Call<'_> {
    /// Returns `true` if the call is refused without a reply, and is to have back what Redis counts
    /// later.
    pub(super) fn is_refused_late(self, effective: &Effective<'_>, request: Request<'_>) -> bool {
        let of_call = self.on_store_error(request.policy);
        let on_store_error = self.limiter.inner.backend.on_store_error(of_call);
        on_store_error == OnStoreError::Deny
            && !effective.is_dry_run()
            && request.op == Op::Take
            && (has_own_units(&request) || request.takes_permit())
    }

    /// Gives what a call has taken back once the reply says so.
    pub(super) fn give_back_late(
        self,
        effective: &Effective<'_>,
        request: Request<'_>,
        reply: LateReply,
    ) {
        // Weak: a reply that may never come keeps no limiter alive.
        let (limiter, call) = (Arc::downgrade(&self.limiter.inner), self.owned());
        let key = self.limiter.inner.backend.key(request.policy, self.caller);
        let (enforcement, changed) = (effective.enforcement, effective.changed.clone());
        let Request { max_wait, max_line, cost, id, .. } = request;
        background::start(async move {
            let written = &call.policy;
            // The same request once more, of parts that the task owns.
            let effective = Effective { written, enforcement, changed };
            let request = Request::new(effective.policy(), Op::Take, cost);
            let request = Request { written, id, max_wait, max_line, ..request };
            let give_back = |outcome: Outcome| {
                if let Some(limiter) = limiter.upgrade()
                    && outcome.admitted
                    && has_own_units(&request)
                {
                    let decision = Decision::counted(limiter.id, &call.caller, request, outcome);
                    decision.settle_as(0, written.has_block());
                }
            };
            reply.receive(&key, request, give_back).await;
        });
    }
}
