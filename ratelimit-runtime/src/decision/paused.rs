//! The key that the remote service pauses after a call.

use super::{Decision, LimiterId};
use crate::{
    key::KeyRef,
    policy::{Policy, Tier},
    request::DecidedBy,
    time::Timestamp,
};

impl Decision {
    /// Returns the key of a counted call, and a policy of its state, with the tier of the decision.
    pub(crate) fn paused(&self) -> Option<(KeyRef<'_>, Policy)> {
        let (key, receipt) = self.charge()?;
        let tier = Tier::new(self.period.into(), self.threshold);
        Some((key, receipt.state.policy(key.name.text(), tier).with_flags(self.flags)))
    }

    /// Returns the time of the call's charge by the clock of this limiter's store, if that has
    /// decided it.
    pub(crate) fn charged_at(&self, limiter: LimiterId) -> Option<Timestamp> {
        let receipt = self.receipt.as_ref()?;
        let is_known = receipt.limiter == limiter && self.decided_by == DecidedBy::Store;
        is_known.then_some(receipt.mark.at)
    }
}
