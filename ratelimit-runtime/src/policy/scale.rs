//! A policy whose numbers an operator has multiplied.

use super::{InvalidPolicy, Policy, Tier};

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
        let times = |number: u32| {
            let scaled = (u64::from(number) * u64::from(thousandths)).div_ceil(1_000);
            u32::try_from(scaled).unwrap_or(u32::MAX)
        };
        let tiers: Vec<_> =
            self.tiers().iter().map(|it| Tier::new(it.period(), times(it.threshold()))).collect();
        // Calls under other numbers ask the store.
        let mut policy = self.without_lease().with_tiers(&tiers);
        policy.burst = self.burst.map(times);
        policy.concurrency = self.concurrency.map(times);
        policy.checked()
    }
}
