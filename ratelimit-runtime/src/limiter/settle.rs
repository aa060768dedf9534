//! Settling: a change of the units that an admitted call took. A refund settles it at 0 units.

use super::{Inner, backend::Backend};
use crate::{
    decision::{Decision, SettleGuard, Settler},
    error::{RateLimitError, Unavailable},
    key::KeyRef,
    redis::Content,
    request::Settle,
};

impl Backend {
    /// Settles a call at `to` units, unless it is settled already or another task is about to.
    pub(super) async fn settle(
        &self,
        decision: &Decision,
        to: u32,
        lifts_block: bool,
    ) -> Result<(), RateLimitError> {
        let claimed = self.claim(decision, to, lifts_block);
        let Some((key, settle, mut guard)) = claimed else { return Ok(()) };
        if settle.from != settle.to
            && let Some((redis, key)) = self.settle_here(key, &settle, decision.decided_by())
        {
            let settled = redis.settle(&key, settle).await;
            settled.map_err(|reason| Unavailable::new(decision.policy(), reason))?;
        }
        // After a failure, the guard releases its claim: the call can be settled once more.
        guard.release = false;
        Ok(())
    }

    /// Settles a call at `to` units, without waiting for Redis.
    fn post(&self, decision: &Decision, to: u32, lifts_block: bool) {
        let claimed = self.claim(decision, to, lifts_block);
        let Some((key, settle, mut guard)) = claimed else { return };
        // The outbox sends the command again if it has to: nobody else may settle the call.
        guard.release = false;
        if settle.from != settle.to
            && let Some((redis, key)) = self.settle_here(key, &settle, decision.decided_by())
        {
            redis.post(key, Content::Settle(settle));
        }
    }

    /// Claims the settle of a call at `to` units, unless it has no charge, is settled already, or
    /// another task is about to settle it.
    #[inline]
    fn claim<'d>(
        &self,
        decision: &'d Decision,
        to: u32,
        lifts_block: bool,
    ) -> Option<(KeyRef<'d>, Settle, SettleGuard<'d>)> {
        let (key, receipt) = decision.charge()?;
        let guard = receipt.claim(to, self.redis().is_some())?;
        decision.settle_candidate(guard.to);
        Some((key, Settle { lifts_block, ..decision.change(receipt, &guard) }, guard))
    }
}

impl Settler for Inner {
    fn settle(&self, decision: &Decision, to: u32, lifts_block: bool) {
        self.backend.post(decision, to, lifts_block);
        // On Redis the calls that wait come nearer once the settle has arrived there.
        if self.backend.memory().is_some() {
            self.hurry_after(decision, to);
        }
    }
}

impl Inner {
    /// Lets the calls that wait ask for nearer turns after a call is settled at fewer units.
    #[inline]
    pub(super) fn hurry_after(&self, decision: &Decision, to: u32) {
        if !self.queues.is_empty()
            && let Some((key, receipt)) = decision.charge()
            && to < receipt.cost
        {
            self.queues.hurry(key);
        }
    }
}
