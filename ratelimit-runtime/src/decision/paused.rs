//! The key that the remote service pauses after a call.

use std::time::Duration;

use super::{Decision, LimiterId};
use crate::{
    key::KeyRef,
    policy::{Policy, Tier},
    request::DecidedBy,
    time::Timestamp,
};

/// A length of a lease or a block that a policy may have; any is refused.
const ANY: Duration = Duration::from_millis(1);

impl Decision {
    /// Returns the key of a counted call, and a policy of its state: with the tier of the decision, and with what
    /// forbids a pause.
    pub(crate) fn paused(&self) -> Option<(KeyRef<'_>, Policy)> {
        let (key, receipt) = self.charge()?;
        let tier = Tier::new(self.period.into(), self.threshold);
        let mut policy = receipt.state.policy(key.name.text(), tier);
        if self.flags.counts_rejected() {
            policy = policy.count_rejected();
        }
        if self.is_leased {
            policy = policy.lease(ANY);
        }
        if self.has_block {
            policy = policy.block(&[ANY]);
        }
        Some((key, policy))
    }

    /// Returns the time of the call's charge by the clock of this limiter's store, if that has decided it.
    pub(crate) fn charged_at(&self, limiter: LimiterId) -> Option<Timestamp> {
        let receipt = self.receipt.as_ref()?;
        let is_known = receipt.limiter == limiter && self.decided_by == DecidedBy::Store;
        is_known.then_some(receipt.mark.at)
    }
}
