//! The one loop of the pipeline: a call that may wait for its place is decided again.

use std::{borrow::Cow, time::Duration};

use tokio::{
    sync::watch,
    time::{Instant, timeout_at},
};

use super::{Asked, Course, Limiter, Terms, course::Answer};
use crate::{
    caller::Caller,
    error::UnavailableReason,
    request::{Outcome, Request},
    telemetry::Timer,
};

impl Limiter {
    /// Decides a call. One that may wait is decided again after each refusal whose wait fits, and as
    /// soon as other overrides hold for it.
    pub(crate) async fn decide_call(
        &self,
        asked: Asked<'_>,
        is_judged: bool,
        caller: Cow<'_, Caller>,
        terms: Terms,
    ) -> Answer {
        let begun = Timer::now();
        let may_wait = !terms.max_wait.is_zero();
        // Before overrides are looked up for the first time, so that no change is missed.
        let mut changes = may_wait.then(|| self.overrides().subscribe());
        let mut start = None;
        loop {
            let effective = self.effective(&asked);
            let course = self.course(asked, &effective);
            if let Some(answer) = course.undecided(is_judged, || self.pseudonym(&caller)) {
                return answer;
            }
            // A dry run lets every call pass, and so lets none wait.
            let Some(changes) = changes.as_mut().filter(|_| effective.refuses()) else {
                let outcome = self.decide(&caller, course.request, terms.without_wait()).await;
                return course.finish(begun, caller, outcome);
            };
            let left = terms.less(start.as_ref().map_or(Duration::ZERO, Instant::elapsed));
            let outcome = course.attempt(&caller, left).await;
            let waited = start.get_or_insert_with(Instant::now).elapsed();
            let wait = wait_of(&outcome).filter(|wait| waited + *wait <= terms.max_wait);
            let Some(wait) = wait else {
                let outcome = course.give_up(&caller, terms, outcome).await;
                return course.finish(begun, caller, outcome);
            };
            course.wait(wait, asked, changes).await;
        }
    }
}

impl Course<'_> {
    /// Asks for a place. A refusal is not recorded: the call may still be admitted, and would
    /// otherwise stand in the way of others that wait, and in its own.
    async fn attempt(&self, caller: &Caller, terms: Terms) -> Result<Outcome, UnavailableReason> {
        let lenient = self.policy().without_count_rejected();
        let request = Request { policy: &lenient, ..self.request };
        self.limiter.decide(caller, request, terms).await
    }

    /// Has the refusal recorded that the call's attempts were not, where refusals are.
    async fn give_up(
        &self,
        caller: &Caller,
        terms: Terms,
        outcome: Result<Outcome, UnavailableReason>,
    ) -> Result<Outcome, UnavailableReason> {
        match outcome {
            Ok(refused) if !refused.admitted && self.policy().counts_rejected() => {
                self.limiter.decide(caller, self.request, terms.without_wait()).await
            }
            other => other,
        }
    }

    /// Waits so long, or until other overrides hold for the call.
    async fn wait(&self, wait: Duration, asked: Asked<'_>, changes: &mut watch::Receiver<()>) {
        let end = Instant::now() + wait;
        while matches!(timeout_at(end, changes.changed()).await, Ok(Ok(()))) {
            let now = self.limiter.effective(&asked);
            if now.enforcement != self.enforcement || now.policy() != self.policy() {
                return;
            }
        }
    }
}

/// How long a refused call has to wait.
fn wait_of(outcome: &Result<Outcome, UnavailableReason>) -> Option<Duration> {
    let refused = outcome.as_ref().ok().filter(|outcome| !outcome.admitted)?;
    Some(Duration::from(refused.wait))
}
