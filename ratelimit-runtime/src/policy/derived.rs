//! The quotas of a policy, and the policies that are derived from it: scaled, shared out, or
//! leaving a share.

use ratelimit_core::rules;

use super::{BucketRate, InvalidPolicy, LocalShare, Policy, StateKind, Tier};

impl Policy {
    /// Returns the units of this tier's full quota: the tokens of a full bucket without those that
    /// are left to others, or the threshold.
    #[inline]
    pub(crate) fn quota_of(&self, tier: Tier) -> u32 {
        match self.burst_of(tier) {
            Some(burst) => burst - self.tokens_left(tier),
            None => tier.threshold(),
        }
    }

    /// Returns the units that come free during a lease, of the tier with the fewest; `None` without
    /// a lease.
    pub(crate) fn units_of_lease(&self) -> Option<u64> {
        let lease = self.lease_micros()?;
        self.tiers().iter().map(|tier| tier.refilled(lease)).min()
    }

    /// Returns the rate and size of this tier as a token bucket.
    pub(crate) fn bucket(&self, tier: Tier) -> BucketRate {
        tier.bucket(self.bucket_size(tier))
    }

    /// Returns the tokens of a full bucket of this tier, if the policy has buckets.
    #[inline]
    pub(crate) fn burst_of(&self, tier: Tier) -> Option<u32> {
        matches!(self.state, StateKind::TokenBucket).then(|| self.bucket_size(tier))
    }

    /// Returns the tokens of a full bucket of this tier, without regard to a lease.
    pub(crate) fn written_bucket_size(&self, tier: Tier) -> u32 {
        self.burst.unwrap_or(tier.threshold())
    }

    /// Returns the tokens of a full bucket of this tier, as far as calls under the policy may take
    /// them.
    #[inline]
    pub(crate) fn bucket_size(&self, tier: Tier) -> u32 {
        let written = self.written_bucket_size(tier);
        match self.lease_micros() {
            None => written,
            Some(lease) => {
                let refilled = u32::try_from(tier.refilled(lease)).unwrap_or(u32::MAX);
                written.saturating_sub(refilled)
            }
        }
    }

    /// Returns the tokens of a full bucket of this tier that a call under the policy leaves.
    #[inline]
    pub(crate) fn tokens_left(&self, tier: Tier) -> u32 {
        match self.share {
            0 => 0,
            share => rules::units_left(self.written_bucket_size(tier), share),
        }
    }

    /// Returns the policy that admits a call only if this share of each tier and of the permits is
    /// left after it, in percent.
    ///
    /// A window has a lower threshold. A bucket keeps its rate and its size, and has the share in
    /// place of a lease: one of a lower size would give what it refills to the others.
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

    /// Returns this policy with its numbers multiplied by a factor in thousandths, and rounded up.
    /// Periods stay.
    ///
    /// # Errors
    ///
    /// `InvalidPolicy` if a number becomes too large.
    pub(crate) fn scaled(&self, thousandths: u32) -> Result<Self, InvalidPolicy> {
        let policy = self.times(thousandths);
        policy.validate_shape().map(|()| policy)
    }

    /// Returns the same without validation.
    fn times(&self, thousandths: u32) -> Self {
        let product = |number: u32| u64::from(number) * u64::from(thousandths);
        let capped = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        let times = |number: u32| capped(product(number).div_ceil(1_000));
        // Beside a share that is left, a part of a unit would be one of the share.
        let usable = |number: u32| match self.share {
            0 => times(number),
            _ => capped(product(number) / 1_000),
        };
        let is_bucket = self.state == StateKind::TokenBucket;
        let of_tier = |number: u32| if is_bucket { times(number) } else { usable(number) };
        let tiers: Vec<_> =
            self.tiers().iter().map(|it| Tier::new(it.period(), of_tier(it.threshold()))).collect();
        // Calls under other numbers ask the store.
        let mut policy = self.without_lease().with_tiers(&tiers);
        policy.burst = self.burst.map(times);
        policy.concurrency = self.concurrency.map(usable);
        policy.checked()
    }

    /// Returns the policy under which this process decides alone; none if it never admits a call of
    /// this cost. A tier that can never refuse is no fault here.
    pub(crate) fn shared_out(&self, share: LocalShare, cost: u32) -> Option<Self> {
        let policy = self.times(u32::from(share.percent()) * 10);
        let fits = policy.tiers().iter().all(|tier| cost <= policy.quota_of(*tier));
        // Of few permits none is left beside those of others.
        let has_permit = cost == 0 || policy.concurrency != Some(0);
        (fits && has_permit).then_some(policy)
    }

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
}
