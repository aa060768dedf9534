//! Settling: a change of the units that an admitted call took. A refund settles it to 0 units.

use ratelimit_core::Algorithm;

use super::backend::Backend;
use crate::{
    decision::Decision,
    error::{RateLimitError, Unavailable},
};

impl Backend {
    /// Refunds a call, unless it is refunded already or another task is about to.
    pub(super) async fn refund(&self, decision: &Decision) -> Result<(), RateLimitError> {
        let Some((key, receipt)) = decision.charge() else { return Ok(()) };
        let Some(mut guard) = receipt.claim() else { return Ok(()) };
        // A log refunds its entries by their ids: entries that are gone are not refunded again.
        let on_send = || guard.release = key.algorithm == Algorithm::SlidingWindow;
        let refund = self.settle_units(key, receipt, 0, on_send).await;
        guard.release &= refund.is_err();
        refund.map_err(|reason| Unavailable::new(decision.policy(), reason).into())
    }
}
