//! The faults of calls that are refused for ever, though their policy is none to repair.

use super::PolicyFault;

impl PolicyFault {
    /// Returns `true` if the policy can be stored and peeked at, but can never admit this call.
    #[must_use]
    pub fn can_never_admit(self) -> bool {
        matches!(
            self,
            Self::ThresholdZero
                | Self::BurstZero
                | Self::CostZero
                | Self::CostOverThreshold { .. }
                | Self::CostOverBurst { .. }
                | Self::CostOverLeasedBucket { .. }
                | Self::ConcurrencyZero
                | Self::LeaveTooLarge { .. }
                | Self::LeavesNothing { .. }
                | Self::CostOverUsable { .. }
        )
    }
}
