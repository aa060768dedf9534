//! The text of a policy in logs and tests.

use std::fmt;

use super::Policy;

impl fmt::Debug for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Policy")
            .field("name", &self.name())
            .field("algorithm", &self.algorithm())
            .field("tiers", &self.tiers())
            .field("burst", &self.burst)
            .field("count_rejected", &self.counts_rejected())
            .field("concurrency", &self.concurrency)
            .field("lease", &self.get_lease())
            .field("block", &self.get_block().collect::<Vec<_>>())
            .field("unit", &self.get_quota_unit())
            .finish_non_exhaustive()
    }
}
