//! The numbers of a caller's usage, as a store knows them.

use super::Outcome;
use crate::time::Micros;

/// The usage of a policy by one caller.
pub(crate) struct CallerUsage {
    /// The outcomes of looks at each tier by itself.
    pub(crate) tiers: Vec<Outcome>,
    /// The permits that are free.
    pub(crate) free: u32,
    /// The time for which the caller is still blocked.
    pub(crate) blocked: Micros,
}
