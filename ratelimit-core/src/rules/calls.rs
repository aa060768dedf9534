//! The rule of request ids under a valid policy.

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
