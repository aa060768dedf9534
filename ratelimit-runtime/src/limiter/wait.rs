//! The one loop of the pipeline: a check that may wait is decided again.

use std::time::Duration;

use tokio::{
    sync::watch,
    time::{Instant, timeout_at},
};

use super::{
    check::{Check, Options},
    pipeline::{Admission, PendingCheck},
};
use crate::{
    decision::Answer,
    error::UnavailableReason,
    overrides::Effective,
    request::{Outcome, Request},
    telemetry::Timer,
};

impl PendingCheck {
    /// Decides the call. One that may wait is decided again after each refusal whose wait fits into
    /// `max_wait`, and as soon as an override changes its effective policy.
    pub(super) async fn run<A: Admission>(self) -> Answer<A> {
        let check = self.as_check();
        let overrides = check.limiter.overrides();
        // Subscribes before the first look-up, so that no change is missed.
        let mut changes = (!check.options.max_wait.is_zero()).then(|| overrides.changed());
        let timer = Timer::start(check.limiter.inner.is_instrumented);
        let mut start = None;
        loop {
            let effective = check.effective();
            if let Some(answer) = check.answer_without_store(&effective) {
                return answer;
            }
            let Some(changes) = changes.as_mut().filter(|_| check.may_wait(&effective)) else {
                let outcome = check.decide(check.request(&effective), Duration::ZERO).await;
                return check.finish(&effective, timer, outcome);
            };
            let max_wait = check.options.max_wait;
            let waited = start.as_ref().map_or(Duration::ZERO, Instant::elapsed);
            let outcome = check.attempt(&effective, max_wait.saturating_sub(waited)).await;
            let waited = start.get_or_insert_with(Instant::now).elapsed();
            let Some(wait) = wait_of(&outcome).filter(|wait| waited + *wait <= max_wait) else {
                let outcome = check.give_up(&effective, outcome).await;
                return check.finish(&effective, timer, outcome);
            };
            check.wait(wait, &effective, changes).await;
        }
    }
}

impl Check<'_> {
    async fn decide(
        &self,
        request: Request<'_>,
        max_wait: Duration,
    ) -> Result<Outcome, UnavailableReason> {
        let options = Options { max_wait, ..self.options };
        self.limiter.inner.backend.decide(request, &self.caller, options).await
    }

    /// Decides the call without recording a refusal. The call may still be admitted; its recorded
    /// refusals would delay it and other waiting calls.
    async fn attempt(
        &self,
        effective: &Effective<'_>,
        max_wait: Duration,
    ) -> Result<Outcome, UnavailableReason> {
        let lenient = effective.policy().without_count_rejected();
        let request = Request { policy: &lenient, ..self.request(effective) };
        self.decide(request, max_wait).await
    }

    /// Records the refusal that the attempts did not, under `count_rejected`.
    async fn give_up(
        &self,
        effective: &Effective<'_>,
        outcome: Result<Outcome, UnavailableReason>,
    ) -> Result<Outcome, UnavailableReason> {
        match outcome {
            Ok(refused) if !refused.admitted && effective.policy().counts_rejected() => {
                self.decide(self.request(effective), Duration::ZERO).await
            }
            other => other,
        }
    }

    /// Sleeps for `wait`, or until an override changes the effective policy.
    async fn wait(
        &self,
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

/// Returns the wait of a refused call.
fn wait_of(outcome: &Result<Outcome, UnavailableReason>) -> Option<Duration> {
    let refused = outcome.as_ref().ok().filter(|outcome| !outcome.admitted)?;
    Some(Duration::from(refused.wait))
}
