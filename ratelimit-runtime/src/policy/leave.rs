//! The policy that decides a call which leaves a share of its limit to others.

use ratelimit_core::rules;

use super::{Policy, StateKind, Tier};

impl Policy {
    /// Returns all numbers that decide about one unit under a policy of one tier.
    #[inline(always)]
    pub(crate) fn numbers_of_one_tier(&self) -> [u64; 3] {
        let Self { tiers: [Tier { period, threshold, .. }, ..], burst, share, state, .. } = *self;
        let burst = burst.unwrap_or_default();
        let quota = u64::from(threshold) << 32 | u64::from(burst);
        // A policy that records refusals has none that is kept.
        let kind = u64::from(self.counts_rejected()) << 16 | u64::from(share) << 8 | state as u64;
        [period, quota, kind]
    }

    /// Returns the policy that admits a call only if this share of each tier and of the permits is left after
    /// it, in percent.
    ///
    /// A window has a lower threshold. A bucket keeps its rate and its size, and has the share in place of a
    /// lease: one of a lower size would give what it refills to the others.
    pub(crate) fn leaving(&self, share: u8) -> Self {
        let usable = |quota| quota - rules::units_left(quota, share);
        let mut policy = Self { share, ..*self };
        policy.concurrency = self.concurrency.map(usable);
        if self.state == StateKind::TokenBucket {
            policy.lease = None;
            return policy;
        }
        for tier in &mut policy.tiers {
            tier.threshold = usable(tier.threshold);
        }
        policy.largest_threshold = usable(self.largest_threshold);
        policy
    }

    /// Returns the tokens of a full bucket of this tier that a call under the policy leaves.
    #[inline]
    pub(crate) fn tokens_left(&self, tier: Tier) -> u32 {
        match self.share {
            0 => 0,
            share => rules::units_left(self.written_bucket_size(tier), share),
        }
    }
}
