//! A policy whose numbers an operator has multiplied.

use super::{InvalidPolicy, Policy, StateKind, Tier};

impl Policy {
    /// Returns this policy with its numbers multiplied by a factor in thousandths, and rounded up. Periods stay.
    ///
    /// # Errors
    ///
    /// `InvalidPolicy` if a number becomes too large.
    pub(crate) fn scaled(&self, thousandths: u32) -> Result<Self, InvalidPolicy> {
        let policy = self.times(thousandths);
        policy.validate_shape().map(|()| policy)
    }

    /// Returns the same without validation.
    pub(super) fn times(&self, thousandths: u32) -> Self {
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
}
