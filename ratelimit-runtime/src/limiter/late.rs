//! A call that Redis is asked, and the reply that comes after the call was refused for want of it.

use std::{sync::Arc, time::Duration};

use tokio::time::{Instant, timeout_at};

use super::{Limiter, admission::Admission, backend::Decided, call::Call, owned_call::OwnedCall};
use crate::{
    background,
    decision::{Answer, CallEnd},
    error::UnavailableReason,
    overrides::{ChangedCall, Effective, Enforcement},
    request::{OnStoreError, Op},
    telemetry::Recorder,
};

/// The time for which a late reply is awaited.
const PATIENCE: Duration = Duration::from_secs(10);

/// A call that Redis is asked, with its limiter and the changes of its policy.
pub(super) struct AskedCall {
    pub(super) limiter: Limiter,
    pub(super) call: OwnedCall,
    pub(super) enforcement: Enforcement,
    pub(super) changed: Option<Box<ChangedCall>>,
}

impl Call<'_> {
    /// Returns `true` if the call is refused without a reply in time, and is to have back what Redis counts later.
    /// A repetition of a request id finds its charge instead.
    pub(super) fn gives_back_late(self, effective: &Effective<'_>) -> bool {
        let of_call = self.on_store_error(effective.policy());
        let is_refused = self.limiter.inner.backend.on_store_error(of_call) == OnStoreError::Deny;
        is_refused
            && !effective.is_dry_run()
            && self.options.id.is_none()
            && self.options.op == Op::Take
    }
}

impl AskedCall {
    fn parts(&self) -> (Call<'_>, Effective<'_>) {
        let Self { limiter, call, enforcement, changed } = self;
        let effective = Effective {
            written: &call.policy,
            enforcement: *enforcement,
            changed: changed.clone(),
        };
        (call.of(limiter), effective)
    }

    /// Asks Redis. The reply is awaited for as long as the patience, if that is longer than the deadline.
    pub(super) async fn decide(&self, asked: Instant, patience: Duration) -> Decided {
        let (call, effective) = self.parts();
        call.decide(call.request(&effective), asked, patience).await
    }

    /// Asks Redis. A call that is refused because no reply comes in time has back what Redis has counted, once the
    /// reply says so.
    pub(super) async fn decide_or_give_back(self: &Arc<Self>, asked: Instant) -> Decided {
        let Some(redis) = self.limiter.inner.backend.redis() else {
            return self.decide(asked, Duration::ZERO).await;
        };
        let it = Arc::clone(self);
        let deciding = async move { it.decide(asked, PATIENCE).await };
        // Its runtime may end before the reply comes.
        let mut deciding = Box::pin(background::with_timers(deciding));
        if let Ok(decided) = timeout_at(asked + redis.deadline(), &mut deciding).await {
            return decided;
        }
        let it = Arc::clone(self);
        background::spawn(async move {
            let (outcome, (call, effective)) = (deciding.await.outcome, it.parts());
            if let Ok(outcome) = outcome
                && outcome.admitted
            {
                call.decision(&effective, &outcome).settle_as(0, call.policy.has_block());
            }
        });
        Err(UnavailableReason::DeadlineExceeded).into()
    }

    pub(super) fn finish<A: Admission>(&self, recorder: Recorder, decided: Decided) -> Answer<A> {
        let (call, effective) = self.parts();
        call.finish(&effective, recorder, &decided.outcome, decided.permit, CallEnd::default())
    }
}
