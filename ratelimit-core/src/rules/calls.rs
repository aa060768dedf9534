//! The rules of calls under a valid policy.

use crate::{Algorithm, PolicyFault};

/// Returns the rule that a request id breaks. An id needs an algorithm that keeps an entry for each
/// admitted call, and no recorded refusals.
#[must_use]
pub fn request_id_violation(algorithm: Algorithm, count_rejected: bool) -> Option<PolicyFault> {
    match algorithm {
        Algorithm::SlidingWindow => {
            count_rejected.then_some(PolicyFault::RequestIdWithCountRejected)
        }
        algorithm => Some(PolicyFault::RequestIdWithoutLog { algorithm }),
    }
}

/// Returns the rule that a wait breaks. A log of single units has no line.
#[must_use]
pub fn wait_violation(is_log_of_units: bool) -> Option<PolicyFault> {
    is_log_of_units.then_some(PolicyFault::WaitInLogOfUnits)
}

/// Returns the rule that a settle breaks. A log of single units takes no more of them later.
#[must_use]
pub fn settle_violation(is_log_of_units: bool, cost: u32, actual: u32) -> Option<PolicyFault> {
    let is_above = is_log_of_units && actual > cost;
    let (cost, actual) = (cost.into(), actual.into());
    is_above.then_some(PolicyFault::SettleAboveCost { cost, actual })
}
