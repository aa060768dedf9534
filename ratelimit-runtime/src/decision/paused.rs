//! The key that the remote service pauses after a call.

use std::time::Duration;

use super::Decision;
use crate::{
    key::KeyRef,
    policy::{Policy, Tier},
    request::DecidedBy,
    time::Timestamp,
};

/// A lease that a policy may have; any is refused.
const LEASE: Duration = Duration::from_millis(1);

impl Decision {
    /// Returns the key of a counted call, a policy of its state, and the time of its charge.
    pub(crate) fn paused(&self) -> Option<(KeyRef<'_>, Policy, Timestamp)> {
        let (key, receipt) = self.charge()?;
        let tier = Tier::new(self.period.into(), self.threshold);
        let policy = receipt.state.policy(key.name.text(), tier);
        let is_leased = self.decided_by == DecidedBy::Lease;
        let policy = if is_leased { policy.lease(LEASE) } else { policy };
        Some((key, policy, receipt.mark.at))
    }
}
