//! Background work without the feature `redis`: none. Limiters in memory decide each call at once.
//!
//! Floor 1: imports nothing.

pub(crate) fn start(_: impl Future<Output = ()> + Send + 'static) {}
