//! Calls that may wait under a policy without a line: each is decided again after a refusal.

use std::time::Duration;

use tokio::{
    sync::watch,
    time::{Instant, timeout_at},
};

use super::{admission::Admission, check::Call, permit::Decided, pipeline::PendingCall};
use crate::{
    decision::Answer,
    error::UnavailableReason,
    overrides::Effective,
    request::{Outcome, Request},
    telemetry::Recorder,
};

impl PendingCall {
    /// Decides the call. One that may wait is decided again after each refusal whose wait fits into
    /// `max_wait`, and as soon as an override changes its effective policy.
    pub(super) async fn run<A: Admission>(self) -> Answer<A> {
        let call = self.as_call();
        let overrides = call.limiter.overrides();
        // Subscribes before the first look-up, so that no change is missed.
        let mut changes = (!call.options.max_wait.is_zero()).then(|| overrides.changed());
        let recorder = Recorder::new(call.limiter.inner.is_instrumented, call.counters);
        let mut start = None;
        loop {
            let effective = call.effective();
            if let Some(answer) = call.answer_without_store(&effective, || None) {
                return answer;
            }
            let Some(changes) = changes.as_mut().filter(|_| call.may_wait(&effective)) else {
                // The deny cache was asked at the start of the call.
                let decided = call.decide(call.request(&effective)).await;
                return call.finish(&effective, recorder, decided);
            };
            let max_wait = call.options.max_wait;
            let waited = start.as_ref().map_or(Duration::ZERO, Instant::elapsed);
            let decided = call.attempt(&effective, max_wait.saturating_sub(waited)).await;
            let waited = start.get_or_insert_with(Instant::now).elapsed();
            let Some(wait) = wait_of(&decided.outcome).filter(|wait| waited + *wait <= max_wait)
            else {
                let decided = call.give_up(&effective, decided).await;
                return call.finish(&effective, recorder, decided);
            };
            call.wait(wait, &effective, changes).await;
        }
    }
}

impl Call<'_> {
    /// Decides the call without recording a refusal. The call may still be admitted; its recorded
    /// refusals would delay it and other waiting calls.
    async fn attempt(self, effective: &Effective<'_>, max_wait: Duration) -> Decided {
        let lenient = effective.policy().without_count_rejected();
        let request = Request { policy: &lenient, ..self.request(effective) };
        let backend = &self.limiter.inner.backend;
        match backend.cached_refusal(request, self.caller, max_wait) {
            Some(refusal) => Ok(refusal).into(),
            None => self.decide(request).await,
        }
    }

    /// Records the refusal that the attempts did not, under `count_rejected`.
    async fn give_up(self, effective: &Effective<'_>, decided: Decided) -> Decided {
        match decided.outcome {
            Ok(refused)
                if !refused.admitted
                    && !refused.is_busy
                    && effective.policy().counts_rejected() =>
            {
                self.decide(self.request(effective)).await
            }
            _ => decided,
        }
    }

    /// Sleeps for `wait`, or until an override changes the effective policy.
    async fn wait(
        self,
        wait: Duration,
        before: &Effective<'_>,
        changes: &mut watch::Receiver<u64>,
    ) {
        let end = Instant::now() + wait;
        while matches!(timeout_at(end, changes.changed()).await, Ok(Ok(()))) {
            let now = self.effective();
            if now.enforcement != before.enforcement || now.policy() != before.policy() {
                return;
            }
        }
    }
}

/// Returns the wait of a refused call; none if it found no permit free.
fn wait_of(outcome: &Result<Outcome, UnavailableReason>) -> Option<Duration> {
    let refused = outcome.as_ref().ok().filter(|outcome| !outcome.admitted && !outcome.is_busy)?;
    Some(Duration::from(refused.wait))
}
