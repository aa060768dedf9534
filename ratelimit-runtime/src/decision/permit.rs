//! Permits of calls in flight, as decisions keep them.

use std::{future::ready, pin::Pin};

/// The permit of a call in flight. It is free once the last clone of the decision is dropped.
pub(crate) trait Permit: Send + Sync {
    /// Returns `true` while the store counts the call as one in flight.
    fn is_held(&self) -> bool;

    /// Frees the permit already before it is dropped, and waits for the store, at most for its deadline.
    fn give_back(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(ready(()))
    }
}
