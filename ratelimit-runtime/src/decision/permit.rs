//! Permits of calls in flight, as decisions keep them.

use std::{
    future::{Future, ready},
    pin::Pin,
    sync::Arc,
    time::Duration,
};

/// The permit of a call in flight. It is free once the last clone of the decision is dropped. The permit of a call
/// that has waited is around its own, if it has one, and has the time waited.
pub(crate) trait Permit: Send + Sync {
    /// Returns `true` while the store counts the call as one in flight.
    fn is_held(&self) -> bool;

    /// Frees the permit already before it is dropped, and waits for the store, at most for its deadline.
    fn give_back(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(ready(()))
    }

    /// Settles what the call has taken beside its own charge.
    fn settle(&self, _to: u32) {}

    /// Returns the time for which the call has waited.
    fn waited(&self) -> Duration {
        Duration::ZERO
    }

    /// Returns a permit without effect that has the time waited; none if the call has not waited.
    fn wait_alone(&self) -> Option<Arc<dyn Permit>> {
        None
    }
}
