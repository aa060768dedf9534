//! Settling: a change of the units that an admitted call took. A refund settles it at 0 units.

use ratelimit_core::rules;

use super::{Inner, backend::Backend};
use crate::{
    decision::{Decision, Settler},
    error::{RateLimitError, Unavailable},
    policy::InvalidPolicy,
    redis::Content,
};

impl Backend {
    /// Settles a call at `to` units, unless it is settled already or another task is about to.
    pub(super) async fn settle(&self, decision: &Decision, to: u32) -> Result<(), RateLimitError> {
        validate(decision, to)?;
        let Some((key, receipt)) = decision.charge() else { return Ok(()) };
        let Some(mut guard) = receipt.claim(to, self.redis().is_some()) else { return Ok(()) };
        decision.settle_others(guard.to);
        let settle = decision.change(receipt, &guard);
        if settle.from != settle.to
            && let Some((redis, key)) = self.settle_here(key, settle, decision.decided_by())
        {
            let settled = redis.settle(&key, settle).await;
            settled.map_err(|reason| Unavailable::new(decision.policy(), reason))?;
        }
        guard.release = false;
        Ok(())
    }

    /// Settles a call at `to` units, without waiting for Redis.
    fn post(&self, decision: &Decision, to: u32) -> Result<(), InvalidPolicy> {
        validate(decision, to)?;
        let Some((key, receipt)) = decision.charge() else { return Ok(()) };
        let Some(mut guard) = receipt.claim(to, self.redis().is_some()) else { return Ok(()) };
        decision.settle_others(guard.to);
        guard.release = false;
        let settle = decision.change(receipt, &guard);
        if settle.from != settle.to
            && let Some((redis, key)) = self.settle_here(key, settle, decision.decided_by())
        {
            redis.post(key, Content::Settle(settle));
        }
        Ok(())
    }
}

impl Settler for Inner {
    fn settle(&self, decision: &Decision, to: u32) {
        match self.backend.post(decision, to) {
            // On Redis the calls that wait come nearer once the settle has arrived there.
            Ok(()) if self.backend.memory().is_some() => self.hurry_after(decision, to),
            Ok(()) => {}
            Err(error) => self.notices.invalid_policy(&error),
        }
    }
}

impl Inner {
    /// Tells the calls that wait of a call that is settled at fewer units.
    pub(super) fn hurry_after(&self, decision: &Decision, to: u32) {
        if !self.lines.is_empty()
            && let Some((key, receipt)) = decision.charge()
            && to < receipt.cost
        {
            self.lines.hurry(key);
        }
    }
}

/// Validates that the call can take so many units: a log of single units takes no more of them later.
fn validate(decision: &Decision, to: u32) -> Result<(), InvalidPolicy> {
    let Some((key, receipt)) = decision.charge() else { return Ok(()) };
    match rules::settle_violation(key.state.is_log_of_units(), receipt.cost, to) {
        Some(fault) => Err(InvalidPolicy::new(decision.policy(), fault)),
        None => Ok(()),
    }
}
