//! Permits of calls in flight, as decisions keep them.

use std::{
    future::{Future, ready},
    pin::Pin,
    sync::Arc,
    time::Duration,
};

/// The permit of a call in flight. It is free once the last clone of the decision is dropped. A call
/// that has waited has one without effect around its own, which tells for how long.
pub trait Permit: Send + Sync {
    /// Returns `true` while the store counts the call as one in flight.
    fn is_held(&self) -> bool;

    /// Frees the permit already before it is dropped, and waits for the store, at most for its deadline.
    fn give_back(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(ready(()))
    }

    /// Returns the time for which the call has waited.
    fn waited(&self) -> Duration {
        Duration::ZERO
    }

    /// Returns a permit without effect that tells how long the call has waited; none if it has not.
    fn wait_alone(&self) -> Option<Arc<dyn Permit>> {
        None
    }
}
